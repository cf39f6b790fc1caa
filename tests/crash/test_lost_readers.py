"""A run that ends while it reads: killed, terminated, interrupted, or without leases. Its sessions end soon after."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest

from gobblin_assets.failpoints import Failpoint
from tests.support.lake import World, start_worker
from tests.support.postgres import Database
from tests.support.shares import cross
from tests.support.table_lake import TableLake, make_table_lake, start_command

pytestmark = pytest.mark.turns(of=4)

WAIT_S_MAX = 150
HELD_S = 1_200
ROWS = 20_000
ENDINGS = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: -signal.SIGTERM, signal.SIGINT: 130}
"""Exit codes of the command, by what ended it."""

_OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
SESSIONS = f"SELECT count(*) {_OTHERS}"


@dataclass(frozen=True)
class Hold:
    """While the gate is shut, the run's statements that begin with ``statement`` do ``wait`` at each row ``n``."""

    statement: str
    wait: str

    @property
    def held(self) -> str:
        return f"SELECT count(*) {_OTHERS} AND query LIKE '{self.statement}%' AND state = 'active'"


OF_READERS = {
    "a reader asleep": Hold("COPY", f"CASE WHEN n IN (0, 12) THEN pg_sleep({HELD_S}) END"),
    # The test holds the lock.
    "a reader waiting for a lock": Hold("COPY", "CASE WHEN n IN (0, 12) THEN pg_advisory_lock(1) END"),
    "a reader sending rows": Hold("COPY", "pg_sleep(0.002)"),
}
OF_PLANNING = {"planning": Hold("SELECT", f"CASE WHEN n IN (0, 12) THEN pg_sleep({HELD_S}) END")}
HOLDS = {**OF_READERS, **OF_PLANNING}

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def lake(database_url: str, fresh_database: Database, tmp_path: Path) -> TableLake:
    return make_table_lake(database_url, tmp_path, fresh_database, "directories", where="passes(number)")


@pytest.fixture
def source(fresh_database: Database) -> Iterator[Connection]:
    with fresh_database.connect() as connection:
        yield connection


@contextmanager
def shut_gate(lake: TableLake, source: Connection, hold: Hold) -> Iterator[None]:
    """During the block, ``hold`` delays statements that read the lake's tables."""
    for urn in lake.urns if hold is OF_READERS["a reader sending rows"] else ():
        lake.add_rows(urn, ROWS)
    source.execute("CREATE TABLE gate AS SELECT true AS is_shut")
    source.execute("SELECT pg_advisory_lock(1)")
    source.execute(
        f"""
        CREATE FUNCTION passes(n bigint) RETURNS boolean LANGUAGE plpgsql AS $$
        BEGIN
            IF current_query() LIKE '{hold.statement}%' AND EXISTS (SELECT FROM gate WHERE is_shut) THEN
                PERFORM {hold.wait};
            END IF;
            RETURN true;
        END $$""".encode()
    )
    yield
    source.execute("UPDATE gate SET is_shut = false")
    source.execute("SELECT pg_advisory_unlock(1)")


def wait_until(source: Connection, query: str, *, is_zero: bool) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while (source.execute(query.encode()).fetchone() == (0,)) is not is_zero:
        assert time.monotonic() < deadline, source.execute(f"SELECT pid, state, query {_OTHERS}".encode()).fetchall()
        time.sleep(0.01)


@pytest.mark.parametrize(("ending", "hold"), cross(tuple(ENDINGS), tuple(HOLDS)), ids=str)
def test_a_command_that_is_ended_amid_its_reading_leaves_no_session_at_the_source(
    lake: TableLake, world: World, source: Connection, ending: signal.Signals, hold: str
) -> None:
    with shut_gate(lake, source, HOLDS[hold]):
        command = start_command(lake)
        wait_until(source, HOLDS[hold].held, is_zero=False)

        command.send(ending)

        assert command.wait() == ENDINGS[ending]
        wait_until(source, SESSIONS, is_zero=True)
    world.expire_leases()
    assert not world.run().failed
    world.check_exactly_once()


@pytest.mark.parametrize("shares", [False, True])
def test_a_command_that_is_interrupted_before_its_reading_does_not_read_on(
    lake: TableLake, source: Connection, *, shares: bool
) -> None:
    with shut_gate(lake, source, HOLDS["a reader asleep"]):
        command = start_command(replace(lake, shares=shares), f"{Failpoint.ATTEMPT_REGISTERED}=interrupt")
        assert command.wait() == ENDINGS[signal.SIGINT]
        assert command.reached()
        wait_until(source, SESSIONS, is_zero=True)


@pytest.mark.parametrize(("shares", "hold"), cross((False, True), tuple(OF_READERS)), ids=str)
def test_a_run_that_lost_its_leases_ends_its_readers(
    lake: TableLake, world: World, source: Connection, hold: str, *, shares: bool
) -> None:
    with shut_gate(lake, source, OF_READERS[hold]):
        # A busy machine may take seconds from the lease to the first read.
        worker = start_worker(replace(lake, lease_ttl_s=4.0, shares=shares))
        wait_until(source, OF_READERS[hold].held, is_zero=False)

        world.execute("UPDATE gobblin.lease SET fence = fence + 1, owner = 'another'")

        wait_until(source, SESSIONS, is_zero=True)
        assert worker.wait() == 1
    world.expire_leases()
    assert not world.run().failed
    world.check_exactly_once()
