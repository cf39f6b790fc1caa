"""A Postgres of the torture's own: the product's embedded server, which is killed again and again."""

import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import psycopg

from gobblin_assets.db import embedded, schema
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external

DATABASE = "gobblin"
_GONE_S_MAX = 30.0
_POLL_S = 0.005
_END_SESSIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND xact_start IS NOT NULL"""


class Victim:
    """The server of one home. One thread at a time kills it and starts it again."""

    def __init__(self, home: Path, seed: str) -> None:
        self.home = home
        self._dice = random.Random(f"{seed}/server")
        self._lock = threading.Lock()
        self.server = embedded.start(home, lambda _line: None)
        embedded.create_database(self.server, DATABASE)
        engine = open_external(self.url)
        schema.upgrade(engine)
        engine.dispose()

    @property
    def url(self) -> str:
        return self.server.url(DATABASE)

    @property
    def socket_file(self) -> Path:
        return Path(self.server.socket_directory, f".s.PGSQL.{self.server.port}")

    def connect(self, database: str = DATABASE) -> "psycopg.Connection[tuple[object, ...]]":
        return psycopg.connect(
            host=str(self.server.socket_directory),
            port=self.server.port,
            user=self.server.user,
            passfile=str(self.server.password_file),
            dbname=database,
            connect_timeout=5,
            autocommit=True,
            options="-c statement_timeout=60s -c TimeZone=UTC",
        )

    def kill(self, number: signal.Signals, down_s: float) -> None:
        """Send the postmaster a signal, leave it down for a while, start it again."""
        with self._lock:
            postmaster = self._postmaster()
            os.kill(postmaster, number)
            deadline = time.monotonic() + _GONE_S_MAX
            while _is_alive(postmaster) and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(down_s)
            self.server = embedded.start(self.home, lambda _line: None)

    def kill_backend(self) -> bool:
        """Kill one client's backend; the postmaster then disconnects all clients and recovers by itself."""
        with self._lock:
            backends = self._backends()
            if not backends:
                return False
            with suppress(ProcessLookupError):
                os.kill(self._dice.choice(backends), signal.SIGKILL)
            return True

    def end_sessions(self, database: str, lasts_s: float) -> bool:
        """Those that are in a transaction, as soon as there are any. Whether there were any in that time."""
        deadline = time.monotonic() + lasts_s
        with self._lock, self.connect() as connection:
            while time.monotonic() < deadline:
                ended = connection.execute(_END_SESSIONS, [database]).fetchall()
                if ended:
                    return True
                time.sleep(_POLL_S)
        return False

    def lock_table(self, table: str, lasts_s: float, database: str = DATABASE) -> bool:
        """Nobody may read or write it meanwhile; whether the lock was given. It ends early if the server does.

        ``table``: as SQL has it.
        """
        is_locked = False
        with suppress(psycopg.Error), self.connect(database) as connection, connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '2s'")
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
            is_locked = True
            time.sleep(lasts_s)
        return is_locked

    def start(self) -> EmbeddedServer:
        """Start the server, whatever happened before."""
        with self._lock:
            self.server = embedded.start(self.home, lambda _line: None)
        return self.server

    def stop(self) -> None:
        with self._lock:
            embedded.stop(self.home)

    def _postmaster(self) -> int:
        pid = int(Path(self.server.data_directory, "postmaster.pid").read_text(encoding="ascii").split()[0])
        # Process ids repeat within minutes of this; a foreign process must never be signalled.
        if not Path(f"/proc/{pid}/cwd").samefile(self.server.data_directory):
            raise RuntimeError(f"process {pid} is not the server of {self.home}")
        return pid

    def _backends(self) -> list[int]:
        try:
            with self.connect() as connection:
                rows = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND datname = %s"
                    " AND pid <> pg_backend_pid()",
                    [DATABASE],
                ).fetchall()
        except psycopg.Error:
            return []
        return [int(str(pid)) for (pid,) in rows]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False
