"""One process of the server that sends the changes of a slot (a walsender), as psycopg 2 talks to it.

The connection is not for several threads. Values come as texts in formats that the decoder knows.
"""

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
import psycopg2
from psycopg2.extras import LogicalReplicationConnection

from gobblin_assets.db.older_libpq import has_parameter
from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.postgres import plan_conninfo
from gobblin_assets.sources.postgres_log.server_state import APPLICATION, LogSession, find_slot

_FORMATS: Final = (
    "-c datestyle=ISO -c timezone=UTC -c intervalstyle=postgres -c extra_float_digits=1 -c bytea_output=hex"
    # A publication may take longer than the server's minute. Whoever takes over ends this process.
    " -c wal_sender_timeout=600s"
)
_TAKE_OVER_S: Final = 10.0
_LOOK_S: Final = 0.1

_MAKE: Final = "SELECT lsn FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
_DROP: Final = "SELECT pg_drop_replication_slot(%s)"
_END: Final = "SELECT pg_terminate_backend(%s)"


class Walsender:
    """Changes of one slot from a place on. Errors are families; after an error only ``close`` is left."""

    def __init__(self, connection: JdbcConnection, *, slot: str, publication: str, start: int, job: str) -> None:
        self._connection = connection
        with self._families():
            parameters = {key: value for key, value in plan_conninfo(connection).items() if has_parameter(key)}
            options = f"{parameters.get('options', '')} {_FORMATS}".strip()
            self._session = psycopg2.connect(
                **{
                    **parameters,
                    "options": options,
                    "application_name": f"{APPLICATION} {job}",
                    "client_encoding": "UTF8",
                },
                connection_factory=LogicalReplicationConnection,
            )
        try:
            with self._families():
                self._cursor = self._session.cursor()
                self._cursor.start_replication(
                    slot_name=slot,
                    start_lsn=start,
                    decode=False,
                    options={"proto_version": "1", "publication_names": _quote(publication), "messages": "true"},
                )
        except GobblinError:
            self.close()
            raise
        self.read_message = self._cursor.read_message
        """The next message, or None if none is there now. Only within ``families``."""

    @property
    def sent_to(self) -> int:
        """All that ends before this place was sent, if no message is left to be read."""
        return int(self._cursor.wal_end or 0)

    def wait(self, wait_s: float) -> None:
        """Until a message may be there, or so long."""
        with suppress(InterruptedError):
            select.select([self._cursor], [], [], wait_s)

    def confirm(self, position: int) -> None:
        """Nothing before ``position`` is needed any more; also that this reader lives."""
        with self._families():
            # With an answer: a server on which nothing changes says how far it is only if it is asked.
            self._cursor.send_feedback(
                flush_lsn=position, apply_lsn=position, write_lsn=position, reply=True, force=True
            )

    def families(self) -> Any:
        """A block whose errors of psycopg 2 become families."""
        return self._families()

    def close(self) -> None:
        with suppress(psycopg2.Error):
            self._session.close()

    @contextmanager
    def _families(self) -> Iterator[None]:
        try:
            yield
        except psycopg2.Error as error:
            raise judge_walsender(error, self._connection) from None


def judge_walsender(error: psycopg2.Error, connection: JdbcConnection) -> GobblinError:
    """RejectedError for what a person can correct, RetryableError for what may pass by itself."""
    text = connection.scrub(str(error)).strip()
    state = error.pgcode or ""
    where = f"connections[{connection.name}]"
    if state.startswith("28") or "authentication failed" in text or "no pg_hba.conf entry" in text:
        return RejectedError(
            f"the source refused the login for replication: {text}",
            field=f"{where}.user",
            hint="Check the user, the password, and what pg_hba.conf lets in for this database.",
        )
    if state == "42501" or "must be superuser or replication role" in text:
        return RejectedError(
            f"the user may not read replication slots: {text}", field=f"{where}.user", hint="ALTER ROLE … REPLICATION."
        )
    if state == "42704" and "publication" in text:
        return RejectedError(
            f"the server could not decode: {text}",
            field="source.publication",
            hint="The publication must be there before the changes that are read: make it, and copy the tables again.",
        )
    return RetryableError(f"the slot could not be read: {text}", sqlstate=state)


def make_slot(session: LogSession, slot: str, *, patience_s: float) -> bool:
    """Waits for the transactions that are running, as Postgres does, but no longer than this; whether it is made."""
    session.execute("SELECT set_config('statement_timeout', %s, false)", [str(round(patience_s * 1000))])
    try:
        session.execute(_MAKE, [slot])
    except psycopg.errors.QueryCanceled:
        return False
    return True


def drop_slot(session: LogSession, slot: str) -> None:
    session.execute(_DROP, [slot])


def end_other_reader(session: LogSession, slot: str) -> None:
    """End a walsender that a dead or sleeping worker has left. The caller holds all lanes of the slot's tables.

    RetryableError if the slot is still in use afterwards.
    """
    deadline_s = time.monotonic() + _TAKE_OVER_S
    while (found := find_slot(session, slot)) is not None and found.active_pid is not None:
        if time.monotonic() > deadline_s:
            raise RetryableError(f"the slot {slot} is still read by process {found.active_pid} of the server")
        session.execute(_END, [found.active_pid])
        time.sleep(_LOOK_S)


def _quote(publication: str) -> str:
    return '"' + publication.replace('"', '""') + '"'
