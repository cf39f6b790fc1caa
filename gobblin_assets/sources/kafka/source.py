"""The Kafka source: asks the brokers once for all topics of a run, plans by their answers, and reads exactly that."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from gobblin_assets.errors import CorruptionError, GobblinError
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.clock import Clock, SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import Sharing, UnitPlan
from gobblin_assets.sources.discovery import Discovery, find_changes
from gobblin_assets.sources.kafka.cluster import Cluster, TopicOffsets, TopicPartition
from gobblin_assets.sources.kafka.decoding import decoded_columns
from gobblin_assets.sources.kafka.histories import Histories, require_histories
from gobblin_assets.sources.kafka.kafka_kind import KafkaSourceSpec, SizeEstimator, topic_options
from gobblin_assets.sources.kafka.keys import find_positions
from gobblin_assets.sources.kafka.planning import (
    TopicDecision,
    TopicMemory,
    cut_ranges,
    decide_ranges,
    limit_run,
    recall_topic,
    topic_of,
)
from gobblin_assets.sources.kafka.registry import SchemaRegistry
from gobblin_assets.sources.kafka.sizes import (
    average_record_time_ms,
    learn_sizes,
    recall_sizes,
    recall_task_rates,
    track_production,
)
from gobblin_assets.sources.kafka.start_positions import ask_beginnings
from gobblin_assets.sources.kafka.topic_reader import RecordReader, TopicReader, decide_sharing_key
from gobblin_assets.sources.kafka.windows import Taken, WindowReading, decide_reading, fill_ranges, reread_ranges
from gobblin_assets.sources.source_port import PlanSession, ReadPlan, SourceRequest

_GROUP_ID_PREFIX: Final = "gobblin"


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """Topics of one cluster. Nothing connects before ``open_plan`` or ``discover``.

    ``known`` are the topics that the definitions were made from, where patterns chose them.
    """

    cluster: Cluster
    connection: KafkaConnection
    spec: KafkaSourceSpec
    registry: SchemaRegistry | None = None
    known: Discovery | None = None
    clock: Clock = field(default_factory=SystemClock)

    @contextmanager
    def open_plan(
        self, spark: Callable[[], SparkSession], say: Callable[[str], None], requests: Sequence[SourceRequest] = ()
    ) -> Iterator[PlanSession]:
        if self.known is not None and self.spec.include:
            changes = find_changes(self.known, self.cluster.list_topics(), self.spec)
            if changes:
                say(changes)
        wanted = sorted({topic_of(request) for request in requests})
        offsets = self.cluster.find_offsets(wanted, isolation=self.spec.isolation) if wanted else {}
        session = KafkaPlanSession(self, offsets, spark)
        session.expect(requests)
        yield session

    def discover(self, spark: Callable[[], SparkSession]) -> Sequence[str]:  # noqa: ARG002  the port's; brokers are asked
        return sorted(self.cluster.list_topics())


class KafkaPlanSession:
    """One run's view: the offsets that the brokers gave at its start. ``read`` may be called from many threads."""

    def __init__(
        self,
        source: KafkaSource,
        offsets: Mapping[str, TopicOffsets | GobblinError],
        spark: Callable[[], SparkSession],
    ) -> None:
        self._cluster = source.cluster
        self._spec = source.spec
        self._registry = source.registry
        self._spark = spark
        self._clock = source.clock
        self._offsets = dict(offsets)
        # One moment for all plans: the open window must not change between them.
        self._now = self._clock.now()
        self._others_time_ms = average_record_time_ms([])
        self._decisions: dict[tuple[DatasetUrn, AssetPartition], TopicDecision | GobblinError] = {}
        self._taken: dict[DatasetUrn, Taken] = {}
        # Shared by the windows of one run: a schema that is inferred for the first one holds for the others.
        self._readers: dict[DatasetUrn, TopicReader] = {}
        self._records = RecordReader(source.connection, source.spec.isolation, _GROUP_ID_PREFIX)
        self._histories = Histories(source.cluster)

    def expect(self, requests: Sequence[SourceRequest]) -> None:
        """Decide what concerns several topics: called once, with all requests, before the first is planned."""
        self._others_time_ms = average_record_time_ms([request.state.source_facts for request in requests])
        self._ask_histories(requests)
        if self._spec.records_per_run_max is None:
            return
        for request in requests:
            name = (request.urn, request.partition)
            try:
                self._decisions[name] = self._decide(request)
            except GobblinError as error:
                self._decisions[name] = error
        decided = [each for each in self._decisions.values() if isinstance(each, TopicDecision)]
        limit_run(decided, self._spec.records_per_run_max)

    def plan(self, request: SourceRequest) -> UnitPlan:
        """RejectedError for records that are to be read again and are no longer in the log."""
        topic = topic_of(request)
        name = (request.urn, request.partition)
        found = self._decisions.pop(name) if name in self._decisions else self._decide(request)
        if isinstance(found, GobblinError):
            raise found
        reading = decide_reading(request, self._now)
        if reading is WindowReading.CONTINUE:
            self._mark_ends(found)
        sizes = recall_sizes(self._spec, found.facts, others_time_ms=self._others_time_ms)
        work_units = cut_ranges(request, found, sizes, new_id=self._clock.new_id)
        to_read = [unit for unit in work_units if not unit.is_empty]
        reader = self._readers.get(request.urn)
        if reader is None:
            reader = TopicReader(self._records, self._registry, request.urn, topic, topic_options(request.spec).kafka)
            self._readers[request.urn] = reader
        columns: Mapping[str, str] = {}
        sharing: Sharing | None = None
        decoding = reader.settle(self._spark, to_read, request.state.source_columns) if to_read else None
        if not to_read and (reading is WindowReading.REREAD or not request.state.published_columns):
            decoding = reader.settle_unread(self._spark, request.state.source_columns)
        if decoding is not None:
            columns = decoded_columns(self._spark, decoding)
        if decoding is not None and to_read:
            key = decide_sharing_key(request.spec, decoding, to_read)
            sharing = None if key is None else Sharing(key, topic)
        return UnitPlan(
            urn=request.urn,
            partition=request.partition,
            mode=Mode.REFRESH if reading is WindowReading.REREAD else Mode.APPEND,
            replaces=reading is WindowReading.REREAD,
            is_snapshot=False,
            work_units=tuple(work_units),
            payload=ReadPlan(request.spec, reader, may_fail_rows=True),
            columns=columns,
            notes=tuple(found.notes),
            facts=found.facts,
            degraded=tuple(found.degraded),
            unread=found.unread,
            learn=partial(learn_sizes, found.facts),
            task_capacities=recall_task_rates(found.facts)
            if self._spec.size_estimator is SizeEstimator.PRODUCE_RATE
            else (),
            sharing=sharing,
            moves_watermarks=reading is WindowReading.CONTINUE,
            keys_are_shared=True,
        )

    def _decide(self, request: SourceRequest) -> TopicDecision:
        topic = topic_of(request)
        reading = decide_reading(request, self._now)
        offsets = self._offsets_of(topic)
        memory = recall_topic(request, topic, offsets)
        positions, offsets = self._histories.judge(topic, memory.positions, offsets)
        require_histories(request, positions, offsets)
        memory = replace(memory, positions=positions)
        taken = self._taken.setdefault(request.urn, Taken())
        match reading:
            case WindowReading.CONTINUE:
                at_time = ask_beginnings(self._cluster, request, memory, offsets)
                found = decide_ranges(request, memory, offsets, at_time=at_time)
                taken.end_before(found)
            case WindowReading.REREAD:
                found = reread_ranges(request, memory, offsets, request.load_intervals(request.partition.key or ""))
            case WindowReading.FILL:
                found = self._fill(request, memory, offsets)
                taken.leave_out(found)
        taken.add(found)
        if self._spec.size_estimator is SizeEstimator.PRODUCE_RATE:
            ends = {number: each.end for number, each in offsets.partitions.items()}
            names = sorted({*offsets.partitions, *offsets.failures})
            found.facts = track_production(found.facts, ends, names, now_s=self._clock.now().timestamp())
        return found

    def _ask_histories(self, requests: Sequence[SourceRequest]) -> None:
        """Of all topics at once: the records before the positions, and those before the ends of the logs."""
        known = {topic: each for topic, each in self._offsets.items() if isinstance(each, TopicOffsets)}
        asked = [
            (topic, positions, known[topic])
            for request in requests
            if (topic := topic_of(request)) in known
            for positions in [find_positions(request.state, topic)]
        ]
        self._histories.check(asked)
        ends: dict[TopicPartition, int] = {}
        for topic, positions, offsets in asked:
            for number, found in offsets.partitions.items():
                if number not in positions or positions[number].offset != found.end:
                    ends[TopicPartition(topic, number)] = found.end
        self._histories.find(ends, known)

    def _mark_ends(self, decision: TopicDecision) -> None:
        moved = {
            chosen.key.partition: chosen.offsets.high
            for chosen in decision.ranges.values()
            if chosen.before is None or chosen.offsets.low < chosen.offsets.high
        }
        found = self._histories.find(moved, {decision.topic: self._offsets_of(decision.topic)})
        for number, chosen in decision.ranges.items():
            decision.ranges[number] = replace(chosen, history=found.get(chosen.key.partition))

    def _fill(self, request: SourceRequest, memory: TopicMemory, offsets: TopicOffsets) -> TopicDecision:
        window = request.partition.window
        if window is None:
            raise CorruptionError(f"{request.urn} has no window to fill")
        names = [TopicPartition(memory.topic, number) for number in offsets.partitions]
        return fill_ranges(
            request,
            memory,
            offsets,
            request.load_intervals(None),
            from_start=self._cluster.find_offsets_at(dict.fromkeys(names, window.start)),
            from_end=self._cluster.find_offsets_at(dict.fromkeys(names, window.end)),
        )

    def _offsets_of(self, topic: str) -> TopicOffsets:
        if topic not in self._offsets:
            self._offsets |= self._cluster.find_offsets([topic], isolation=self._spec.isolation)
        found = self._offsets[topic]
        if isinstance(found, GobblinError):
            raise found
        return found
