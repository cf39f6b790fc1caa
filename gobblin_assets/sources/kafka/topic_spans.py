"""A topic's records between positions that a reader of epochs found, as Spark reads them for several lanes at once."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from gobblin_assets.errors import CorruptionError
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.rows.columns import named
from gobblin_assets.sources.kafka.arrow_decoding import find_need_of_decoding
from gobblin_assets.sources.kafka.decoding import decoded_columns
from gobblin_assets.sources.kafka.epoch_markers import EPOCH_HEADER
from gobblin_assets.sources.kafka.kafka_kind import Decoder, DecoderSpec, KafkaSourceSpec, topic_options
from gobblin_assets.sources.kafka.keys import parse_key
from gobblin_assets.sources.kafka.registry import SchemaRegistry
from gobblin_assets.sources.kafka.topic_reader import RecordReader, TopicReader, mixes_rows
from gobblin_assets.sources.log_port import SpanPlan
from gobblin_assets.sources.source_port import ReadPlan
from gobblin_assets.spec.job_spec import DatasetSpec, SinkSpec


def without_markers(records: DataFrame) -> DataFrame:
    """The records that end no epoch."""
    is_marker = f.exists(named("headers"), lambda header: header["key"] == EPOCH_HEADER)
    return records.where(~f.coalesce(is_marker, f.lit(False)))


_GROUP_ID_PREFIX: Final = "gobblin"
_NAMES: Final = MappingProxyType({Decoder.AVRO: "Avro", Decoder.PROTOBUF: "Protobuf"})


class TopicSpans:
    """``SpanSource`` of one topic."""

    def __init__(
        self,
        connection: KafkaConnection,
        registry: SchemaRegistry | None,
        source: KafkaSourceSpec,
        sink: SinkSpec,
        urn: DatasetUrn,
        dataset: DatasetSpec,
    ) -> None:
        options = topic_options(dataset)
        self._records = RecordReader(connection, source.isolation, _GROUP_ID_PREFIX)
        self._registry = registry
        self._has_markers = sink.barriers == "log"
        self._urn = urn
        self._dataset = dataset
        self._topic = options.topic or urn
        self._read = options.kafka

    @property
    def spark_need(self) -> str | None:
        field = find_need_of_decoding(self._read, "kafka")
        if field is None:
            return None
        is_key = field.startswith("kafka.key.")
        return f"its {'keys' if is_key else 'values'} are {_describe(self._read.key if is_key else self._read.value)}"

    def plan_spans(
        self, spark: Callable[[], SparkSession], spans: Mapping[str, Sequence[WorkUnit]], state: DatasetState
    ) -> SpanPlan:
        reader = TopicReader(
            self._records,
            self._registry,
            self._urn,
            self._topic,
            self._read,
            leaves_out=without_markers if self._has_markers else None,
            shares={_partition_of(unit): name for name, units in spans.items() for unit in units},
        )
        decoding = reader.settle(spark, [unit for units in spans.values() for unit in units], state.source_columns)
        columns = decoded_columns(spark, decoding)
        read = ReadPlan(self._dataset, reader, may_fail_rows=True)
        parts = (self._read.value, *([self._read.key] if "key" in self._read.keep else []))
        infers = any(part.format is Decoder.JSON and part.schema_ is None for part in parts)
        return SpanPlan(
            read,
            columns,
            can_share=not mixes_rows(self._dataset),
            is_inferred=infers and state.source_columns is None,
        )


def _describe(decoder: DecoderSpec) -> str:
    if decoder.format is Decoder.JSON:
        return "JSON without a schema" if decoder.schema_ is None else "JSON of types that only Spark decodes"
    return _NAMES[decoder.format]


def _partition_of(unit: WorkUnit) -> int:
    key = parse_key(unit.key)
    if key is None:
        raise CorruptionError(f"{unit.key!r} is no vnode of a topic")
    return key.partition.partition
