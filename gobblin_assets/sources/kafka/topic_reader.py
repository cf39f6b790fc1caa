"""A reader of the records of one topic in one run: the same for all its windows.

Many small topics need only a few Spark jobs: topics whose records become rows and files in the same way are read
together. A hidden column names each row's topic. Such records are read in this process (``consumer``), so they must be
few.

Spark's Kafka source ends the whole read at a record whose time does not fit into microseconds in 64 bits. Such records
are rare, and can't be told from others before they are read. So a read that one of them ended is made again in another
way. One consumer in this process looks at all records of the read. It reads those beyond time, and the records between
near ones; a time that does not fit becomes NULL. Spark reads the records around them.

An error of Spark is told from others by its words, since all are one Java error's text.
"""

import itertools
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

import pyarrow as pa
from pyarrow import compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.errors import CorruptionError, GobblinError, RejectedError, RetryableError
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.work_unit import WorkUnit, sum_bytes, sum_rows
from gobblin_assets.rows.columns import named
from gobblin_assets.sources.kafka.cluster import Isolation, TopicPartition
from gobblin_assets.sources.kafka.consumer import BYTES_MAX, TooManyBytesError, find_beyond_time, read_ranges
from gobblin_assets.sources.kafka.decoding import KAFKA_SCHEMA, decode
from gobblin_assets.sources.kafka.decoding_plan import DecodingPlan, PlanningTools, learn_schemas, plan_decoding
from gobblin_assets.sources.kafka.kafka_kind import Decoder, KafkaReadSpec, topic_options
from gobblin_assets.sources.kafka.part_decoders import find_missing_schema
from gobblin_assets.sources.kafka.reading import Ranges, join_ranges, plan_options
from gobblin_assets.sources.kafka.registry import SchemaRegistry
from gobblin_assets.sources.kafka.sizes import RECORD_BYTES
from gobblin_assets.sources.source_port import ReadPlan, SharedRows
from gobblin_assets.spark.errors import family_of_spark
from gobblin_assets.spec.job_spec import DatasetSpec

SHARED_RECORDS_MAX: Final = 20_000
SHARED_BYTES_MAX: Final = 8 * 1024 * 1024
"""Spark reads a topic that has more records to read in this run."""

THIN_PARTITIONS_MIN: Final = 32
THIN_RECORDS_MAX: Final = 200_000
THIN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one read of thin ranges, which lies in this process's memory."""

# Schemas of these formats are learned topic by topic, while their records are read.
_ALONE: Final = frozenset({Decoder.AVRO, Decoder.PROTOBUF})
# The options that decide how records become rows, and how rows become files.
_OF_ROWS: Final = {"kafka", "converters", "quality", "writer"}
# A window function looks at other rows, which may be another topic's. It can't be written without this word.
_WINDOW: Final = re.compile(r"\bover\b", re.IGNORECASE)


def decide_sharing_key(spec: DatasetSpec, decoding: DecodingPlan, to_read: Sequence[WorkUnit]) -> str | None:
    """Equal for topics that can be read together; None for one that is read by itself."""
    if sum_rows(to_read) > SHARED_RECORDS_MAX or sum_bytes(to_read) > SHARED_BYTES_MAX:
        return None
    read = topic_options(spec).kafka
    if {read.key.format, read.value.format} & _ALONE or mixes_rows(spec):
        return None
    written = spec.model_dump_json(include=_OF_ROWS)
    return f"{written} {decoding.value!r} {decoding.key!r}"


def are_thin(ranges: Ranges, size_bytes: int) -> bool:
    """Whether opening a consumer for each of the ranges, as Spark does, takes longer than reading them all here.

    ``size_bytes``: what all of them are expected to have. Of a topic that nobody has read that is a guess, and the read
    itself finds out: it ends at its bound, which costs less than the consumers.
    """
    records = sum(high - low for low, high in ranges.values())
    is_small = size_bytes <= THIN_BYTES_MAX or size_bytes == records * RECORD_BYTES
    return len(ranges) >= THIN_PARTITIONS_MIN and records <= THIN_RECORDS_MAX and is_small


def mixes_rows(spec: DatasetSpec) -> bool:
    """Whether what is done to a row may depend on other rows of the same read."""
    expressions = [policy.check for policy in spec.quality.rows]
    for link in spec.converters:
        if link.function is not None:
            return True
        expressions += [*(link.sql or {}).values(), *([link.where] if link.where else [])]
    return any(_WINDOW.search(each) for each in expressions)


SPANS_MAX: Final = 16
"""In one partition: each span costs one more read by Spark."""

_OVERFLOW: Final = "long overflow"
_OF_EXPRESSIONS: Final = "[ARITHMETIC_OVERFLOW"


@dataclass(frozen=True, slots=True)
class RecordReader:
    """A reader of the records of a run's topics."""

    connection: KafkaConnection
    isolation: Isolation
    group_id_prefix: str

    def read(self, spark: SparkSession, ranges: Ranges, *, with_headers: bool) -> DataFrame:
        """Lazy, by Spark alone."""
        options = plan_options(
            self.connection,
            ranges,
            isolation=self.isolation,
            group_id_prefix=self.group_id_prefix,
            with_headers=with_headers,
        )
        return spark.read.format("kafka").options(**options).load()

    def read_thin(
        self, spark: SparkSession, ranges: Ranges, *, with_headers: bool, otherwise: Callable[..., DataFrame]
    ) -> DataFrame:
        """The records of many small ranges, read here by one consumer; ``otherwise`` if they are larger than expected.

        A time that does not fit is NULL, so nothing is read apart. Errors of ``read_ranges``.
        """
        try:
            records = read_ranges(self.connection, ranges, isolation=self.isolation, bytes_max=THIN_BYTES_MAX)
        except TooManyBytesError:
            return otherwise(spark, ranges, with_headers=with_headers)
        return as_frame(spark, records, with_headers=with_headers)

    def read_apart(self, spark: SparkSession, ranges: Ranges, *, with_headers: bool) -> DataFrame:
        """Lazy, except for the records beyond time, which are read here. RejectedError if they are too many."""
        beyond = find_beyond_time(self.connection, ranges, isolation=self.isolation)
        spans = {name: plan_spans(offsets, SPANS_MAX) for name, offsets in beyond.items()}
        between, around = split_ranges(ranges, spans)
        frames = [self.read(spark, layer, with_headers=with_headers) for layer in around]
        bytes_left = BYTES_MAX
        for layer in between:
            try:
                records = read_ranges(self.connection, layer, isolation=self.isolation, bytes_max=bytes_left)
            except TooManyBytesError as error:
                raise RejectedError(
                    f"more than {BYTES_MAX:,} bytes of records have a time beyond what a timestamp holds, or lie "
                    "between such ones",
                    field="kafka.records_per_partition_max",
                    hint="Set it, such as to 100000: that many are read in one run, and the rest in the next.",
                ) from error
            bytes_left -= records.nbytes
            frames.append(as_frame(spark, records, with_headers=with_headers))
        return reduce(DataFrame.unionByName, frames)


def is_time_overflow(error: BaseException) -> bool:
    """Whether a record's time may have ended Spark's read. An overflow in a job's expression has another message."""
    said = str(error)
    return _OVERFLOW in said and _OF_EXPRESSIONS not in said


def plan_spans(offsets: Sequence[int], spans_max: int) -> list[tuple[int, int]]:
    """Up to ``spans_max`` half-open ranges that hold all of the ascending ``offsets``, cut at the widest gaps."""
    gaps = sorted(range(1, len(offsets)), key=lambda n: offsets[n] - offsets[n - 1], reverse=True)
    cuts = [0, *sorted(n for n in gaps[: spans_max - 1] if offsets[n] - offsets[n - 1] > 1), len(offsets)]
    return [(offsets[low], offsets[high - 1] + 1) for low, high in itertools.pairwise(cuts) if low < high]


def split_ranges(
    ranges: Ranges, spans: Mapping[TopicPartition, Sequence[tuple[int, int]]]
) -> tuple[list[Ranges], list[Ranges]]:
    """The spans, and the rest of the ranges around them; each as a list of reads with one range of a partition."""
    between: list[dict[TopicPartition, tuple[int, int]]] = []
    around: list[dict[TopicPartition, tuple[int, int]]] = []
    for name, (low, high) in ranges.items():
        cut = spans.get(name, ())
        begins = [low, *(end for _start, end in cut)]
        ends = [*(start for start, _end in cut), high]
        _lay(between, name, cut)
        _lay(around, name, [each for each in zip(begins, ends, strict=True) if each[0] < each[1]])
    return list(between), list(around)


def _lay(
    layers: list[dict[TopicPartition, tuple[int, int]]], name: TopicPartition, pieces: Sequence[tuple[int, int]]
) -> None:
    for number, piece in enumerate(pieces):
        if number == len(layers):
            layers.append({})
        layers[number][name] = piece


def no_records(spark: SparkSession, *, with_headers: bool) -> DataFrame:
    """The columns of Spark's source without a row."""
    fields = [field for field in KAFKA_SCHEMA.fields if with_headers or field.name != "headers"]
    return spark.createDataFrame([], t.StructType(fields))


def as_frame(spark: SparkSession, records: pa.Table, *, with_headers: bool) -> DataFrame:
    """Records of ``read_ranges`` in the columns of Spark's source."""
    found = records if with_headers else records.drop_columns("headers")
    schema = t.StructType([field for field in KAFKA_SCHEMA.fields if field.name in found.column_names])
    return spark.createDataFrame(found, schema)


_CAUSE: Final = re.compile(r"^(?:Caused by: |: )?[\w.$]+(?:Exception|Error): .*$", re.MULTILINE)
_SAID_MAX: Final = 400

_CONNECTOR: Final = re.compile(r"(?i)failed to find (the )?data source: kafka|DATA_SOURCE_NOT_FOUND.*kafka")
_OF_KAFKA: Final = re.compile(r"org\.apache\.kafka|kafka010|KAFKA_DATA_LOSS|data may have been lost")
_LOST: Final = re.compile(
    r"OffsetOutOfRange|KAFKA_DATA_LOSS|data may have been lost|Cannot fetch (offset|record)s? .*(out of range|deleted)"
)
_GONE: Final = re.compile(r"UnknownTopicOrPartition|UnknownTopicId|InvalidTopicException")
_LOGIN: Final = re.compile(r"SaslAuthentication|AuthenticationException|LoginException")
_RIGHTS: Final = re.compile(r"AuthorizationException")


def judge_read(error: Exception, connection: KafkaConnection, urn: DatasetUrn, topic: str) -> GobblinError:
    """The family of a failed read of the topic, or of a failed write of its records; without a secret."""
    if isinstance(error, GobblinError):
        return error
    text = connection.scrub(str(error))
    if _CONNECTOR.search(text):
        return RejectedError(
            "Spark has no Kafka connector",
            field="spark.capabilities",
            hint="Add kafka to the Spark resource's capabilities, or put the connector's jars into the folder `jars`.",
        )
    if not _OF_KAFKA.search(text):
        if connection.scrub(str(error)) != str(error):
            return RetryableError(f"Spark failed: {_summarize(text)}")
        return family_of_spark(error, action="read the topic, or write what it read")
    said = _summarize(text)
    if _LOST.search(text):
        return RetryableError(
            f"{urn}: records of {topic} were deleted between planning and reading: {said}",
            hint="Nothing of it was published. The next run plans anew, and reset_on_out_of_range says what it does.",
        )
    if _GONE.search(text):
        return RetryableError(
            f"{urn}: the topic {topic} was deleted while it was read: {said}",
            hint="Nothing of it was published; watermarks stay where they are.",
        )
    if _LOGIN.search(text):
        return connection.reject("password", f"the brokers refuse the login: {said}", "Give the right one.")
    if _RIGHTS.search(text):
        return connection.reject("username", f"may not read {topic}: {said}", "Grant this user Read on it.")
    return RetryableError(f"{urn}: reading {topic} failed: {said}", hint="The offsets are read again.")


def _summarize(text: str) -> str:
    """The innermost cause: what Java prints last."""
    causes = [line.strip().removeprefix("Caused by: ").removeprefix(": ") for line in _CAUSE.findall(text)]
    said = causes[-1] if causes else text.strip().splitlines()[0] if text.strip() else "no reason given"
    return " ".join(said.split())[:_SAID_MAX]


class TopicReader:
    """``Reader`` of a topic's plans. ``settle`` comes first: it decides how the topic's records are decoded."""

    def __init__(
        self,
        records: RecordReader,
        registry: SchemaRegistry | None,
        urn: DatasetUrn,
        topic: str,
        spec: KafkaReadSpec,
        *,
        leaves_out: Callable[[DataFrame], DataFrame] | None = None,
        shares: Mapping[int, str] | None = None,
    ) -> None:
        """``leaves_out``: takes those records out of a frame with headers that are none of the topic's.

        ``shares``: by partition, the name of the plan that gets its records, where plans of a topic are read together.
        """
        self._records = records
        self._registry = registry
        self._urn = urn
        self._topic = topic
        self._spec = spec
        self._leaves_out = leaves_out
        self._shares = shares
        self._lock = threading.Lock()
        self._decoding: DecodingPlan | None = None
        # Only a failed read shows records by a schema that the subject does not have, and records beyond time.
        self._is_unlearned = False
        self._is_apart = False
        self._overflows = 0

    @property
    def decoding(self) -> DecodingPlan:
        if self._decoding is None:
            raise CorruptionError(f"{self._urn}: how its records are decoded was not planned")
        return self._decoding

    def settle(
        self,
        spark: Callable[[], SparkSession],
        units: Sequence[WorkUnit],
        known_columns: Mapping[str, str] | None,
    ) -> DecodingPlan:
        """Decide how records are decoded, by the first window that has some; an inferred schema holds for all."""
        if self._decoding is None:
            tools = PlanningTools(
                spark=spark,
                registry=self._registry,
                sample=lambda: self._frame(spark(), units, with_headers=False),
                known_columns=known_columns,
            )
            field = f"datasets[{self._urn}].kafka"
            try:
                self._decoding = plan_decoding(self._spec, tools, topic=self._topic, field=field)
            except RetryableError as error:
                self.learn(error)
                if not self._reads_apart_next(error):
                    raise
                self._decoding = plan_decoding(self._spec, tools, topic=self._topic, field=field)
        return self._decoding

    def settle_unread(
        self, spark: Callable[[], SparkSession], known_columns: Mapping[str, str] | None
    ) -> DecodingPlan | None:
        """The same for a topic without records, which needs columns too. None: only the first record will show them."""

        def sample() -> DataFrame:
            raise RejectedError(
                f"topic {self._topic!r} has no record to infer a schema from", field="schema", hint="Declare one."
            )

        if self._decoding is None:
            tools = PlanningTools(spark, self._registry, sample, known_columns=known_columns)
            try:
                self._decoding = plan_decoding(self._spec, tools, topic=self._topic)
            except (RejectedError, RetryableError):
                # A registry may get the subject with the first record. An error shows when there is a record.
                return None
        return self._decoding

    def read(self, spark: SparkSession, units: Sequence[WorkUnit], *, share: Column | None = None) -> DataFrame:
        """``share``: as in ``decode``."""
        try:
            frame = self._frame(spark, units, with_headers="headers" in self._spec.keep)
            return decode(frame, self._decoding_of(frame), share=share)
        except Exception as error:  # noqa: BLE001  py4j raises its own errors, which no family of pyspark's covers
            raise judge_read(error, self._records.connection, self._urn, self._topic) from None

    def read_together(self, spark: SparkSession, parts: Sequence[tuple[ReadPlan, Sequence[WorkUnit]]]) -> SharedRows:
        """The records of all parts, decoded like the first part's: topics share only if they are decoded alike."""
        if self._shares is not None:
            pairs = itertools.chain.from_iterable((f.lit(number), f.lit(name)) for number, name in self._shares.items())
            share = f.create_map(*pairs)[named("partition")]
            return SharedRows(self.read(spark, [unit for _plan, units in parts for unit in units], share=share), None)
        ranges = join_ranges(unit for _plan, units in parts for unit in units if not unit.is_empty)
        decoding = self.decoding
        records = read_ranges(self._records.connection, ranges, isolation=self._records.isolation)
        try:
            frame = as_frame(spark, records, with_headers="headers" in decoding.keep)
            return SharedRows(decode(frame, decoding, share=named("topic")), _count_by_topic(records, decoding))
        except Exception as error:  # noqa: BLE001  py4j raises its own errors, which no family of pyspark's covers
            raise judge_read(error, self._records.connection, self._urn, self._topic) from None

    def learn(self, error: Exception) -> None:
        """Have the next try read records beyond time apart, or look for schema ids."""
        with self._lock:
            if is_time_overflow(error):
                self._is_apart = True
                self._overflows += 1
            elif find_missing_schema(error) is not None:
                self._is_unlearned = True

    def explain(self, error: Exception) -> Exception:
        if self._reads_apart_next(error):
            return RetryableError(
                f"{self._urn}: a record of {self._topic} has a time beyond what a timestamp holds",
                hint="The next try reads such records apart, and gives them no time.",
            )
        missing = find_missing_schema(error)
        if missing is None:
            return judge_read(error, self._records.connection, self._urn, self._topic)
        return RetryableError(
            f"{self._urn}: records of {self._topic} are written by schema {missing}, which is no version of its "
            "subject",
            hint="The next try looks for all schemas that the records name.",
        )

    def _reads_apart_next(self, error: Exception) -> bool:
        """Whether this is the first overflow. A second one comes from elsewhere: such records were read apart."""
        with self._lock:
            return is_time_overflow(error) and self._overflows == 1

    def _decoding_of(self, frame: DataFrame) -> DecodingPlan:
        with self._lock:
            decoding, is_unlearned = self.decoding, self._is_unlearned
        if not is_unlearned or self._registry is None:
            return decoding
        learned = learn_schemas(decoding, frame, self._registry)
        with self._lock:
            self._decoding = learned
            self._is_unlearned = False
        return learned

    def _frame(self, spark: SparkSession, units: Sequence[WorkUnit], *, with_headers: bool) -> DataFrame:
        ranges = join_ranges(unit for unit in units if not unit.is_empty)
        if not ranges:
            return no_records(spark, with_headers=with_headers)
        with self._lock:
            is_apart = self._is_apart
        read = self._records.read_apart if is_apart else self._records.read
        if are_thin(ranges, sum_bytes(units)):
            read = partial(self._records.read_thin, otherwise=read)
        if self._leaves_out is None:
            return read(spark, ranges, with_headers=with_headers)
        left = self._leaves_out(read(spark, ranges, with_headers=True))
        return left if with_headers else left.drop("headers")


def _count_by_topic(records: pa.Table, decoding: DecodingPlan) -> dict[str, int]:
    """How many rows ``decode`` makes of each topic's records: one each, without tombstones that it leaves out."""
    kept = records.filter(pc.is_valid(records["value"])) if decoding.drop_tombstones else records
    return {str(each["values"]): int(each["counts"]) for each in pc.value_counts(kept["topic"]).to_pylist()}
