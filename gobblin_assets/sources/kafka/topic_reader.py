"""A reader of the records of one topic in one run: the same for all its windows."""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyarrow import compute as pc
from pyspark.sql import Column, DataFrame, SparkSession

from gobblin_assets.errors import CorruptionError, RejectedError, RetryableError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.work_unit import WorkUnit, sum_bytes
from gobblin_assets.rows.columns import named
from gobblin_assets.sources.kafka.consumer import read_ranges
from gobblin_assets.sources.kafka.decoding import decode
from gobblin_assets.sources.kafka.decoding_plan import DecodingPlan, PlanningTools, learn_schemas, plan_decoding
from gobblin_assets.sources.kafka.kafka_spec import KafkaReadSpec
from gobblin_assets.sources.kafka.odd_times import RecordReader, as_frame, is_time_overflow, no_records
from gobblin_assets.sources.kafka.part_decoders import find_missing_schema
from gobblin_assets.sources.kafka.read_failures import judge_read
from gobblin_assets.sources.kafka.reading import join_ranges
from gobblin_assets.sources.kafka.registry import SchemaRegistry
from gobblin_assets.sources.kafka.sharing import are_thin
from gobblin_assets.sources.source_port import ReadPlan, SharedRows


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
    ) -> None:
        """``leaves_out``: takes those records out of a frame with headers that are none of the topic's."""
        self._records = records
        self._registry = registry
        self._urn = urn
        self._topic = topic
        self._spec = spec
        self._leaves_out = leaves_out
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
