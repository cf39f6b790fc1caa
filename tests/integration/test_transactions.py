"""A caller's knowledge of a transaction after its connection broke, at every place where it can break."""

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import IntegrityError, ProgrammingError

from gobblin_assets import failpoints
from gobblin_assets.db import embedded
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.db.transactions import TRIES_MAX, transact
from gobblin_assets.errors import ConflictError, OutcomeUnknownError, RetryableError
from gobblin_assets.failpoints import AcknowledgementLost, Failpoint

pytestmark = pytest.mark.turns(of=4)

WAIT_S_MAX = 150
INSERT = text("INSERT INTO public.done (id) VALUES (:id) ON CONFLICT DO NOTHING")


@pytest.fixture
def table(engine: Engine) -> Engine:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE public.done (id uuid PRIMARY KEY, tries int)"))
    return engine


@pytest.fixture
def own(home: Path) -> Iterator[tuple[EmbeddedServer, Engine]]:
    """A server that the test may stop, with an engine on it."""
    server = embedded.start(home, lambda _line: None)
    engine = open_external(server.url("postgres"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE public.done (id uuid PRIMARY KEY, tries int)"))
    yield server, engine
    engine.dispose()


def count(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM public.done")).scalar_one())


def no_sleep(_seconds: float) -> None:
    """No wait: the awaited event has already happened."""


class LoseAcknowledgement:
    """Breaks the connection after the COMMIT, the first ``times`` times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self, point: Failpoint) -> None:
        if point is Failpoint.SEAL_COMMITTED and self.left > 0:
            self.left -= 1
            raise AcknowledgementLost("lost")


def test_a_lost_acknowledgement_is_resolved_by_running_the_body_again(table: Engine) -> None:
    row, seen = uuid.uuid4(), []

    def body(connection: Connection) -> int:
        inserted = connection.execute(INSERT, {"id": row}).rowcount
        seen.append(inserted)
        return inserted

    with failpoints.install(LoseAcknowledgement(2)):
        result = transact(table, "seal", body, committed=Failpoint.SEAL_COMMITTED, sleep=no_sleep)

    # The first try did the work; the later ones found it done.
    assert (seen, result, count(table)) == ([1, 0, 0], 0, 1)


def test_acknowledgements_lost_for_ever_leave_the_outcome_unknown(table: Engine) -> None:
    row = uuid.uuid4()
    waits: list[float] = []

    with failpoints.install(LoseAcknowledgement(TRIES_MAX)), pytest.raises(OutcomeUnknownError, match="seal"):
        transact(
            table,
            "seal",
            lambda connection: connection.execute(INSERT, {"id": row}),
            committed=Failpoint.SEAL_COMMITTED,
            sleep=waits.append,
        )

    assert count(table) == 1
    assert len(waits) == TRIES_MAX - 1
    assert all(0 < wait_s <= 3 for wait_s in waits)


def test_doubt_from_an_early_try_outlives_later_tries_that_never_connect(own: tuple[EmbeddedServer, Engine]) -> None:
    server, engine = own
    home = server.data_directory.parent.parent

    def stop_after_commit(_point: Failpoint) -> None:
        embedded.stop(home)
        raise AcknowledgementLost("lost")

    with failpoints.install(stop_after_commit), pytest.raises(OutcomeUnknownError):
        transact(
            engine,
            "seal",
            lambda connection: connection.execute(INSERT, {"id": uuid.uuid4()}),
            committed=Failpoint.SEAL_COMMITTED,
            tries=3,
            sleep=no_sleep,
        )

    embedded.start(home, lambda _line: None)
    assert count(engine) == 1


def test_a_server_that_stays_away_before_the_commit_is_retryable(own: tuple[EmbeddedServer, Engine]) -> None:
    server, engine = own
    home = server.data_directory.parent.parent
    waits: list[float] = []

    def body(connection: Connection) -> None:
        connection.execute(INSERT, {"id": uuid.uuid4()})
        embedded.stop(home)
        connection.execute(text("SELECT 1"))

    with pytest.raises(RetryableError, match="did not happen in 4 tries"):
        transact(engine, "stage", body, tries=4, sleep=waits.append)

    assert len(waits) == 3
    embedded.start(home, lambda _line: None)
    assert count(engine) == 0


def test_a_restart_in_the_middle_of_the_body_is_survived(own: tuple[EmbeddedServer, Engine]) -> None:
    server, engine = own
    home = server.data_directory.parent.parent
    row = uuid.uuid4()
    backends: list[int] = []

    def body(connection: Connection) -> None:
        backends.append(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
        connection.execute(INSERT, {"id": row})
        if len(backends) == 1:
            embedded.stop(home)

    def start_again(_seconds: float) -> None:
        embedded.start(home, lambda _line: None)

    # The COMMIT itself fails by the stop: whether it arrived is unknown until the second try.
    transact(engine, "stage", body, sleep=start_again)

    assert len(set(backends)) == 2
    assert count(engine) == 1


def test_a_killed_backend_is_replaced_by_a_new_connection(table: Engine) -> None:
    row = uuid.uuid4()
    backends: list[int] = []

    def body(connection: Connection) -> str:
        backends.append(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
        connection.execute(INSERT, {"id": row})
        if len(backends) == 1:
            with table.connect() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": backends[0]})
            connection.execute(text("SELECT 1"))
        return "done"

    assert transact(table, "stage", body, sleep=no_sleep) == "done"
    assert len(set(backends)) == 2
    assert count(table) == 1


def test_a_connection_broken_under_a_raw_copy_is_repeated_too(table: Engine) -> None:
    tries: list[int] = []

    def body(connection: Connection) -> None:
        raw = connection.connection.driver_connection
        assert isinstance(raw, psycopg.Connection)
        tries.append(raw.info.backend_pid)
        with raw.cursor() as cursor, cursor.copy("COPY public.done (id) FROM STDIN") as copy:
            if len(tries) == 1:
                # Like a network: libpq notices while it copies, and SQLAlchemy does not.
                with socket.socket(fileno=os.dup(raw.fileno())) as wire:
                    wire.shutdown(socket.SHUT_RDWR)
            copy.write_row([uuid.uuid4()])

    transact(table, "stage", body, sleep=no_sleep)

    assert len(set(tries)) == 2
    assert count(table) == 1


def test_a_deadlock_is_repeated_until_both_are_through(table: Engine) -> None:
    first, second = uuid.UUID(int=1), uuid.UUID(int=2)
    with table.begin() as connection:
        connection.execute(text("INSERT INTO public.done VALUES (:a, 0), (:b, 0)"), {"a": first, "b": second})
    both_hold_one = threading.Barrier(2, timeout=WAIT_S_MAX)
    tries: list[str] = []

    def cross(name: str, mine: uuid.UUID, other: uuid.UUID) -> None:
        def body(connection: Connection) -> None:
            tries.append(name)
            update = text("UPDATE public.done SET tries = tries + 1 WHERE id = :id")
            connection.execute(text("SET LOCAL deadlock_timeout = '10ms'"))
            connection.execute(update, {"id": mine})
            if tries.count(name) == 1:
                both_hold_one.wait()
            connection.execute(update, {"id": other})

        transact(table, name, body)

    threads = [
        threading.Thread(target=cross, args=("one", first, second)),
        threading.Thread(target=cross, args=("two", second, first)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S_MAX)

    assert len(tries) > 2
    with table.connect() as connection:
        assert connection.execute(text("SELECT tries FROM public.done")).scalars().all() == [2, 2]


def test_a_constraint_passes_through_after_one_try(table: Engine) -> None:
    row, tries = uuid.uuid4(), []

    def body(connection: Connection) -> None:
        tries.append(1)
        insert = text("INSERT INTO public.done (id) VALUES (:id)")
        connection.execute(insert, {"id": row})
        connection.execute(insert, {"id": row})

    with pytest.raises(IntegrityError):
        transact(table, "stage", body, sleep=no_sleep)

    assert len(tries) == 1
    assert count(table) == 0


def test_a_mistake_in_a_statement_passes_through(table: Engine) -> None:
    with pytest.raises(ProgrammingError):
        transact(table, "stage", lambda connection: connection.execute(text("SELECT nonsense")), sleep=no_sleep)


def test_our_own_errors_pass_through_and_roll_back(table: Engine) -> None:
    def body(connection: Connection) -> None:
        connection.execute(INSERT, {"id": uuid.uuid4()})
        raise ConflictError("two facts")

    with pytest.raises(ConflictError, match="two facts"):
        transact(table, "stage", body, sleep=no_sleep)

    assert count(table) == 0


def test_an_error_of_the_body_that_is_no_connection_is_not_repeated(table: Engine) -> None:
    tries: list[int] = []

    def body(_connection: Connection) -> None:
        tries.append(1)
        raise FileNotFoundError("a file of the caller's")

    with pytest.raises(FileNotFoundError):
        transact(table, "stage", body, sleep=no_sleep)

    assert len(tries) == 1


def test_the_transaction_is_read_committed_and_in_utc(table: Engine) -> None:
    def body(connection: Connection) -> tuple[str, str, str]:
        row = connection.execute(
            text(
                "SELECT current_setting('transaction_isolation'), current_setting('TimeZone'),"
                " current_setting('application_name')"
            )
        ).one()
        return row[0], row[1], row[2]

    assert transact(table, "look", body) == ("read committed", "UTC", "gobblin-assets")


def test_no_tries_at_all_is_a_mistake_of_the_caller(table: Engine) -> None:
    with pytest.raises(ValueError, match="tries must be at least 1"):
        transact(table, "look", lambda connection: connection.execute(text("SELECT 1")), tries=0)
