"""Workers of a sink that loads a table are killed, paused and not answered: each record is in the table once.

Log and destination are real Postgres databases, and workers are processes.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from gobblin_assets.commit.driver import PUBLISH_TRIES_MAX
from gobblin_assets.commit.published.published_port import RowsElsewhere
from gobblin_assets.commit.reconciliation import Way
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.destinations.postgres.database_address import variable_of
from gobblin_assets.errors import ConflictError, GobblinError, RejectedError
from gobblin_assets.failpoints import ArmedFailpoints, Failpoint, install
from gobblin_assets.model.urn import JobName, Role
from tests.crash.points import OF_A_SINK, OF_EXECUTION
from tests.crash.test_lane_adoption import reconcile
from tests.crash.test_sinks import kill_at, some_published
from tests.support.postgres import Database
from tests.support.restoring import copied
from tests.support.shares import cross, rotating
from tests.support.sink_lake import JOB, URN, count_reached, start_sink_worker
from tests.support.spark import wait_until
from tests.support.table_sink import CONNECTION, TABLE, TableSinkLake, TableSinkWorld, variables_for

OF_A_LOAD = (
    Failpoint.STEP_BEFORE,
    Failpoint.LOAD_COPIED,
    Failpoint.LOAD_BEFORE_COMMIT,
    Failpoint.LOAD_COMMITTED,
    Failpoint.STEP_AFTER,
)
AROUND_A_LOAD = (
    Failpoint.SEAL_COMMITTED,
    Failpoint.MARKER_WRITTEN,
    *OF_A_LOAD,
    Failpoint.SYNCED_BEFORE_VERIFY,
    Failpoint.VERIFIED_BEFORE_FINISH,
    Failpoint.FINISH_COMMITTED,
)

OF_A_SECOND_FAULT = (Failpoint.RECOVERY_STARTED, Failpoint.LOAD_COPIED, Failpoint.LOAD_COMMITTED)


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


def test_every_point_of_a_load_is_reached(world: TableSinkWorld) -> None:
    seen: set[Failpoint] = set()

    with install(seen.add):
        world.work()

    world.check_exactly_once()
    assert seen >= {*AROUND_A_LOAD, *OF_EXECUTION}


@pytest.mark.parametrize(
    ("point", "count"),
    [
        *((point, 1) for point in (Failpoint.LOAD_COPIED, Failpoint.LOAD_BEFORE_COMMIT, Failpoint.LOAD_COMMITTED)),
        *(rotating(point, 1) for point in OF_A_SINK),
        *(rotating(point, 2) for point in OF_A_LOAD),
    ],
    ids=str,
)
@pytest.mark.turns("a load that is killed")
def test_a_worker_killed_anywhere_is_gone_on_with_by_another(
    lake: TableSinkLake, world: TableSinkWorld, point: Failpoint, count: int
) -> None:
    kill_at(lake, point, count)
    world.expire()

    world.work()

    world.check_exactly_once()


@pytest.mark.parametrize("count", [1, rotating(2), rotating(3)])
@pytest.mark.turns("a load without an answer")
def test_a_commit_without_an_answer_is_looked_up(lake: TableSinkLake, world: TableSinkWorld, count: int) -> None:
    log = str(Path(lake.directory, "failpoints.log"))

    with install(ArmedFailpoints(f"{Failpoint.LOAD_COMMITTED}=lose@{count}", log)):
        world.work(lambda: count_reached(log) > 0 and world.is_published())

    world.check_exactly_once()
    assert not any("rests" in line for line in world.lines)


@pytest.mark.parametrize(
    "point", [Failpoint.LOAD_COPIED, rotating(Failpoint.LOAD_COMMITTED), rotating(Failpoint.STEP_AFTER)], ids=str
)
@pytest.mark.turns("a load that slept")
def test_a_zombie_that_wakes_up_loads_nothing(lake: TableSinkLake, world: TableSinkWorld, point: Failpoint) -> None:
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


@pytest.mark.parametrize(("first", "second"), cross(OF_A_LOAD, OF_A_SECOND_FAULT), ids=str)
@pytest.mark.turns("a recovery of a load that is killed")
def test_a_recovery_killed_anywhere_is_completed_by_the_next(
    lake: TableSinkLake, world: TableSinkWorld, first: Failpoint, second: Failpoint
) -> None:
    kill_at(lake, first)
    world.expire()
    kill_at(lake, second)
    world.expire()

    world.work()

    world.check_exactly_once()


@pytest.mark.parametrize("point", [rotating(Failpoint.SEAL_COMMITTED), Failpoint.STEP_BEFORE], ids=str)
def test_what_is_not_loaded_can_be_abandoned(lake: TableSinkLake, world: TableSinkWorld, point: Failpoint) -> None:
    kill_at(lake, point)
    world.expire()

    for sequence_id in world.open_sequences():
        world.operations().abandon(sequence_id, reason="a test")

    world.work()
    world.check_exactly_once()


@pytest.mark.turns("what is loaded")
def test_what_is_loaded_can_only_be_completed(lake: TableSinkLake, world: TableSinkWorld) -> None:
    kill_at(lake, Failpoint.LOAD_COMMITTED)
    world.expire()
    loaded = {sequence_id for _lane, _version, recent, *_others in world.marks() for sequence_id in recent}
    (sequence_id,) = loaded & set(world.open_sequences())

    with pytest.raises(RejectedError, match="It can only be completed"):
        world.operations().abandon(sequence_id, reason="a test")

    world.work()
    world.check_exactly_once()


@pytest.mark.parametrize("point", [rotating(Failpoint.STEP_BEFORE), Failpoint.LOAD_COPIED], ids=str)
@pytest.mark.turns("a load that was abandoned")
def test_a_zombie_loads_nothing_that_was_abandoned(
    lake: TableSinkLake, world: TableSinkWorld, point: Failpoint
) -> None:
    """It wakes up before anything else is published: only the mark stands in its way."""
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


@pytest.mark.parametrize(
    "point",
    [
        Failpoint.GIVE_UP_BEFORE_COMMIT,
        Failpoint.ABANDON_RECORDED,
        rotating(Failpoint.ABANDON_CAPTURED),
        rotating(Failpoint.ABANDON_RETURNED),
    ],
    ids=str,
)
@pytest.mark.turns("an abandonment of a load that dies")
def test_an_abandonment_that_dies_is_repeated(lake: TableSinkLake, world: TableSinkWorld, point: Failpoint) -> None:
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

    again.work(lambda: any("rests" in line for line in again.lines))

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


@pytest.mark.turns("a restored log of loads")
def test_a_restored_log_adopts_what_was_loaded_since_and_loads_nothing_again(
    lake: TableSinkLake, world: TableSinkWorld, server: EmbeddedServer
) -> None:
    """Setting it aside would read the rows again: that is refused."""
    world.work(some_published(world))
    world.engine.dispose()
    with copied(server, lake.database_url) as url, closing(replace(lake, database_url=url).open_world()) as restored:
        world.work()
        marks = world.marks()

        with pytest.raises(ConflictError, match="are loaded, and are not taken back"):
            reconcile(restored, Way.SET_ASIDE)
        restored.expire()
        reconcile(restored)

        restored.work()
        restored.check_exactly_once()
        assert restored.marks() == marks


def test_what_is_folded_still_says_how_many_rows_are_elsewhere(lake: TableSinkLake, world: TableSinkWorld) -> None:
    query = "SELECT count(*) FROM gobblin.segment WHERE role = 'data' AND sealed"
    world.work(
        lambda: world.is_published() and int(str(world.scalar(query))) <= lake.lanes and not world.staging_left()
    )
    expected = sum(count for (role, *_), count in world.expected().items() if role == Role.DATA)

    found = world.stores.published.find_rows_elsewhere(JobName(JOB), URN)

    assert found == RowsElsewhere("jdbc:warehouse/shop.records", expected)


class DiedError(BaseException):
    """The process is gone: no handler of the product runs."""


def dying_at(point: Failpoint) -> Callable[[Failpoint], None]:
    def die(reached: Failpoint) -> None:
        if reached is point:
            raise DiedError

    return die
