"""What follows the end of a job's ticket."""

import uuid

import pytest

from gobblin_assets.errors import ErrorFamily
from gobblin_assets.service.job_progress import JobProgress
from gobblin_assets.service.job_retries import WAIT_S_MAX, NextTicket, decide_next, make_ticket_id
from gobblin_assets.service.statuses import ExecutionStatus


def decide(
    status: ExecutionStatus,
    family: ErrorFamily | None = None,
    *,
    is_busy: bool = False,
    failures: int = 0,
    is_moving: bool = False,
    chance: float = 0.0,
) -> NextTicket | None:
    ended = JobProgress(status, "it broke", family=family, is_busy=is_busy)
    return decide_next(ended, failures=failures, retries=3, retry_wait_s=60.0, is_moving=is_moving, chance=chance)


@pytest.mark.parametrize("family", [ErrorFamily.RETRYABLE, ErrorFamily.OUTCOME_UNKNOWN])
def test_what_may_pass_is_tried_again_ever_later_and_at_most_so_often(family: ErrorFamily) -> None:
    found = [decide(ExecutionStatus.FAILED, family, failures=number) for number in range(4)]
    waits = [None if each is None else (each.wait_s, each.counts) for each in found]
    assert waits == [(60.0, True), (120.0, True), (240.0, True), None]
    spread = decide(ExecutionStatus.FAILED, family, chance=1.0)
    assert spread is not None
    assert spread.wait_s == 90.0


@pytest.mark.parametrize(
    "family",
    [None, *(each for each in ErrorFamily if each not in (ErrorFamily.RETRYABLE, ErrorFamily.OUTCOME_UNKNOWN))],
)
def test_what_a_person_has_to_mend_is_not_tried_again(family: ErrorFamily | None) -> None:
    assert decide(ExecutionStatus.FAILED, family) is None


def test_data_that_others_work_on_is_waited_for_without_an_end() -> None:
    found = decide(ExecutionStatus.FAILED, ErrorFamily.RETRYABLE, is_busy=True, failures=99)
    assert found == NextTicket("others work on its data: it broke", 60.0)


def test_a_ticket_that_was_withdrawn_is_followed_at_once_and_one_that_somebody_cancelled_is_not() -> None:
    assert decide(ExecutionStatus.CANCELLED, is_moving=True) == NextTicket("it gets another executor")
    assert decide(ExecutionStatus.CANCELLED) is None
    # It was done while it was to be moved.
    assert decide(ExecutionStatus.COMPLETE, is_moving=True) is None


def test_no_wait_is_longer_than_an_hour_but_for_its_jitter() -> None:
    ended = JobProgress(ExecutionStatus.FAILED, family=ErrorFamily.RETRYABLE)
    found = decide_next(ended, failures=90, retries=100, retry_wait_s=60.0, is_moving=False, chance=0.0)
    assert found is not None
    assert found.wait_s == WAIT_S_MAX


def test_ids_of_tickets_follow_from_the_launch_the_job_and_the_attempt() -> None:
    launch = uuid.UUID(int=1)
    assert make_ticket_id(launch, "orders", 1) == make_ticket_id(launch, "orders", 1)
    others = {
        make_ticket_id(launch, "orders", 2),
        make_ticket_id(launch, "order", 1),
        make_ticket_id(launch, "orders", 1),
    }
    assert len(others) == 3
