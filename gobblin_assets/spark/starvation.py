"""A watch over a session on a cluster that has work and runs none of it, because it gets no executor.

No worker is registered, other applications have all cores, or the master was started anew and knows the application no
more: Spark then waits for ever, and says so in the driver's log alone. The watch says it where the run's lines go, and
after ``wait_s`` cancels what waits. An action that was cancelled so raises RejectedError with the fix
(``errors.explain_starvation``). In a classic session the watch asks Spark's tracker; a Connect server reports how far
this session's own operations have come, so that slots which others' have count as none.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, is_remote

from gobblin_assets.spark.errors import GIVEN_UP
from gobblin_assets.spark.spark_settings import is_local

SAY_AFTER_S: Final = 30.0
"""A cluster may take so long to start an executor. With a short ``wait_s`` it is half of that."""

SAY_EVERY_S: Final = 60.0
LOOK_EVERY_S: Final = 1.0


class _Ways(Protocol):
    """A kind of session, as the watch sees it."""

    def starves(self) -> bool:
        """Whether there is work of which no task runs."""
        ...

    def count_executors(self) -> int | None:
        """None: nobody knows."""
        ...

    def stop_all(self) -> None: ...


class ExecutorWatch:
    """One thread for a session. ``close`` ends it; it ends by itself with its session."""

    def __init__(self, ways: _Ways, master: str, wait_s: float, say: Callable[[str], None]) -> None:
        self._ways = ways
        self._master = master
        self._wait_s = wait_s
        self._say = say
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="spark-executors", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        since = said_at = None
        while not self._closed.wait(LOOK_EVERY_S):
            now = time.monotonic()
            try:
                if not self._ways.starves():
                    since = said_at = None
                    continue
                since = now if since is None else since
                if now - since >= self._wait_s:
                    GIVEN_UP.reason = self._describe(now - since)
                    self._ways.stop_all()
                    since = said_at = None
                elif now >= (since + min(SAY_AFTER_S, self._wait_s / 2) if said_at is None else said_at + SAY_EVERY_S):
                    said_at = now
                    self._say(f"{self._describe(now - since)}, and it gives up after {self._wait_s:.0f} s")
            except (Py4JError, PySparkException, OSError):
                # The session is gone; whoever uses it hears so.
                return

    def _describe(self, waited_s: float) -> str:
        count = self._ways.count_executors()
        found = "" if count is None else f", and it has {count or 'no'} executors"
        return f"Spark has waited for executors at {self._master} for {waited_s:.0f} s: none of its tasks runs{found}"


def watch_executors(session: SparkSession, wait_s: float, say: Callable[[str], None]) -> ExecutorWatch | None:
    """Watch a session from now on; None for one whose executors are in its driver's own process."""
    master = str(session.conf.get("spark.master", "local"))
    if is_local(master):
        return None
    return ExecutorWatch(_ConnectWays(session) if is_remote() else _ClassicWays(session), master, wait_s, say)


class _ClassicWays:
    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext

    def starves(self) -> bool:
        tracker = self._context.statusTracker()
        found = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        stages = [each for each in found if each is not None]
        if any(each.numActiveTasks for each in stages):
            GIVEN_UP.reason = None
            return False
        return any(each.numCompletedTasks < each.numTasks for each in stages)

    def count_executors(self) -> int | None:
        context = cast("Any", self._context)._jsc.sc()  # noqa: SLF001  PySpark has no call for it
        # The driver is one of them.
        return len(context.statusTracker().getExecutorInfos()) - 1

    def stop_all(self) -> None:
        self._context.cancelAllJobs()


class _ConnectWays:
    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._waiting: dict[str, bool] = {}
        self._lock = threading.Lock()
        cast("Any", session).registerProgressHandler(self._hear)

    def starves(self) -> bool:
        with self._lock:
            return bool(self._waiting) and all(self._waiting.values())

    def count_executors(self) -> int | None:
        return None

    def stop_all(self) -> None:
        cast("Any", self._session).interruptAll()

    def _hear(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:  # noqa: FBT001  PySpark's signature
        left = [each for each in stages or () if not each.done and each.num_completed_tasks < each.num_tasks]
        with self._lock:
            if done:
                self._waiting.pop(str(operation_id), None)
                return
            if inflight_tasks:
                GIVEN_UP.reason = None
            if left:
                self._waiting[str(operation_id)] = not inflight_tasks
            else:
                self._waiting.pop(str(operation_id), None)
