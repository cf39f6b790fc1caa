"""``LogDrainStore`` in Postgres. A trigger on claims is its fence: it holds for executors of any release."""

import uuid
from typing import Final

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from gobblin_assets.db.notices import Channel, notify
from gobblin_assets.db.transactions import TRIES_MAX, transact
from gobblin_assets.state.log_drains import LogDrain
from gobblin_assets.state.tickets import StaleReleaseError

_FENCE: Final = int.from_bytes(b"gadrain")
"""The lock that the trigger of migration 0019 shares."""

_DRAINS, _STALE = "GA001", "GA002"
"""The SQLSTATEs by which that trigger refuses."""

IS_DRAINING: Final = "EXISTS (SELECT FROM gobblin.log_drain WHERE ended_at IS NULL)"

_IS_DRAINING = text(f"SELECT {IS_DRAINING}")

_LOCK = text("SELECT pg_advisory_xact_lock(:fence)")

_BEGIN = text("""
    INSERT INTO gobblin.log_drain (drain_id, asked_by) VALUES (:drain_id, :asked_by) ON CONFLICT DO NOTHING
""")

_END = text("UPDATE gobblin.log_drain SET ended_at = clock_timestamp() WHERE ended_at IS NULL")

_READ = text("""
    SELECT d.begun_at AS since, coalesce(d.asked_by, '') AS asked_by, w.working,
           l.begun_at AS last_begun_at, l.ended_at AS last_ended_at
      FROM (SELECT count(*) AS working FROM gobblin.job_ticket t JOIN gobblin.ticket_claim c USING (ticket_id)
             WHERE t.ended_at IS NULL AND c.ended_at IS NULL AND c.expires_at > clock_timestamp()) w
      LEFT JOIN gobblin.log_drain d ON d.ended_at IS NULL
      LEFT JOIN LATERAL (SELECT begun_at, ended_at FROM gobblin.log_drain
                          WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT 1) l ON true
""")


class PostgresLogDrainStore:
    """``LogDrainStore`` over the table ``log_drain``."""

    def __init__(self, engine: Engine, *, tries: int = TRIES_MAX) -> None:
        self._engine = engine
        self._tries = tries

    def is_draining(self) -> bool:
        found = transact(self._engine, "ask for a drain", lambda c: c.execute(_IS_DRAINING).scalar(), tries=self._tries)
        return bool(found)

    def begin(self, asked_by: str) -> None:
        drain_id = uuid.uuid4()

        def body(connection: Connection) -> None:
            connection.execute(_LOCK, {"fence": _FENCE})
            connection.execute(_BEGIN, {"drain_id": drain_id, "asked_by": asked_by})
            notify(connection, Channel.TICKETS)

        transact(self._engine, "drain the log", body, tries=self._tries)

    def end(self) -> None:
        def body(connection: Connection) -> None:
            connection.execute(_END)
            notify(connection, Channel.TICKETS)

        transact(self._engine, "resume the log", body, tries=self._tries)

    def read(self) -> LogDrain:
        row = transact(self._engine, "read a drain", lambda c: c.execute(_READ).one(), tries=self._tries)
        return LogDrain(row.since, row.asked_by, row.working, row.last_begun_at, row.last_ended_at)


def require_drain(error: DBAPIError) -> None:
    """Nothing, if the fence refused a claim since the log drains. Else StaleReleaseError, or the error itself."""
    state = getattr(error.orig, "sqlstate", None)
    if state == _STALE:
        raise StaleReleaseError(
            "the log was upgraded since this process began",
            field="schema",
            hint="Upgrade the package gobblin-assets, and start again.",
        ) from error
    if state != _DRAINS:
        raise error
