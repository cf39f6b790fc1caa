"""Workers of a sink that appends to a table of Iceberg are killed, paused and not answered: each record is there once.

Log and catalog are real Postgres databases, the warehouse is a directory, and workers are processes.
"""

import itertools
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets.commit.driver import PUBLISH_TRIES_MAX
from gobblin_assets.commit.published.published_port import RowsElsewhere
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.destinations.iceberg.catalog_address import catalog_variable
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import ArmedFailpoints, Failpoint, install
from gobblin_assets.model.urn import JobName, Role
from tests.crash.points import OF_EXECUTION
from tests.crash.test_lane_adoption import reconcile
from tests.crash.test_sinks import kill_at, some_published
from tests.crash.test_table_sinks import AROUND_A_LOAD, OF_A_LOAD, OF_A_SECOND_FAULT, DiedError, dying_at
from tests.support.iceberg_sink import CATALOG, IcebergSinkLake, IcebergSinkWorld, list_data_files
from tests.support.postgres import Database
from tests.support.restoring import copied
from tests.support.shares import rare, rotating
from tests.support.sink_lake import JOB, URN, count_reached, start_sink_worker


@pytest.fixture
def lake(
    database_url: str, fresh_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> IcebergSinkLake:
    made = IcebergSinkLake(database_url, str(tmp_path), database=fresh_database)
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def world(lake: IcebergSinkLake) -> Iterator[IcebergSinkWorld]:
    opened = lake.open_world()
    yield opened
    opened.close()


def test_every_point_of_a_load_is_reached(world: IcebergSinkWorld) -> None:
    seen: set[Failpoint] = set()

    with install(seen.add):
        world.work()

    world.check_exactly_once()
    assert seen >= {*AROUND_A_LOAD, *OF_EXECUTION}
    named, standing = list_data_files(world.table())
    assert standing == named


@pytest.mark.parametrize(
    ("point", "count"),
    [
        *((point, 1) for point in (Failpoint.LOAD_COPIED, Failpoint.LOAD_BEFORE_COMMIT, Failpoint.LOAD_COMMITTED)),
        *(rotating(point, 2) for point in OF_A_LOAD),
    ],
    ids=str,
)
@pytest.mark.turns("a load that is killed")
def test_a_worker_killed_anywhere_is_gone_on_with_by_another(
    lake: IcebergSinkLake, world: IcebergSinkWorld, point: Failpoint, count: int
) -> None:
    kill_at(lake, point, count)
    world.expire()

    world.work()

    world.check_exactly_once()


@pytest.mark.parametrize("count", [1, rotating(3)])
@pytest.mark.turns("a load without an answer")
def test_a_commit_without_an_answer_is_looked_up(lake: IcebergSinkLake, world: IcebergSinkWorld, count: int) -> None:
    log = str(Path(lake.directory, "failpoints.log"))

    with install(ArmedFailpoints(f"{Failpoint.LOAD_COMMITTED}=lose@{count}", log)):
        world.work(lambda: count_reached(log) > 0 and world.is_published())

    world.check_exactly_once()
    assert not any("rests" in line for line in world.lines)


@pytest.mark.parametrize(
    "point", [Failpoint.LOAD_BEFORE_COMMIT, rotating(Failpoint.LOAD_COPIED), rotating(Failpoint.STEP_AFTER)], ids=str
)
@pytest.mark.turns("a load that slept")
def test_a_zombie_that_wakes_up_appends_nothing(
    lake: IcebergSinkLake, world: IcebergSinkWorld, point: Failpoint
) -> None:
    zombie = start_sink_worker(lake, failpoint=f"{point}=stop")
    zombie.wait_until_stopped()
    world.expire()
    world.work()
    world.check_exactly_once()
    before = world.marks()

    zombie.wake_up()

    assert zombie.wait() == 0, "the zombie crashed instead of giving up"
    world.check_exactly_once()
    assert world.marks() == before
    named, standing = list_data_files(world.table())
    assert standing == named, "what was surely refused is left"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Failpoint.LOAD_BEFORE_COMMIT, Failpoint.LOAD_COPIED),
        *(rare(*each) for each in itertools.product(OF_A_LOAD, OF_A_SECOND_FAULT)),
    ],
    ids=str,
)
@pytest.mark.turns("a recovery of a load that is killed")
def test_a_recovery_killed_anywhere_is_completed_by_the_next(
    lake: IcebergSinkLake, world: IcebergSinkWorld, first: Failpoint, second: Failpoint
) -> None:
    kill_at(lake, first)
    world.expire()
    kill_at(lake, second)
    world.expire()

    world.work()

    world.check_exactly_once()


@pytest.mark.turns("what is loaded")
def test_what_is_loaded_can_only_be_completed(lake: IcebergSinkLake, world: IcebergSinkWorld) -> None:
    kill_at(lake, Failpoint.LOAD_COMMITTED)
    world.expire()
    (sequence_id,) = [
        each for each in world.open_sequences() if any(str(each) in value for _name, value in world.marks())
    ]

    with pytest.raises(RejectedError, match="It can only be completed"):
        world.operations().abandon(sequence_id, reason="a test")

    world.work()
    world.check_exactly_once()


@pytest.mark.parametrize("point", [rotating(Failpoint.STEP_BEFORE), Failpoint.LOAD_BEFORE_COMMIT], ids=str)
@pytest.mark.turns("a load that was abandoned")
def test_a_zombie_appends_nothing_that_was_abandoned(
    lake: IcebergSinkLake, world: IcebergSinkWorld, point: Failpoint
) -> None:
    """It wakes up before anything else is published: only the mark's snapshot stands in its way."""
    zombie = start_sink_worker(lake, failpoint=f"{point}=stop")
    zombie.wait_until_stopped()
    world.expire()
    sequences = world.open_sequences()
    assert sequences
    for sequence_id in sequences:
        world.operations().abandon(sequence_id, reason="a test")

    zombie.wake_up()

    assert zombie.wait() == 0
    world.check_exactly_once()


@pytest.mark.parametrize("point", [Failpoint.GIVE_UP_BEFORE_COMMIT, rotating(Failpoint.ABANDON_RECORDED)], ids=str)
@pytest.mark.turns("an abandonment of a load that dies")
def test_an_abandonment_that_dies_is_repeated(lake: IcebergSinkLake, world: IcebergSinkWorld, point: Failpoint) -> None:
    kill_at(lake, Failpoint.STEP_BEFORE)
    world.expire()
    sequence_id, *others = world.open_sequences()
    with install(dying_at(point)), pytest.raises(DiedError):
        world.operations().abandon(sequence_id, reason="a test")
    world.expire()

    for each in {sequence_id, *others} & set(world.open_sequences()):
        world.operations().abandon(each, reason="a test")

    world.work()
    world.check_exactly_once()


@pytest.mark.turns("a place that lost rows")
def test_a_table_that_lost_rows_is_not_loaded_any_more(lake: IcebergSinkLake, world: IcebergSinkWorld) -> None:
    world.work()
    with lake.database.connect() as session:
        session.execute("DELETE FROM iceberg_tables")
    longer = replace(lake, epoch_count=lake.epoch_count + 1)

    with closing(longer.open_world()) as again:
        again.work(lambda: any("rests" in line for line in again.lines))

        assert any("shop.records is gone" in line for line in again.lines)
        assert again.marks() == []


@pytest.mark.parametrize("what", ["catalog", "warehouse"])
@pytest.mark.turns("a place that is away")
def test_what_is_away_for_long_blocks_nothing(
    lake: IcebergSinkLake, world: IcebergSinkWorld, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """More failures than a publication has tries. Workers rest, and go on by themselves."""
    kept = Path(lake.directory, "kept")

    def go_away(reached: Failpoint) -> None:
        if reached is Failpoint.STAGED_BEFORE_SEAL and what == "catalog":
            monkeypatch.setenv(catalog_variable(CATALOG, "URL"), "postgresql://127.0.0.1:1/gone")
        elif reached is Failpoint.STAGED_BEFORE_SEAL and not kept.exists():
            shutil.move(lake.warehouse, kept)

    def has_failed_often() -> bool:
        said = "is out of reach" if what == "catalog" else "is not there"
        return sum(said in line for line in world.lines) > lake.lanes * PUBLISH_TRIES_MAX

    with install(go_away):
        world.work(has_failed_often)
    for name, value in lake.variables.items():
        monkeypatch.setenv(name, value)
    if kept.exists():
        shutil.move(kept, lake.warehouse)

    world.work()

    world.check_exactly_once()


@pytest.mark.turns("a restored log of loads")
def test_a_restored_log_adopts_what_was_loaded_since_and_loads_nothing_again(
    lake: IcebergSinkLake, world: IcebergSinkWorld, server: EmbeddedServer
) -> None:
    world.work(some_published(world))
    world.engine.dispose()
    with copied(server, lake.database_url) as url, closing(replace(lake, database_url=url).open_world()) as restored:
        world.work()
        marks = world.marks()

        restored.expire()
        reconcile(restored)

        restored.work()
        restored.check_exactly_once()
        assert restored.marks() == marks


def test_the_log_knows_how_many_rows_are_where(world: IcebergSinkWorld) -> None:
    world.work()
    expected = sum(count for (role, *_), count in world.expected().items() if role == Role.DATA)

    found = world.stores.published.find_rows_elsewhere(JobName(JOB), URN)

    assert found == RowsElsewhere("iceberg:lakehouse/shop.records", expected)
