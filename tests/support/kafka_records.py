"""Hand-made frames like those of Spark's Kafka source, and the wire formats of their records."""

import datetime as dt
import io
from collections.abc import Sequence

import fastavro
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2
from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.sources.kafka.decoding import KAFKA_SCHEMA
from gobblin_assets.sources.kafka.decoding_plan import DecodingPlan, PlanningTools, plan_decoding
from gobblin_assets.sources.kafka.kafka_kind import KafkaReadSpec
from gobblin_assets.sources.kafka.registry import RegistryConnection, SchemaRegistry

TOPIC = "page views"


def utc(year: int, month: int, day: int, hour: int = 0, *, microsecond: int = 0) -> dt.datetime:
    """A time as Spark gives it to Python: in UTC, without a zone."""
    return dt.datetime(year, month, day, hour, microsecond=microsecond, tzinfo=dt.UTC).replace(tzinfo=None)


AT = utc(2013, 1, 31, 12, microsecond=123_000)


def kafka_frame(spark: SparkSession, values: Sequence[bytes | None], keys: Sequence[bytes | None] = ()) -> DataFrame:
    """Offsets count from 100; without ``keys`` the keys are NULL; every record has one header."""
    rows = [
        (keys[n] if keys else None, value, TOPIC, 3, 100 + n, AT, n % 2, [("trace", b"\xff")])
        for n, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, KAFKA_SCHEMA)


def planned(
    spark: SparkSession,
    spec: dict[str, object],
    *,
    registry: SchemaRegistry | None = None,
    sample: DataFrame | None = None,
    known: dict[str, str] | None = None,
) -> DecodingPlan:
    def get_sample() -> DataFrame:
        assert sample is not None, "nothing needs a sample here"
        return sample

    tools = PlanningTools(lambda: spark, registry, get_sample, known)
    return plan_decoding(KafkaReadSpec.model_validate(spec), tools, topic=TOPIC)


def client_of(url: str, **options: object) -> SchemaRegistry:
    return SchemaRegistry(RegistryConnection(url, **options))  # type: ignore[arg-type]  # options of any field


def avro_bytes(schema: object, value: object, schema_id: int | None = None) -> bytes:
    """``schema_id`` None: without framing."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return framed(schema_id, buffer.getvalue()) if schema_id is not None else buffer.getvalue()


def framed(schema_id: int, content: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + content


def view_descriptors(*, with_imports: bool = True) -> bytes:
    """The descriptor set of messages ``shop.Other`` and ``shop.View``, which has a message ``Item`` inside."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="view.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    )
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="NONE", number=0)
    colour.value.add(name="RED", number=1)
    file.message_type.add(name="Other").field.add(name="id", number=1, type=kinds.TYPE_STRING, label=1)
    view = file.message_type.add(name="View")
    item = view.nested_type.add(name="Item")
    item.field.add(name="price", number=1, type=kinds.TYPE_DOUBLE, label=1)
    counts = view.nested_type.add(name="CountsEntry")
    counts.options.map_entry = True
    counts.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    counts.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=1)
    for number, (name, kind, label, of) in enumerate(
        [
            ("id", kinds.TYPE_INT64, 1, None),
            ("big", kinds.TYPE_UINT64, 1, None),
            ("name", kinds.TYPE_STRING, 1, None),
            ("raw", kinds.TYPE_BYTES, 1, None),
            ("colour", kinds.TYPE_ENUM, 1, ".shop.Colour"),
            ("items", kinds.TYPE_MESSAGE, 3, ".shop.View.Item"),
            ("counts", kinds.TYPE_MESSAGE, 3, ".shop.View.CountsEntry"),
            ("at", kinds.TYPE_MESSAGE, 1, ".google.protobuf.Timestamp"),
            ("note", kinds.TYPE_MESSAGE, 1, ".google.protobuf.StringValue"),
        ],
        start=1,
    ):
        view.field.add(name=name, number=number, type=kind, label=label, type_name=of)
    found = descriptor_pb2.FileDescriptorSet(file=[file])
    for imported in (timestamp_pb2, wrappers_pb2) if with_imports else ():
        found.file.add().ParseFromString(imported.DESCRIPTOR.serialized_pb)
    return found.SerializeToString()
