"""One process of the server that sends the changes of a slot (a walsender), by libpq's stream of copied data.

The connection is not for several threads. Values come as texts in formats that the decoder knows.
"""

import select
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.postgres import plan_conninfo
from gobblin_assets.sources.postgres_log.pgoutput import write_lsn
from gobblin_assets.sources.postgres_log.server_state import APPLICATION, LogSession, find_slot

_FORMATS: Final = (
    "-c datestyle=ISO -c timezone=UTC -c intervalstyle=postgres -c extra_float_digits=1 -c bytea_output=hex"
    # A publication may take longer than the server's minute. Whoever takes over ends this process.
    " -c wal_sender_timeout=600s"
)
# Of the protocol: messages of data and keepalives, each with the end of what was sent, and our answer to them.
_DATA: Final = b"w"[0]
_DATA_END: Final = slice(9, 17)
_DATA_HEAD: Final = 25
_KEEPALIVE_END: Final = slice(1, 9)
_KEEPALIVE_HEAD: Final = 17
_STATUS: Final = struct.Struct(">cQQQq?")
_NOTHING: Final = b"k" + bytes(17)
_EPOCH_S: Final = 946_684_800
"""Times are counted from 2000 on."""

_TAKE_OVER_S: Final = 10.0
_LOOK_S: Final = 0.1

_MAKE: Final = "SELECT lsn FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
_DROP: Final = "SELECT pg_drop_replication_slot(%s)"
_END: Final = "SELECT pg_terminate_backend(%s)"


class Walsender:
    """Changes of one slot from a place on. Errors are families; after an error only ``close`` is left.

    The server hears of no place but those that ``confirm`` was told. (psycopg 2 would confirm by itself how far an idle
    server says it is; what is confirmed and published nowhere is, for whoever comes next, read by a stranger.)
    """

    def __init__(self, connection: JdbcConnection, *, slot: str, publication: str, start: int, job: str) -> None:
        self._connection = connection
        self._confirmed = 0
        self._last = memoryview(_NOTHING)
        with self._families():
            parameters = plan_conninfo(connection)
            self._session = pq.PGconn.connect(
                make_conninfo(
                    **{
                        **parameters,
                        "options": f"{parameters.get('options', '')} {_FORMATS}".strip(),
                        "application_name": f"{APPLICATION} {job}",
                        "client_encoding": "UTF8",
                        "replication": "database",
                    }
                ).encode()
            )
        try:
            with self._families():
                if self._session.status != pq.ConnStatus.OK:
                    raise psycopg.OperationalError(self._session.get_error_message())
                self._start(slot, publication, start)
        except GobblinError:
            self.close()
            raise

    def _start(self, slot: str, publication: str, start: int) -> None:
        names = _quote(publication).replace("'", "''")
        found = self._session.exec_(
            f"START_REPLICATION SLOT {_quote(slot)} LOGICAL {write_lsn(start)}"
            f" (proto_version '1', publication_names '{names}', messages 'true')".encode()
        )
        if found.status != pq.ExecStatus.COPY_BOTH:
            raise psycopg.errors.error_from_result(found)

    def read_message(self) -> bytes | None:
        """The next message, or None if none is there now. Only within ``families``."""
        is_asked = False
        while True:
            size, data = self._session.get_copy_data(1)
            if size > 0:
                self._last = data
                if data[0] == _DATA:
                    return bytes(data[_DATA_HEAD:])
                if data[_KEEPALIVE_HEAD]:
                    self._send(is_answer_wanted=False)
            elif size < 0:
                raise self._find_end()
            elif is_asked:
                return None
            else:
                self._session.consume_input()
                is_asked = True

    @property
    def sent_to(self) -> int:
        """All that ends before this place was sent, if no message is left to be read."""
        place = _DATA_END if self._last[0] == _DATA else _KEEPALIVE_END
        return int.from_bytes(self._last[place], "big")

    def wait(self, wait_s: float) -> None:
        """Until a message may be there, or so long."""
        with suppress(InterruptedError):
            select.select([self._session.socket], [], [], wait_s)

    def confirm(self, position: int) -> None:
        """Nothing before ``position`` is needed any more; also that this reader lives."""
        self._confirmed = max(self._confirmed, position)
        with self._families():
            # A server on which nothing changes says how far it is only if it is asked.
            self._send(is_answer_wanted=True)

    def families(self) -> Any:
        """A block whose errors of psycopg become families."""
        return self._families()

    def close(self) -> None:
        self._session.finish()

    def _send(self, *, is_answer_wanted: bool) -> None:
        at = round((time.time() - _EPOCH_S) * 1e6)
        place = self._confirmed
        self._session.put_copy_data(_STATUS.pack(b"r", place, place, place, at, is_answer_wanted))
        self._session.flush()

    def _find_end(self) -> psycopg.Error:
        found = self._session.get_result()
        if found is None or found.status == pq.ExecStatus.COMMAND_OK:
            return psycopg.OperationalError("the server ended the stream")
        return psycopg.errors.error_from_result(found)

    @contextmanager
    def _families(self) -> Iterator[None]:
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
