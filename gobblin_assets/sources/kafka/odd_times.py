"""Records whose time does not fit into microseconds in 64 bits: Spark's Kafka source ends the whole read at one.

Such records are rare, and can't be told from others before they are read. So a read that one of them ended is made
again in another way. One consumer in this process looks at all records of the read. It reads those beyond time, and the
records between near ones; a time that does not fit becomes NULL. Spark reads the records around them.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.sources.kafka.cluster import Isolation, TopicPartition
from gobblin_assets.sources.kafka.consumer import BYTES_MAX, TooManyBytesError, find_beyond_time, read_ranges
from gobblin_assets.sources.kafka.decoding import KAFKA_SCHEMA
from gobblin_assets.sources.kafka.reading import Ranges, plan_options
from gobblin_assets.sources.kafka.sharing import THIN_BYTES_MAX

SPANS_MAX: Final = 16
"""In one partition: each span costs one more read by Spark."""

_OVERFLOW: Final = "long overflow"
_OF_EXPRESSIONS: Final = "[ARITHMETIC_OVERFLOW"


@dataclass(frozen=True, slots=True)
class RecordReader:
    """How the records of a run's topics are read."""

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
