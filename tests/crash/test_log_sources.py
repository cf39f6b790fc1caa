"""The source of change logs is killed, its readers are ended, and its slot is lost, while a worker follows it."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Engine

from gobblin_assets.db import embedded
from gobblin_assets.failpoints import Failpoint
from tests.support.audited_log import AuditedLog, require_whole_log
from tests.support.changed_tables import ShopWriting
from tests.support.log_lake import open_log_lake
from tests.support.log_shop import LogShop
from tests.support.logical_postgres import kill_server, logical_database, start_logical_server
from tests.support.postgres import Database, make_reachable_directory
from tests.support.shares import OFTEN_SHARES
from tests.support.spark import wait_until

pytestmark = pytest.mark.turns(of=4)

_SLOT: Final = "gobblin_shop"
_READER: Final = f"SELECT coalesce(max(active_pid), 0) FROM pg_replication_slots WHERE slot_name = '{_SLOT}'"
_END: Final = f"SELECT pg_terminate_backend(({_READER})::int, 5000)::text"
_DROP: Final = f"SELECT pg_drop_replication_slot('{_SLOT}')::text"
_MAKE: Final = f"SELECT pg_create_logical_replication_slot('{_SLOT}', 'pgoutput')::text"
_READ: Final = f"""
    SELECT count(*)::text FROM pg_logical_slot_get_binary_changes('{_SLOT}', NULL, NULL, 'proto_version', '1',
                                                                  'publication_names', 'lake')"""
_STATUS: Final = f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{_SLOT}'"
_FILL: Final = (
    "SELECT pg_switch_wal()::text",
    "CHECKPOINT",
)
_STRANGERS: Final = {
    "reads it": ([_READ], "somebody else has read it"),
    "drops it": ([_DROP], f"the replication slot {_SLOT} is gone"),
    "makes it anew": ([_DROP, _MAKE], "it was made anew"),
}


@pytest.fixture(scope="module")
def lost_home() -> Iterator[Path]:
    """Of a server that is killed."""
    made = make_reachable_directory("gobblin-home-")
    yield made
    embedded.stop(made)
    shutil.rmtree(made)


@pytest.fixture
def lost_database(lost_home: Path) -> Iterator[Database]:
    with logical_database(start_logical_server(lost_home)) as database:
        yield database


@pytest.fixture
def lost_shop(
    tmp_path: Path, lost_database: Database, engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LogShop]:
    with open_log_lake(tmp_path, lost_database, engine, monkeypatch) as tables:
        audited = AuditedLog(lost_database)
        with ShopWriting(lost_database, seed=1, writers=1, is_patient=True) as writing:
            yield LogShop(tables, database_url, audited, writing)


@pytest.fixture
def shop(
    tmp_path: Path, source_database: Database, engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LogShop]:
    with open_log_lake(tmp_path, source_database, engine, monkeypatch) as tables:
        audited = AuditedLog(source_database)
        with ShopWriting(source_database, seed=1, writers=1) as writing:
            yield LogShop(tables, database_url, audited, writing)


@pytest.mark.turns("a source of change logs that is lost")
def test_a_source_that_is_killed_and_a_reader_that_is_ended_lose_and_double_nothing(
    lost_shop: LogShop, lost_home: Path
) -> None:
    shop = lost_shop
    with shop.tables.working():
        shop.await_progress()
        ended = shop.tables.ask(_READER)
        shop.tables.ask(_END)
        wait_until(lambda: shop.tables.ask(_READER) not in (0, ended), "the slot has another reader")
        shop.await_progress()
        for number in (signal.SIGQUIT, signal.SIGKILL):
            kill_server(start_logical_server(lost_home), number)
            start_logical_server(lost_home)
            shop.await_progress()
    shop.check_exactly_once()


@pytest.mark.turns("a source of change logs that is lost")
def test_a_source_that_is_killed_while_it_is_copied_loses_and_doubles_nothing(
    lost_shop: LogShop, lost_home: Path
) -> None:
    copying = lost_shop.start(f"{Failpoint.COPY_READ}=stop")
    copying.wait_until_stopped()
    kill_server(start_logical_server(lost_home), signal.SIGKILL)
    start_logical_server(lost_home)
    copying.wake_up()
    lost_shop.await_progress()
    lost_shop.end(copying)

    lost_shop.check_exactly_once()


@pytest.mark.turns("a source of change logs that is lost")
def test_a_slot_whose_log_the_server_gave_up_stops_the_tables(lost_shop: LogShop) -> None:
    tables = lost_shop.tables
    worker = lost_shop.pause_at(Failpoint.FINISH_COMMITTED, 5)
    with tables.database.connect() as connection:
        connection.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        connection.execute("SELECT pg_reload_conf()")
        try:
            wait_until(lambda: _give_up(lost_shop) == "lost", "the slot is lost")
            worker.wake_up()
            lost_shop.await_said("the server gave up the slot")
            lost_shop.await_said("sink recopy")
        finally:
            connection.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
            connection.execute("SELECT pg_reload_conf()")
    lost_shop.end(worker)


@pytest.mark.parametrize("deed", _STRANGERS)
@pytest.mark.rotating(of=OFTEN_SHARES)
def test_a_stranger_at_the_slot_while_a_worker_sleeps_stops_the_tables(shop: LogShop, deed: str) -> None:
    statements, said = _STRANGERS[deed]
    worker = shop.pause_at(Failpoint.FINISH_COMMITTED, 5)
    shop.tables.ask(_END)
    shop.tables.do("INSERT INTO notes VALUES (-1, 'lost', 0)")
    for statement in statements:
        shop.tables.ask(statement)

    worker.wake_up()
    shop.await_said(said)
    shop.await_said("sink recopy")

    shop.end(worker)
    # What the server had sent before is published, and nothing behind it.
    require_whole_log(shop.tables, shop.audited)


def _give_up(shop: LogShop) -> str:
    with shop.tables.database.connect() as connection:
        for statement in _FILL:
            connection.execute(statement.encode())
    return str(shop.tables.ask(_STATUS))
