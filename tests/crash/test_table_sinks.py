"""Workers of a sink that loads a table are killed, paused and not answered: each record is in the table once.

Log and destination are real Postgres databases, and workers are processes.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from gobblin_assets.commit.driver import PUBLISH_TRIES_MAX
from gobblin_assets.commit.published.published_port import RowsElsewhere
from gobblin_assets.destinations.postgres.database_address import variable_of
from gobblin_assets.errors import GobblinError
from gobblin_assets.failpoints import Failpoint, install
from gobblin_assets.model.urn import JobName, Role
from tests.crash.test_loaded_sinks import DiedError, dying_at
from tests.crash.test_sinks import kill_at
from tests.support.postgres import Database
from tests.support.shares import rotating
from tests.support.sink_lake import JOB, URN, start_sink_worker
from tests.support.spark import wait_until
from tests.support.table_sink import CONNECTION, TABLE, TableSinkLake, TableSinkWorld, variables_for


@pytest.fixture
def lake(database_url: str, fresh_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableSinkLake:
    for name, value in variables_for(fresh_database).items():
        monkeypatch.setenv(name, value)
    return TableSinkLake(database_url, str(tmp_path), database=fresh_database)


@pytest.fixture
def world(lake: TableSinkLake) -> Iterator[TableSinkWorld]:
    opened = lake.open_world()
    yield opened
    opened.close()


def test_a_zombie_that_holds_the_mark_is_waited_for_until_the_server_ends_it(
    lake: TableSinkLake, world: TableSinkWorld
) -> None:
    zombie = start_sink_worker(lake, failpoint=f"{Failpoint.LOAD_BEFORE_COMMIT}=stop")
    zombie.wait_until_stopped()
    world.expire()
    successor = start_sink_worker(lake)
    wait_until(world.is_waited_for, "the successor's wait for the mark")

    assert world.end_idle_sessions() == 1

    assert successor.wait() == 0
    world.check_exactly_once()
    zombie.wake_up()
    assert zombie.wait() == 0
    world.check_exactly_once()


def test_what_the_mark_refuses_waits_for_a_person_who_is_told_to_abandon_it(
    lake: TableSinkLake, world: TableSinkWorld
) -> None:
    """The abandonment died between the mark and the log."""
    kill_at(lake, Failpoint.STEP_BEFORE)
    world.expire()
    sequence_id = world.open_sequences()[0]
    with install(dying_at(Failpoint.ABANDON_RECORDED)), pytest.raises(DiedError):
        world.operations().abandon(sequence_id, reason="a test")
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.commit_sequence SET state = 'PREPARED' WHERE state = 'ABANDONING'"))
    world.expire()

    with pytest.raises(GobblinError, match="says that the publication was given up"):
        world.operations().resume(sequence_id)

    for each in world.open_sequences():
        world.operations().abandon(each, reason="a test")
    world.work()
    world.check_exactly_once()


@pytest.mark.turns("a place that lost rows")
def test_a_database_that_lost_rows_is_not_loaded_any_more(lake: TableSinkLake, world: TableSinkWorld) -> None:
    world.work()
    with lake.database.connect() as session:
        session.execute("DROP SCHEMA shop CASCADE")
        session.execute("DROP SCHEMA marks CASCADE")
    longer = replace(lake, epoch_count=lake.epoch_count + 1)
    again = longer.open_world()

    again.work(lambda: any("backs off" in line for line in again.lines))

    assert any("restored from an older backup" in line for line in again.lines)
    assert again.marks() == []
    again.close()


@pytest.mark.turns("a place that is away")
def test_a_database_that_is_away_for_long_blocks_nothing(
    lake: TableSinkLake, world: TableSinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More failures than a publication has tries. Workers rest, and go on by themselves."""

    def go_away(reached: Failpoint) -> None:
        if reached is Failpoint.STAGED_BEFORE_SEAL:
            monkeypatch.setenv(variable_of(CONNECTION, "URL"), "jdbc:postgresql://127.0.0.1:1/gone")

    def has_failed_often() -> bool:
        return sum("is out of reach" in line for line in world.lines) > lake.lanes * PUBLISH_TRIES_MAX

    with install(go_away):
        world.work(has_failed_often)
    monkeypatch.setenv(variable_of(CONNECTION, "URL"), lake.database.jdbc_url)

    world.work()

    world.check_exactly_once()


@pytest.mark.parametrize(
    "state",
    ["55P03", *(rotating(each) for each in ("40P01", "40001", "57014", "53100", "25P04", "25006"))],
)
def test_what_passes_by_itself_blocks_nothing(lake: TableSinkLake, world: TableSinkWorld, state: str) -> None:
    """A lock, a deadlock, a serialization failure, bounds on time, a full disk: more often than there are tries."""
    with lake.database.connect() as session:
        session.execute("CREATE SCHEMA shop")
        session.execute(f"CREATE TABLE {TABLE} (vnode text, n bigint)")
        session.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '{state}'; END $$"
        )
        session.execute(f"CREATE TRIGGER refuse BEFORE INSERT ON {TABLE} FOR EACH ROW EXECUTE FUNCTION refuse()")

    world.work(lambda: sum("not now" in line for line in world.lines) > lake.lanes * PUBLISH_TRIES_MAX)

    assert [each.failed_tries for each in map(world.stores.commits.get, world.open_sequences())] == [0] * lake.lanes
    with lake.database.connect() as session:
        session.execute(f"DROP TRIGGER refuse ON {TABLE}")
    world.work()
    world.check_exactly_once()


def test_what_is_folded_still_says_how_many_rows_are_elsewhere(lake: TableSinkLake, world: TableSinkWorld) -> None:
    query = "SELECT count(*) FROM gobblin.segment WHERE role = 'data' AND sealed"
    world.work(
        lambda: world.is_published() and int(str(world.scalar(query))) <= lake.lanes and not world.staging_left()
    )
    expected = sum(count for (role, *_), count in world.expected().items() if role == Role.DATA)

    found = world.stores.published.find_rows_elsewhere(JobName(JOB), URN)

    assert found == RowsElsewhere("jdbc:warehouse/shop.records", expected)
