"""Two connections to one Postgres: one is held between two statements while the other is watched."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Engine, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection

from gobblin_assets.db.engine import open_external

T = TypeVar("T")

WAIT_S_MAX = 150.0
_POLL_S = 0.01

_WAITING = text("""
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0
""")


class Pause:
    """Holds the first statement that contains ``marker``, with all locks of the statements before it."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._reached = threading.Event()
        self._released = threading.Event()

    def hold(
        self, _connection: Any, _cursor: Any, statement: str, _parameters: Any, _context: Any, _many: bool
    ) -> None:
        if self._marker in statement and not self._reached.is_set():
            self._reached.set()
            assert self._released.wait(WAIT_S_MAX), "nobody released the pause"

    def wait_until_reached(self, held: Future[Any]) -> None:
        deadline = time.monotonic() + WAIT_S_MAX
        while not self._reached.wait(_POLL_S):
            if held.done():
                held.result()
                raise AssertionError(f"the call ended without a statement with {self._marker!r}")
            assert time.monotonic() < deadline

    def release(self) -> None:
        self._released.set()


@dataclass(frozen=True, slots=True)
class Connections:
    """``held`` is the engine whose statements can be paused; ``other`` is watched; ``observer`` looks."""

    held: Engine
    other: Engine
    observer: Engine
    threads: ThreadPoolExecutor

    @contextmanager
    def pause(self, marker: str, call: Callable[[], T]) -> Iterator[Future[T]]:
        """Run ``call`` up to the marked statement; it goes on when the block ends."""
        pause = Pause(marker)
        event.listen(self.held, "before_cursor_execute", pause.hold)
        running = self.threads.submit(call)
        try:
            pause.wait_until_reached(running)
            yield running
        finally:
            # The listener stays: it holds nothing twice, and statements under way are going through the list.
            pause.release()

    def start(self, call: Callable[[], T]) -> Future[T]:
        return self.threads.submit(call)

    def has_to_wait(self, call: Future[Any]) -> bool:
        """Whether the server makes the call wait for a lock; False if the call ended without waiting."""
        deadline = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < deadline:
            with self.observer.connect() as connection:
                if connection.execute(_WAITING).scalar_one() > 0:
                    return True
            if call.done():
                return False
            time.sleep(_POLL_S)
        raise AssertionError("it neither ended nor waited for a lock")


@contextmanager
def open_connections(observer: Engine) -> Iterator[Connections]:
    database_url = observer.url.render_as_string(hide_password=False)
    held, other = open_external(database_url), open_external(database_url)
    # The server would end a long idle transaction; here a transaction idles for as long as the other one needs.
    event.listen(held, "connect", _be_patient)
    with ThreadPoolExecutor(2) as threads:
        yield Connections(held, other, observer, threads)
    held.dispose()
    other.dispose()


def _be_patient(connection: DBAPIConnection, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute(f"SET idle_in_transaction_session_timeout = '{WAIT_S_MAX:.0f}s'")
    cursor.close()
    connection.commit()
