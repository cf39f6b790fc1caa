"""The job ``gobblin_service``: a run of it claims tickets of a service, and runs their jobs one after another.

A ticket is claimed when its turn comes. So a run that ends early leaves those that it has not begun as they were, and
a second run for the same tickets finds nothing to claim. Each ticket has a report and a failure of its own. A run whose
Spark has died begins no further ticket: a process gets no other JVM, and the next run has one.

Dagster's own termination of a run ends all of its tickets as CANCELLED. A run that is interrupted otherwise, as when
its machine goes down, drains: the ticket under way goes on in another run, and so do those that were not begun.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import dagster as dg

from gobblin_assets.dagster.environment import layout_of_found
from gobblin_assets.dagster.materialization import EventLog, run_logged
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY
from gobblin_assets.dagster.progress import ProgressLog
from gobblin_assets.dagster.resources.spark import GobblinSparkResource
from gobblin_assets.errors import FencedError
from gobblin_assets.jobs.ingest.engine_port import AnnouncedEngine
from gobblin_assets.model.job_ticket import SentTicket, TicketId
from gobblin_assets.run.run_values import DatasetReport, RunReport, RunRequest
from gobblin_assets.run.runner import owner_text
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.selection import Datasets
from gobblin_assets.state.tickets import AttemptEnd, Claim
from gobblin_assets.tickets.attempt_output import AttemptOutput, find_secrets
from gobblin_assets.tickets.claim_keeping import ClaimKeeper, settle_cancels
from gobblin_assets.tickets.executor import CLAIM_TTL_S
from gobblin_assets.tickets.interruption import Interruption, hold_signals
from gobblin_assets.tickets.ticket_run import report_interrupted, run_claimed

TICKETS_JOB: Final = "gobblin_service"
TICKETS_OP: Final = "run_tickets"

_EXAMPLE_ID: Final = "4d0f3a52-9f0c-4f4e-8a51-0c1b4f1f6e5b"
_OWNER_RUN: Final = " dagster:"
INTERRUPTED: Final = (KeyboardInterrupt, dg.DagsterExecutionInterruptedError)
TERMINATED: Final = "its run was terminated in Dagster"


class TicketsConfig(dg.Config):
    """Run configuration of ``gobblin_service``. ``tickets``: their ids, in the order of their turns."""

    tickets: list[str]


def build_tickets_job(executor: str) -> dg.JobDefinition:
    """Runs tickets for ``executor``: one op in one process, so that they share a session of Spark."""

    @dg.op(
        name=TICKETS_OP,
        required_resource_keys={STORES_KEY, FILE_SYSTEMS_KEY, SPARK_KEY},
        description="Claims tickets of a service, and runs their jobs.",
    )
    def run_tickets(context: dg.OpExecutionContext, config: TicketsConfig) -> None:
        TicketsRun(context).run(read_own_tickets(context, executor, config.tickets))

    @dg.job(
        name=TICKETS_JOB,
        executor_def=dg.in_process_executor,
        description="Runs the jobs of a service's tickets. A sensor asks for its runs.",
    )
    def gobblin_service() -> None:
        run_tickets()

    return gobblin_service


def describe_owner(dagster_run_id: str) -> str:
    """The owner of a claim: the process, and its Dagster run."""
    return f"{owner_text()}{_OWNER_RUN}{dagster_run_id}"


def find_owner_run(owner: str) -> str | None:
    """The Dagster run that claimed; None: another kind of executor did."""
    return owner.partition(_OWNER_RUN)[2] or None


def read_own_tickets(context: dg.OpExecutionContext, executor: str, given: Sequence[str]) -> Sequence[TicketId]:
    """The tickets that the configuration of a run names, which a person may have written.

    Failure, with nothing begun: one is no id, or is for another executor, which tidies behind its own runs only.
    """
    tickets = []
    for each in given:
        try:
            tickets.append(TicketId(UUID(each)))
        except ValueError:
            said = f"expected the id of a ticket, such as {_EXAMPLE_ID}; found {each[:40]!r}."
            raise dg.Failure(f"Run configuration: {said}", allow_retries=False) from None
    stores: Stores = getattr(context.resources, STORES_KEY)
    for ticket_id, waiting in stores.tickets.describe_waiting(tickets).items():
        if waiting.executor != executor:
            said = f"The ticket {ticket_id} is for the executor {waiting.executor}, and this one is {executor}."
            raise dg.Failure(f"{said} Launch it where {waiting.executor} runs.", allow_retries=False)
    return tickets


def say_claimed(context: dg.OpExecutionContext, ticket_id: TicketId, claim: Claim | None) -> None:
    """Log whether this run has the ticket."""
    if claim is None:
        context.log.info("Ticket %s can't be claimed: it has ended, others work on it, or the log drains.", ticket_id)
    else:
        context.log.info("Ticket %s: attempt %d begins.", ticket_id, claim.attempt)


@contextmanager
def keeping_claim(
    context: dg.OpExecutionContext, claim: Claim, interruption: Interruption
) -> Iterator[tuple[ClaimKeeper, Callable[[str], None]]]:
    """The keeper of a claim that this run has made, and how the run says lines: to its own log, and the ticket's."""
    stores: Stores = getattr(context.resources, STORES_KEY)
    output = AttemptOutput(find_secrets(os.environ))
    output.claim = claim
    with closing(ProgressLog(context.log.info)) as progress:

        def say(line: str) -> None:
            progress(line)
            output.add(f"{line}\n".encode())

        keeper = ClaimKeeper(claim, stores, interruption, output, say)
        yield keeper, say
        keeper.keep_output()


@dataclass(slots=True)
class TicketsRun:
    """One Dagster run over some tickets."""

    context: dg.OpExecutionContext
    _ends: dict[TicketId, AttemptEnd] = field(default_factory=dict)
    _left_count: int = 0

    def run(self, tickets: Sequence[TicketId | SentTicket]) -> None:
        """Run each ticket that can be claimed. A SentTicket is put into the log when its turn comes.

        Raises Failure if some failed, behind the others, and if some were not begun since Spark has died;
        DagsterExecutionInterruptedError ends the run as CANCELED if all were cancelled or the run was terminated, and
        as FAILURE if it drains.
        """
        for place, ticket in enumerate(tickets):
            ticket_id = ticket.ticket_id if isinstance(ticket, SentTicket) else ticket
            try:
                if decide_end(self.context) is AttemptEnd.CANCELLED:
                    # Its signal came while none was heard.
                    raise dg.DagsterExecutionInterruptedError
                if self._spark.is_lost():
                    self._leave(tickets[place:])
                    break
                end = self._take(ticket_id, ticket)
            except INTERRUPTED:
                # With the one whose claim was interrupted, and may not be made.
                self._stop([each for each in tickets[place:] if not isinstance(each, SentTicket)])
                raise
            if end is not None:
                self._ends[ticket_id] = end
        failed = [str(each) for each, end in self._ends.items() if end is AttemptEnd.FAILED]
        if failed:
            raise dg.Failure(f"{len(failed)} of {len(self._ends)} tickets failed: {', '.join(failed)}")
        if self._left_count:
            raise dg.Failure(f"{self._left_count} tickets were not begun: Spark's JVM or server has died.")
        if len(self._ends) == len(tickets) and set(self._ends.values()) == {AttemptEnd.CANCELLED}:
            self.context.instance.report_run_canceling(self.context.run, "The service cancelled what this run is for.")
            raise dg.DagsterExecutionInterruptedError

    def _take(self, ticket_id: TicketId, ticket: TicketId | SentTicket) -> AttemptEnd | None:
        """The end of the attempt; None: there was none, or another attempt followed it."""
        owner = describe_owner(self.context.run_id)
        if isinstance(ticket, SentTicket):
            claim = self._stores.tickets.send_claimed(ticket, owner, ttl_s=CLAIM_TTL_S)
            if claim is None and self._stores.drains.is_draining():
                # It is not in the log, and nobody else will run it.
                raise dg.Failure("The log drains: start the run again once it is resumed.", allow_retries=False)
        else:
            claim = self._stores.tickets.claim(ticket_id, owner, ttl_s=CLAIM_TTL_S)
        say_claimed(self.context, ticket_id, claim)
        if claim is None:
            return None
        interruption = Interruption()
        with keeping_claim(self.context, claim, interruption) as (keeper, say):
            try:
                with keeper.keep(), interruption.hearing_signals():
                    host = OwnHost(self.context, say)
                    end = run_claimed(claim, self._stores, self._open_spark, say, interruption, host)
            except FencedError as error:
                say(str(error))
                return None
            except INTERRUPTED:
                with hold_signals():
                    is_ours = interruption.end is not None
                    asked = interruption.end or decide_end(self.context)
                    say(f"interrupted: {asked.value}")
                    reported = report_interrupted(claim, self._stores, asked)
                if not is_ours:
                    raise
                return reported
            finally:
                with hold_signals():
                    settle_cancels(claim, self._stores)
        if interruption.is_heard and interruption.end is None:
            # Too late for this ticket, and in time for the others.
            raise KeyboardInterrupt
        return end

    def _leave(self, left: Sequence[TicketId | SentTicket]) -> None:
        """Without Spark, each would fail for nothing. Those in the log go on in another run, as if never looked at."""
        self._left_count = len(left)
        own = sum(isinstance(each, SentTicket) for each in left)
        what = "Start the run again for them." if own else "Another run takes them."
        self.context.log.warning("Spark's JVM or server has died. %d tickets are not begun. %s", len(left), what)

    def _stop(self, left: Sequence[TicketId]) -> None:
        """Dagster interrupts the run. What it has not begun ends with it, or goes on in another run."""
        if decide_end(self.context) is AttemptEnd.CANCELLED:
            with hold_signals():
                for ticket_id in left:
                    self._stores.tickets.end_unclaimed(ticket_id, TERMINATED)

    def _open_spark(self) -> AnnouncedEngine:
        return AnnouncedEngine(self._spark, self.context.log.info)

    @property
    def _spark(self) -> GobblinSparkResource:
        spark: GobblinSparkResource = getattr(self.context.resources, SPARK_KEY)
        return spark

    @property
    def _stores(self) -> Stores:
        stores: Stores = getattr(self.context.resources, STORES_KEY)
        return stores


@dataclass(frozen=True, slots=True)
class OwnHost:
    """``HostRun`` of the Dagster run at hand."""

    context: dg.OpExecutionContext
    say: Callable[[str], None]

    @property
    def dagster_run_id(self) -> str:
        return self.context.run_id

    def run(
        self, job: JobOptions, datasets: Datasets, request: RunRequest, hear: Callable[[DatasetReport], None]
    ) -> RunReport:
        events = EventLog.of(layout_of_found(job, datasets), self.context)

        def hear_both(report: DatasetReport) -> None:
            # What others published is this ticket's only if it was published since: the end of the attempt asks that.
            if report.publication is not None and not report.publication.recovered:
                hear(report)
            events.log_publication(report)

        return run_logged(request, events, datasets, hear_both, self.say)


def decide_end(context: dg.OpExecutionContext) -> AttemptEnd:
    """The end of an attempt that Dagster interrupts: CANCELLED if somebody terminated the run, else DRAINED."""
    run = context.instance.get_run_by_id(context.run_id)
    is_terminated = run is not None and run.status is dg.DagsterRunStatus.CANCELING
    return AttemptEnd.CANCELLED if is_terminated else AttemptEnd.DRAINED
