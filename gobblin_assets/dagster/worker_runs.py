"""The job ``gobblin_worker``: a run of it is a worker of one ticket for a while, and then leaves it to the next run.

Each run is an attempt at the ticket. One whose time is over, or that somebody terminates in Dagster, drains: it ends
behind a cut, as DRAINED, and another run follows. Only the log ends a worker for good: a ticket that cancels or
replaces its own. The run asks for that itself, so that it ends also while Dagster's daemon or code server is away.
"""

import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import dagster as dg

from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY
from gobblin_assets.dagster.ticket_runs import (
    INTERRUPTED,
    OwnHost,
    describe_owner,
    keeping_claim,
    read_own_tickets,
    say_claimed,
)
from gobblin_assets.errors import FencedError, GobblinError
from gobblin_assets.jobs.ingest.engine_port import AnnouncedEngine, Engine
from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.run.own_process import StopRequest, heed_stop_signals
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.spec.job_spec import JobSpec, SinkSpec
from gobblin_assets.state.tickets import AttemptEnd, Claim, TicketReportKind
from gobblin_assets.tickets.claim_keeping import settle_cancels
from gobblin_assets.tickets.executor import CLAIM_TTL_S
from gobblin_assets.tickets.interruption import Interruption, hold_signals
from gobblin_assets.tickets.ticket_run import report_interrupted, run_claimed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS_JOB: Final = "gobblin_worker"

WORKERS_OP: Final = "work_on_ticket"
_REPORTS_READ_MAX: Final = 100


class WorkerConfig(dg.Config):
    """Run configuration of ``gobblin_worker``. ``ticket``: its id."""

    ticket: str


def build_workers_job(executor: str) -> dg.JobDefinition:
    """Works on tickets for ``executor``: one op in one process."""

    @dg.op(
        name=WORKERS_OP,
        required_resource_keys={STORES_KEY, FILE_SYSTEMS_KEY, SPARK_KEY},
        description="Claims the ticket of a worker, and works on it for a while.",
    )
    def work_on_ticket(context: dg.OpExecutionContext, config: WorkerConfig) -> None:
        (ticket_id,) = read_own_tickets(context, executor, [config.ticket])
        WorkerRun(context, ticket_id).work()

    @dg.job(
        name=WORKERS_JOB,
        executor_def=dg.in_process_executor,
        description="Works on a service's ticket of a worker. A sensor asks for its runs, one after another.",
    )
    def gobblin_worker() -> None:
        work_on_ticket()

    return gobblin_worker


def build_worker_config(ticket_id: TicketId) -> dict[str, object]:
    """The run configuration for a ticket."""
    return {"ops": {WORKERS_OP: {"config": {"ticket": str(ticket_id)}}}}


@dataclass(slots=True)
class WorkerRun:
    """One Dagster run, which works on one ticket."""

    context: dg.OpExecutionContext
    ticket_id: TicketId
    _interruption: Interruption = field(default_factory=Interruption)
    _is_terminated: bool = False
    _end_at_s: float = 0.0

    def work(self) -> None:
        """Work until the time is over, or until somebody wants the worker to end.

        Failure if the attempt failed or died; DagsterExecutionInterruptedError if it was cancelled, or if Dagster
        interrupts the run.
        """
        claim = self._stores.tickets.claim(self.ticket_id, describe_owner(self.context.run_id), ttl_s=CLAIM_TTL_S)
        say_claimed(self.context, self.ticket_id, claim)
        if claim is None:
            return
        self._stores.worker_tickets.forget_drained(claim)
        self._end_at_s = time.monotonic() + self._find_life_s()
        try:
            end = self._attempt(claim)
        finally:
            with hold_signals():
                settle_cancels(claim, self._stores)
        if end is AttemptEnd.CANCELLED:
            self.context.instance.report_run_canceling(self.context.run, "The service ended the worker.")
        if end is AttemptEnd.CANCELLED or self._is_terminated:
            raise dg.DagsterExecutionInterruptedError
        if end not in (AttemptEnd.COMPLETE, AttemptEnd.DRAINED):
            raise dg.Failure(self._describe_end(claim), allow_retries=False)

    def _attempt(self, claim: Claim) -> AttemptEnd | None:
        """The end of the attempt; None: another one followed it."""
        interruption = self._interruption
        with keeping_claim(self.context, claim, interruption) as (keeper, say):
            keeper.find_end = self._find_end
            try:
                # A worker that drains already hears its first signal as one: only a second one interrupts it.
                with heed_stop_signals(self._hear_signal, StopRequest()), keeper.keep():
                    host = OwnHost(self.context, say)
                    return run_claimed(claim, self._stores, self._open_spark, say, interruption, host)
            except FencedError as error:
                say(str(error))
                return None
            except INTERRUPTED:
                with hold_signals():
                    end = self._name_end()
                    return report_interrupted(claim, self._stores, end, self._explain(end))

    def _hear_signal(self, _line: str) -> None:
        """Inside the signal's handler: nothing is said, and nobody is asked."""
        self._is_terminated = True
        self._interruption.end = self._interruption.end or AttemptEnd.DRAINED
        self._interruption.stop.make()

    def _name_end(self) -> AttemptEnd:
        """Whoever cancels a ticket may have had the run terminated before the run has seen why."""
        end = self._interruption.end or AttemptEnd.DRAINED
        is_cancelled = end is AttemptEnd.DRAINED and self._stores.tickets.list_cancels(self.ticket_id)
        return AttemptEnd.CANCELLED if is_cancelled else end

    def _explain(self, end: AttemptEnd) -> str:
        if end is not AttemptEnd.DRAINED:
            return ""
        if self._is_terminated:
            return "its run was terminated in Dagster"
        return "the time of its run was over" if time.monotonic() >= self._end_at_s else ""

    def _find_end(self) -> AttemptEnd | None:
        """The end that the time or the log asks for; that of a cancelled ticket is the keeper's."""
        if self._stores.worker_tickets.is_replaced(self.ticket_id):
            return AttemptEnd.COMPLETE
        return AttemptEnd.DRAINED if time.monotonic() >= self._end_at_s else None

    def _find_life_s(self) -> float:
        ticket = self._stores.tickets.load_jobs([self.ticket_id]).get(self.ticket_id)
        try:
            return SinkSpec().worker_s if ticket is None else parse_job(ticket.job).sink.worker_s
        except GobblinError:
            # The attempt itself is refused by the field that is wrong.
            return SinkSpec().worker_s

    def _describe_end(self, claim: Claim) -> str:
        after = {self.ticket_id: (claim.attempt, 0)}
        reports = self._stores.tickets.list_reports([self.ticket_id], after, limit=_REPORTS_READ_MAX)
        ends = [each.details for each in reports if each.kind is TicketReportKind.ENDED]
        said = f"Attempt {claim.attempt} at ticket {self.ticket_id}"
        return f"{said}: {ends[0]['message']}" if ends else f"{said} was followed by another one."

    def _open_spark(self) -> AnnouncedEngine:
        engine: Engine = getattr(self.context.resources, SPARK_KEY)
        return _HeedingEngine(engine, self.context.log.info)

    @property
    def _stores(self) -> Stores:
        stores: Stores = getattr(self.context.resources, STORES_KEY)
        return stores


class _HeedingEngine(AnnouncedEngine):
    """A classic session takes SIGINT for itself when it opens. Behind that, the run heeds it as before."""

    def get_session(self, job: JobSpec | None = None) -> "SparkSession":
        before = signal.getsignal(signal.SIGINT)
        session = super().get_session(job)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
        return session
