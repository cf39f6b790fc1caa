"""From a topic's previous state and the broker's offsets to its WorkUnits. Pure: the broker was asked before."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.ingest.sources.kafka.cluster import PartitionOffsets, TopicOffsets, TopicPartition
from gobblin_assets.ingest.sources.kafka.keys import PartitionKey, newest_keys
from gobblin_assets.ingest.sources.kafka.offsets import (
    OffsetRange,
    continue_range,
    first_range,
    limit_range,
)
from gobblin_assets.ingest.sources.port import PlanRequest, Restart
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId

TOPIC_ID_FACT: Final = "topic_id"
PARTITIONS_FACT: Final = "partitions_at_bootstrap"
RECORD_BYTES_FACT: Final = "record_bytes"

RECORD_BYTES: Final = 1_024
"""What a record counts whose topic has not been read before: Gobblin's own default."""

OFFSET: Final = "kafka_offset"


@dataclass(slots=True)
class TopicPlan:
    """``facts`` are remembered with the dataset, once this is published."""

    facts: Mapping[str, object]
    work_units: list[WorkUnit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    degraded: list[str] = field(default_factory=list)


def plan_topic(
    request: PlanRequest,
    topic: str,
    offsets: TopicOffsets,
    *,
    at_time: Mapping[TopicPartition, int | None],
    new_id: Callable[[], uuid.UUID],
) -> TopicPlan:
    """The topic's WorkUnits for one run, partition by partition.

    Raises:
        RejectedError: the topic was made anew, or an offset is out of range and the rule says ``fail``.
        RetryableError: no partition's offsets could be fetched.

    """
    _require_same_topic(request, topic, offsets)
    if offsets.failures and not offsets.partitions:
        raise RetryableError(
            f"{topic}: the offsets of none of its {len(offsets.failures)} partitions could be fetched: "
            f"{next(iter(offsets.failures.values()))}",
            hint="Watermarks stay; the next run asks again.",
        )
    facts = request.state.source_facts
    first = PARTITIONS_FACT not in facts
    known = newest_keys(request.state, topic)
    at_bootstrap = _as_numbers(facts.get(PARTITIONS_FACT))
    if first:
        at_bootstrap = sorted({*offsets.partitions, *offsets.failures})
    plan = TopicPlan({**facts, TOPIC_ID_FACT: offsets.topic_id, PARTITIONS_FACT: at_bootstrap})
    cut = _Cutter(request, plan, _average_bytes(facts), new_id)
    for number in sorted({*offsets.partitions, *offsets.failures}):
        name = TopicPartition(topic, number)
        key = known.get(number)
        if number in offsets.failures:
            plan.degraded.append(f"{name} is left out, its watermark stays: {offsets.failures[number]}")
            continue
        found = offsets.partitions[number]
        chosen = _choose(request, name, key, found, at_bootstrap, at_time)
        if chosen is None:
            plan.notes.append(f"{name} is left out, by the rule skip")
            continue
        cut.add(key or PartitionKey(name), limit_range(chosen, request.spec.kafka.records_per_partition_max))
    return plan


def is_first(request: PlanRequest) -> bool:
    """Whether the bootstrap rule will be asked."""
    return PARTITIONS_FACT not in request.state.source_facts or request.restart is Restart.START_OVER


def _choose(
    request: PlanRequest,
    name: TopicPartition,
    key: PartitionKey | None,
    offsets: PartitionOffsets,
    at_bootstrap: list[int],
    at_time: Mapping[TopicPartition, int | None],
) -> OffsetRange | None:
    spec = request.spec.kafka
    match request.restart:
        case Restart.MOVE_TO_LATEST:
            return _move_to_latest(request, name, key, offsets)
        case Restart.START_OVER:
            begun = first_range(name, offsets, spec, at_time=at_time)
            if begun is None or key is None:
                return begun
            return OffsetRange(begun.low, begun.high, f"{name} starts over at {begun.low}", restarts=True)
        case None:
            pass
    if key is not None:
        watermark = request.state.find_watermark(str(key), "")
        if watermark is not None and isinstance(watermark.value, int):
            return continue_range(name, watermark.value, offsets, spec.reset_on_out_of_range, urn=request.urn)
    if name.partition in at_bootstrap:
        return first_range(name, offsets, spec, at_time=at_time)
    # It was added since: whatever was written to it belongs to the topic that is being followed.
    return OffsetRange(offsets.earliest, offsets.end, f"{name} is new and is read from its beginning")


def _move_to_latest(
    request: PlanRequest, name: TopicPartition, key: PartitionKey | None, offsets: PartitionOffsets
) -> OffsetRange:
    watermark = None if key is None else request.state.find_watermark(str(key), "")
    before = watermark.value if watermark is not None and isinstance(watermark.value, int) else offsets.earliest
    skipped = max(0, offsets.end - before)
    note = f"{name} is moved to its end, {offsets.end}: {skipped:,} offsets are skipped"
    return OffsetRange(offsets.end, offsets.end, note, restarts=before > offsets.end, lost=skipped)


def _require_same_topic(request: PlanRequest, topic: str, offsets: TopicOffsets) -> None:
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


@dataclass(slots=True)
class _Cutter:
    """Cuts ranges of offsets into WorkUnits of about equal size."""

    request: PlanRequest
    plan: TopicPlan
    record_bytes: float
    new_id: Callable[[], uuid.UUID]

    def add(self, key: PartitionKey, chosen: OffsetRange) -> None:
        if chosen.note is not None:
            self.plan.notes.append(chosen.note)
        of = key.next() if chosen.restarts else key
        split = self.request.spec.split
        width = chosen.high - chosen.low
        count = max(1, min(split.max_partitions, -(-width // split.work_unit_rows)))
        edges = [chosen.low + width * number // count for number in range(count + 1)]
        for number in range(count):
            low, high = edges[number], edges[number + 1]
            self.plan.work_units.append(
                WorkUnit(
                    id=WorkUnitId(self.new_id()),
                    dataset=self.request.urn,
                    partition=self.request.partition,
                    key=str(of),
                    number=number,
                    interval=Interval(long_watermark(low), long_watermark(high)),
                    estimated_row_count=high - low,
                    estimated_bytes=round((high - low) * self.record_bytes),
                )
            )


def _average_bytes(facts: Mapping[str, object]) -> float:
    found = facts.get(RECORD_BYTES_FACT)
    return float(found) if isinstance(found, int | float) and found > 0 else RECORD_BYTES


def _as_numbers(found: object) -> list[int]:
    return [number for number in found if isinstance(number, int)] if isinstance(found, list) else []
