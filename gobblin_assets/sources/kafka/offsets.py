"""The ends of a topic partition's next interval: decided from its watermark and what the broker has. Pure.

A watermark is the next offset to read. The end is pinned when the run is planned. With read_committed it is the last
stable offset, so that a later run reads an open transaction as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.watermark import PositionLostError, long_watermark
from gobblin_assets.sources.kafka.cluster import PartitionOffsets, TopicPartition
from gobblin_assets.sources.kafka.kafka_spec import BootstrapWith, KafkaReadSpec, ResetOnOutOfRange
from gobblin_assets.sources.kafka.keys import Position


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The next interval of one partition, ``[low, high)``, with notes for people on how it was chosen.

    ``restarts``: the previous offsets don't continue here, so the positions belong to a new key generation.
    ``lost``: offsets that are left out for good. ``repeated``: offsets of which some records were read before. Both are
    upper bounds: behind the end of a log that became shorter, nobody knows which records are new.
    """

    low: int
    high: int
    note: str | None = None
    restarts: bool = False
    lost: int = 0
    repeated: int = 0


def continue_range(
    position: Position, offsets: PartitionOffsets, rule: ResetOnOutOfRange, *, urn: str
) -> OffsetRange | None:
    """From the position to the end. None: the rule ``skip`` leaves the partition out.

    RejectedError when the position lies outside of what the broker has and the rule is ``fail``; PositionLostError for
    one behind the end.
    """
    name, watermark = position.key.partition, position.offset
    if offsets.earliest <= watermark <= offsets.end:
        return OffsetRange(watermark, offsets.end)
    below = watermark < offsets.earliest
    said = describe_out_of_range(name, watermark, offsets)
    match rule:
        case ResetOnOutOfRange.FAIL:
            raise _refuse(position, said, urn, is_lost=not below)
        case ResetOnOutOfRange.SKIP:
            return None
        case ResetOnOutOfRange.EARLIEST:
            start = offsets.earliest
        case ResetOnOutOfRange.LATEST:
            start = offsets.end
        case ResetOnOutOfRange.NEAREST:
            start = offsets.earliest if below else offsets.end
    lost = start - watermark if below else start - offsets.earliest
    # Behind the end, the record at an offset may be the one that was published under it, or another one.
    repeated = 0 if below else offsets.end - start
    note = f"{said}; reset to {start} by the rule {rule.value}"
    if below:
        note += f", {lost:,} offsets are skipped"
    elif lost:
        note += f", the {lost:,} offsets before it are skipped, read before or not"
    elif repeated:
        note += f", {repeated:,} offsets are read, read before or not"
    return OffsetRange(start, offsets.end, note, restarts=not below, lost=lost, repeated=repeated)


def _refuse(position: Position, said: str, urn: str, *, is_lost: bool) -> RejectedError:
    name, field = position.key.partition, f"datasets[{urn}].kafka.reset_on_out_of_range"
    hint = (
        "Nothing was read. Write nearest, earliest or latest to go on from there (what is skipped or repeated is "
        "counted), or skip to leave the partition out."
    )
    facts = {"topic": name.topic, "partition": name.partition}
    if not is_lost:
        return RejectedError(said, field=field, hint=hint, **facts)
    hint += (
        f" Or say where this one goes on: `gobblin-assets run JOB_FILE` with --start-at {name.partition}=OFFSET, "
        "--start-over or --move-to-latest."
    )
    at = long_watermark(position.offset, position.history)
    return PositionLostError(said, key=str(position.key), at=at, reason=said, field=field, hint=hint, **facts)


def describe_out_of_range(name: TopicPartition, watermark: int, offsets: PartitionOffsets) -> str:
    """What is wrong with a watermark that lies outside of what the broker has."""
    return f"{name}: the next offset is {watermark}, and the broker has {offsets.earliest} to {offsets.end}: " + (
        f"{offsets.earliest - watermark:,} offsets were deleted before they were read"
        if watermark < offsets.earliest
        else "the topic's log has become shorter"
    )


def added_range(name: TopicPartition, offsets: PartitionOffsets) -> OffsetRange:
    """All of a partition that was added after the topic was first seen: no bootstrap rule skips any of it."""
    note = f"{name} is new and is read from its beginning"
    if offsets.earliest:
        note += f": {offsets.earliest:,} offsets were deleted before they were read"
    return OffsetRange(offsets.earliest, offsets.end, note, lost=offsets.earliest)


def skip_range(name: TopicPartition, watermark: int, offsets: PartitionOffsets) -> OffsetRange:
    """An empty range at the end: all offsets before it are left out."""
    lost = max(0, offsets.end - watermark)
    note = f"{name} is moved to its end, {offsets.end}: {lost:,} offsets are skipped"
    return OffsetRange(offsets.end, offsets.end, note, restarts=watermark > offsets.end, lost=lost)


def given_range(name: TopicPartition, watermark: int | None, offset: int, offsets: PartitionOffsets) -> OffsetRange:
    """From an offset that a person gave. RejectedError if the broker does not have it."""
    if not offsets.earliest <= offset <= offsets.end:
        raise RejectedError(
            f"{name}: expected an offset from {offsets.earliest} to {offsets.end}, found {offset}",
            field="start_at",
            hint="Nothing was read, and watermarks stay. The last of these offsets is the next record's.",
            topic=name.topic,
            partition=name.partition,
        )
    before = offsets.earliest if watermark is None else watermark
    lost, repeated = max(0, offset - before), max(0, before - offset)
    note = f"{name} goes on at {offset}, which was given by hand"
    if lost:
        note += f": {lost:,} offsets are left out"
    elif repeated:
        note += f": {repeated:,} offsets are read that were read before"
    return OffsetRange(offset, offsets.end, note, restarts=bool(repeated), lost=lost, repeated=repeated)


def first_range(
    name: TopicPartition,
    offsets: PartitionOffsets,
    spec: KafkaReadSpec,
    *,
    at_time: Mapping[TopicPartition, int | None],
) -> OffsetRange | None:
    """Where a partition begins that existed when its topic was first seen. None: the rule ``skip`` leaves it out."""
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
            found = at_time[name]
            # No record is that young: the range begins with the next record.
            start = offsets.end if found is None else min(max(found, offsets.earliest), offsets.end)
    skipped = start - offsets.earliest
    note = f"{name} begins at {start} ({spec.bootstrap_with.value}): {skipped:,} older offsets are left out"
    return OffsetRange(start, offsets.end, note if skipped else None, lost=skipped)
