"""Reports folded into the statuses of jobs, and these into the status of their execution."""

import datetime as dt
import uuid
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.service.job_progress import (
    JobOutline,
    JobProgress,
    ReportPlaces,
    check_move,
    decide_execution,
    fold_reports,
    join_key,
    read_places,
    write_places,
    write_watermarks,
)
from gobblin_assets.service.statuses import EDGES, ENDED, ExecutionStatus
from gobblin_assets.state.tickets import AttemptEnd, TicketReport, TicketReportKind

TICKET = TicketId(uuid.UUID(int=1))
NOON = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
SENT = JobProgress(ExecutionStatus.ORCHESTRATED)


def report(attempt: int, number: int, kind: TicketReportKind, **details: Any) -> TicketReport:
    return TicketReport(TICKET, attempt, number, kind, details, NOON + dt.timedelta(minutes=number))


def ended(attempt: int, number: int, end: AttemptEnd, **details: Any) -> TicketReport:
    return report(attempt, number, TicketReportKind.ENDED, state=end.value, **details)


def published(attempt: int, number: int, rows: int, **watermarks: list[str | None]) -> TicketReport:
    return report(attempt, number, TicketReportKind.PUBLISHED, urn="o", rows=rows, files=1, watermarks=watermarks)


STORY = [
    report(1, 1, TicketReportKind.CLAIMED),
    report(1, 2, TicketReportKind.RUNNING),
    published(1, 3, 10, id=["1", "11"]),
    ended(1, 4, AttemptEnd.DIED, message="its process died"),
    report(2, 1, TicketReportKind.CLAIMED),
    report(2, 2, TicketReportKind.RUNNING),
    published(2, 3, 5, id=["11", "16"]),
    ended(2, 4, AttemptEnd.COMPLETE),
]


def test_attempts_of_a_ticket_are_one_job() -> None:
    died = fold_reports(SENT, STORY[:4])
    assert (died.status, died.message, died.ended_at) == (ExecutionStatus.RUNNING, "its process died", None)

    done = fold_reports(died, STORY[4:])
    assert done.status is ExecutionStatus.COMPLETE
    assert (done.processed_count, done.low_watermarks, done.high_watermarks) == (
        15,
        {join_key("o", "id"): "1"},
        {join_key("o", "id"): "16"},
    )
    assert (done.started_at, done.ended_at) == (NOON + dt.timedelta(minutes=2), NOON + dt.timedelta(minutes=4))
    assert done.read == (2, 4)


@given(cuts=st.lists(st.integers(0, len(STORY)), max_size=6))
def test_however_often_and_in_which_pieces_reports_are_read_each_counts_once(cuts: list[int]) -> None:
    progress = SENT
    for cut in [*sorted(cuts), len(STORY)]:
        progress = fold_reports(progress, STORY[:cut])
    assert progress == fold_reports(SENT, STORY)


OPEN_STORY = [
    *STORY[:-1],
    report(3, 1, TicketReportKind.CLAIMED),
    report(3, 2, TicketReportKind.PROGRESS, datasets={"o": {"lag": 3, "position": "20"}}),
    report(3, 3, TicketReportKind.PROGRESS, datasets={"o": {"lag": 2, "position": "21"}}),
]


@given(order=st.permutations(range(len(STORY) * 2)), cuts=st.lists(st.integers(0, len(STORY) * 2), max_size=4))
def test_reports_that_are_doubled_late_and_in_any_order_lead_to_one_end(order: list[int], cuts: list[int]) -> None:
    doubled = [(STORY * 2)[each] for each in order]
    ends = [0, *sorted(cuts), len(doubled)]
    progress = SENT
    for first, last in pairwise(ends):
        progress = fold_reports(progress, doubled[first:last])
    assert progress == fold_reports(SENT, STORY)
    assert read_places(write_places(progress.places)) == progress.places


@given(order=st.permutations(OPEN_STORY))
def test_what_is_known_of_an_open_job_does_not_depend_on_the_order_of_its_reports(order: list[TicketReport]) -> None:
    assert fold_reports(SENT, order) == fold_reports(SENT, OPEN_STORY)


def test_what_earlier_tickets_published_stays_counted() -> None:
    earlier = fold_reports(SENT, STORY[:4])
    again = replace(earlier, status=ExecutionStatus.ORCHESTRATED, places=ReportPlaces(), read=(-1, 0))
    done = fold_reports(again, [published(1, 1, 7, id=["11", "18"])])
    assert (done.processed_count, done.low_watermarks, done.high_watermarks) == (
        17,
        {join_key("o", "id"): "1"},
        {join_key("o", "id"): "18"},
    )


def test_progress_of_workers_says_their_lanes_and_what_the_source_keeps() -> None:
    details = {
        "workers": ["a", "b"],
        "datasets": {"orders": {"lag": 7, "lanes": 4, "lanes_held": 3}, "returns": {"lanes": 1, "lanes_held": 1}},
        "stream": {"confirmed": "0/1A", "retained_bytes": 3 << 19},
    }
    found = fold_reports(SENT, [report(1, 1, TicketReportKind.PROGRESS, **details)])
    assert found.message == "lag 7; 2 workers, 4 of 5 lanes held; confirmed up to 0/1A, the slot keeps 1.5 MiB"


def test_progress_of_a_worker_says_its_lag_and_what_is_blocked() -> None:
    orders = {"lag": 1500, "position": "7", "blocked": [{"sequence_id": "1", "error": "a stranger"}], "rests": []}
    details = {"datasets": {"orders": orders, "returns": {"lag": None, "position": None}}, "unanswered": "no route"}
    found = fold_reports(SENT, [report(1, 1, TicketReportKind.PROGRESS, **details)])
    assert found.status is ExecutionStatus.RUNNING
    assert found.message == "lag 1,500; orders is BLOCKED: a stranger; the source does not answer: no route"
    assert found.high_watermarks == {join_key("orders", "position"): "7"}


def test_a_copy_counts_files() -> None:
    copied = fold_reports(
        JobProgress(ExecutionStatus.ORCHESTRATED, counts_files=True),
        [report(1, 1, TicketReportKind.PUBLISHED, urn="o", rows=0, files=3, watermarks={})],
    )
    assert copied.processed_count == 3


def test_a_ticket_that_nobody_claimed_is_cancelled() -> None:
    found = fold_reports(SENT, [ended(0, 1, AttemptEnd.CANCELLED, message="nobody worked on it")])
    assert (found.status, found.message) == (ExecutionStatus.CANCELLED, "nobody worked on it")


def test_watermarks_of_one_key_are_text_and_of_several_an_object() -> None:
    assert write_watermarks({}) is None
    assert write_watermarks({join_key("o", "id"): "7"}) == "7"
    assert write_watermarks({join_key("o", "1"): "7", join_key("o", "0"): "9"}) == '{"0": "9", "1": "7"}'
    assert write_watermarks({join_key("a", "id"): "7", join_key("b", "id"): "9"}) == '{"a id": "7", "b id": "9"}'


@pytest.mark.parametrize(("before", "after"), list(product(ExecutionStatus, repeat=2)))
def test_only_edges_are_moves(before: ExecutionStatus, after: ExecutionStatus) -> None:
    if before is after or after in EDGES[before]:
        check_move(before, after)
    else:
        with pytest.raises(CorruptionError, match="can't go"):
            check_move(before, after)


def outline(number: int, status: ExecutionStatus, *after: int) -> JobOutline:
    return JobOutline(number, f"hop_{number}", status, after)


def test_what_waits_for_a_failed_job_is_cancelled_and_the_rest_goes_on() -> None:
    jobs = [
        outline(0, ExecutionStatus.FAILED),
        outline(1, ExecutionStatus.PENDING, 0),
        outline(2, ExecutionStatus.PENDING, 1),
        outline(3, ExecutionStatus.RUNNING),
        outline(4, ExecutionStatus.PENDING, 3),
    ]
    found = decide_execution(ExecutionStatus.RUNNING, jobs)
    assert found.status is ExecutionStatus.RUNNING
    assert found.cancelled.keys() == {1, 2}
    done = [*jobs[:1], outline(3, ExecutionStatus.COMPLETE), outline(4, ExecutionStatus.COMPLETE, 3)]
    assert decide_execution(ExecutionStatus.RUNNING, done).status is ExecutionStatus.FAILED


def test_a_job_whose_ticket_may_be_in_the_log_is_not_cancelled_by_a_failure_before_it() -> None:
    jobs = [
        outline(0, ExecutionStatus.FAILED),
        replace(outline(1, ExecutionStatus.PENDING, 0), is_begun=True),
        outline(2, ExecutionStatus.PENDING, 1),
    ]
    found = decide_execution(ExecutionStatus.RUNNING, jobs)
    assert (found.status, found.cancelled) == (ExecutionStatus.RUNNING, {})


@given(
    current=st.sampled_from(sorted(set(ExecutionStatus) - ENDED)),
    statuses=st.lists(st.sampled_from(ExecutionStatus), min_size=1, max_size=5),
)
def test_an_execution_moves_along_edges_and_ends_when_its_jobs_have(
    current: ExecutionStatus, statuses: list[ExecutionStatus]
) -> None:
    jobs = [outline(number, status, *range(number)) for number, status in enumerate(statuses)]
    found = decide_execution(current, jobs)
    check_move(current, found.status)
    after = {job.number: job.status for job in jobs} | dict.fromkeys(found.cancelled, ExecutionStatus.CANCELLED)
    if found.status in ENDED:
        assert set(after.values()) <= ENDED
    for number in found.cancelled:
        check_move(statuses[number], ExecutionStatus.CANCELLED)


def test_behind_a_failure_only_what_runs_goes_on_where_that_is_asked_for() -> None:
    jobs = [
        outline(0, ExecutionStatus.FAILED),
        outline(1, ExecutionStatus.RUNNING),
        outline(2, ExecutionStatus.PENDING, 1),
        outline(3, ExecutionStatus.PENDING_RETRY),
        replace(outline(4, ExecutionStatus.PENDING_RETRY), is_begun=True),
    ]
    assert not decide_execution(ExecutionStatus.RUNNING, jobs).cancelled
    found = decide_execution(ExecutionStatus.RUNNING, jobs, finishes_running=True)
    assert found.cancelled.keys() == {2, 3}
    assert found.status is ExecutionStatus.RUNNING


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ((ExecutionStatus.COMPLETE,), ExecutionStatus.PENDING_RETRY),
        ((ExecutionStatus.ORCHESTRATED,), ExecutionStatus.ORCHESTRATED),
        ((ExecutionStatus.ORCHESTRATED, ExecutionStatus.COMPLETE), ExecutionStatus.RUNNING),
        ((ExecutionStatus.RUNNING,), ExecutionStatus.RUNNING),
    ],
)
def test_an_execution_waits_for_a_retry_if_nothing_else_is_at_work(
    others: tuple[ExecutionStatus, ...], expected: ExecutionStatus
) -> None:
    jobs = [outline(number, status) for number, status in enumerate((ExecutionStatus.PENDING_RETRY, *others))]
    assert decide_execution(ExecutionStatus.PENDING_RETRY, jobs).status is expected
    # One that has run does not say ORCHESTRATED again.
    has_run = ExecutionStatus.PENDING_RETRY if expected is ExecutionStatus.PENDING_RETRY else ExecutionStatus.RUNNING
    assert decide_execution(ExecutionStatus.RUNNING, jobs).status is has_run
