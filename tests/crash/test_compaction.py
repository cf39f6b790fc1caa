"""A compaction that is killed, not acknowledged, paused past its lease, or wrong: the rows stay the same."""

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets.errors import CorruptionError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.extract import Mode
from gobblin_assets.run import streaming
from tests.crash.points import OF_A_PUBLICATION
from tests.crash.test_stream import Looks
from tests.support.compacting import CompactingWorld, compact, start_compaction
from tests.support.lake import Lake, World
from tests.support.shares import cross

pytestmark = pytest.mark.turns(of=4)

KILLED = -signal.SIGKILL


@pytest.fixture
def published(lake: Lake, world: World) -> World:
    """Two publications of each dataset."""
    world.run()
    for urn in lake.urns:
        lake.add_rows(urn, 7)
    world.run()
    return world


def state_of(world: World) -> list[object]:
    return [
        (world.watermark(urn), world.published_rows(urn), world.scalar(INTERVALS, urn=urn)) for urn in world.lake.urns
    ]


INTERVALS = """
    SELECT array_agg(l.low ->> 'value' || '-' || (l.high ->> 'value') ORDER BY l.low_bytes)
      FROM gobblin.ledger l JOIN gobblin.watermark_key k USING (key_id) JOIN gobblin.dataset d USING (dataset_id)
     WHERE d.urn = :urn AND l.active
"""


def events_of(world: World) -> list[str]:
    return Path(world.lake.directory, "events.log").read_text(encoding="ascii").split()


def test_a_compaction_changes_files_alone(published: World) -> None:
    before, events = state_of(published), events_of(published)
    published_rows = [(watermark, rows) for watermark, rows, _intervals in before]  # type: ignore[misc]  # of state_of
    files = {urn: published.published_paths(urn) for urn in published.lake.urns}

    for urn in published.lake.urns:
        assert compact(published, urn) is not None

    after = state_of(published)
    assert [(watermark, rows) for watermark, rows, _intervals in after] == published_rows  # type: ignore[misc]  # the same
    assert [intervals for _watermark, _rows, intervals in after] == [["0-20"], ["0-20"]]  # type: ignore[misc]  # the same
    for urn, paths in files.items():
        assert len(published.published_paths(urn)) == 1
        assert all(Path(path).exists() for path in paths), "readers of the old list have their files"
    assert events_of(published) == events
    for urn in published.lake.urns:
        published.lake.add_rows(urn, 5)
    published.run()
    published.check_exactly_once()
    assert published.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE announced_at IS NULL") == 0
    assert len(events_of(published)) == len(events) + len(files)


@pytest.mark.rotating
@pytest.mark.parametrize("point", OF_A_PUBLICATION, ids=str)
def test_a_killed_compaction_is_whole_or_nothing(published: World, point: Failpoint) -> None:
    before, events = state_of(published), set(events_of(published))
    worker = start_compaction(published.lake, f"{point}=kill")
    assert worker.wait() == KILLED
    assert worker.reached()
    assert [rows[:2] for rows in state_of(published)] == [rows[:2] for rows in before]  # type: ignore[index]  # of state_of
    published.expire_leases()
    for urn in published.lake.urns:
        published.lake.add_rows(urn, 5)

    published.run()

    published.check_exactly_once()
    assert (
        published.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE announced_at IS NULL AND state = 'DONE'")
        == 0
    )
    assert len(set(events_of(published)) - events) == len(published.lake.urns), "only what was appended is an event"


@pytest.mark.parametrize("point", [Failpoint.SEAL_COMMITTED, Failpoint.FINISH_COMMITTED, Failpoint.STAGE_COMMITTED])
def test_a_compaction_that_is_not_acknowledged_is_done_once(published: World, point: Failpoint) -> None:
    before = published.scalar("SELECT sum(version) FROM gobblin.dataset")
    worker = start_compaction(published.lake, f"{point}=lose")
    assert worker.wait() == 0
    assert worker.reached()

    assert published.scalar("SELECT sum(version) FROM gobblin.dataset") == int(str(before)) + len(published.lake.urns)
    published.run()
    published.check_exactly_once()


@pytest.mark.parametrize(
    ("mode", "point"),
    cross(
        (Mode.APPEND, Mode.REFRESH), (Failpoint.ATTEMPT_DURABLE, Failpoint.STAGED_BEFORE_SEAL, Failpoint.STEP_BEFORE)
    ),
    ids=str,
)
def test_what_came_while_a_compaction_slept_is_not_lost(published: World, point: Failpoint, mode: Mode) -> None:
    worker = start_compaction(published.lake, f"{point}=stop")
    worker.wait_until_stopped()
    published.expire_leases()
    for urn in published.lake.urns:
        published.lake.add_rows(urn, 5)
    published.run(mode=mode)

    worker.wake_up()
    worker.wait()

    published.run(mode=mode)
    published.check_exactly_once()


def test_a_stream_folds_and_compacts_on_its_way(lake: Lake, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "COMPACT_S_MIN", 0.0)
    stream = CompactingWorld(replace(lake, folds=True))

    def publish_more() -> Callable[[], bool]:
        for urn in lake.urns:
            lake.add_rows(urn, 7)
        return lambda: all(world.watermark(urn) == len(lake.source_rows(urn)) for urn in lake.urns)

    report = stream.stream(Looks(publish_more, publish_more, publish_more))

    assert not report.failed
    assert [line for line in stream.lines if "compacted to 1 files" in line]
    assert not [line for line in stream.lines if "is left to the next run" in line]
    stream.run()
    stream.close()
    assert world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE folded_at IS NOT NULL") != 0
    world.run()
    world.check_exactly_once()


def test_a_compaction_that_loses_rows_is_never_sealed(published: World) -> None:
    before = state_of(published)
    urn = published.lake.urns[0]

    with pytest.raises(CorruptionError, match="19 rows were written, but 20 are published"):
        compact(published, urn, loses=1)

    assert state_of(published) == before
    assert published.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'ABORTED'") == 1
    published.run()
    published.check_exactly_once()
