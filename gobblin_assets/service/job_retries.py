"""What follows the end of a job's ticket: another ticket, or the end of the job. Pure."""

import uuid
from dataclasses import dataclass
from typing import Final

from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.service.job_progress import MESSAGE_LENGTH_MAX, JobProgress
from gobblin_assets.service.statuses import ExecutionStatus
from gobblin_assets.state.tickets import PASSING

WAIT_S_MAX: Final = 3_600.0

_JITTER: Final = 0.5
"""A wait is longer by up to this share: jobs that failed of one cause don't come back at once."""

_DOUBLINGS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class NextTicket:
    """Another ticket for a job. ``wait_s``: it is not sent earlier; ``counts``: it is one of the flow's retries."""

    message: str
    wait_s: float = 0.0
    counts: bool = False


def decide_next(
    ended: JobProgress, *, failures: int, retries: int, retry_wait_s: float, is_moving: bool, chance: float
) -> NextTicket | None:
    """What follows for a job whose ticket has ended like this. None: the job has ended, too.

    ``failures``: retries that were made; ``is_moving``: the end was asked for, so that another executor gets a ticket;
    ``chance``: from 0 to 1.
    """
    if ended.status is ExecutionStatus.CANCELLED and is_moving:
        return NextTicket("it gets another executor")
    if ended.status is not ExecutionStatus.FAILED:
        return None
    jitter = 1 + _JITTER * chance
    if ended.is_busy:
        return _wait(f"others work on its data: {ended.message}", min(WAIT_S_MAX, retry_wait_s) * jitter)
    if failures < retries and ended.family in PASSING:
        wait_s = min(WAIT_S_MAX, retry_wait_s * 2 ** min(failures, _DOUBLINGS_MAX)) * jitter
        return _wait(f"retry {failures + 1} of {retries}: {ended.message}", wait_s, counts=True)
    return None


def _wait(said: str, wait_s: float, *, counts: bool = False) -> NextTicket:
    return NextTicket(said[:MESSAGE_LENGTH_MAX], wait_s, counts)


def make_ticket_id(request_id: uuid.UUID, job_name: str, attempt: int) -> TicketId:
    """The id of the ticket of this number, from 1, of a job: whoever makes it makes the same one."""
    return TicketId(uuid.uuid5(request_id, f"{job_name}\0{attempt}"))
