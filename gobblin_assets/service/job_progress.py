"""The progress of jobs, and of their executions: what reports say, folded into statuses. Pure.

A report has its place, (attempt, number), and each publication is reported once. What is folded is stored with the
places of what was counted: reports that come again, late or in another order lead to the same end.
"""

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.wording import count_of
from gobblin_assets.service.statuses import EDGES, ENDED, UNSENT, ExecutionStatus
from gobblin_assets.state.tickets import AttemptEnd, TicketReport, TicketReportKind

MESSAGE_LENGTH_MAX: Final = 2_000

_KEY_MARK: Final = "\t"

_OF_END: Final[Mapping[AttemptEnd, ExecutionStatus]] = {
    AttemptEnd.COMPLETE: ExecutionStatus.COMPLETE,
    AttemptEnd.FAILED: ExecutionStatus.FAILED,
    AttemptEnd.CANCELLED: ExecutionStatus.CANCELLED,
}


Place = tuple[int, int]
"""Of a report: its attempt and its number."""

_NOWHERE: Final[Place] = (-1, 0)


@dataclass(frozen=True, slots=True)
class ReportPlaces:
    """Where what is known of a ticket was reported. ``counted``: publications, as (attempt, first number, last number).

    ``low`` and ``high``: by dataset and key, the reports that the watermarks are from; nothing for those of earlier
    tickets. ``said``: the report that the message is from.
    """

    counted: tuple[tuple[int, int, int], ...] = ()
    low: Mapping[str, Place] = field(default_factory=dict)
    high: Mapping[str, Place] = field(default_factory=dict)
    said: Place = _NOWHERE


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What is known of a job that was sent.

    ``low_watermarks``, ``high_watermarks``: by dataset and key, the first low and the last high of what it published. A
    worker without a high one has published nothing.
    ``read``: the (attempt, number) of the last report that is counted. ``counts_files``: of a job that copies files.
    ``family`` and ``is_busy``: of an end that is FAILED, what it failed of, and whether only others' work was in its
    way.
    """

    status: ExecutionStatus
    message: str = ""
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    processed_count: int = 0
    low_watermarks: Mapping[str, str] = field(default_factory=dict)
    high_watermarks: Mapping[str, str] = field(default_factory=dict)
    read: Place = _NOWHERE
    counts_files: bool = False
    places: ReportPlaces = field(default_factory=ReportPlaces)
    family: str | None = None
    is_busy: bool = False


@dataclass(frozen=True, slots=True)
class JobOutline:
    """A job of an execution, as the execution's status depends on it. ``after``: numbers of jobs that it waits for.

    ``is_begun``: its ticket may be in the log, so it is sent to the end.
    """

    number: int
    job_name: str
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


def write_places(places: ReportPlaces) -> dict[str, object]:
    """As plain JSON."""
    return {
        "counted": [list(each) for each in places.counted],
        "low": {key: list(place) for key, place in places.low.items()},
        "high": {key: list(place) for key, place in places.high.items()},
        "said": list(places.said),
    }


def read_places(stored: Mapping[str, Any]) -> ReportPlaces:
    """The same, back; of nothing, nothing."""
    if not stored:
        return ReportPlaces()
    counted = tuple((attempt, first, last) for attempt, first, last in stored["counted"])
    low, high = ({key: (attempt, number) for key, (attempt, number) in stored[end].items()} for end in ("low", "high"))
    attempt, number = stored["said"]
    return ReportPlaces(counted, low, high, (attempt, number))


def fold_reports(progress: JobProgress, reports: Iterable[TicketReport]) -> JobProgress:
    """The progress with these reports of its ticket, in any order; those that were counted before change nothing."""
    for report in reports:
        folded = _fold(progress, report)
        progress = replace(folded, read=max(progress.read, (report.attempt, report.number)))
    return progress


def _fold(progress: JobProgress, report: TicketReport) -> JobProgress:
    match report.kind:
        case TicketReportKind.CLAIMED:
            return progress
        case TicketReportKind.RUNNING:
            return _say(_run(progress, report.at), report, "")
        case TicketReportKind.PUBLISHED:
            return _count(_say(_run(progress, report.at), report, ""), report)
        case TicketReportKind.PROGRESS:
            said = _say(_run(progress, report.at), report, write_progress(report.details))
            return _move_high(said, report, _read_positions(report.details))
        case TicketReportKind.ENDED:
            return _end(progress, report)


def _count(progress: JobProgress, report: TicketReport) -> JobProgress:
    places = progress.places
    if any(attempt == report.attempt and first <= report.number <= last for attempt, first, last in places.counted):
        return progress
    low, high = read_moves(report.details)
    place = report.attempt, report.number
    lower = {
        key: value
        for key, value in low.items()
        if key not in progress.low_watermarks or place < places.low.get(key, _NOWHERE)
    }
    counted = replace(
        progress,
        processed_count=progress.processed_count + read_count(report.details, counts_files=progress.counts_files),
        low_watermarks={**progress.low_watermarks, **lower},
        places=replace(
            places, counted=_add_number(places.counted, place), low={**places.low, **dict.fromkeys(lower, place)}
        ),
    )
    return _move_high(counted, report, high)


def _add_number(counted: Iterable[tuple[int, int, int]], place: Place) -> tuple[tuple[int, int, int], ...]:
    """The intervals with one more number, those that touch made one."""
    joined: list[tuple[int, int, int]] = []
    for attempt, first, last in sorted((*counted, (place[0], place[1], place[1]))):
        if joined and joined[-1][0] == attempt and joined[-1][2] + 1 == first:
            joined[-1] = attempt, joined[-1][1], last
        else:
            joined.append((attempt, first, last))
    return tuple(joined)


def _move_high(progress: JobProgress, report: TicketReport, found: Mapping[str, str]) -> JobProgress:
    place = report.attempt, report.number
    higher = {key: value for key, value in found.items() if place >= progress.places.high.get(key, _NOWHERE)}
    return replace(
        progress,
        high_watermarks={**progress.high_watermarks, **higher},
        places=replace(progress.places, high={**progress.places.high, **dict.fromkeys(higher, place)}),
    )


def _read_positions(details: Mapping[str, Any]) -> dict[str, str]:
    """Up to where a worker has published: one place of a stream, or a watermark for each key."""
    found: dict[str, str] = {}
    for urn, each in details.get("datasets", {}).items():
        found |= {join_key(urn, key): str(value) for key, value in each.get("watermarks", {}).items()}
        if each.get("position") is not None:
            found[join_key(urn, "position")] = str(each["position"])
    return found


def _run(progress: JobProgress, at: dt.datetime) -> JobProgress:
    started_at = at if progress.started_at is None else min(progress.started_at, at)
    if progress.status in ENDED:
        return replace(progress, started_at=started_at)
    check_move(progress.status, ExecutionStatus.RUNNING)
    return replace(progress, status=ExecutionStatus.RUNNING, started_at=started_at)


def _say(progress: JobProgress, report: TicketReport, message: str) -> JobProgress:
    """What the last report says, unless the ticket has ended: then its end has the word."""
    place = report.attempt, report.number
    if progress.status in ENDED or place < progress.places.said:
        return progress
    return replace(progress, message=message, places=replace(progress.places, said=place))


def _end(progress: JobProgress, report: TicketReport) -> JobProgress:
    end = AttemptEnd(report.details.get("state", ""))
    message = _describe_end(report.details)
    status = _OF_END.get(end)
    if status is None:
        # The next attempt goes on: the job has not ended.
        return _say(progress, report, message or f"attempt {report.attempt} {end.value.lower()}")
    if progress.status in ENDED:
        return progress
    check_move(progress.status, status)
    return replace(
        _say(progress, report, message),
        status=status,
        ended_at=report.at,
        message=message,
        family=report.details.get("family"),
        is_busy=bool(report.details.get("busy")),
    )


def _describe_end(details: Mapping[str, Any]) -> str:
    """The sentence of the end, with its hint."""
    message, hint = str(details.get("message") or ""), str(details.get("hint") or "")
    return " ".join(each for each in (message, hint) if each)[:MESSAGE_LENGTH_MAX]


def describe_deletion(end: TicketReport) -> str:
    """Why the source still keeps what it has for a job; empty if it was deleted."""
    if end.details.get("state") == AttemptEnd.COMPLETE:
        return ""
    said = _describe_end(end.details) or "the ticket was ended by somebody"
    return f"What the source keeps for the job was not deleted: {said}"[:MESSAGE_LENGTH_MAX]


def write_progress(details: Mapping[str, Any]) -> str:
    """How far workers are, for people: lag, lanes, what the source keeps for them, and what stops them."""
    datasets: Mapping[str, Mapping[str, Any]] = details.get("datasets") or {}
    lags = [each["lag"] for each in datasets.values() if each.get("lag") is not None]
    said = [f"lag {sum(lags):,}"] if lags else []
    if lanes := sum(each.get("lanes") or 0 for each in datasets.values()):
        held = sum(each.get("lanes_held") or 0 for each in datasets.values())
        workers = count_of(len(details.get("workers") or ()), "worker", "workers")
        said.append(f"{workers}, {held} of {count_of(lanes, 'lane', 'lanes')} held")
    if stream := details.get("stream"):
        kept = (stream.get("retained_bytes") or 0) / (1 << 20)
        said.append(f"confirmed up to {stream.get('confirmed')}, the slot keeps {kept:,.1f} MiB")
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


def decide_execution(
    current: ExecutionStatus, jobs: Sequence[JobOutline], *, finishes_running: bool = False
) -> ExecutionOutcome:
    """The next status of an execution, which is ``current``, and which jobs that were not sent never will be.

    A job that waits for one that did not complete is CANCELLED, unless it is begun. Others go on; if the execution only
    ``finishes_running``, those that are not begun are CANCELLED, too. The execution ends when all jobs have.
    """
    statuses = {job.number: job.status for job in jobs}
    names = {job.number: job.job_name for job in jobs}
    broken = [job.number for job in jobs if job.status is ExecutionStatus.FAILED] if finishes_running else []
    cancelled: dict[int, str] = {}
    for job in sorted(jobs, key=lambda each: each.number):
        lost = [number for number in job.after if statuses[number] in ENDED - {ExecutionStatus.COMPLETE}]
        if (lost or broken) and not job.is_begun and job.status in UNSENT:
            why = lost[0] if lost else broken[0]
            said = "it waits for" if lost else "only what runs goes on behind"
            cancelled[job.number] = f"{said} {names[why]}, which is {statuses[why]}"
            statuses[job.number] = ExecutionStatus.CANCELLED
    found = set(statuses.values())
    failed = next((job for job in jobs if job.status is ExecutionStatus.FAILED), None)
    message = "" if failed is None else f"{failed.job_name} failed: {failed.message}"[:MESSAGE_LENGTH_MAX]
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
    if ExecutionStatus.RUNNING in found or found >= {ExecutionStatus.ORCHESTRATED, ExecutionStatus.COMPLETE}:
        return ExecutionStatus.RUNNING
    for status in (ExecutionStatus.ORCHESTRATED, ExecutionStatus.PENDING_RESUME, ExecutionStatus.PENDING_RETRY):
        if status in found:
            return status
    return ExecutionStatus.RUNNING if ExecutionStatus.COMPLETE in found else ExecutionStatus.COMPILED
