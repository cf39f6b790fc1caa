"""Plans of topics: from previous states and the broker's offsets to ranges, and from ranges to WorkUnits. Pure.

The broker was asked before. A watermark is the next offset to read. The end is pinned when the run is planned. With
read_committed it is the last stable offset, so that a later run reads an open transaction as a whole. A run's limit is
shared out among its topics before their ranges are cut.
"""

import itertools
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.model.interval import Interval, subtract_intervals
from gobblin_assets.model.watermark import PositionLostError, Watermark, long_watermark
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from gobblin_assets.run.job_kind import Restart, StartAt
from gobblin_assets.sources.kafka.cluster import PartitionOffsets, TopicOffsets, TopicPartition
from gobblin_assets.sources.kafka.histories import has_lost
from gobblin_assets.sources.kafka.kafka_kind import BootstrapWith, KafkaReadSpec, ResetOnOutOfRange, topic_options
from gobblin_assets.sources.kafka.keys import PartitionKey, Position, find_positions
from gobblin_assets.sources.kafka.sizes import STATISTICS_FACTS, Sizes
from gobblin_assets.sources.source_port import SourceRequest
from gobblin_assets.spec.job_spec import WORK_UNIT_ROWS


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


TOPIC_ID_FACT: Final = "topic_id"
PARTITIONS_FACT: Final = "partitions_at_bootstrap"
GENERATION_FACT: Final = "generation"

_Name = TypeVar("_Name")


@dataclass(frozen=True, slots=True)
class TopicMemory:
    """The memory that a dataset has of its topic before a run.

    ``positions`` are the valid ones: a topic that starts over has none. The bootstrap rule holds for the partitions
    ``at_bootstrap``. ``generation`` is that of the keys of partitions without a position.
    """

    topic: str
    positions: Mapping[int, Position]
    at_bootstrap: frozenset[int]
    generation: int
    facts: Mapping[str, object]

    def key_of(self, name: TopicPartition) -> PartitionKey:
        position = self.positions.get(name.partition)
        return PartitionKey(name, self.generation) if position is None else position.key


@dataclass(frozen=True, slots=True)
class ChosenRange:
    """The offsets of one partition that a run covers, without ``held``, which are published already.

    ``before``: the history of the position where it begins. ``history``: that of its end, once it is known.
    """

    key: PartitionKey
    offsets: OffsetRange
    held: tuple[Interval, ...] = ()
    before: Mapping[str, object] | None = None
    history: Mapping[str, object] | None = None

    @property
    def width(self) -> int:
        return sum(high - low for low, high in self.pieces)

    @property
    def pieces(self) -> tuple[tuple[int, int], ...]:
        """The pieces to read, ascending. If nothing is to be read up to the range's end, the last piece is empty."""
        low, high = self.offsets.low, self.offsets.high
        if not self.held:
            return ((low, high),)
        left = subtract_intervals(Interval(long_watermark(low), long_watermark(high)), self.held)
        pieces = [(offset_of(each.low), offset_of(each.high)) for each in left]
        if not pieces or pieces[-1][1] < high:
            pieces.append((high, high))
        return tuple(pieces)

    def limit(self, offsets_max: int) -> "ChosenRange":
        """At most ``offsets_max`` offsets to read; the rest follows in the next run."""
        left = offsets_max
        for low, high in self.pieces:
            if high - low > left:
                return replace(self, offsets=replace(self.offsets, high=low + left))
            left -= high - low
        return self


@dataclass(slots=True)
class TopicDecision:
    """The ranges of a topic that one run reads, by partition. ``facts`` are stored once this is published.

    ``ends`` are the partitions' ends as the broker gave them; a limit may end a range before them. A past window has
    no ends, and no limit ends it, because no later run goes on with it; nor does one end what a reader of epochs reads.
    """

    topic: str
    facts: dict[str, object]
    is_limited: bool = True
    ranges: dict[int, ChosenRange] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    degraded: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, memory: TopicMemory, offsets: TopicOffsets, *, is_limited: bool = True) -> "TopicDecision":
        facts = {
            **memory.facts,
            TOPIC_ID_FACT: offsets.topic_id,
            PARTITIONS_FACT: sorted(memory.at_bootstrap),
            GENERATION_FACT: memory.generation,
        }
        return cls(memory.topic, facts, is_limited)

    @property
    def unread(self) -> dict[str, tuple[int, int]]:
        """By watermark key: where the unpublished offsets begin, and where the log ends."""
        return {
            str(self.ranges[number].key): (self.ranges[number].offsets.low, end) for number, end in self.ends.items()
        }

    def limit(self, offsets_max: Mapping[int, int]) -> None:
        """At most so many offsets of each named partition; a note says how many are left."""
        before = sum(chosen.width for chosen in self.ranges.values())
        for number, count in offsets_max.items():
            self.ranges[number] = self.ranges[number].limit(count)
        left = before - sum(chosen.width for chosen in self.ranges.values())
        if left:
            self.notes.append(f"{self.topic}: {left:,} offsets are left to the next run")


def topic_of(request: SourceRequest) -> str:
    return topic_options(request.spec).topic or str(request.urn)


def recall_topic(request: SourceRequest, topic: str, offsets: TopicOffsets) -> TopicMemory:
    """The dataset's memory of the topic.

    Raises:
        RejectedError: the topic was made anew.
        RetryableError: no partition's offsets could be fetched; or some are missing, and the topic is to start over.

    """
    _require_same_topic(request, topic, offsets)
    if offsets.failures and not offsets.partitions:
        raise RetryableError(
            f"{topic}: the offsets of none of its {len(offsets.failures)} partitions could be fetched: "
            f"{next(iter(offsets.failures.values()))}",
            hint="Watermarks stay; the next run asks again.",
        )
    facts = request.state.source_facts
    positions = find_positions(request.state, topic)
    found = facts.get(GENERATION_FACT)
    generation = found if isinstance(found, int) else 0
    everything = frozenset({*offsets.partitions, *offsets.failures})
    if request.restart is Restart.START_OVER:
        _require_all(topic, offsets)
        # Earlier positions belong to a log that is no longer followed, also those of partitions that are gone.
        above = max((position.key.generation + 1 for position in positions.values()), default=0)
        kept = {name: value for name, value in facts.items() if name not in STATISTICS_FACTS}
        return TopicMemory(topic, {}, everything, max(generation, above), kept)
    return TopicMemory(
        topic,
        {number: position for number, position in positions.items() if position.key.generation >= generation},
        frozenset(_as_numbers(facts[PARTITIONS_FACT])) if PARTITIONS_FACT in facts else everything,
        generation,
        facts,
    )


def find_beginners(request: SourceRequest, memory: TopicMemory, partitions: Collection[int]) -> list[TopicPartition]:
    """The partitions whose beginning depends on a time, by the bootstrap rule; the broker is to be asked for it."""
    by_time = topic_options(request.spec).kafka.bootstrap_with is BootstrapWith.TIMESTAMP
    if not by_time or request.restart is Restart.MOVE_TO_LATEST:
        return []
    return [
        TopicPartition(memory.topic, number)
        for number in sorted(partitions)
        if number in memory.at_bootstrap and number not in memory.positions
    ]


def decide_ranges(
    request: SourceRequest,
    memory: TopicMemory,
    offsets: TopicOffsets,
    *,
    at_time: Mapping[TopicPartition, int | None],
    is_limited: bool = True,
) -> TopicDecision:
    """Which offsets this run reads. RejectedError: one is out of range and the rule says ``fail``."""
    _require_given(request, memory.topic, offsets)
    decision = TopicDecision.begin(memory, offsets, is_limited=is_limited)
    for number in sorted({*offsets.partitions, *offsets.failures, *memory.positions}):
        name = TopicPartition(memory.topic, number)
        found = offsets.partitions.get(number)
        if found is None:
            reason = offsets.failures.get(number, "the brokers don't name it any more")
            decision.degraded.append(f"{name} is left out, its watermark stays: {reason}")
            continue
        position = memory.positions.get(number)
        chosen = _choose(request, memory, name, found, at_time)
        if chosen is None:
            decision.notes.append(_describe_skip(name, position, found))
            continue
        key = memory.key_of(name).next() if chosen.restarts else memory.key_of(name)
        # Where a rule or a person moved the position, its record says nothing.
        is_moved = position is None or chosen.restarts or chosen.low != position.offset
        before = None if is_moved or position is None else position.history
        # A window ahead of the watermark may have been filled.
        decision.ranges[number] = ChosenRange(key, chosen, request.state.ahead.get((str(key), ""), ()), before)
        decision.ends[number] = chosen.high
        if chosen.note is not None:
            decision.notes.append(chosen.note)
    offsets_max = 0 if request.only_moves else topic_options(request.spec).kafka.records_per_partition_max
    if offsets_max is not None and is_limited:
        decision.limit(dict.fromkeys(decision.ranges, offsets_max))
    return decision


def limit_run(decisions: Sequence[TopicDecision], offsets_max: int) -> None:
    """At most so many offsets of all topics in one run, shared out among all their partitions."""
    decisions = [each for each in decisions if each.is_limited]
    ranges = {(place, number): chosen for place, each in enumerate(decisions) for number, chosen in each.ranges.items()}
    shares = share_out(
        {name: chosen.width for name, chosen in ranges.items()},
        offsets_max,
        # The number of offsets read so far: the next run begins to give out where this one ends.
        turn=sum(chosen.offsets.low for chosen in ranges.values()),
    )
    for place, each in enumerate(decisions):
        each.limit({number: shares[place, number] for number in each.ranges})


def cut_ranges(
    request: SourceRequest, decision: TopicDecision, sizes: Sizes, *, new_id: Callable[[], uuid.UUID]
) -> list[WorkUnit]:
    """WorkUnits of about equal numbers of offsets. An empty range gets one WorkUnit, which records the question."""
    split = request.spec.split
    units: list[WorkUnit] = []
    for number, chosen in decision.ranges.items():
        width = chosen.width
        count = max(1, min(split.max_partitions, -(-width // (split.work_unit_rows or WORK_UNIT_ROWS))))
        pieces = _cut(chosen.pieces, width, count)
        for place, (low, high) in enumerate(pieces):
            # Within the range, the last record that is known stands for what comes behind it.
            history = (chosen.history if place + 1 == len(pieces) else None) or chosen.before
            units.append(
                WorkUnit(
                    id=WorkUnitId(new_id()),
                    dataset=request.urn,
                    partition=request.partition,
                    key=str(chosen.key),
                    number=place,
                    interval=Interval(long_watermark(low), long_watermark(high, history)),
                    estimated_row_count=high - low,
                    estimated_bytes=sizes.estimate_bytes(high - low),
                    estimated_load=sizes.estimate_load(number, high - low, share=(high - low) / width if width else 1),
                )
            )
    return units


def _cut(pieces: Sequence[tuple[int, int]], width: int, count: int) -> list[tuple[int, int]]:
    """About ``count`` pieces of about equal widths, at least one from each given piece."""
    cut: list[tuple[int, int]] = []
    for low, high in pieces:
        parts = max(1, -(-(high - low) * count // width)) if width else 1
        edges = [low + (high - low) * place // parts for place in range(parts + 1)]
        cut += itertools.pairwise(edges)
    return cut


def offset_of(position: Watermark | None) -> int:
    return position.value if position is not None and isinstance(position.value, int) else 0


def _choose(
    request: SourceRequest,
    memory: TopicMemory,
    name: TopicPartition,
    offsets: PartitionOffsets,
    at_time: Mapping[TopicPartition, int | None],
) -> OffsetRange | None:
    spec = topic_options(request.spec).kafka
    position = memory.positions.get(name.partition)
    if request.restart is Restart.MOVE_TO_LATEST:
        moved = skip_range(name, offsets.earliest if position is None else position.offset, offsets)
        return replace(moved, restarts=moved.restarts or has_lost(position))
    if isinstance(request.restart, StartAt) and name.partition in request.restart.offsets:
        watermark = None if position is None else position.offset
        given = given_range(name, watermark, request.restart.offsets[name.partition], offsets)
        return replace(given, restarts=given.restarts or has_lost(position))
    if position is not None:
        return continue_range(position, offsets, spec.reset_on_out_of_range, urn=request.urn)
    if name.partition not in memory.at_bootstrap:
        return added_range(name, offsets)
    begun = first_range(name, offsets, spec, at_time=at_time)
    if begun is not None and request.restart is Restart.START_OVER:
        return replace(begun, note=begun.note or f"{name} starts over at {begun.low}")
    return begun


def _describe_skip(name: TopicPartition, position: Position | None, offsets: PartitionOffsets) -> str:
    if position is None:
        return f"{name} is left out, by the rule skip of bootstrap_with"
    said = describe_out_of_range(name, position.offset, offsets)
    return f"{said}; it is left out, by the rule skip of reset_on_out_of_range"


def _require_same_topic(request: SourceRequest, topic: str, offsets: TopicOffsets) -> None:
    before = request.state.source_facts.get(TOPIC_ID_FACT)
    if before in (None, offsets.topic_id) or request.restart is Restart.START_OVER:
        return
    raise RejectedError(
        f"the topic {topic} was deleted and made again: its id was {before} and is {offsets.topic_id} now",
        field=f"datasets[{request.urn}].topic",
        hint="Nothing was read, and what was published stays. To publish the new topic's records behind it, run "
        f"`gobblin-assets run JOB_FILE --dataset '{request.urn}' --start-over`.",
        topic=topic,
    )


def _require_given(request: SourceRequest, topic: str, offsets: TopicOffsets) -> None:
    given = request.restart.offsets if isinstance(request.restart, StartAt) else {}
    for number in sorted(given.keys() - offsets.partitions.keys()):
        if number in offsets.failures:
            raise RetryableError(
                f"{topic}:{number} can't start at {given[number]}: {offsets.failures[number]}",
                hint="Nothing was read and watermarks stay; ask again when the partition has a leader.",
            )
        raise RejectedError(
            f"{topic} has no partition {number}",
            field="start_at",
            hint=f"It has {', '.join(map(str, sorted({*offsets.partitions, *offsets.failures})))}.",
            topic=topic,
        )


def _require_all(topic: str, offsets: TopicOffsets) -> None:
    # A partition that is left out would later go on from a position in the abandoned log.
    if offsets.failures:
        number, reason = next(iter(offsets.failures.items()))
        raise RetryableError(
            f"{topic} can't start over: the offsets of {len(offsets.failures)} of its partitions could not be fetched, "
            f"such as {number}: {reason}",
            hint="Nothing was read and watermarks stay; start over again when all partitions have a leader.",
        )


def _as_numbers(found: object) -> list[int]:
    return [number for number in found if isinstance(number, int)] if isinstance(found, list) else []


def share_out(backlogs: Mapping[_Name, int], offsets_max: int, *, turn: int) -> dict[_Name, int]:
    """Shares of at most ``offsets_max`` in all, none larger than its backlog.

    Small backlogs are served in full first: all shares are equal, and each is cut at its backlog. The remainder of
    the equal division is given out one by one in the order of ``backlogs``, beginning at the place ``turn``. If
    ``turn`` counts the offsets that were read so far, each partition has its turn even where there are fewer offsets
    than partitions.
    """
    level, left = _find_level(sorted(backlogs.values()), offsets_max)
    shares = {name: min(backlog, level) for name, backlog in backlogs.items()}
    unserved = [name for name, backlog in backlogs.items() if backlog > level]
    for number in range(min(left, len(unserved))):
        shares[unserved[(turn + number) % len(unserved)]] += 1
    return shares


def _find_level(ascending: list[int], offsets_max: int) -> tuple[int, int]:
    """The highest equal share, and the remainder, which is smaller than the number of backlogs above that share."""
    left = offsets_max
    for place, backlog in enumerate(ascending):
        others = len(ascending) - place
        if backlog * others > left:
            return left // others, left % others
        left -= backlog
    return (ascending[-1] if ascending else 0), 0
