"""The progress of jobs, and of their executions: what reports say, folded into statuses. Pure.

Reports of a ticket come in one order, (attempt, number), and each publication is reported once. What is folded is
stored with the place up to which it was read, so that no report counts twice.
"""

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gobblin_assets.errors import CorruptionError
from gobblin_assets.service.statuses import EDGES, ENDED, ExecutionStatus
from gobblin_assets.state.tickets import AttemptEnd, TicketReport, TicketReportKind

MESSAGE_LENGTH_MAX: Final = 2_000

_KEY_MARK: Final = "\t"

_OF_END: Final[Mapping[AttemptEnd, ExecutionStatus]] = {
    AttemptEnd.COMPLETE: ExecutionStatus.COMPLETE,
    AttemptEnd.FAILED: ExecutionStatus.FAILED,
    AttemptEnd.CANCELLED: ExecutionStatus.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What is known of a job that was sent.

    ``low_watermarks``, ``high_watermarks``: by dataset and key, the first low and the last high of what it published. A
    worker without a high one has published nothing.
    ``read``: the (attempt, number) of the last report that is counted. ``counts_files``: of a job that copies files.
    """

    status: ExecutionStatus
    message: str = ""
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    processed_count: int = 0
    low_watermarks: Mapping[str, str] = field(default_factory=dict)
    high_watermarks: Mapping[str, str] = field(default_factory=dict)
    read: tuple[int, int] = (-1, 0)
    counts_files: bool = False


@dataclass(frozen=True, slots=True)
class JobOutline:
    """A job of an execution, as the execution's status depends on it. ``after``: numbers of jobs that it waits for.

    ``is_begun``: its ticket may be in the log, so it is sent to the end.
    """

    number: int
    status: ExecutionStatus
    after: tuple[int, ...]
    message: str = ""
    is_begun: bool = False


@dataclass(frozen=True, slots=True)
class ExecutionOutcome:
    """What follows from the statuses of an execution's jobs. ``cancelled``: jobs that won't be sent, each with why."""

    status: ExecutionStatus
    message: str
    cancelled: Mapping[int, str]


def check_move(before: ExecutionStatus, after: ExecutionStatus) -> None:
    """The only guard of moves between statuses: CorruptionError for one that is no edge."""
    if after is not before and after not in EDGES[before]:
        raise CorruptionError(f"an execution can't go from {before} to {after}")


def fold_reports(progress: JobProgress, reports: Iterable[TicketReport]) -> JobProgress:
    """The progress with these reports, in their order; those that were counted before are passed over."""
    for report in reports:
        place = report.attempt, report.number
        if place <= progress.read or progress.status in ENDED:
            continue
        progress = replace(_fold(progress, report), read=place)
    return progress


def _fold(progress: JobProgress, report: TicketReport) -> JobProgress:
    match report.kind:
        case TicketReportKind.CLAIMED:
            return progress
        case TicketReportKind.RUNNING:
            return _run(progress, report.at)
        case TicketReportKind.PUBLISHED:
            low, high = read_moves(report.details)
            return replace(
                _run(progress, report.at),
                processed_count=progress.processed_count
                + read_count(report.details, counts_files=progress.counts_files),
                low_watermarks={**low, **progress.low_watermarks},
                high_watermarks={**progress.high_watermarks, **high},
            )
        case TicketReportKind.PROGRESS:
            return replace(
                _run(progress, report.at),
                message=write_progress(report.details),
                high_watermarks={**progress.high_watermarks, **_read_positions(report.details)},
            )
        case TicketReportKind.ENDED:
            return _end(progress, report)


def _read_positions(details: Mapping[str, Any]) -> dict[str, str]:
    """Up to where a worker has published: one place of a stream, or a watermark for each key."""
    found: dict[str, str] = {}
    for urn, each in details.get("datasets", {}).items():
        found |= {join_key(urn, key): str(value) for key, value in each.get("watermarks", {}).items()}
        if each.get("position") is not None:
            found[join_key(urn, "position")] = str(each["position"])
    return found


def _run(progress: JobProgress, at: dt.datetime) -> JobProgress:
    check_move(progress.status, ExecutionStatus.RUNNING)
    return replace(progress, status=ExecutionStatus.RUNNING, started_at=progress.started_at or at, message="")


def _end(progress: JobProgress, report: TicketReport) -> JobProgress:
    end = AttemptEnd(report.details.get("state", ""))
    message = _describe_end(report.details)
    status = _OF_END.get(end)
    if status is None:
        # The next attempt goes on: the job has not ended.
        return replace(progress, message=message or f"attempt {report.attempt} {end.value.lower()}")
    check_move(progress.status, status)
    return replace(progress, status=status, ended_at=report.at, message=message)


def _describe_end(details: Mapping[str, Any]) -> str:
    """The sentence of the end, with its hint."""
    message, hint = str(details.get("message") or ""), str(details.get("hint") or "")
    return " ".join(each for each in (message, hint) if each)[:MESSAGE_LENGTH_MAX]


def write_progress(details: Mapping[str, Any]) -> str:
    """How far a worker is, for people: its lag, and what keeps it from going on."""
    datasets: Mapping[str, Mapping[str, Any]] = details.get("datasets") or {}
    lags = [each["lag"] for each in datasets.values() if each.get("lag") is not None]
    said = [f"lag {sum(lags):,}"] if lags else []
    for urn, each in datasets.items():
        said += [f"{urn} is BLOCKED: {blocked['error']}" for blocked in each.get("blocked", ())]
        said += [f"{urn} backs off: {error}" for error in each.get("rests", ())]
    if details.get("unanswered"):
        said.append(f"the source does not answer: {details['unanswered']}")
    return "; ".join(said)[:MESSAGE_LENGTH_MAX]


def read_count(details: Mapping[str, Any], *, counts_files: bool) -> int:
    return int(details.get("files" if counts_files else "rows") or 0)


def read_moves(details: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """The lows and highs of a publication's watermarks, by the dataset and the key."""
    urn = str(details.get("urn") or "")
    moves: Mapping[str, Sequence[Any]] = details.get("watermarks") or {}
    low = {join_key(urn, key): str(before) for key, (before, _after) in moves.items() if before is not None}
    high = {join_key(urn, key): str(after) for key, (_before, after) in moves.items() if after is not None}
    return low, high


def join_key(urn: str, key: str) -> str:
    return f"{urn}{_KEY_MARK}{key}"


def write_watermarks(by_key: Mapping[str, str]) -> str | None:
    """Of one key its text, of several a JSON object by key; None where nothing has a position.

    Keys of several datasets have their URNs before them.
    """
    if not by_key:
        return None
    if len(by_key) == 1:
        return next(iter(by_key.values()))
    urns = {name.partition(_KEY_MARK)[0] for name in by_key}
    written = {}
    for name, position in sorted(by_key.items()):
        urn, _, key = name.partition(_KEY_MARK)
        written[key if len(urns) == 1 else f"{urn} {key}".strip()] = position
    return json.dumps(written, ensure_ascii=False)


def decide_execution(current: ExecutionStatus, jobs: Sequence[JobOutline]) -> ExecutionOutcome:
    """The next status of an execution, which is ``current``, and which jobs that were not sent never will be.

    A job that waits for one that did not complete is CANCELLED, unless it is begun; others go on. The execution ends
    when all jobs have.
    """
    statuses = {job.number: job.status for job in jobs}
    cancelled: dict[int, str] = {}
    for job in sorted(jobs, key=lambda each: each.number):
        lost = [number for number in job.after if statuses[number] in ENDED - {ExecutionStatus.COMPLETE}]
        if lost and not job.is_begun and job.status in (ExecutionStatus.COMPILED, ExecutionStatus.PENDING):
            cancelled[job.number] = f"it waits for job {lost[0]}, which is {statuses[lost[0]]}"
            statuses[job.number] = ExecutionStatus.CANCELLED
    found = set(statuses.values())
    failed = next((job for job in jobs if job.status is ExecutionStatus.FAILED), None)
    message = "" if failed is None else f"job {failed.number} failed: {failed.message}"[:MESSAGE_LENGTH_MAX]
    status = _decide_status(found)
    if status not in EDGES[current]:
        # Of jobs that run beside others one may have ended: an execution that has run is running until all have.
        status = current
    return ExecutionOutcome(status, message, cancelled)


def _decide_status(found: set[ExecutionStatus]) -> ExecutionStatus:
    if found <= ENDED:
        for status in (ExecutionStatus.FAILED, ExecutionStatus.CANCELLED):
            if status in found:
                return status
        return ExecutionStatus.COMPLETE
    if found & {ExecutionStatus.COMPLETE, ExecutionStatus.RUNNING}:
        return ExecutionStatus.RUNNING
    if ExecutionStatus.ORCHESTRATED in found:
        return ExecutionStatus.ORCHESTRATED
    return ExecutionStatus.COMPILED
