"""Kafka's records as rows: the decoded columns, the kept columns of the record, and dead letters.

The input is the frame of Spark's ``kafka`` source, with ``headers`` where they are kept. The output:

    the value's fields, else ``value``      all NULL for a tombstone and for a dead letter
    kafka_key, kafka_topic, …               those that ``keep`` asks for
    gobblin_dead_letter_topic, …            the record's position and content, NULL for a good one; headers only where
                                            they are kept, since each such column costs every good record a NULL

The last two are hidden columns by the contract of ``row_quality``. If key and value stay bytes, no record can be wrong,
and these columns are left out. The columns, and directories for both roles, would cost a fifth of the throughput.
"""

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.rows.columns import named
from gobblin_assets.rows.hidden_columns import DEAD_LETTER_COLUMN, SHARE_COLUMN
from gobblin_assets.sources.kafka.decoding_plan import DecodingPlan
from gobblin_assets.sources.kafka.json_decoder import JsonDecoder
from gobblin_assets.sources.kafka.kafka_kind import KEPT_TYPES, list_kept, require_own_names
from gobblin_assets.sources.kafka.part_decoders import (
    BytesDecoder,
    PartDecoder,
    ProtobufDecoder,
    StringDecoder,
)

HEADERS_TYPE: Final = t.ArrayType(
    t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())])
)
KAFKA_SCHEMA: Final = t.StructType(
    [
        t.StructField("key", t.BinaryType()),
        t.StructField("value", t.BinaryType()),
        t.StructField("topic", t.StringType()),
        t.StructField("partition", t.IntegerType()),
        t.StructField("offset", t.LongType()),
        t.StructField("timestamp", t.TimestampType()),
        t.StructField("timestampType", t.IntegerType()),
        t.StructField("headers", HEADERS_TYPE),
    ]
)
"""The columns of Spark's source, with ``includeHeaders``."""

_VALUE: Final = "gobblin_decoded_value"
_KEY: Final = "gobblin_decoded_key"


def decode(frame: DataFrame, plan: DecodingPlan, *, share: Column | None = None) -> DataFrame:
    """Decode lazily: nothing is read. RejectedError for two columns of one name. ``share``: for a frame whose rows are
    several datasets' or lanes', the value of the hidden column that says whose each row is.

    A record by a schema that the plan does not know fails the Spark action; ``find_missing_schema`` finds this schema.
    """
    if plan.drop_tombstones:
        frame = frame.where(named("value").isNotNull())
    shares = [] if share is None else [share.alias(SHARE_COLUMN)]
    if all(isinstance(part, BytesDecoder) for part in (plan.value, plan.key) if part is not None):
        kept = _select_kept(plan, frame, named("key"))
        return frame.select(
            *(column.alias(name) for name, column in {"value": named("value"), **kept}.items()), *shares
        )
    prepared = _prepare(frame, plan.value, "value", _VALUE)
    if plan.key is not None:
        prepared = _prepare(prepared, plan.key, "key", _KEY)
    judged = prepared.select("*", _once(_reason(plan)).alias(DEAD_LETTER_COLUMN))
    is_good = named(DEAD_LETTER_COLUMN).isNull()
    value = f.when(is_good, plan.value.value(named(_VALUE)))
    decoded: dict[str, Column] = {"value": value}
    if plan.value.is_record:
        names = _field_names(judged.select(value.alias("value")))
        flat = judged.select("*", value.alias("gobblin_record"))
        judged, decoded = flat, {name: f.col("gobblin_record").getField(name) for name in names}
    key = f.lit(None) if plan.key is None else f.when(is_good, plan.key.value(named(_KEY)))
    kept = _select_kept(plan, frame, key)
    require_own_names(list(decoded), list(kept), topic=plan.topic, field=plan.field)
    return judged.select(
        *(column.alias(name) for name, column in {**decoded, **kept}.items()),
        named(DEAD_LETTER_COLUMN),
        *(f.when(~is_good, column).alias(name) for name, column in _letter_columns(frame).items()),
        *shares,
    )


def decoded_columns(spark: Callable[[], SparkSession], plan: DecodingPlan) -> Mapping[str, str]:
    """Name → Spark type text of what ``decode`` gives, without the hidden columns.

    Computed from the decoders: an analysis of ``decode`` by Spark takes longer than the rest of a topic's planning.
    """
    data_type = _type_of(plan.value, spark)
    decoded = {"value": data_type}
    if isinstance(data_type, t.StructType) and plan.value.is_record:
        decoded = {each.name: each.dataType for each in data_type.fields}
    types = {**KEPT_TYPES, **({} if plan.key is None else {"kafka_key": _type_of(plan.key, spark).simpleString()})}
    kept = {name: types[name] for name in list_kept(plan.keep)}
    require_own_names(list(decoded), list(kept), topic=plan.topic, field=plan.field)
    return {**{name: each.simpleString() for name, each in decoded.items()}, **kept}


def _type_of(decoder: PartDecoder, spark: Callable[[], SparkSession]) -> t.DataType:
    match decoder:
        case BytesDecoder():
            return t.BinaryType()
        case StringDecoder():
            return t.StringType()
        case JsonDecoder():
            return decoder.data_type
        case ProtobufDecoder():
            return decoder.message.type
        case _:
            nothing = f.lit(None).cast("binary")
            return spark().range(0).select(decoder.value(decoder.prepare(nothing))).schema.fields[0].dataType


def _prepare(frame: DataFrame, decoder: PartDecoder, part: str, name: str) -> DataFrame:
    """The frame with what the decoder made of a part as the column ``name``."""
    prepared = frame.select("*", _once(decoder.prepare(named(part))).alias(name))
    for step in decoder.complete(named(part)):
        prepared = prepared.withColumn(name, _once(step(named(name))))
    return prepared


def _once(prepared: Column) -> Column:
    """Mark the column as not deterministic, so that Spark does not move it.

    Otherwise Spark moves a converter's ``where`` below it, and decodes every record again for each decoded column in
    that condition.
    """
    return f.when(f.monotonically_increasing_id() >= 0, prepared)


def _reason(plan: DecodingPlan) -> Column:
    of_value = f.concat(f.lit("value: "), plan.value.reason(named("value"), named(_VALUE)))
    if plan.key is None:
        return of_value
    return f.coalesce(of_value, f.concat(f.lit("key: "), plan.key.reason(named("key"), named(_KEY))))


def _field_names(frame: DataFrame) -> list[str]:
    data_type = frame.schema.fields[0].dataType
    return list(data_type.names) if isinstance(data_type, t.StructType) else []


def _select_kept(plan: DecodingPlan, frame: DataFrame, key: Column) -> dict[str, Column]:
    columns = {f"kafka_{name}": column for name, column in _list_facts().items()} | {
        "kafka_key": key,
        "kafka_headers": named("headers") if "headers" in frame.columns else f.lit(None).cast(HEADERS_TYPE),
    }
    return {name: columns[name] for name in list_kept(plan.keep)}


def _letter_columns(frame: DataFrame) -> dict[str, Column]:
    columns = _list_facts() | {name: named(name) for name in ("key", "value", "headers") if name in frame.columns}
    return {f"{DEAD_LETTER_COLUMN}_{name}": column for name, column in columns.items()}


def _list_facts() -> dict[str, Column]:
    """A record's place and time. Kafka marks a record without a time with one millisecond before 1970."""
    kind = named("timestampType")
    return {
        "topic": named("topic"),
        "partition": named("partition"),
        "offset": named("offset"),
        "timestamp": f.when(named("timestamp") != f.timestamp_millis(f.lit(-1)), named("timestamp")),
        "timestamp_type": f.when(kind == 0, "create_time").when(kind == 1, "log_append_time"),
    }
