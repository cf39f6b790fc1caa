"""The verdict itself under test: it must report changes behind the log's back."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import make_url

from gobblin_assets.model.extract import Mode
from tests.support.lake import JOB, Lake, World
from tests.torture.observer import Connection, Observer, Remembered, Subject
from tests.torture.row_history import RowDestination, check_rows
from tests.torture.row_watch import RowWatch
from tests.torture.tally import Tally

URN = "orders"
SUBJECT = Subject(JOB, URN)
NOTHING_SEEN = Remembered({}, {})


@pytest.fixture
def world(database_url: str, tmp_path: Path) -> Iterator[World]:
    lake = Lake(database_url, str(tmp_path), urns=(URN,))
    Path(lake.root).mkdir()
    opened = World(lake)
    for _ in range(2):
        lake.add_rows(URN, 13)
        opened.run()
    # Every torture has files that a refresh replaced.
    opened.run(mode=Mode.REFRESH)
    yield opened
    opened.close()


def connect_to(database_url: str) -> Callable[[], Connection]:
    url = make_url(database_url)
    text = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return lambda: psycopg.connect(text, autocommit=True)


def differences(world: World, seen: Remembered = NOTHING_SEEN) -> str:
    lake = world.lake
    destination = RowDestination(
        job=JOB,
        work=Path(lake.root, JOB),
        events=lake.events,
        acknowledged=lake.acknowledged,
        root=Path(lake.root),
        sources={SUBJECT: Counter(lake.source_rows(URN))},
    )
    tally = Tally()
    check_rows(connect_to(world.lake.database_url), [destination], seen, tally)
    return "\n".join(tally.violations)


def change(world: World, statement: str) -> None:
    with connect_to(world.lake.database_url)() as connection:
        connection.execute(statement.encode())


def a_file_is_gone(world: World) -> None:
    Path(world.published_paths(URN)[0]).unlink()


def a_file_stands_twice(world: World) -> None:
    path = Path(world.published_paths(URN)[0])
    (path.parent / "copy.parquet").write_bytes(path.read_bytes())


def change_rows(path: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Put another file in its place, at once."""
    changed = Path(f"{path}.changed")
    pq.write_table(change(pq.ParquetFile(path).read()), changed)
    changed.replace(path)


def drop_a_row(table: pa.Table) -> pa.Table:
    return table.slice(1)


def double_a_row(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 1)])


def a_row_is_lost(world: World) -> None:
    change_rows(world.published_paths(URN)[0], drop_a_row)


def a_row_is_doubled(world: World) -> None:
    change_rows(world.published_paths(URN)[0], double_a_row)


def a_row_is_unpublished(world: World) -> None:
    world.lake.add_rows(URN, 1)


def a_sequence_is_open(world: World) -> None:
    change(world, "UPDATE gobblin.commit_sequence SET state = 'PREPARED', result_version = NULL WHERE mode = 'append'"
                  " AND result_version = 2")  # fmt: skip


def the_watermark_went_back(world: World) -> None:
    change(world, """UPDATE gobblin.watermark_key SET watermark = jsonb_set(watermark, '{value}', '"7"')""")


def a_version_is_missing(world: World) -> None:
    change(world, "UPDATE gobblin.commit_sequence SET result_version = 9 WHERE result_version = 2")


def staging_is_left(world: World) -> None:
    Path(world.lake.root, JOB, ".staging", "somebody").mkdir()


def an_event_was_never_sent(world: World) -> None:
    events = Path(world.lake.directory, "events.log")
    events.write_text("".join(events.read_text(encoding="ascii").splitlines(keepends=True)[1:]), encoding="ascii")


def an_event_came_for_nothing(world: World) -> None:
    with Path(world.lake.directory, "events.log").open("a", encoding="ascii") as out:
        out.write("never-finished\n")


def a_run_was_told_wrong(world: World) -> None:
    Path(world.lake.directory, "acknowledged.log").write_text("never-finished\n", encoding="ascii")


def an_interval_is_missing(world: World) -> None:
    change(world, "DELETE FROM gobblin.ledger WHERE active")


def an_attempt_is_uncleaned(world: World) -> None:
    change(world, "UPDATE gobblin.attempt SET cleaned_at = NULL")


def test_a_good_history_has_no_differences(world: World) -> None:
    assert differences(world) == ""


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (a_file_is_gone, "a published file is gone"),
        (a_file_stands_twice, "files that the log does not know"),
        (a_row_is_lost, "is not exactly its source: 1 rows are missing"),
        (a_row_is_doubled, "is not exactly its source: 1 rows are too many"),
        (a_row_is_unpublished, "is not exactly its source: 1 rows are missing"),
        (a_sequence_is_open, "sequences are still open"),
        (the_watermark_went_back, "the watermark is 7 at the end"),
        (a_version_is_missing, "versions are not one after the other"),
        (staging_is_left, "1 left in staging"),
        (an_event_was_never_sent, "1 finished sequences without an event"),
        (an_event_came_for_nothing, "events for what was never finished"),
        (a_run_was_told_wrong, "runs were told"),
        (an_interval_is_missing, "the ledger ends at 0"),
        (an_attempt_is_uncleaned, "attempts were never cleaned up"),
    ],
)
def test_damage_is_said(world: World, damage: Callable[[World], None], said: str) -> None:
    damage(world)

    assert said in differences(world)


def test_a_version_that_was_seen_as_another_sequence_is_said(world: World) -> None:
    seen = Remembered({SUBJECT: 26}, {SUBJECT: {1: "another"}})

    assert "versions that were seen are not what they were" in differences(world, seen)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (a_file_is_gone, "published files are gone"),
        (a_row_is_lost, "1 rows are missing"),
        (a_row_is_doubled, "1 rows are too many"),
        (the_watermark_went_back, "something went back"),
        (a_version_is_missing, "finished sequences, the last of them 9"),
    ],
)
def test_an_observer_sees_it_at_once(world: World, damage: Callable[[World], None], said: str) -> None:
    tally = Tally()
    observer = Observer(connect_to(world.lake.database_url), [SUBJECT], RowWatch(tally), tally)
    while not tally.of("samples"):
        observer.pause()
    assert tally.violations == []

    damage(world)

    # The sample under way may have begun before the damage, and sees a part of it; the second one sees all of it.
    before = tally.of("samples")
    while tally.of("samples") < before + 2:
        observer.pause()
    observer.stop()
    assert said in "\n".join(tally.violations)
