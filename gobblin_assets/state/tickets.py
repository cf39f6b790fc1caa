"""Tickets, claims and reports, as a port.

A sender puts a ticket into the log that its job publishes through. An executor claims it: an attempt, which is its own
until the claim expires. What happens is reported: claimed, running, each publication once, ended. A claim saves work,
and no more: that each row is published once is the promise of leases and of the ledger.

An attempt that DIED or was DRAINED leaves the ticket to the next attempt; every other end of an attempt is the end of
the ticket. Reports of an attempt that has ended, or that another one came after, are refused.

A PROBE has one attempt. Its answer is the end that this attempt reports. One that is not answered in time is given up.
"""

import datetime as dt
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from gobblin_assets.errors import ErrorFamily, RejectedError
from gobblin_assets.model.job_ticket import JobTicket, LogId, SentTicket, TicketId, TicketShape, TicketVerb
from gobblin_assets.model.state import RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName

ATTEMPTS_MAX: Final = 5
"""Attempts of a ticket that were not drained: whatever kills so many of them would kill the next one, too.

Of workers, those count that lived less than LONG_LIFE_S and did not die of PASSING; of a DELETE none: it is repeated
until it is done.
"""

LONG_LIFE_S: Final = 600.0

PASSING: Final = (ErrorFamily.RETRYABLE, ErrorFamily.OUTCOME_UNKNOWN)
"""What a worker may die of as often as it likes: a source or a store that is away comes back."""


PROBE_ATTEMPTS_MAX: Final = 1
PROBE_LIFE_S: Final = 120.0
"""So long after it was sent, nobody waits for the answer of a probe any more."""

PROBE_KEPT_S: Final = 24 * 3_600.0
"""So long an answer stays in the log; the next question takes older ones out."""

PROBES_OPEN_MAX: Final = 20
"""Of one executor: so many questions may wait for their answers."""


LONG_RUN_S: Final = 30.0
LONG_RUNS: Final = 5


class StaleReleaseError(RejectedError):
    """The log is of another version than this package: the log was upgraded since the process opened it."""


class TicketReportKind(StrEnum):
    """The kind of a report."""

    CLAIMED = "claimed"
    RUNNING = "running"
    PUBLISHED = "published"
    PROGRESS = "progress"
    ENDED = "ended"


class AttemptEnd(StrEnum):
    """The end of an attempt. DIED: its process did; DRAINED: its executor was asked to end."""

    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    DIED = "DIED"
    DRAINED = "DRAINED"

    @property
    def ends_ticket(self) -> bool:
        return self not in (AttemptEnd.DIED, AttemptEnd.DRAINED)


@dataclass(frozen=True, slots=True)
class OpenTicket:
    """A ticket that has not ended, and that nobody works on.

    ``attempts``: those of before, as ATTEMPTS_MAX counts; of a PROBE all, and one more once it is PROBE_LIFE_S old.
    """

    ticket_id: TicketId
    verb: TicketVerb
    last_attempt: int
    attempts: int

    @property
    def is_used_up(self) -> bool:
        return self.attempts >= find_attempts_max(self.verb)


@dataclass(frozen=True, slots=True)
class Claim:
    """An attempt at a ticket, which belongs to who claimed it."""

    ticket_id: TicketId
    attempt: int


@dataclass(frozen=True, slots=True)
class WaitingTicket:
    """What decides with which other tickets one may share a run. ``uri``: of its job. ``executor``: whom it is for.

    ``needs``: equal for jobs whose sources and places need the same of Spark. ``is_long``: one of the last LONG_RUNS
    runs of its job took longer than LONG_RUN_S.
    """

    executor: str
    uri: str
    shape: TicketShape
    needs: str
    is_long: bool


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim that lives, and who made it."""

    claim: Claim
    owner: str


@dataclass(frozen=True, slots=True)
class FoundProbe:
    """A PROBE as the log has it. ``age_s``: since it was sent; ``end``: what the end of the ticket says, or None."""

    sent: SentTicket
    age_s: float
    is_claimed: bool
    end: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class TicketReport:
    """A report as the log has it. ``details``: plain JSON, by kind; ``at``: by the log's clock.

    ``attempt`` 0: of a ticket that ended before anybody claimed it.
    """

    ticket_id: TicketId
    attempt: int
    number: int
    kind: TicketReportKind
    details: Mapping[str, Any]
    at: dt.datetime


def find_attempts_max(verb: TicketVerb) -> int:
    return PROBE_ATTEMPTS_MAX if verb is TicketVerb.PROBE else ATTEMPTS_MAX


def describe_unanswered(*, is_claimed: bool) -> str:
    """Why a probe is given up, as a sentence."""
    if is_claimed:
        return "the executor's process ended before it answered"
    return f"no executor took the question within {PROBE_LIFE_S:g} s"


@dataclass(frozen=True, slots=True)
class TicketOutput:
    """The last lines that the process of an attempt said, without secrets. ``updated_at``: by the log's clock."""

    attempt: int
    lines: str
    updated_at: dt.datetime


@dataclass(frozen=True, slots=True)
class LastTicket:
    """The last ticket of a job. ``is_delete``: the job has been removed, and what it published is there."""

    ticket_id: TicketId
    is_delete: bool


class TicketStore(Protocol):
    """Each method is one transaction, by the log's clock."""

    def find_log_id(self) -> LogId:
        """The id of this log, made when it is first asked for."""
        ...

    def send(self, sent: SentTicket) -> None:
        """Put the ticket into the log; one that is there stays as it is.

        ConflictError: another ticket has its id, or it is meant for another log. RetryableError: of a PROBE, the
        executor has PROBES_OPEN_MAX of them.
        """
        ...

    def send_claimed(self, sent: SentTicket, owner: str, *, ttl_s: float) -> Claim | None:
        """Put the ticket into the log and claim it, before anybody else can. Raises as ``send``; None as ``claim``.

        While the log drains, the ticket is not put there either.
        """
        ...

    def list_claimable(self, executor: str, *, limit: int) -> Sequence[OpenTicket]:
        """Those that cancel others first, then those that wait for no slot, ADD last; of each, the oldest first.

        While the log drains, only those that cancel others.
        """
        ...

    def describe_waiting(self, ticket_ids: Collection[TicketId]) -> Mapping[TicketId, WaitingTicket]:
        """Of those of these tickets that have a job to run."""
        ...

    def list_held(self, executor: str) -> Sequence[HeldClaim]:
        """The claims of the executor's tickets that live."""
        ...

    def claim(self, ticket_id: TicketId, owner: str, *, ttl_s: float) -> Claim | None:
        """The next attempt. None: the ticket has ended, its last attempt lives, its attempts are used up; a drain.

        A ticket without an attempt that has expired is ended as CANCELLED. StaleReleaseError: the log was upgraded.
        """
        ...

    def renew(self, claims: Collection[Claim], *, ttl_s: float) -> Collection[Claim]:
        """Those that still belong to who claimed them, and live so long again."""
        ...

    def get_claimed(self, claim: Claim) -> SentTicket:
        """The ticket of a claim. FencedError as by ``report``."""
        ...

    def report(
        self,
        claim: Claim,
        report_id: uuid.UUID,
        kind: TicketReportKind,
        details: Mapping[str, Any],
        sequence_id: SequenceId | None = None,
    ) -> None:
        """Append a report, once for each ``report_id`` and each ``sequence_id``, of a publication.

        One of progress takes the place of the attempt's one before.

        FencedError: the attempt has ended, or is not the last one.
        """
        ...

    def end(self, claim: Claim, end: AttemptEnd, details: Mapping[str, Any]) -> bool:
        """End the attempt by a report, and the ticket if ``end`` does so.

        False: nothing was done, since the attempt has ended, or is not the last one.
        """
        ...

    def find_run(self, claim: Claim) -> RunId | None:
        """The run that the attempt told of before it began; None: it told of none."""
        ...

    def give_up(self, ticket_id: TicketId, details: Mapping[str, Any]) -> bool:
        """End a ticket whose attempts are used up as FAILED. False: it has ended, or its last attempt lives.

        A PROBE that nobody took is ended once it is PROBE_LIFE_S old.
        """
        ...

    def find_probe(self, ticket_id: TicketId) -> FoundProbe | None:
        """None: the log has no PROBE of this id."""
        ...

    def settle_cancel(self, ticket_id: TicketId) -> TicketId | None:
        """End a ticket that cancels another one, and that one, unless an attempt at that one lives.

        Returns the other one if an attempt lives: whoever claimed it ends it.
        """
        ...

    def list_cancels(self, ticket_id: TicketId) -> Sequence[TicketId]:
        """The tickets that cancel this one, and have not ended."""
        ...

    def end_unclaimed(self, ticket_id: TicketId, message: str, *, is_lost: bool = False) -> bool:
        """End a ticket as CANCELLED that nobody works on. False: an attempt at it lives. True also if it has ended.

        ``is_lost``: its executor is held for lost. Then a worker's ticket ends, and its attempt with it, although the
        claim lives: the leases of its lanes keep others out for as long as it may publish.

        RejectedError: the log has no such ticket.
        """
        ...

    def supersede(self, ticket_id: TicketId) -> int:
        """End the older tickets of workers of the same job and executor that nobody works on.

        Returns how many others there are, each with an attempt that lives.
        """
        ...

    def list_reports(
        self, ticket_ids: Sequence[TicketId], after: Mapping[TicketId, tuple[int, int]], *, limit: int
    ) -> Sequence[TicketReport]:
        """By ticket, attempt and number. ``after``: the (attempt, number) up to which a ticket's reports are known."""
        ...

    def find_ends(self, ticket_ids: Collection[TicketId]) -> Mapping[TicketId, TicketReport]:
        """The reports that ended these tickets; nothing for those that are open."""
        ...

    def forget(self, ticket_ids: Collection[TicketId]) -> frozenset[TicketId]:
        """Remove what is known of ended tickets, whose sender has read their reports. Returns those that are open.

        Of each, its id, its digest and its end stay: sent again, it is the same ticket, and is not run again.
        """
        ...

    def list_published(self, job: JobName) -> Mapping[DatasetUrn, Mapping[str, dt.datetime]]:
        """The partitions whose latest publication is complete, and when the run began that made it."""
        ...

    def list_done(self, ticket_id: TicketId) -> Collection[tuple[DatasetUrn, str]]:
        """Datasets, each with a partition's key, that runs of the ticket's attempts have published completely.

        Also those of the tickets that it goes on from.
        """
        ...

    def list_unreported(self, ticket_id: TicketId) -> Sequence[SequenceId]:
        """Publications of the ticket's job since it was first claimed that no report of it has, the oldest first.

        A ticket that goes on from others also tells what these left untold.
        Among them may be such of other runs of the job. Without compactions. None of workers: they publish many times a
        minute, and report how far they are.
        """
        ...

    def keep_output(self, claim: Claim, lines: str) -> None:
        """Put these lines in the place of what the log had of the attempt, also when the attempt has ended.

        Nothing, if the log has no such ticket any more.
        """
        ...

    def list_outputs(self, ticket_id: TicketId, *, limit: int) -> Sequence[TicketOutput]:
        """Of the ticket's attempts, the latest first."""
        ...

    def list_last_tickets(self) -> Mapping[JobName, LastTicket | None]:
        """Of each job that tickets brought here; None: all of its tickets are forgotten."""
        ...

    def load_jobs(self, ticket_ids: Collection[TicketId]) -> Mapping[TicketId, JobTicket]:
        """The jobs of these tickets, without those that are forgotten or that this release can't read."""
        ...
