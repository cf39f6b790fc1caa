"""Calls over ways to executors, each done by a thread of its way.

A way that hangs holds up nobody: nobody waits for a call longer than CALL_WAIT_S_MAX, and a way refuses what comes
while it hangs.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from gobblin_assets.errors import RetryableError

CALL_WAIT_S_MAX: Final = 10.0
"""So long a caller waits. The call goes on, and what it sends may arrive: it is sent again, and is the same ticket."""

T = TypeVar("T")


class WayCalls:
    """Calls over ways, one at a time for each way, in the order in which they came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, SimpleQueue[Callable[[], None]]] = {}
        self._hanging: dict[str, Future[Any]] = {}

    def submit(self, way: str, call: Callable[[], T]) -> Future[T]:
        made: Future[T] = Future()
        with self._lock:
            hanging = self._hanging.get(way)
            if hanging is not None and not hanging.done():
                made.set_exception(_refuse_hanging(way))
                return made
            if way not in self._lines:
                self._lines[way] = SimpleQueue()
                # It is not waited for at the end of the process: it may hang.
                threading.Thread(target=_take_calls, args=(self._lines[way],), name=f"way {way}", daemon=True).start()
            self._lines[way].put(partial(_fulfil, made, call))
        return made

    def wait_for(self, way: str, call: Future[T], wait_s: float = CALL_WAIT_S_MAX) -> T:
        """The result. RetryableError: there is none yet; until there is one, the way refuses further calls."""
        if not wait([call], wait_s).done:
            with self._lock:
                self._hanging[way] = call
            raise _refuse_hanging(way)
        return call.result()


def _take_calls(line: "SimpleQueue[Callable[[], None]]") -> None:
    while True:
        line.get()()


def _fulfil(made: Future[T], call: Callable[[], T]) -> None:
    try:
        made.set_result(call())
    except BaseException as error:  # noqa: BLE001  whoever waits gets it, whatever it is
        made.set_exception(error)


def _refuse_hanging(way: str) -> RetryableError:
    return RetryableError(
        f"the way {way!r} to its executors does not answer",
        passes=True,
        hint="Look whether its Postgres, its brokers or its server answer.",
    )
