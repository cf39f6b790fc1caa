"""The Kafka source: asks the brokers once for all topics of a run, plans in what they said, and reads just that."""

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Final

import pyarrow as pa
from pyarrow import compute as pc
from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.errors import CorruptionError, GobblinError, RejectedError, RetryableError
from gobblin_assets.model.clock import Clock, SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.sources.discovery import Discovery, find_changes
from gobblin_assets.sources.kafka.cluster import Cluster, TopicOffsets, TopicPartition
from gobblin_assets.sources.kafka.connection import KafkaConnection
from gobblin_assets.sources.kafka.consumer import read_ranges
from gobblin_assets.sources.kafka.decoding import decode, decoded_columns
from gobblin_assets.sources.kafka.decoding_plan import DecodingPlan, PlanningTools, learn_schemas, plan_decoding
from gobblin_assets.sources.kafka.odd_times import Reader, as_frame, is_time_overflow, no_records
from gobblin_assets.sources.kafka.part_decoders import find_missing_schema
from gobblin_assets.sources.kafka.planning import (
    TopicDecision,
    TopicMemory,
    cut_ranges,
    decide_ranges,
    find_beginners,
    limit_run,
    recall_topic,
    topic_of,
)
from gobblin_assets.sources.kafka.read_failures import judge_read
from gobblin_assets.sources.kafka.reading import join_ranges
from gobblin_assets.sources.kafka.registry import SchemaRegistry
from gobblin_assets.sources.kafka.sharing import decide_sharing_key
from gobblin_assets.sources.kafka.sizes import (
    average_record_time_ms,
    learn_sizes,
    recall_sizes,
    recall_task_rates,
    track_production,
)
from gobblin_assets.sources.kafka.windows import Reading, Taken, decide_reading, fill_ranges, reread_ranges
from gobblin_assets.sources.port import PartitionPlan, PlanRequest, PlanSession, SharedRows, Sharing
from gobblin_assets.spec.job_spec import DatasetSpec
from gobblin_assets.spec.kafka_spec import KafkaSourceSpec, SizeEstimator

_GROUP_ID_PREFIX: Final = "gobblin"


class KafkaSource:
    """Topics of one cluster. Nothing connects before ``open_plan`` or ``discover``.

    ``known`` are the topics that the definitions were made from, where patterns chose them.
    """

    def __init__(
        self,
        cluster: Cluster,
        connection: KafkaConnection,
        spec: KafkaSourceSpec,
        *,
        registry: SchemaRegistry | None = None,
        known: Discovery | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._cluster = cluster
        self._connection = connection
        self._spec = spec
        self._registry = registry
        self._known = known
        self._clock = clock or SystemClock()

    def open_plan(
        self, spark: Callable[[], SparkSession], report: Callable[[str], None], requests: Sequence[PlanRequest] = ()
    ) -> AbstractContextManager[PlanSession]:
        return self._open(spark, report, requests)

    def discover(self, spark: Callable[[], SparkSession]) -> Sequence[str]:  # noqa: ARG002  the port's; brokers are asked
        return sorted(self._cluster.list_topics())

    @contextmanager
    def _open(
        self, spark: Callable[[], SparkSession], report: Callable[[str], None], requests: Sequence[PlanRequest]
    ) -> Iterator[PlanSession]:
        if self._known is not None and self._spec.include:
            changes = find_changes(self._known, self._cluster.list_topics(), self._spec)
            if changes:
                report(changes)
        wanted = sorted({topic_of(request) for request in requests})
        offsets = self._cluster.find_offsets(wanted, isolation=self._spec.isolation) if wanted else {}
        session = KafkaPlanSession(
            self._cluster, self._connection, self._spec, offsets, spark, self._registry, self._clock
        )
        session.expect(requests)
        yield session


class KafkaPlanSession:
    """One run's view: the offsets that the brokers gave at its start. ``read`` may be called from many threads."""

    def __init__(
        self,
        cluster: Cluster,
        connection: KafkaConnection,
        spec: KafkaSourceSpec,
        offsets: Mapping[str, TopicOffsets | GobblinError],
        spark: Callable[[], SparkSession],
        registry: SchemaRegistry | None,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._connection = connection
        self._spec = spec
        self._offsets = dict(offsets)
        self._spark = spark
        self._registry = registry
        self._clock = clock
        # One for all that is planned: the window that is open must not change on the way.
        self._now = clock.now()
        self._others_time_ms = average_record_time_ms([])
        self._decisions: dict[tuple[DatasetUrn, AssetPartition], TopicDecision | GobblinError] = {}
        self._taken: dict[DatasetUrn, Taken] = {}
        self._decodings: dict[DatasetUrn, DecodingPlan] = {}
        self._topics: dict[DatasetUrn, str] = {}
        self._unlearned: set[DatasetUrn] = set()
        self._apart: set[DatasetUrn] = set()
        self._reader = Reader(connection, spec.isolation, _GROUP_ID_PREFIX)
        self._lock = threading.Lock()

    def expect(self, requests: Sequence[PlanRequest]) -> None:
        """Decide what concerns several topics, before the first is planned: called once, with all of them."""
        self._others_time_ms = average_record_time_ms([request.state.source_facts for request in requests])
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

    def plan(self, request: PlanRequest) -> PartitionPlan:
        """RejectedError for what is to be read once more and is no longer in the log."""
        topic = topic_of(request)
        name = (request.urn, request.partition)
        found = self._decisions.pop(name) if name in self._decisions else self._decide(request)
        if isinstance(found, GobblinError):
            raise found
        reading = self._decide_reading(request)
        sizes = recall_sizes(self._spec, found.facts, others_time_ms=self._others_time_ms)
        work_units = cut_ranges(request, found, sizes, new_id=self._clock.new_id)
        to_read = [unit for unit in work_units if not unit.is_empty]
        self._topics[request.urn] = topic
        columns: Mapping[str, str] = {}
        sharing: Sharing | None = None
        # Windows of one run share it: what is inferred for the first is the schema of the others.
        decoding = self._decodings.get(request.urn)
        if decoding is None and to_read:
            decoding = self._plan_decoding(request, topic, to_read)
        elif decoding is None and (reading is Reading.REREAD or not request.state.published_columns):
            decoding = self._plan_unread(request, topic)
        if decoding is not None:
            self._decodings[request.urn] = decoding
            columns = decoded_columns(self._spark, decoding)
        if decoding is not None and to_read:
            key = decide_sharing_key(request.spec, decoding, to_read)
            sharing = None if key is None else Sharing(key, topic, self._read_together)
        return PartitionPlan(
            urn=request.urn,
            partition=request.partition,
            mode=Mode.REFRESH if reading is Reading.REREAD else Mode.APPEND,
            replaces=reading is Reading.REREAD,
            is_snapshot=False,
            work_units=tuple(work_units),
            columns=columns,
            watermark_column=None,
            late_key=(),
            notes=tuple(found.notes),
            facts=found.facts,
            degraded=tuple(found.degraded),
            unread=found.unread,
            learn=partial(learn_sizes, found.facts),
            task_capacities=recall_task_rates(found.facts)
            if self._spec.size_estimator is SizeEstimator.PRODUCE_RATE
            else (),
            sharing=sharing,
            moves_watermarks=reading is Reading.CONTINUE,
            keys_are_shared=True,
        )

    def read(self, spark: SparkSession, plan: PartitionPlan, spec: DatasetSpec, units: Sequence[WorkUnit]) -> DataFrame:
        topic = self._topics[plan.urn]
        try:
            frame = self._frame(spark, plan.urn, units, with_headers="headers" in spec.kafka.keep)
            return decode(frame, self._decoding_of(plan.urn, frame))
        except Exception as error:  # noqa: BLE001  py4j raises its own errors, which no family of pyspark's covers
            raise judge_read(error, self._connection, plan.urn, topic) from None

    def _read_together(
        self, spark: SparkSession, parts: Sequence[tuple[PartitionPlan, Sequence[WorkUnit]]]
    ) -> SharedRows:
        """The records of all of them, decoded as the first is: they share because it is the same for all."""
        first = parts[0][0]
        ranges = join_ranges(unit for _plan, units in parts for unit in units if not unit.is_empty)
        decoding = self._decodings[first.urn]
        records = read_ranges(self._connection, ranges, isolation=self._spec.isolation)
        try:
            frame = as_frame(spark, records, with_headers="headers" in decoding.keep)
            return SharedRows(decode(frame, decoding, with_share=True), _count_by_topic(records, decoding))
        except Exception as error:  # noqa: BLE001  py4j raises its own errors, which no family of pyspark's covers
            raise judge_read(error, self._connection, first.urn, self._topics[first.urn]) from None

    def explain_failure(self, plan: PartitionPlan, spec: DatasetSpec, error: Exception) -> Exception:  # noqa: ARG002  the port's
        topic = self._topics.get(plan.urn, str(plan.urn))
        missing = find_missing_schema(error)
        if is_time_overflow(error) and self._read_apart(plan.urn):
            return RetryableError(
                f"{plan.urn}: a record of {topic} has a time beyond what a timestamp holds",
                hint="The next try reads such records apart, and gives them no time.",
            )
        if missing is None:
            return judge_read(error, self._connection, plan.urn, topic)
        with self._lock:
            self._unlearned.add(plan.urn)
        return RetryableError(
            f"{plan.urn}: records of {topic} are written by schema {missing}, which is no version of its subject",
            hint="The next try looks for all schemas that the records name.",
        )

    def _decoding_of(self, urn: DatasetUrn, frame: DataFrame) -> DecodingPlan:
        with self._lock:
            decoding, is_unlearned = self._decodings[urn], urn in self._unlearned
        if not is_unlearned or self._registry is None:
            return decoding
        learned = learn_schemas(decoding, frame, self._registry)
        with self._lock:
            self._decodings[urn] = learned
            self._unlearned.discard(urn)
        return learned

    def _read_apart(self, urn: DatasetUrn) -> bool:
        """From now on read records beyond time apart; False if that is done already."""
        with self._lock:
            is_new = urn not in self._apart
            self._apart.add(urn)
        return is_new

    def _frame(
        self, spark: SparkSession, urn: DatasetUrn, units: Sequence[WorkUnit], *, with_headers: bool
    ) -> DataFrame:
        ranges = join_ranges(unit for unit in units if not unit.is_empty)
        if not ranges:
            return no_records(spark, with_headers=with_headers)
        with self._lock:
            is_apart = urn in self._apart
        read = self._reader.read_apart if is_apart else self._reader.read
        return read(spark, ranges, with_headers=with_headers)

    def _plan_decoding(self, request: PlanRequest, topic: str, to_read: Sequence[WorkUnit]) -> DecodingPlan:
        tools = PlanningTools(
            spark=self._spark,
            registry=self._registry,
            sample=lambda: self._frame(self._spark(), request.urn, to_read, with_headers=False),
            known_columns=request.state.source_columns,
        )
        field = f"datasets[{request.urn}].kafka"
        try:
            return plan_decoding(request.spec.kafka, tools, topic=topic, field=field)
        except RetryableError as error:
            if not (is_time_overflow(error) and self._read_apart(request.urn)):
                raise
            return plan_decoding(request.spec.kafka, tools, topic=topic, field=field)

    def _plan_unread(self, request: PlanRequest, topic: str) -> DecodingPlan | None:
        """Of a topic without records, for the sake of its columns. None: the first record will tell."""

        def sample() -> DataFrame:
            raise RejectedError(
                f"topic {topic!r} has no record to infer a schema from", field="schema", hint="Declare one."
            )

        tools = PlanningTools(self._spark, self._registry, sample, known_columns=request.state.source_columns)
        try:
            return plan_decoding(request.spec.kafka, tools, topic=topic)
        except (RejectedError, RetryableError):
            # A registry may have the subject with the first record only. What is wrong shows when there is one.
            return None

    def _decide(self, request: PlanRequest) -> TopicDecision:
        topic = topic_of(request)
        reading = self._decide_reading(request)
        offsets = self._offsets_of(topic)
        memory = recall_topic(request, topic, offsets)
        taken = self._taken.setdefault(request.urn, Taken())
        match reading:
            case Reading.CONTINUE:
                found = decide_ranges(request, memory, offsets, at_time=self._at_time(request, memory, offsets))
                taken.end_before(found)
            case Reading.REREAD:
                found = reread_ranges(request, memory, offsets, request.load_intervals(request.partition.key or ""))
            case Reading.FILL:
                found = self._fill(request, memory, offsets)
                taken.leave_out(found)
        taken.add(found)
        if self._spec.size_estimator is SizeEstimator.PRODUCE_RATE:
            ends = {number: each.end for number, each in offsets.partitions.items()}
            names = sorted({*offsets.partitions, *offsets.failures})
            found.facts = track_production(found.facts, ends, names, now_s=self._clock.now().timestamp())
        return found

    def _decide_reading(self, request: PlanRequest) -> Reading:
        return decide_reading(request, self._now)

    def _fill(self, request: PlanRequest, memory: TopicMemory, offsets: TopicOffsets) -> TopicDecision:
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

    def _at_time(
        self, request: PlanRequest, memory: TopicMemory, offsets: TopicOffsets
    ) -> Mapping[TopicPartition, int | None]:
        beginners = find_beginners(request, memory, offsets.partitions)
        if not beginners:
            return {}
        given = request.spec.kafka.bootstrap_timestamp
        if not isinstance(given, dt.datetime):
            given = dt.datetime.combine(given or dt.date.min, dt.time())
        moment = given if given.tzinfo is not None else given.replace(tzinfo=dt.UTC)
        return self._cluster.find_offsets_at(dict.fromkeys(beginners, moment))


def _count_by_topic(records: pa.Table, decoding: DecodingPlan) -> dict[str, int]:
    """How many rows ``decode`` makes of each topic's records: one of each, but of tombstones that it leaves out."""
    kept = records.filter(pc.is_valid(records["value"])) if decoding.drop_tombstones else records
    return {str(each["values"]): int(each["counts"]) for each in pc.value_counts(kept["topic"]).to_pylist()}
