"""Notices between processes: NOTIFY in the transaction of a write, LISTEN on a connection of its own.

A notice saves a wait, and no more. Whoever hears also looks by itself each second or two: a pooler may keep no LISTEN,
and a connection may be gone for a while. The server tells a notice when the transaction commits, and never before.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

import psycopg
from psycopg import sql
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from gobblin_assets.errors import GobblinError

_WAIT_S: Final = 1.0
_PROBED_EACH_WAITS: Final = 30
"""Whether a silent connection still lives is asked after so many waits."""

_RENEWED_AFTER_S: Final = 1.0
_RENEWED_AFTER_S_MAX: Final = 30.0
_STOP_WAIT_S: Final = 5.0

_log = logging.getLogger(__name__)


class Channel(StrEnum):
    """All channels. What differs from notice to notice is in its payload."""

    TICKETS = "gobblin_tickets"  # the name of the executor that a ticket was sent to
    REPORTS = "gobblin_reports"
    CATALOGS = "gobblin_catalogs"  # the name of the catalog that changed, or of the loop that has something to do


_NOTIFY = text("SELECT pg_notify(:channel, :payload)")

Hear = Callable[[str], None]
"""Hears of the payload of a notice; "": that some may have been missed. It returns at once."""


def notify(connection: Connection, channel: Channel, payload: str = "") -> None:
    """Tell all listeners when the transaction of ``connection`` commits. Equal notices of one transaction are one."""
    connection.execute(_NOTIFY, {"channel": channel.value, "payload": payload})


class NoticeListener:
    """A thread that hears notices. A connection that is lost is renewed, and then all are told that some are missed."""

    def __init__(self, engine: Engine, heard: Mapping[Channel, Hear]) -> None:
        self._engine = engine
        self._heard = heard
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="notices", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_STOP_WAIT_S)

    def _listen(self) -> None:
        wait_s, is_told = _RENEWED_AFTER_S, False
        while not self._stopping.is_set():
            try:
                with self._open() as connection:
                    wait_s, is_told = _RENEWED_AFTER_S, False
                    self._hear(connection)
            except (psycopg.Error, DBAPIError, PoolTimeoutError, GobblinError, OSError) as error:
                if not is_told:
                    _log.info("notices are not heard, and looked for instead: %s", error)
                is_told = True
                self._stopping.wait(wait_s)
                wait_s = min(_RENEWED_AFTER_S_MAX, wait_s * 2)

    @contextmanager
    def _open(self) -> Iterator["psycopg.Connection[Any]"]:
        pooled = self._engine.raw_connection()
        connection = pooled.driver_connection
        # It is none of the pool's any more: nobody else gets a connection that listens.
        pooled.detach()
        if not isinstance(connection, psycopg.Connection):
            raise psycopg.InterfaceError("the driver has no notices")
        try:
            connection.autocommit = True
            for channel in self._heard:
                connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel.value)))
            yield connection
        finally:
            connection.close()

    def _hear(self, connection: "psycopg.Connection[Any]") -> None:
        for hear in self._heard.values():
            hear("")
        silent = 0
        while not self._stopping.is_set():
            silent += 1
            for notice in connection.notifies(timeout=_WAIT_S, stop_after=1):
                silent = 0
                self._heard[Channel(notice.channel)](notice.payload)
            if silent >= _PROBED_EACH_WAITS:
                connection.execute("SELECT 1")
                silent = 0
