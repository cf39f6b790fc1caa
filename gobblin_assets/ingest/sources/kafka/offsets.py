"""Where a topic partition's next interval begins and ends: decided from its watermark and what the broker has. Pure.

A watermark is the next offset to read. The end is pinned when the run is planned: with read_committed it is the last
stable offset, so that a transaction that is still open is read by a later run, whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gobblin_assets.errors import RejectedError
from gobblin_assets.ingest.kafka_spec import BootstrapWith, KafkaReadSpec, ResetOnOutOfRange
from gobblin_assets.ingest.sources.kafka.cluster import PartitionOffsets, TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """``[low, high)`` of one partition, with what a person should know of how it was chosen.

    ``restarts``: the offsets of before don't continue here, so that the positions are those of a new key generation.
    ``lost``: offsets that were never read and never will be; ``repeated``: offsets that are read a second time.
    """

    low: int
    high: int
    note: str | None = None
    restarts: bool = False
    lost: int = 0
    repeated: int = 0


def continue_range(
    name: TopicPartition, watermark: int, offsets: PartitionOffsets, rule: ResetOnOutOfRange, *, urn: str
) -> OffsetRange | None:
    """From the watermark to the end. None: the partition is left out, by the rule ``skip``.

    RejectedError when the watermark lies outside of what the broker has and the rule is ``fail``.
    """
    if offsets.earliest <= watermark <= offsets.end:
        return OffsetRange(watermark, offsets.end)
    below = watermark < offsets.earliest
    said = f"{name}: the next offset is {watermark}, and the broker has {offsets.earliest} to {offsets.end}: " + (
        f"{offsets.earliest - watermark:,} offsets were deleted before they were read"
        if below
        else "the topic's log has become shorter"
    )
    match rule:
        case ResetOnOutOfRange.FAIL:
            raise RejectedError(
                said,
                field=f"datasets[{urn}].kafka.reset_on_out_of_range",
                hint="Nothing was read. Write nearest, earliest or latest to go on from there (what is skipped or "
                "repeated is counted), or skip to leave the partition out.",
                topic=name.topic,
                partition=name.partition,
            )
        case ResetOnOutOfRange.SKIP:
            return None
        case ResetOnOutOfRange.EARLIEST:
            start = offsets.earliest
        case ResetOnOutOfRange.LATEST:
            start = offsets.end
        case ResetOnOutOfRange.NEAREST:
            start = offsets.earliest if below else offsets.end
    lost = max(0, start - watermark) if below else start - offsets.earliest
    note = f"{said}; reset to {start} by the rule {rule.value}" + (f", {lost:,} offsets are skipped" if lost else "")
    # Behind the end, equal offsets are other records than those that were published under them.
    return OffsetRange(start, offsets.end, note, restarts=not below, lost=lost)


def first_range(
    name: TopicPartition,
    offsets: PartitionOffsets,
    spec: KafkaReadSpec,
    *,
    at_time: Mapping[TopicPartition, int | None],
) -> OffsetRange | None:
    """Where a partition begins that was there when its topic was first seen. None: left out, by the rule ``skip``."""
    match spec.bootstrap_with:
        case BootstrapWith.SKIP:
            return None
        case BootstrapWith.EARLIEST:
            start = offsets.earliest
        case BootstrapWith.LATEST:
            start = offsets.end
        case BootstrapWith.OFFSET_LOOKBACK:
            start = max(offsets.earliest, offsets.end - (spec.offset_lookback or 0))
        case BootstrapWith.TIMESTAMP:
            found = at_time.get(name)
            # No record is that young: what comes from now on is.
            start = offsets.end if found is None else min(max(found, offsets.earliest), offsets.end)
    skipped = start - offsets.earliest
    note = f"{name} begins at {start} ({spec.bootstrap_with.value}): {skipped:,} older offsets are left out"
    return OffsetRange(start, offsets.end, note if skipped else None)


def limit_range(found: OffsetRange, offsets_max: int | None) -> OffsetRange:
    """At most so many offsets; the rest follows in the next run."""
    if offsets_max is None or found.high - found.low <= offsets_max:
        return found
    return OffsetRange(found.low, found.low + offsets_max, found.note, found.restarts, found.lost, found.repeated)
