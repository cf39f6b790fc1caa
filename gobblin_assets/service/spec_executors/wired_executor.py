"""``SpecExecutor`` over the ways to executors, and the executors of a topology by name.

What goes over a way is done by a thread of the way: a way that hangs holds up nobody, since nobody waits for its
futures longer than CALL_WAIT_S_MAX, and refuses what comes while it hangs.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from gobblin_assets.errors import RetryableError
from gobblin_assets.model.job_ticket import SentTicket, TicketId, TicketVerb
from gobblin_assets.service.executor_health import ExecutorHealth, ExecutorHealths
from gobblin_assets.service.flow_store import SpecNotFoundError
from gobblin_assets.service.published_jobs import PastExecution, PublishingJobs
from gobblin_assets.service.spec_executors.spec_executor import SpecExecutor
from gobblin_assets.service.ticket_logs import TicketLogs
from gobblin_assets.service.topology import Topology, TopologySpec

CALL_WAIT_S_MAX: Final = 10.0
"""So long a caller waits. The call goes on, and what it sends may arrive: it is sent again, and is the same ticket."""

JOBS_LISTED_MAX: Final = 200

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
        f"the way {way!r} to its executors does not answer within {CALL_WAIT_S_MAX:g} s",
        passes=True,
        hint="Look whether its Postgres, its brokers or its server answer.",
    )


@dataclass(frozen=True, slots=True)
class WiredJobs:
    """The jobs of an executor, by the way that they were launched for: the executor may have left the topology."""

    executor: str
    way: str
    logs: TicketLogs
    calls: WayCalls

    def add_job(self, sent: SentTicket) -> Future[None]:
        return self._call(self._send, sent)

    def update_job(self, sent: SentTicket) -> Future[None]:
        return self._call(self._send, sent)

    def delete_job(self, sent: SentTicket) -> Future[TicketId | None]:
        return self._call(self._end, sent)

    def _call(self, act: Callable[[SentTicket], T], sent: SentTicket) -> Future[T]:
        return self.calls.submit(self.way, partial(act, sent))

    def _send(self, sent: SentTicket) -> None:
        self.logs.get_store(self.way).send(sent)

    def _end(self, sent: SentTicket) -> TicketId | None:
        wire = self.logs.get_store(self.way)
        wire.send(sent)
        # An executor that is gone settles nothing.
        return wire.settle_cancel(sent.ticket_id) if sent.verb is TicketVerb.CANCEL else None


@dataclass(frozen=True, slots=True)
class WiredExecutor(WiredJobs):
    """``SpecExecutor`` of an executor in the topology."""

    spec: TopologySpec
    healths: ExecutorHealths
    jobs: PublishingJobs

    def get_uri(self) -> str:
        return self.spec.uri

    def get_description(self) -> Future[str]:
        return _done(self.spec.description)

    def get_config(self) -> Future[Mapping[str, Any]]:
        return _done(asdict(self.spec.executor))

    def get_health(self) -> Future[ExecutorHealth]:
        return _done(self.healths.get(self.executor))

    def get_capabilities(self) -> Future[frozenset[str]]:
        return _done(self.spec.executor.capabilities)

    def list_jobs(self) -> Future[Sequence[PastExecution]]:
        # The service's own database has them.
        return self.calls.submit("", partial(self.jobs.list_sent, self.executor, limit=JOBS_LISTED_MAX))


def _done(value: T) -> Future[T]:
    made: Future[T] = Future()
    made.set_result(value)
    return made


@dataclass(frozen=True, slots=True)
class SpecExecutors:
    """The executors of a topology, limited by what they can do. ``topology``: that of now."""

    topology: Callable[[], Topology]
    logs: TicketLogs
    healths: ExecutorHealths
    jobs: PublishingJobs
    calls: WayCalls = field(default_factory=WayCalls)

    def get(self, name: str) -> SpecExecutor:
        """SpecNotFoundError: there is none of the name."""
        spec = self.topology().executors.get(name)
        if spec is None:
            raise SpecNotFoundError(
                f"there is no executor {name[:200]!a}", field="executor", hint="Look at the topology."
            )
        return WiredExecutor(name, spec.executor.way, self.logs, self.calls, spec, self.healths, self.jobs)
