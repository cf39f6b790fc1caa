"""Fake executors: they claim, renew, publish under a lease, report and end as real ones, one small step at a time.

A process of an executor may die or be paused between any two steps. A paused one goes on where it was.
"""

import datetime as dt
import random
import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from gobblin_assets.errors import ErrorFamily, FencedError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.model.executor_heartbeat import ExecutorHeartbeat, ExecutorPhase
from gobblin_assets.model.job_ticket import SentTicket, TicketId, TicketShape, TicketVerb
from gobblin_assets.state.tickets import AttemptEnd, Claim, OpenTicket, TicketReportKind
from tests.simulation.service_log import FakeLog, Publication

CLAIM_TTL_S: Final = 30.0
LEASE_TTL_S: Final = 30.0
WINDOW_S: Final = 600
"""Of the partitions of a source."""

_PASSES: Final = {"family": ErrorFamily.RETRYABLE.value, "message": "the source is away", "busy": False}
_STAYS: Final = {"family": ErrorFamily.REJECTED.value, "message": "the source is refused", "busy": False}
_BUSY: Final = {"family": ErrorFamily.CONFLICT.value, "message": "others work on the dataset", "busy": True}


class Stage(StrEnum):
    """What a run does next."""

    BEGIN = "begin"
    LEASE = "lease"
    PUBLISH = "publish"
    REPORT = "report"


@dataclass
class FakeRun:
    """An attempt at work."""

    claim: Claim
    verb: TicketVerb
    stage: Stage = Stage.BEGIN
    sent: SentTicket | None = None
    token: int = 0
    made: Publication | None = None
    kept_until: dt.datetime | None = None
    is_ending: bool = False

    @property
    def owner(self) -> str:
        return f"{self.claim.ticket_id} {self.claim.attempt}"


@dataclass
class Mishaps:
    """How often runs fail, by their causes. ``chance`` draws."""

    chance: random.Random
    passing: float = 0.0
    staying: float = 0.0
    dying: float = 0.0

    def draw(self) -> str:
        drawn = self.chance.random()
        for name, share in (("passes", self.passing), ("stays", self.staying), ("dies", self.dying)):
            if drawn < share:
                return name
            drawn -= share
        return ""


@dataclass
class FakeExecutor:
    """A process of the executor ``name``. ``log``: as it is called, with faults; ``raw``: the log itself."""

    name: str
    log: Any
    raw: FakeLog
    mishaps: Mishaps
    slots: int = 2
    number: int = 1
    phase: ExecutorPhase = ExecutorPhase.WORKING
    paused_until_s: float = 0.0
    runs: dict[TicketId, FakeRun] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        return f"{self.name} {self.number}"

    def die(self) -> None:
        """Another process takes its place, which knows nothing."""
        self.number += 1
        self.phase, self.runs, self.paused_until_s = ExecutorPhase.WORKING, {}, 0.0

    def step(self) -> None:
        """One look, and one step of each run. What the log refuses is tried again by the next one."""
        try:
            self.log.beat(
                ExecutorHeartbeat(
                    self.name,
                    self.owner,
                    self.raw.log_id,
                    "1",
                    self.slots,
                    frozenset({"ingest.jdbc"}),
                    phase=self.phase,
                )
            )
            self._renew()
            for run in list(self.runs.values()):
                self._go_on(run)
            if self.phase is ExecutorPhase.WORKING:
                for ticket in self.log.list_claimable(self.name, limit=100):
                    self._take(ticket)
            elif not self.runs:
                self.phase = ExecutorPhase.ENDED
        except (RetryableError, OutcomeUnknownError):
            pass

    def _renew(self) -> None:
        if not self.runs:
            return
        kept = self.log.renew([run.claim for run in self.runs.values()], ttl_s=CLAIM_TTL_S)
        now = self.raw.now()
        for ticket_id, run in list(self.runs.items()):
            if run.claim in kept:
                run.kept_until = now + dt.timedelta(seconds=CLAIM_TTL_S)
            else:
                is_robbed = not run.is_ending and run.kept_until is not None and now < run.kept_until
                assert not is_robbed or ticket_id in self.raw.taken_away, (
                    f"a claim of {self.owner} that lives is taken away"
                )
                del self.runs[ticket_id]

    def _take(self, ticket: OpenTicket) -> None:
        if ticket.verb is TicketVerb.CANCEL:
            self.log.settle_cancel(ticket.ticket_id)
        elif ticket.is_used_up:
            self.log.give_up(ticket.ticket_id, {"message": "it died too often"})
        elif ticket.verb is not TicketVerb.ADD or len(self.runs) < self.slots:
            claim = self.log.claim(ticket.ticket_id, self.owner, ttl_s=CLAIM_TTL_S)
            if claim is not None:
                kept_until = self.raw.now() + dt.timedelta(seconds=CLAIM_TTL_S)
                self.runs[ticket.ticket_id] = FakeRun(claim, ticket.verb, kept_until=kept_until)

    def _go_on(self, run: FakeRun) -> None:
        try:
            self._step(run)
        except FencedError:
            self.runs.pop(run.claim.ticket_id, None)

    def _step(self, run: FakeRun) -> None:
        ticket_id = run.claim.ticket_id
        if run.sent is None:
            run.sent = self.log.get_claimed(run.claim)
        if self.log.list_cancels(ticket_id):
            self._end(run, AttemptEnd.CANCELLED, {"message": "cancelled"})
            for cancel in self.log.list_cancels(ticket_id):
                self.log.settle_cancel(cancel)
            return
        if self.phase is not ExecutorPhase.WORKING:
            self._end(run, AttemptEnd.DRAINED, {"message": "its executor was asked to end"})
            return
        match run.stage:
            case Stage.BEGIN:
                self._begin(run, run.sent)
            case Stage.LEASE:
                self._lease(run, run.sent)
            case Stage.PUBLISH:
                self._publish(run, run.sent)
            case Stage.REPORT:
                self._report(run, run.sent)

    def _begin(self, run: FakeRun, sent: SentTicket) -> None:
        job = sent.get_job_ticket()
        if sent.verb is not TicketVerb.ADD:
            others = self.log.supersede(run.claim.ticket_id)
            owners = self.raw.list_live_workers(job.job_name)
            self.raw.drains.update(owners)
            if others or owners:
                return
        if sent.verb is TicketVerb.DELETE:
            self._end(run, AttemptEnd.COMPLETE, {})
            return
        self.log.report(run.claim, self._draw_id(), TicketReportKind.RUNNING, {})
        self._report_missed(run)
        run.stage = Stage.LEASE

    def _lease(self, run: FakeRun, sent: SentTicket) -> None:
        job = sent.get_job_ticket()
        token = self.raw.take_lease(job.job_name, run.owner, ttl_s=LEASE_TTL_S)
        if token is not None:
            run.token, run.stage = token, Stage.PUBLISH
        elif job.shape is TicketShape.RUN:
            self._end(run, AttemptEnd.FAILED, _BUSY)

    def _publish(self, run: FakeRun, sent: SentTicket) -> None:
        job = sent.get_job_ticket()
        if self._fails(run):
            return
        token = self.raw.take_lease(job.job_name, run.owner, ttl_s=LEASE_TTL_S)
        if token != run.token:
            run.stage = Stage.LEASE
            return
        if run.owner in self.raw.drains:
            self.raw.release_lease(job.job_name, run.token)
            self._end(run, AttemptEnd.COMPLETE, {"message": "drained"})
            return
        partition = self._find_partition(sent)
        if partition is None:
            self._report_missed(run)
            self.raw.release_lease(job.job_name, run.token)
            self._end(run, AttemptEnd.COMPLETE, {})
            return
        rows, made_at = 1 + partition % 3, self.raw.now()
        sequence_id, version = self._draw_id(), int(job.version)
        made = Publication(sequence_id, job.job_name, partition, rows, run.claim.ticket_id, version, made_at)
        self.raw.publish(made, run.token)
        run.made, run.stage = made, Stage.REPORT

    def _find_partition(self, sent: SentTicket) -> int | None:
        """The first window that is complete and not published; of a job behind another one, of what that published."""
        job = sent.get_job_ticket()
        done = set(self.raw.list_partitions(job.job_name))
        if job.shape is TicketShape.WORKER:
            return len(done)
        if (reads := job.job.get("reads")) is not None:
            there = [each for each in self.raw.list_partitions(str(reads)) if each not in done]
            return min(there, default=None)
        until = sent.selection.begun_by or self.raw.now()
        first = int(job.job.get("first", 0))
        last = int(until.timestamp()) // WINDOW_S
        missing = [each for each in range(max(first, last - 30), last) if each not in done]
        return min(missing, default=None)

    def _report(self, run: FakeRun, sent: SentTicket) -> None:
        if sent.get_job_ticket().shape is TicketShape.WORKER and run.made is not None:
            found = {"datasets": {"orders": {"position": None, "watermarks": {"0": str(run.made.partition)}}}}
            self.log.report(run.claim, self._draw_id(), TicketReportKind.PROGRESS, found)
        elif run.made is not None:
            self._tell(run, run.made)
        run.made, run.stage = None, Stage.PUBLISH

    def _report_missed(self, run: FakeRun) -> None:
        if run.sent is not None and run.sent.get_job_ticket().shape is TicketShape.RUN:
            for made in self.raw.list_unreported(run.claim.ticket_id):
                self._tell(run, made)

    def _tell(self, run: FakeRun, made: Publication) -> None:
        details = {"urn": "orders", "rows": made.rows, "files": 0, "watermarks": {"id": ["0", str(made.partition)]}}
        self.log.report(run.claim, self._draw_id(), TicketReportKind.PUBLISHED, details, sequence_id=made.sequence_id)

    def _fails(self, run: FakeRun) -> bool:
        match self.mishaps.draw():
            case "passes":
                self._end(run, AttemptEnd.FAILED, _PASSES)
            case "stays":
                self._end(run, AttemptEnd.FAILED, _STAYS)
            case "dies":
                self._report_missed(run)
                self._end(run, AttemptEnd.DIED, {"message": "its process died"})
            case _:
                return False
        return True

    def _end(self, run: FakeRun, end: AttemptEnd, details: dict[str, Any]) -> None:
        run.is_ending = True
        try:
            self._report_missed(run)
            if run.sent is not None and run.sent.ticket is not None:
                self.raw.release_lease(run.sent.ticket.job_name, run.token)
            self.log.end(run.claim, end, details)
        except RejectedError as error:
            raise AssertionError(f"an executor is refused: {error}") from error
        self.runs.pop(run.claim.ticket_id, None)

    def _draw_id(self) -> uuid.UUID:
        return uuid.UUID(int=self.mishaps.chance.getrandbits(128), version=4)
