"""An executor's log in memory: tickets, claims, reports and heartbeats, and a ledger whose datasets have leases."""

import datetime as dt
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gobblin_assets.errors import ConflictError, FencedError, RejectedError
from gobblin_assets.model.executor_heartbeat import ExecutorHeartbeat, HeardHeartbeat
from gobblin_assets.model.job_ticket import LogId, SentTicket, TicketId, TicketShape, TicketVerb
from gobblin_assets.state.tickets import (
    LONG_LIFE_S,
    AttemptEnd,
    Claim,
    OpenTicket,
    TicketReport,
    TicketReportKind,
    find_attempts_max,
)
from tests.simulation.service_tables import Now

_PAUSE_S: Final = 0.5
_PAUSE_S_MAX: Final = 30.0
_ORDER: Final = (TicketVerb.CANCEL, TicketVerb.UPDATE, TicketVerb.DELETE, TicketVerb.ADD)


@dataclass
class ClaimRow:
    """An attempt."""

    attempt: int
    owner: str
    claimed_at: dt.datetime
    expires_at: dt.datetime
    ended_as: AttemptEnd | None = None
    ended_at: dt.datetime | None = None


@dataclass
class TicketRow:
    """A ticket, with its attempts and its reports in their order."""

    sent: SentTicket
    sent_at: dt.datetime
    ended_as: AttemptEnd | None = None
    claims: list[ClaimRow] = field(default_factory=list)
    reports: list[TicketReport] = field(default_factory=list)
    known: set[uuid.UUID] = field(default_factory=set)

    @property
    def job_name(self) -> str | None:
        return None if self.sent.ticket is None else self.sent.ticket.job_name

    @property
    def is_worker(self) -> bool:
        return self.sent.ticket is not None and self.sent.ticket.shape is TicketShape.WORKER


@dataclass(frozen=True)
class Publication:
    """What a run published, once and for all."""

    sequence_id: uuid.UUID
    job_name: str
    partition: int
    rows: int
    ticket_id: TicketId
    version: int
    at: dt.datetime


@dataclass
class Lease:
    """The lease of a job's dataset. ``token`` counts its owners."""

    owner: str
    token: int
    expires_at: dt.datetime


class FakeLog:
    """``TicketStore`` and ``TicketWire`` as far as the service and the fake executors call them, and the ledger."""

    def __init__(self, name: str, now: Now) -> None:
        self.name = name
        self.log_id = LogId(uuid.uuid5(uuid.NAMESPACE_URL, f"log {name}"))
        self.now = now
        self.tickets: dict[TicketId, TicketRow] = {}
        self.beats: dict[tuple[str, str], tuple[ExecutorHeartbeat, dt.datetime]] = {}
        self.published: list[Publication] = []
        self.leases: dict[str, Lease] = {}
        # Tickets of workers whose claims were taken away with their executors.
        self.taken_away: set[TicketId] = set()
        # Owners of lanes that are asked to let go of them.
        self.drains: set[str] = set()

    # What the service calls.

    def find_log_id(self) -> LogId:
        return self.log_id

    def send(self, sent: SentTicket) -> None:
        if sent.log_id not in (None, self.log_id):
            raise ConflictError(f"the ticket is meant for the log {sent.log_id}", hint="Look at the log.")
        known = self.tickets.get(sent.ticket_id)
        if known is None:
            self.tickets[sent.ticket_id] = TicketRow(sent, self.now())
        elif known.sent.digest != sent.digest:
            raise ConflictError(f"another ticket has the id {sent.ticket_id}", hint="Send it under a new id.")

    def settle_cancel(self, ticket_id: TicketId) -> TicketId | None:
        cancel = self._get(ticket_id)
        if cancel.ended_as is not None or cancel.sent.cancels is None:
            return None
        other = self.tickets.get(cancel.sent.cancels)
        if other is None:
            self._end(cancel, 0, AttemptEnd.FAILED, {"message": "the log has no such ticket"})
            return None
        if other.ended_as is None and not self._end_idle(other, "nobody worked on it"):
            return other.sent.ticket_id
        self._end(cancel, 0, AttemptEnd.COMPLETE, {})
        return None

    def end_unclaimed(self, ticket_id: TicketId, message: str, *, is_lost: bool = False) -> bool:
        row = self._get(ticket_id)
        return row.ended_as is not None or self._end_idle(row, message, ends_live=is_lost and row.is_worker)

    def list_reports(
        self, ticket_ids: Sequence[TicketId], after: Mapping[TicketId, tuple[int, int]], *, limit: int
    ) -> Sequence[TicketReport]:
        return [
            report
            for ticket_id, row in self.tickets.items()
            if ticket_id in ticket_ids
            for report in sorted(row.reports, key=lambda each: (each.attempt, each.number))
            if (report.attempt, report.number) > after.get(ticket_id, (-1, 0))
        ][:limit]

    def find_ends(self, ticket_ids: Collection[TicketId]) -> Mapping[TicketId, TicketReport]:
        return {
            each: self.tickets[each].reports[-1]
            for each in ticket_ids
            if each in self.tickets and self.tickets[each].ended_as is not None
        }

    def list_heartbeats(self) -> Sequence[HeardHeartbeat]:
        now = self.now()
        return [
            HeardHeartbeat(beat, (now - at).total_seconds(), self.count_waiting(beat.executor), 0)
            for beat, at in self.beats.values()
        ]

    # What executors call.

    def beat(self, beat: ExecutorHeartbeat) -> None:
        self.beats[(beat.executor, beat.owner)] = beat, self.now()

    def list_claimable(self, executor: str, *, limit: int) -> Sequence[OpenTicket]:
        found = [
            row
            for row in self.tickets.values()
            if row.sent.executor == executor and row.ended_as is None and not self.is_live(row) and not self._rests(row)
        ]
        found.sort(key=lambda row: (_ORDER.index(row.sent.verb), row.sent_at))
        return [
            OpenTicket(row.sent.ticket_id, row.sent.verb, len(row.claims), self._count_attempts(row)) for row in found
        ][:limit]

    def _rests(self, row: TicketRow) -> bool:
        """An attempt that died leaves a pause behind it."""
        last = row.claims[-1] if row.claims else None
        if last is None or last.ended_as is not AttemptEnd.DIED or last.ended_at is None:
            return False
        pause_s = min(_PAUSE_S_MAX, _PAUSE_S * 2.0 ** min(last.attempt, 20))
        return last.ended_at > self.now() - dt.timedelta(seconds=pause_s)

    def is_live(self, row: TicketRow) -> bool:
        last = row.claims[-1] if row.claims else None
        return last is not None and last.ended_at is None and last.expires_at > self.now()

    def _count_attempts(self, row: TicketRow) -> int:
        if row.sent.verb is TicketVerb.DELETE:
            return 0
        counted = [claim for claim in row.claims if claim.ended_as is not AttemptEnd.DRAINED]
        if row.is_worker:
            short = dt.timedelta(seconds=LONG_LIFE_S)
            counted = [each for each in counted if (each.ended_at or each.expires_at) < each.claimed_at + short]
        return len(counted)

    def claim(self, ticket_id: TicketId, owner: str, *, ttl_s: float) -> Claim | None:
        row = self._get(ticket_id)
        if row.ended_as is not None or self.is_live(row):
            return None
        if self._count_attempts(row) >= find_attempts_max(row.sent.verb):
            return None
        after_s = row.sent.expires_after_s
        if not row.claims and after_s is not None and (self.now() - row.sent_at).total_seconds() >= after_s:
            self._end(row, 0, AttemptEnd.CANCELLED, {"message": "it has expired"})
            return None
        attempt = len(row.claims) + 1
        row.claims.append(ClaimRow(attempt, owner, self.now(), self.now() + dt.timedelta(seconds=ttl_s)))
        self._append(row, attempt, TicketReportKind.CLAIMED, {"owner": owner})
        return Claim(ticket_id, attempt)

    def renew(self, claims: Collection[Claim], *, ttl_s: float) -> Collection[Claim]:
        kept = set()
        for claim in claims:
            row = self._get(claim.ticket_id)
            last = row.claims[-1]
            if last.attempt == claim.attempt and last.ended_at is None:
                last.expires_at = self.now() + dt.timedelta(seconds=ttl_s)
                kept.add(claim)
        return kept

    def get_claimed(self, claim: Claim) -> SentTicket:
        row = self._get(claim.ticket_id)
        self._require_last(row, claim)
        return row.sent

    def report(
        self,
        claim: Claim,
        report_id: uuid.UUID,
        kind: TicketReportKind,
        details: Mapping[str, Any],
        sequence_id: uuid.UUID | None = None,
    ) -> None:
        row = self._get(claim.ticket_id)
        self._require_last(row, claim)
        if report_id in row.known or sequence_id in row.known:
            return
        row.known |= {each for each in (report_id, sequence_id) if each is not None}
        self._append(row, claim.attempt, kind, details)

    def end(self, claim: Claim, end: AttemptEnd, details: Mapping[str, Any]) -> bool:
        row = self._get(claim.ticket_id)
        last = row.claims[-1]
        if last.attempt != claim.attempt or last.ended_as is not None:
            return False
        self._end(row, claim.attempt, end, details)
        return True

    def give_up(self, ticket_id: TicketId, details: Mapping[str, Any]) -> bool:
        row = self._get(ticket_id)
        if row.ended_as is not None or self.is_live(row) or not row.claims:
            return False
        self._end(row, len(row.claims), AttemptEnd.FAILED, details)
        return True

    def supersede(self, ticket_id: TicketId) -> int:
        mine = self._get(ticket_id)
        order = list(self.tickets)
        older = [
            row
            for row in self.tickets.values()
            if row.ended_as is None
            and row.is_worker
            and row.job_name == mine.job_name
            and row.sent.executor == mine.sent.executor
            and order.index(row.sent.ticket_id) < order.index(ticket_id)
        ]
        return sum(not self._end_idle(row, f"superseded by the ticket {ticket_id}") for row in older)

    def list_cancels(self, ticket_id: TicketId) -> Sequence[TicketId]:
        return [each for each, row in self.tickets.items() if row.sent.cancels == ticket_id and row.ended_as is None]

    def list_live_workers(self, job_name: str) -> list[str]:
        """Who holds the lane of the job, on whichever executor."""
        lease = self.leases.get(job_name)
        return [] if lease is None or lease.expires_at <= self.now() else [lease.owner]

    # The ledger.

    def take_lease(self, job_name: str, owner: str, *, ttl_s: float) -> int | None:
        """The token of the lease. None: another owner's lives."""
        held, expires_at = self.leases.get(job_name), self.now() + dt.timedelta(seconds=ttl_s)
        if held is not None and held.owner != owner and held.expires_at > self.now():
            return None
        token = 1 if held is None else held.token + (held.owner != owner)
        self.leases[job_name] = Lease(owner, token, expires_at)
        return token

    def release_lease(self, job_name: str, token: int) -> None:
        held = self.leases.get(job_name)
        if held is not None and held.token == token:
            held.expires_at = self.now()

    def publish(self, publication: Publication, token: int) -> None:
        """FencedError: the lease has another owner."""
        held = self.leases.get(publication.job_name)
        if held is None or held.token != token:
            raise FencedError("the lease has another owner", hint="Stop.")
        self.published.append(publication)

    def list_partitions(self, job_name: str) -> list[int]:
        return [each.partition for each in self.published if each.job_name == job_name]

    def list_unreported(self, ticket_id: TicketId) -> Sequence[Publication]:
        mine = self._get(ticket_id)
        rows = [self.tickets[each] for each in (ticket_id, *mine.sent.earlier) if each in self.tickets]
        begun = min((claim.claimed_at for row in rows for claim in row.claims), default=self.now())
        known = set[uuid.UUID]().union(*(row.known for row in rows))
        return [
            each
            for each in self.published
            if each.job_name == mine.job_name and each.at >= begun and each.sequence_id not in known
        ]

    def count_waiting(self, executor: str) -> int:
        return sum(
            row.sent.executor == executor
            and row.ended_as is None
            and row.sent.verb in (TicketVerb.ADD, TicketVerb.UPDATE)
            and not any(report.kind is TicketReportKind.RUNNING for report in row.reports)
            for row in self.tickets.values()
        )

    def _get(self, ticket_id: TicketId) -> TicketRow:
        found = self.tickets.get(ticket_id)
        if found is None:
            raise RejectedError(f"the log has no ticket {ticket_id}", field="ticket_id", hint="Send it first.")
        return found

    def _require_last(self, row: TicketRow, claim: Claim) -> None:
        last = row.claims[-1] if row.claims else None
        if last is None or last.attempt != claim.attempt or last.ended_as is not None:
            raise FencedError(f"attempt {claim.attempt} is not the last one, or has ended", hint="Stop.")

    def _append(self, row: TicketRow, attempt: int, kind: TicketReportKind, details: Mapping[str, Any]) -> None:
        number = 1 + sum(report.attempt == attempt for report in row.reports)
        row.reports.append(TicketReport(row.sent.ticket_id, attempt, number, kind, dict(details), self.now()))

    def _end(self, row: TicketRow, attempt: int, end: AttemptEnd, details: Mapping[str, Any]) -> None:
        self._append(row, attempt, TicketReportKind.ENDED, {"state": end.value, **details})
        for claim in row.claims:
            if claim.attempt == attempt and claim.ended_at is None:
                claim.ended_as, claim.ended_at = end, self.now()
        if end.ends_ticket and row.ended_as is None:
            row.ended_as = end

    def _end_idle(self, row: TicketRow, message: str, *, ends_live: bool = False) -> bool:
        if self.is_live(row) and not ends_live:
            return False
        if self.is_live(row):
            self.taken_away.add(row.sent.ticket_id)
        self._end(row, len(row.claims), AttemptEnd.CANCELLED, {"message": message})
        return True
