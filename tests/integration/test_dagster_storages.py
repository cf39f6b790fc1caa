"""Storages of Dagster of one's own: another schema by GOBBLIN_DAGSTER_URL, and one daemon for each of them."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, StaticPool, create_engine, event, text

from gobblin_assets.cli import main
from gobblin_assets.dagster.daemon_lock import DaemonLock, hold_daemon_lock
from gobblin_assets.dagster.instance import HOME_VARIABLE, URL_VARIABLE, find_instance, prepare_instance, storage_url
from gobblin_assets.errors import RejectedError
from gobblin_assets.settings import DATABASE_URL_VARIABLE, Settings, read_settings
from tests.support.postgres import Database

SCHEMA = "dagster_two"
PAUSE_S = 0.05
WAIT_S_MAX = 150.0
KEEPALIVES = ("idle", "interval", "count")


class Locks:
    """Locks of this process, each over a connection of its own. ``lost``: what those said that were lost."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self._is_over = threading.Event()
        self._held: list[DaemonLock] = []

    def hold(self, url: str) -> DaemonLock:
        lock = hold_daemon_lock(url, self.lost.append, self._is_over.wait)
        self._held.append(lock)
        return lock

    def close(self) -> None:
        self._is_over.set()
        for lock in self._held:
            lock.release()


@pytest.fixture
def locks() -> Iterator[Locks]:
    made = Locks()
    yield made
    made.close()


def in_schema(url: str, schema: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{schema}"


def list_schemas(engine: Engine, table: str) -> Sequence[str]:
    query = text("SELECT table_schema FROM information_schema.tables WHERE table_name = :table ORDER BY 1")
    with engine.connect() as connection:
        return connection.execute(query, {"table": table}).scalars().all()


def test_a_second_daemon_is_refused_and_another_schema_is_another_storage(
    tmp_path: Path, database_url: str, engine: Engine, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first daemon's storage lies beside the log; the command that would start a second one names the variable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(HOME_VARIABLE, raising=False)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(DATABASE_URL_VARIABLE, database_url)
    first = read_settings()
    locks.hold(storage_url(first, print))
    monkeypatch.setenv("GOBBLIN_JOBS", "")
    with pytest.MonkeyPatch.context() as patch:
        # The command leaves the variables of its instance to the Dagster that it becomes.
        patch.setenv(URL_VARIABLE, "")
        refused = CliRunner().invoke(main, ["dagster", "dev", "-m", "tests.support.dagster_location"])
    assert refused.exit_code == 2
    line = refused.stderr.splitlines()[-1]
    assert line.startswith(f"error: {URL_VARIABLE}: another daemon works on this storage of Dagster (gobblin-assets")

    monkeypatch.delenv(HOME_VARIABLE, raising=False)
    monkeypatch.setenv(URL_VARIABLE, in_schema(database_url, SCHEMA))
    settings = read_settings()
    with pytest.raises(RejectedError, match="no schema that is there"):
        locks.hold(storage_url(settings, print))
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
    locks.hold(prepare_instance(settings, print)[URL_VARIABLE])
    instance = find_instance(settings, {}, print)
    assert instance is not None
    with instance:
        instance.add_dynamic_partitions("tenants", ["acme"])
        assert instance.get_dynamic_partitions("tenants") == ["acme"]
    assert list_schemas(engine, "dynamic_partitions") == [SCHEMA]
    assert os.environ[URL_VARIABLE] == in_schema(database_url, SCHEMA)
    # What the variable says to the processes of this Dagster, which read it again.
    again = prepare_instance(settings, print)[URL_VARIABLE]
    assert storage_url(Settings(tmp_path / "home", database_url, again), print) == again


def test_a_lock_whose_connection_is_cut_is_taken_again_and_one_that_another_takes_ends_its_process(
    tmp_path: Path, database_url: str, engine: Engine, locks: Locks
) -> None:
    url = storage_url(Settings(tmp_path, database_url), print)
    looks, ends, said = threading.Semaphore(0), threading.Event(), list[str]()

    def wait(_seconds: float) -> bool:
        looks.acquire()
        return ends.is_set()

    lock = hold_daemon_lock(url, said.append, wait)
    cut(engine)
    looks.release()
    await_true(lambda: count_locks(engine) == 1)
    cut(engine)
    locks.hold(url)
    looks.release()
    await_true(lambda: bool(said))
    assert "another daemon works" in said[0]
    assert count_locks(engine) == 1
    lock.release()


def test_the_keeper_outlives_whatever_its_tries_end_with(
    tmp_path: Path, database_url: str, engine: Engine, locks: Locks
) -> None:
    looks = threading.Semaphore(0)

    def wait(_seconds: float) -> bool:
        looks.acquire()
        return False

    lock = hold_daemon_lock(storage_url(Settings(tmp_path, database_url), print), locks.lost.append, wait)
    failures = [RuntimeError("no such thing")]

    def fail_once(*_of_the_connection: object) -> None:
        if failures:
            raise failures.pop()

    event.listen(lock.engine, "do_connect", fail_once)
    cut(engine)
    looks.release(2)
    await_true(lambda: count_locks(engine) == 1)
    assert not failures
    lock.release()


def test_a_holder_of_whom_this_user_may_see_nothing_is_named_without_its_start(
    tmp_path: Path, database_url: str, locks: Locks
) -> None:
    url = storage_url(Settings(tmp_path, database_url), print)
    locks.hold(url)
    with pytest.raises(RejectedError, match="another daemon works") as refused:
        locks.hold(f"{url}{'&' if '?' in url else '?'}options=-crole%3Dpg_signal_backend")
    assert ", since" not in str(refused.value)


def test_both_ends_of_a_lock_notice_a_peer_that_is_gone(tmp_path: Path, fresh_database: Database, locks: Locks) -> None:
    url = storage_url(Settings(tmp_path, fresh_database.url), print)
    with locks.hold(url).engine.connect() as connection:
        fd = connection.connection.driver_connection.fileno()  # type: ignore[union-attr]  # psycopg 2's
        with socket.socket(fileno=os.dup(fd)) as end:
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
    shared = create_engine(in_schema(url, "information_schema"), poolclass=StaticPool, isolation_level="AUTOCOMMIT")
    DaemonLock(shared, locks.lost.append, lambda _seconds: True).take()
    with shared.connect() as connection:
        shown = [connection.execute(text(f"SHOW tcp_keepalives_{each}")).scalar_one() for each in KEEPALIVES]
    shared.dispose()
    assert shown == ["10", "5", "3"]


def await_true(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S_MAX
    while not is_so():
        assert time.monotonic() < until
        time.sleep(PAUSE_S)


def count_locks(engine: Engine) -> int:
    query = text(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with engine.connect() as connection:
        return int(connection.execute(query).scalar_one())


def cut(engine: Engine) -> None:
    query = text(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE application_name LIKE 'gobblin-assets dagster%' AND datname = current_database()"
    )
    with engine.connect() as connection:
        assert connection.execute(query).scalars().all() == [True]
    assert count_locks(engine) == 0
