"""Judgements of a sink as it is at work: its lanes, its lag, and its windows that are closed. Pure."""

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gobblin_assets.commit.driver import describe_ways_out
from gobblin_assets.jobs.programs import DeclaredCheck
from gobblin_assets.jobs.sink.sink_rules import is_one_stream
from gobblin_assets.jobs.sink.stream_status import DatasetStatus, StreamStatus
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.wording import count_of
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.state.sinks import DatasetLook, LaneLook, SinkWorkerRow, WindowNews

FindEnd = Callable[[str], dt.datetime | None]
"""The end of a partition's window, aware; None: the partition is no window of time."""

LANES_CHECK: Final = "sink_lanes"
SINK_LAG_CHECK: Final = "sink_lag"


def list_due(
    look: DatasetLook, workers: Sequence[SinkWorkerRow], find_end: FindEnd, *, every_s: float
) -> list[WindowNews]:
    """The windows to report now: those that are closed, and the whole of a dataset without partitions.

    ``workers``: those that lived before ``look``. Of one partition at most once in ``every_s`` seconds.
    """
    return [
        each
        for each in look.news
        if (each.reported_ago_s is None or each.reported_ago_s >= every_s)
        and ((end := find_end(each.partition)) is None or is_closed(look, workers, each.partition, end))
    ]


def is_closed(look: DatasetLook, workers: Sequence[SinkWorkerRow], partition: str, end: dt.datetime) -> bool:
    """Whether nothing more comes into a window. ``workers`` as for ``list_due``; ``end``: of the partition's window.

    A lane's file belongs to the window that was open, by its worker's clock, when the lane began it. The rule: a window
    is closed once

    - its end is past by the log's clock, and each live worker has said that it is past by its own clock;
    - each lane that is held is held by one of these workers, and not by a run or another program;
    - no sequence of the window is unfinished.

    Why that is enough. A worker says its clock in the thread that begins sequences. What it begins later is of a later
    window, whatever other clocks say; what it began before is in the log, where it is unfinished, or published, or
    given up. Workers are asked before the log is looked at, and what was finished in between is counted. A lane that
    nobody holds has no writer: a process that slept beyond its lease is fenced as soon as somebody takes the lane, and
    until then what it had begun is unfinished in the log.

    What is left are clocks that are set back, and processes that sleep between a look at their clock and their next
    statement, beyond their lease. Their rows come late, into a window that was reported. They are never lost: the
    window has more rows than were reported, and is reported again.
    """
    past = {each.run_id for each in workers if each.looked_at is not None and each.looked_at >= end}
    return (
        look.now >= end
        and len(past) == len(workers)
        and all(lane.holder is None or lane.holder in past for lane in look.lanes)
        and partition not in look.unfinished
    )


def declare_sink_checks(job: JobSpec) -> Iterator[DeclaredCheck]:
    """The checks of each dataset of a sink."""
    lag_max = job.sink.lag_max
    yield DeclaredCheck(LANES_CHECK, "Each lane with partitions is held, and no lane is BLOCKED.", of_sink=True)
    limit = "" if lag_max is None else f": at most {lag_max:,}"
    unit = "Bytes of the server's log" if is_one_stream(job) else "Records"
    yield DeclaredCheck(SINK_LAG_CHECK, f"{unit} that are not published{limit}.", of_sink=True)


def judge_lanes(lanes: Sequence[LaneLook], *, worker_count: int) -> CheckResult:
    """``blocking`` stands for an error: a lane is BLOCKED, and a person is needed."""
    blocked = [(lane, lane.unfinished) for lane in lanes if lane.unfinished is not None and lane.unfinished.is_blocked]
    free = [lane.number for lane in lanes if lane.vnode_count and lane.holder is None]
    figures: dict[str, object] = {
        "lanes": sum(lane.vnode_count > 0 for lane in lanes),
        "lanes_free": len(free),
        "lanes_blocked": len(blocked),
    }
    if blocked:
        rows = [
            f"lane {lane.number}, sequence {each.sequence_id}: {each.error or 'no reason was given'} "
            f"{describe_ways_out(each.sequence_id)}"
            for lane, each in blocked
        ]
        said = f"{count_of(len(blocked), 'lane is', 'lanes are')} BLOCKED: {rows[0]}"
        return CheckResult(LANES_CHECK, False, blocking=True, description=said, figures={**figures, "blocked": rows})
    if free:
        who = "no worker is alive" if not worker_count else "workers have not taken them"
        said = f"{count_of(len(free), 'lane', 'lanes')} with partitions wait for a worker, and {who}."
        return CheckResult(LANES_CHECK, False, blocking=False, description=said, figures=figures)
    return CheckResult(LANES_CHECK, True, blocking=False, description="", figures=figures)


def judge_sink_lag(lag: int | None, *, lag_max: int | None) -> CheckResult:
    """``lag``: records that are not published; None: no worker says it. Without ``lag_max`` it passes."""
    figures: dict[str, object] = {} if lag is None else {"lag": lag}
    if lag_max is not None:
        figures["lag_max"] = lag_max
    passed = lag is None or lag_max is None or lag <= lag_max
    said = "The lag is not known: no worker reads." if lag is None else f"{lag:,} records are not published."
    return CheckResult(SINK_LAG_CHECK, passed, blocking=False, description=said, figures=figures)


def judge_stream_lag(status: StreamStatus, urn: DatasetUrn, *, lag_max: int | None) -> CheckResult:
    """The lag in bytes, which is known without a worker. It fails as well if nothing more comes from the stream.

    What the server keeps for the stream is in the figures: it is at least the lag of the table that is furthest behind.
    """
    stream, found = status.stream, status.datasets.get(urn, DatasetStatus())
    lag = found.lag_bytes
    given = {"lag_bytes": lag, "lag_s": found.lag_s, "lag_max": lag_max, "retained_bytes": stream.retained_bytes}
    figures: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    if lag is not None and stream.is_lost:
        gone = "is gone" if stream.status is None else "was given up by the server"
        said = (
            f"The replication slot {stream.name} {gone}, and with it the changes that are not published. Copy the "
            f"table again: gobblin-assets sink recopy JOB_FILE --dataset {urn}."
        )
        return CheckResult(SINK_LAG_CHECK, False, blocking=False, description=said, figures=figures)
    passed = lag is None or lag_max is None or lag <= lag_max
    said = "The table is to be copied." if lag is None else f"{lag:,} bytes of the server's log are not published."
    return CheckResult(SINK_LAG_CHECK, passed, blocking=False, description=said, figures=figures)
