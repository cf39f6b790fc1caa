"""``SpecExecutor`` over the ways to executors, and the executors of a topology by name."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from gobblin_assets.model.job_ticket import SentTicket, TicketId, TicketVerb
from gobblin_assets.service.executor_health import ExecutorHealth, ExecutorHealths
from gobblin_assets.service.executor_limits import LimitedTopology
from gobblin_assets.service.flow_store import SpecNotFoundError
from gobblin_assets.service.published_jobs import PastExecution, PublishingJobs
from gobblin_assets.service.spec_executors.spec_executor import SpecExecutor
from gobblin_assets.service.ticket_logs import TicketLogs
from gobblin_assets.service.topology import ExecutorSpec, TopologySpec
from gobblin_assets.service.way_calls import WayCalls

JOBS_LISTED_MAX: Final = 200

T = TypeVar("T")


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
    """``SpecExecutor`` of an executor in the topology. ``spec``: as it is written; ``usable``: as far as it can."""

    spec: TopologySpec
    usable: ExecutorSpec
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
        return _done(self.usable.capabilities)

    def list_jobs(self) -> Future[Sequence[PastExecution]]:
        # The service's own database has them.
        return self.calls.submit("", partial(self.jobs.list_sent, self.executor, limit=JOBS_LISTED_MAX))


def _done(value: T) -> Future[T]:
    made: Future[T] = Future()
    made.set_result(value)
    return made


@dataclass(frozen=True, slots=True)
class SpecExecutors:
    """The executors of a topology, by name."""

    limited: LimitedTopology
    logs: TicketLogs
    healths: ExecutorHealths
    jobs: PublishingJobs
    calls: WayCalls = field(default_factory=WayCalls)

    def get(self, name: str) -> SpecExecutor:
        """SpecNotFoundError: there is none of the name."""
        spec = self.limited.source.executors.get(name)
        if spec is None:
            raise SpecNotFoundError(
                f"there is no executor {name[:200]!a}", field="executor", hint="Look at the topology."
            )
        usable = self.limited.topology.executors.get(name, spec).executor
        way = spec.executor.way
        return WiredExecutor(name, way, self.logs, self.calls, spec, usable, self.healths, self.jobs)

    def look(self) -> None:
        """Read heartbeats, and have flows compiled for what executors can do now."""
        self.healths.look()
        self.limited.apply_health()
