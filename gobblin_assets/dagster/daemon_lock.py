"""One daemon for each storage of Dagster's: a lock in the storage's database, which lives as long as this process.

Dagster does not support two daemons on one storage, and does not refuse the second: each would launch the same runs. A
lock of the session ends with its process, however that ends, so that nobody waits for a daemon that died. If the
connection is lost, the lock is taken again; a process that finds it taken by another one ends.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError

from gobblin_assets.dagster.instance import URL_VARIABLE
from gobblin_assets.errors import RejectedError, RetryableError

LOOK_EVERY_S: Final = 5.0
"""Seconds between looks whether the connection is there; while it is not, between tries."""

_LOCK: Final = "hashtextextended('gobblin-assets: daemon of Dagster in ' || current_schema(), 0)"
_TRY = text(f"SELECT current_schema() IS NOT NULL AS has_schema, pg_try_advisory_lock({_LOCK}) AS is_mine")

# The halves of the key, as the view has them.
_HOLDER = text(f"""
    SELECT a.application_name, a.backend_start
      FROM pg_locks l JOIN pg_stat_activity a USING (pid)
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND (l.classid::bigint << 32 | l.objid::bigint) = {_LOCK}
""")
_NAME_LENGTH_MAX: Final = 63

# A peer whose machine is gone is noticed within half a minute, by the server and by this process. The server would
# otherwise keep the session, and so the lock, for hours.
_SERVER_KEEPALIVES = text(
    "SELECT set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),"
    " set_config('tcp_keepalives_count', '3', false)"
)
_CLIENT_KEEPALIVES: Final = MappingProxyType(
    {
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }
)


@dataclass(slots=True)
class DaemonLock:
    """The lock of one process. ``lose`` is called, from a thread, once another process has taken it."""

    engine: Engine
    lose: Callable[[str], None]
    wait: Callable[[float], bool]
    _connection: Connection | None = None

    def take(self) -> None:
        """RejectedError if another process has it; RetryableError if the storage does not answer."""
        try:
            self._connection = self.engine.connect()
            self._connection.execute(_SERVER_KEEPALIVES)
            found = self._connection.execute(_TRY).one()
        except DBAPIError as error:
            self._drop()
            raise RetryableError(
                f"Dagster's storage can't be asked whether a daemon works on it: {type(error.orig).__name__}",
                hint="Look after its database.",
            ) from error
        if not found.has_schema:
            self._drop()
            raise RejectedError(
                "the search path of Dagster's storage names no schema that is there",
                field=URL_VARIABLE,
                hint="Make the schema: CREATE SCHEMA.",
            )
        if not found.is_mine:
            said = self._describe_holder()
            self._drop()
            raise RejectedError(
                f"another daemon works on this storage of Dagster{said}, and Dagster supports one",
                field=URL_VARIABLE,
                hint="End that one; or let this variable name another database, or another schema of it by "
                "?options=-csearch_path%3Dname, for each instance of Dagster.",
            )

    def keep(self) -> None:
        """Look after the lock until ``wait(seconds)`` is True, or another process has it."""
        while not self.wait(LOOK_EVERY_S):
            try:
                if not self._is_held():
                    self.take()
            except RejectedError as error:
                self.lose(str(error))
                return
            except Exception:  # noqa: BLE001  whatever it is, the next try may find the lock at another process
                self._drop()

    def release(self) -> None:
        """Give the lock back. The thread that keeps it has to have ended."""
        self._drop()

    def _is_held(self) -> bool:
        if self._connection is None:
            return False
        try:
            self._connection.execute(text("SELECT 1"))
        except DBAPIError:
            self._drop()
            return False
        return True

    def _describe_holder(self) -> str:
        if self._connection is None:
            return ""
        with suppress(DBAPIError):
            for row in self._connection.execute(_HOLDER):
                # Whether a session of another user shows its start depends on rights.
                begun = row.backend_start
                since = "" if begun is None else f", since {begun:%Y-%m-%d %H:%M:%S%z}"
                return f" ({row.application_name}{since})"
        return ""

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # Of a connection that is broken nothing is left to close.
            with suppress(Exception):
                connection.close()


def hold_daemon_lock(url: str, lose: Callable[[str], None], wait: Callable[[float], bool]) -> DaemonLock:
    """Take the lock of the storage at ``url``, of psycopg 2, and keep it by a thread. Raises as ``DaemonLock.take``.

    ``wait`` sleeps this many seconds; True if the thread is to end.
    """
    name = f"gobblin-assets dagster on {socket.gethostname()}"[:_NAME_LENGTH_MAX]
    arguments = {"application_name": name, **_CLIENT_KEEPALIVES}
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=arguments)
    lock = DaemonLock(engine, lose, wait)
    lock.take()
    threading.Thread(target=lock.keep, name="daemon-lock", daemon=True).start()
    return lock
