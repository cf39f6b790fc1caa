"""One process of the server that sends the changes of a slot (a walsender), by libpq's own calls.

psycopg 2 has a client for a walsender. But this client confirms changes that are not published: it confirms the
position that the server reports, as long as no message is newer than the last confirmed position. The connection is not
for several threads. Values come as texts in formats that the decoder knows.

The messages: https://www.postgresql.org/docs/current/protocol-replication.html
"""

import select
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import psycopg
from psycopg import pq

from gobblin_assets.db.transactions import is_passing_state
from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.postgres_sessions import SETTINGS, plan_conninfo, write_options
from gobblin_assets.sources.postgres_log.pgoutput import write_lsn
from gobblin_assets.sources.postgres_log.server_state import LogSession, find_slot, name_reader, require_own_reader

# A publication may take longer than the server's minute. Whoever takes over ends this process.
_SETTINGS: Final = {**SETTINGS, "wal_sender_timeout": "600s"}
_DATA, _KEEPALIVE = b"wk"
_DATA_HEAD: Final = 25
"""Bytes before the payload: the kind, two places, and a time."""
_KEEPALIVE_BODY: Final = struct.Struct("!xQQ?")
_STATUS: Final = struct.Struct("!cQQQQ?")
_TAKE_OVER_S: Final = 10.0
_LOOK_S: Final = 0.1

_MAKE: Final = "SELECT lsn FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
_DROP: Final = "SELECT pg_drop_replication_slot(%s)"
_END: Final = "SELECT pg_terminate_backend(%s)"


class Walsender:
    """Changes of one slot from a place on. Errors are families; after an error only ``close`` is left.

    ``sent_to``: all that ends before this place was sent, if no message is left to be read; 0: not known yet.
    """

    def __init__(self, connection: JdbcConnection, *, slot: str, publication: str, start: int, job: str) -> None:
        self._connection = connection
        self._confirmed = 0
        self.sent_to = 0
        parameters = plan_conninfo(connection)
        with self.families():
            self._session = psycopg.Connection.connect(
                **{
                    **parameters,
                    "options": f"{parameters.get('options', '')} {write_options(_SETTINGS)}".strip(),
                    "application_name": name_reader(job),
                    "client_encoding": "UTF8",
                    "replication": "database",
                },
                autocommit=True,
            )
        self._wire = self._session.pgconn
        try:
            with self.families():
                self._start(slot, publication, start)
        except GobblinError:
            self.close()
            raise

    def _start(self, slot: str, publication: str, start: int) -> None:
        options = f"proto_version '1', publication_names {_quote(_quote(publication), chr(39))}, messages 'true'"
        command = f"START_REPLICATION SLOT {_quote(slot)} LOGICAL {write_lsn(start)} ({options})"
        result = self._wire.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise psycopg.errors.error_from_result(result)

    def read_message(self) -> bytes | None:
        """The next message of the plugin, or None if none is there now. Only within ``families``."""
        read = self._wire.get_copy_data
        while True:
            size, message = read(1)
            if not size:
                self._wire.consume_input()
                size, message = read(1)
                if not size:
                    return None
            if size < 0:
                raise self._find_end()
            kind = message[0]
            if kind == _DATA:
                return bytes(message[_DATA_HEAD:])
            if kind == _KEEPALIVE:
                self.sent_to, _at, is_asked = _KEEPALIVE_BODY.unpack(message)
                if is_asked:
                    self._answer(is_asking=False)

    def _find_end(self) -> psycopg.Error:
        result = self._wire.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return psycopg.errors.error_from_result(result)
        return psycopg.OperationalError("the server ended the stream")

    def wait(self, wait_s: float) -> None:
        """Until a message may be there, or so long."""
        with suppress(InterruptedError):
            select.select([self._wire.socket], [], [], wait_s)

    def confirm(self, position: int) -> None:
        """Nothing before ``position`` is needed any more; also that this reader lives."""
        self._confirmed = max(self._confirmed, position)
        with self.families():
            # With an answer: a server on which nothing changes says how far it is only if it is asked.
            self._answer(is_asking=True)

    def _answer(self, *, is_asking: bool) -> None:
        place = self._confirmed
        # The server does not look at the time.
        self._wire.put_copy_data(_STATUS.pack(b"r", place, place, place, 0, is_asking))
        self._wire.flush()

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._session.close()

    @contextmanager
    def families(self) -> Iterator[None]:
        """A block whose errors of libpq become families."""
        try:
            yield
        except psycopg.Error as error:
            raise judge_walsender(error, self._connection) from None


def judge_walsender(error: psycopg.Error, connection: JdbcConnection) -> GobblinError:
    """RejectedError for what a person can correct, RetryableError for what may pass by itself."""
    text = connection.scrub(str(error)).strip()
    state = error.sqlstate or ""
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
    return RetryableError(f"the slot could not be read: {text}", passes=is_passing_state(state), sqlstate=state)


def require_slot(
    session: LogSession, slot: str, followed: Sequence[str], *, job: str, patience_s: float
) -> bool | None:
    """None: the slot is there. Else it is made, and whether that has succeeded in so many seconds.

    RetryableError if it is gone, and these vnodes were ``followed`` by it.
    """
    found = find_slot(session, slot)
    if found is not None and found.wal_status != "lost":
        return None
    if followed:
        raise RetryableError(f"the slot {slot} is gone, and {followed[0]} was followed by it")
    if found is not None:
        end_other_reader(session, slot, job)
        drop_slot(session, slot)
    return make_slot(session, slot, patience_s=patience_s)


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


def end_other_reader(session: LogSession, slot: str, job: str) -> None:
    """End a walsender that a dead or sleeping worker of the job has left. The caller holds all lanes of its tables.

    RetryableError if the slot is still in use afterwards. RejectedError if another job reads it.
    """
    deadline_s = time.monotonic() + _TAKE_OVER_S
    while (found := find_slot(session, slot)) is not None and found.active_pid is not None:
        require_own_reader(found, slot, job)
        if time.monotonic() > deadline_s:
            raise RetryableError(f"the slot {slot} is still read by process {found.active_pid} of the server")
        session.execute(_END, [found.active_pid])
        time.sleep(_LOOK_S)


def _quote(text: str, mark: str = '"') -> str:
    return mark + text.replace(mark, 2 * mark) + mark
