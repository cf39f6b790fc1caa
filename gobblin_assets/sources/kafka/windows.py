"""The reading of one materialization of a topic's partition, where partitions are windows of ingestion. Pure.

The open window goes on from the watermarks to the pinned ends. A past window that is published reads its own intervals
again and replaces their rows. Any other past window reads the offsets that the brokers give for its times, without
those that any window holds. Only the open window moves watermarks.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Gap, Interval, find_gaps
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.sources.kafka.cluster import PartitionOffsets, TopicOffsets, TopicPartition
from gobblin_assets.sources.kafka.keys import PartitionKey, parse_key
from gobblin_assets.sources.kafka.planning import ChosenRange, OffsetRange, TopicDecision, TopicMemory, offset_of
from gobblin_assets.sources.source_port import SourceRequest

Intervals = Mapping[str, Sequence[Interval]]
"""Intervals by watermark key, ascending; neighbours never touch."""

_MOMENT: Final = "%Y-%m-%d %H:%M %Z"


class WindowReading(StrEnum):
    """A way to read a window.

    ``CONTINUE``: on from the watermarks. ``REREAD``: its own intervals again. ``FILL``: what no window holds.
    """

    CONTINUE = "continue"
    REREAD = "reread"
    FILL = "fill"


def decide_reading(request: SourceRequest, now: dt.datetime) -> WindowReading:
    """AUTO reads a past window again if it is published and asked for by hand.

    RejectedError: the window has not begun; or a past window is to start over, which only the open window can do.
    """
    window = request.partition.window
    is_open = window is None or window.start <= now < window.end
    if window is not None and now < window.start:
        raise RejectedError(
            f"the window {request.partition} begins at {window.start.strftime(_MOMENT)}",
            field="partition",
            hint="What a topic has now belongs to the window that is open now.",
        )
    if request.restart is not None:
        if not is_open:
            raise RejectedError(
                f"the window {request.partition} has passed, and {request.restart.value} moves watermarks",
                field="partition",
                hint="Ask for it with the window that is open now.",
            )
        return WindowReading.CONTINUE
    if (request.partition.key or "") in request.state.published and (
        request.mode is Mode.REFRESH or (request.mode is Mode.AUTO and request.by_hand and not is_open)
    ):
        return WindowReading.REREAD
    return WindowReading.CONTINUE if is_open else WindowReading.FILL


def reread_ranges(
    request: SourceRequest, memory: TopicMemory, offsets: TopicOffsets, published: Intervals
) -> TopicDecision:
    """``published``: the partition's own intervals.

    Raises:
        RejectedError: the log no longer has all of these offsets.
        RetryableError: the offsets of a needed partition could not be fetched.

    """
    decision = TopicDecision.begin(memory, offsets, is_limited=False)
    for name, intervals in published.items():
        key = parse_key(name)
        if key is None or key != memory.key_of(key.partition):
            raise _gone(request, f"{name} is a log that is not followed any more")
        number = key.partition.partition
        if number in offsets.failures:
            raise RetryableError(
                f"{key.partition} can't be read once more: {offsets.failures[number]}",
                hint="Nothing was read, and what is published stays.",
            )
        found = offsets.partitions.get(number)
        ends = OffsetRange(offset_of(intervals[0].low), offset_of(intervals[-1].high))
        if found is None or ends.low < found.earliest or ends.high > found.end:
            has = "not that partition any more" if found is None else f"{found.earliest} to {found.end}"
            raise _gone(request, f"{key.partition} was published from {ends.low} to {ends.high}, and the log has {has}")
        between = tuple(_between(gap) for gap in find_gaps(intervals))
        decision.ranges[number] = ChosenRange(key, ends, between)
    width = sum(chosen.width for chosen in decision.ranges.values())
    decision.notes.append(f"{memory.topic}: {width:,} offsets of {_shown(request)} are read once more")
    return decision


def fill_ranges(
    request: SourceRequest,
    memory: TopicMemory,
    offsets: TopicOffsets,
    held: Intervals,
    *,
    from_start: Mapping[TopicPartition, int | None],
    from_end: Mapping[TopicPartition, int | None],
) -> TopicDecision:
    """``from_start`` and ``from_end``: the first offsets that are not older than the window's start and end; None where
    there is none. ``held``: the active intervals of all windows.
    """
    decision = TopicDecision.begin(memory, offsets, is_limited=False)
    for number, found in sorted(offsets.partitions.items()):
        name = TopicPartition(memory.topic, number)
        key = memory.key_of(name)
        low, high = _clamp(from_start[name], found), _clamp(from_end[name], found)
        chosen = ChosenRange(key, OffsetRange(low, max(low, high)), tuple(held.get(str(key), ())))
        if chosen.width:
            decision.ranges[number] = chosen
    for number, reason in sorted(offsets.failures.items()):
        decision.degraded.append(f"{TopicPartition(memory.topic, number)} is left out of {_shown(request)}: {reason}")
    width = sum(chosen.width for chosen in decision.ranges.values())
    decision.notes.append(
        f"{memory.topic}: {width:,} offsets of {_shown(request)} are read, by the times of their records; "
        "the watermarks stay"
        if width
        else f"{memory.topic}: the times of {_shown(request)} have no unpublished records: nothing to read"
    )
    return decision


class Taken:
    """The offsets that a dataset's planned windows will read in this run, so that nothing is read twice."""

    def __init__(self) -> None:
        self._intervals: dict[PartitionKey, list[Interval]] = {}

    def add(self, decision: TopicDecision) -> None:
        for chosen in decision.ranges.values():
            pieces = [Interval(long_watermark(low), long_watermark(high)) for low, high in chosen.pieces if low < high]
            self._intervals.setdefault(chosen.key, []).extend(pieces)

    def leave_out(self, decision: TopicDecision) -> None:
        """For a past window: leave out what other windows of this run read."""
        for number, chosen in decision.ranges.items():
            taken = self._intervals.get(chosen.key, ())
            decision.ranges[number] = replace(chosen, held=(*chosen.held, *taken))

    def end_before(self, decision: TopicDecision) -> None:
        """For the open window: end where another window begins. If that one fails, the next run goes on from there."""
        for number, chosen in decision.ranges.items():
            low, high = chosen.offsets.low, chosen.offsets.high
            firsts = [offset_of(each.low) for each in self._intervals.get(chosen.key, ())]
            end = min((first for first in firsts if low <= first < high), default=high)
            decision.ranges[number] = replace(chosen, offsets=replace(chosen.offsets, high=end))


def _clamp(offset: int | None, found: PartitionOffsets) -> int:
    return found.end if offset is None else min(max(offset, found.earliest), found.end)


def _between(gap: Gap) -> Interval:
    return Interval(gap.after, gap.after if gap.before is None else gap.before)


def _gone(request: SourceRequest, said: str) -> RejectedError:
    return RejectedError(
        f"{request.urn} {_shown(request)} can't be read once more: {said}",
        field="mode",
        hint="Nothing was read, and what is published stays. Run it in the mode append instead.",
    )


def _shown(request: SourceRequest) -> str:
    return f"[{request.partition}]"
