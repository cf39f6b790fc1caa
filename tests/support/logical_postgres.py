"""A second Postgres for a whole test session, with ``wal_level = logical``: the source of tests of its change log.

It is a server of its own. A replication slot waits, before it begins, for every transaction of its whole server, and
decodes the log of all databases: tests that hold transactions open would stop it.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gobblin_assets.db import embedded
from gobblin_assets.db.account import find_account
from gobblin_assets.db.cluster import prepare_cluster
from gobblin_assets.db.embedded import EmbeddedServer
from tests.support.postgres import (
    LOGICAL_HOME,
    SESSION_HOME_VARIABLE,
    Database,
    describe_database,
    maintenance,
    temporary_database,
)

# A database's pages need no sync here: no test takes the machine's power away. Commits stay synchronous, since a slot
# gives only what has been written out.
_SETTINGS: Final = """
wal_level = logical
max_replication_slots = 64
max_wal_senders = 64
max_logical_replication_workers = 0
fsync = off
full_page_writes = off
"""

_GONE_S_MAX: Final = 150.0
_END_READERS: Final = """
    SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots
     WHERE database = %s AND active_pid IS NOT NULL"""
_DROP_SLOTS: Final = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"


def start_logical_server(home: Path | None = None) -> EmbeddedServer:
    """The session's server; the first call makes and starts it. ``home``: for a server that a test stops or kills."""
    files = embedded.files_of(home or Path(os.environ[SESSION_HOME_VARIABLE]) / LOGICAL_HOME)
    with embedded.hold_start_lock(files, lambda _line: None) as start_lock:
        if prepare_cluster(files, find_account(files.data), start_lock):
            with (files.data / "postgresql.conf").open("a", encoding="utf-8") as settings:
                settings.write(_SETTINGS)
        return embedded.start_held(files, lambda _line: None, start_lock)


def kill_server(server: EmbeddedServer, number: signal.Signals) -> None:
    """Send the postmaster a signal, and return when it is gone. SIGQUIT is an immediate stop."""
    pid = int(Path(server.data_directory, "postmaster.pid").read_text(encoding="ascii").split()[0])
    # A foreign process must never be signalled.
    assert Path(f"/proc/{pid}/cwd").samefile(server.data_directory)
    os.kill(pid, number)
    deadline = time.monotonic() + _GONE_S_MAX
    while Path(f"/proc/{pid}/cwd").exists():
        assert time.monotonic() < deadline, "the server does not end"
        time.sleep(0.01)


@contextmanager
def logical_database(server: EmbeddedServer) -> Iterator[Database]:
    """An empty database of its own for the block. Its slots end with it."""
    with temporary_database(server) as name:
        try:
            yield describe_database(server, name)
        finally:
            # A database whose slot is being read can't be dropped.
            with maintenance(server) as connection:
                connection.execute(_END_READERS, [name])
                connection.execute(_DROP_SLOTS, [name])
