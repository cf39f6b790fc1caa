"""Closed windows of a sink, into which nothing more comes: a pure decision.

A lane's file belongs to the window that was open, by its worker's clock, when the lane began it. The rule: a window is
closed once

- its end is past by the log's clock, and each live worker has said that it is past by its own clock;
- each lane that is held is held by one of these workers, and not by a run or another program;
- no sequence of the window is unfinished.

Why that is enough. A worker says its clock in the thread that begins sequences. What it begins later is of a later
window, whatever other clocks say; what it began before is in the log, where it is unfinished, or published, or given
up. Workers are asked before the log is looked at, and what was finished in between is counted. A lane that nobody
holds has no writer: a process that slept beyond its lease is fenced as soon as somebody takes the lane, and until then
what it had begun is unfinished in the log.

What is left are clocks that are set back, and processes that sleep between a look at their clock and their next
statement, beyond their lease. Their rows come late, into a window that was told. They are never lost: the window has
more rows than it was told of, and is told again.
"""

import datetime as dt
from collections.abc import Callable, Sequence

from gobblin_assets.state.sinks import DatasetLook, SinkWorkerRow, WindowNews

FindEnd = Callable[[str], dt.datetime | None]
"""The end of a partition's window, aware; None: the partition is no window of time."""


def list_due(
    look: DatasetLook, workers: Sequence[SinkWorkerRow], find_end: FindEnd, *, every_s: float
) -> list[WindowNews]:
    """What is to be told now: windows that are closed, and the whole of a dataset without partitions.

    ``workers``: those that lived before ``look``. Of one partition at most once in ``every_s`` seconds.
    """
    return [
        each
        for each in look.news
        if (each.reported_ago_s is None or each.reported_ago_s >= every_s)
        and ((end := find_end(each.partition)) is None or is_closed(look, workers, each.partition, end))
    ]


def is_closed(look: DatasetLook, workers: Sequence[SinkWorkerRow], partition: str, end: dt.datetime) -> bool:
    """The rule of the module. ``workers`` as for ``list_due``; ``end``: of the partition's window."""
    past = {each.run_id for each in workers if each.looked_at is not None and each.looked_at >= end}
    return (
        look.now >= end
        and len(past) == len(workers)
        and all(lane.holder is None or lane.holder in past for lane in look.lanes)
        and partition not in look.unfinished
    )
