"""What only tables of Postgres have: locks of marks, triggers, and errors that pass by themselves.

Log and destination are real Postgres databases, and workers are processes.
"""

import pytest
from sqlalchemy import text

from gobblin_assets.commit.driver import PUBLISH_TRIES_MAX
from gobblin_assets.commit.published.published_port import RowsElsewhere
from gobblin_assets.errors import GobblinError
from gobblin_assets.failpoints import Failpoint, install
from gobblin_assets.model.urn import JobName, Role
from tests.crash.test_loaded_sinks import DiedError, dying_at
from tests.crash.test_sinks import kill_at
from tests.support import loaded_sink
from tests.support.loaded_sink import RECORDS, LoadedSinkLake, LoadedSinkWorld
from tests.support.postgres import Database
from tests.support.postgres_rows import SCHEMA, PostgresRows
from tests.support.rows_places import POSTGRES
from tests.support.shares import rotating
from tests.support.sink_lake import JOB, URN, start_sink_worker
from tests.support.spark import wait_until

lake, world = loaded_sink.lake, loaded_sink.world
pytestmark = [pytest.mark.parametrize("lake", [POSTGRES], indirect=True), pytest.mark.turns(of=4)]

TABLE = f"{SCHEMA}.{RECORDS}"


@pytest.fixture
def database(lake: LoadedSinkLake) -> Database:
    assert isinstance(lake.place, PostgresRows)
    return lake.place.database


def end_idle_sessions(database: Database) -> int:
    """As the server does after a while: end the transactions that wait for a paused process."""
    with database.connect() as session:
        ended = session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'idle in transaction'"
        ).fetchall()
    return len(ended)


def is_waited_for(database: Database) -> bool:
    """Whether a session waits for a lock in the database of the tables."""
    with database.connect() as session:
        query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return session.execute(query).fetchone() is not None


def test_a_zombie_that_holds_the_mark_is_waited_for_until_the_server_ends_it(
    lake: LoadedSinkLake, world: LoadedSinkWorld, database: Database
) -> None:
    zombie = start_sink_worker(lake, failpoint=f"{Failpoint.LOAD_BEFORE_COMMIT}=stop")
    zombie.wait_until_stopped()
    world.expire()
    successor = start_sink_worker(lake)
    wait_until(lambda: is_waited_for(database), "the successor's wait for the mark")

    assert end_idle_sessions(database) == 1

    assert successor.wait() == 0
    world.check_exactly_once()
    zombie.wake_up()
    assert zombie.wait() == 0
    world.check_exactly_once()


def test_what_the_mark_refuses_waits_for_a_person_who_is_told_to_abandon_it(
    lake: LoadedSinkLake, world: LoadedSinkWorld
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


@pytest.mark.parametrize(
    "state",
    ["55P03", *(rotating(each) for each in ("40P01", "40001", "57014", "53100", "25P04", "25006"))],
)
def test_what_passes_by_itself_blocks_nothing(
    lake: LoadedSinkLake, world: LoadedSinkWorld, database: Database, state: str
) -> None:
    """A lock, a deadlock, a serialization failure, bounds on time, a full disk: more often than there are tries."""
    with database.connect() as session:
        session.execute("CREATE SCHEMA shop")
        session.execute(f"CREATE TABLE {TABLE} (vnode text, n bigint)")
        session.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '{state}'; END $$"
        )
        session.execute(f"CREATE TRIGGER refuse BEFORE INSERT ON {TABLE} FOR EACH ROW EXECUTE FUNCTION refuse()")

    world.work(lambda: sum("not now" in line for line in world.lines) > lake.lanes * PUBLISH_TRIES_MAX)

    assert [each.failed_tries for each in map(world.stores.commits.get, world.open_sequences())] == [0] * lake.lanes
    with database.connect() as session:
        session.execute(f"DROP TRIGGER refuse ON {TABLE}")
    world.work()
    world.check_exactly_once()


def test_what_is_folded_still_says_how_many_rows_are_elsewhere(lake: LoadedSinkLake, world: LoadedSinkWorld) -> None:
    query = "SELECT count(*) FROM gobblin.segment WHERE role = 'data' AND sealed"
    world.work(
        lambda: world.is_published() and int(str(world.scalar(query))) <= lake.lanes and not world.staging_left()
    )
    expected = sum(count for (role, *_), count in world.expected().items() if role == Role.DATA)

    found = world.stores.published.find_rows_elsewhere(JobName(JOB), URN)

    assert found == RowsElsewhere(lake.place.uri_of(RECORDS), expected)
