"""The decoding of one topic's records in one run: decided when the run is planned, so that all its reads agree.

Make this plan after the end of the interval is pinned: a producer registers a schema before its first record, so the
subject's versions are then the schemas of all records. A record by any other schema (another subject's, or a deleted
version) fails the read once: ``learn_schemas`` then finds the ids in the records to be read, and the next read knows
them. No pass over the records is made before one is needed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.avro.functions import from_avro

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.rows.column_names import require_distinct_columns
from gobblin_assets.rows.columns import named
from gobblin_assets.sources.kafka.avro_schemas import find_recursive, is_record, make_whole, wrap
from gobblin_assets.sources.kafka.json_decoder import JsonDecoder
from gobblin_assets.sources.kafka.json_inference import infer_json_schema
from gobblin_assets.sources.kafka.kafka_kind import KEPT_ORDER, Decoder, DecoderSpec, KafkaReadSpec, Kept
from gobblin_assets.sources.kafka.part_decoders import (
    AvroDecoder,
    BytesDecoder,
    PartDecoder,
    ProtobufDecoder,
    StringDecoder,
    is_framed,
    schema_id_of,
)
from gobblin_assets.sources.kafka.protobuf_messages import parse_message_type
from gobblin_assets.sources.kafka.registry import RegisteredSchema, SchemaRegistry
from gobblin_assets.spark.errors import first_cause, spark_families

Part = Literal["key", "value"]

VERSIONS_MAX: Final = 50
"""The newest versions of a subject; a record by an older one costs the pass of ``learn_schemas``.

Each version costs every record some time (100 versions were seen to cost a record 10 µs more than one), since Java
does not compile such a long method.
"""

ABSENT_IDS_MAX: Final = 1_000
"""Ids that records name and the registry does not have. If there are more, they are no schema ids at all."""

DESCRIPTOR_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class DecodingPlan:
    """The decoders of one topic in one run, and the schemas that they read by.

    ``key`` is None where it is not kept, so that no key is undecodable. ``field`` is its place in the job.
    """

    topic: str
    value: PartDecoder
    key: PartDecoder | None
    keep: frozenset[Kept]
    drop_tombstones: bool
    field: str


@dataclass(frozen=True, slots=True)
class PlanningTools:
    """The tools of planning: Spark for types, the registry, and a frame of some of the topic's records.

    ``known_columns`` are those of the dataset's earlier runs; a schema that was inferred then is taken from them.
    """

    spark: Callable[[], SparkSession]
    registry: SchemaRegistry | None
    sample: Callable[[], DataFrame]
    known_columns: Mapping[str, str] | None = None


def plan_decoding(spec: KafkaReadSpec, tools: PlanningTools, *, topic: str, field: str = "kafka") -> DecodingPlan:
    """Get what the decoders need. ``field`` is where ``spec`` stands in the job, for messages.

    Raises:
        RejectedError: an option is missing, or a schema, subject, descriptor or message can't be used.
        RetryableError: the registry does not answer.

    """
    keeps_key = "key" in spec.keep
    return DecodingPlan(
        topic,
        value=_plan_part(spec.value, tools, topic, "value", f"{field}.value"),
        key=_plan_part(spec.key, tools, topic, "key", f"{field}.key") if keeps_key else None,
        keep=frozenset(spec.keep),
        drop_tombstones=spec.on_tombstone == "drop",
        field=field,
    )


def learn_schemas(plan: DecodingPlan, frame: DataFrame, registry: SchemaRegistry) -> DecodingPlan:
    """The plan with the schemas of all ids in ``frame``, a frame of Kafka's source; one Spark job for each Avro part.

    Ids that the registry does not have are remembered as absent: their records are dead letters.
    """
    value = _learn(plan, "value", plan.value, frame, registry)
    return replace(plan, value=value, key=plan.key and _learn(plan, "key", plan.key, frame, registry))


def _plan_part(spec: DecoderSpec, tools: PlanningTools, topic: str, part: Part, field: str) -> PartDecoder:
    match spec.format:
        case Decoder.BYTES:
            return BytesDecoder()
        case Decoder.STRING:
            return StringDecoder()
        case Decoder.JSON:
            return _plan_json(spec, tools, topic, part, field)
        case Decoder.AVRO:
            return _plan_avro(spec, tools, topic, part, field)
        case Decoder.PROTOBUF:
            return _plan_protobuf(spec, field)


def _plan_json(spec: DecoderSpec, tools: PlanningTools, topic: str, part: Part, field: str) -> JsonDecoder:
    ddl = spec.schema_ or _known_ddl(tools.known_columns, part)
    if ddl is None:
        reserved = frozenset(KEPT_ORDER.values())
        ddl = infer_json_schema(tools.sample(), topic=topic, column=part, leave_out=reserved, field=field)
    try:
        empty = tools.spark().range(0).select(f.from_json(f.lit(None).cast("string"), ddl))
        data_type = empty.schema.fields[0].dataType
    except (AnalysisException, ParseException) as error:
        raise RejectedError(
            f"expected a Spark DDL, found {ddl[:100]!r}: {first_cause(error)}",
            field=f"{field}.schema",
            hint="Write it like: id bigint, name string, tags array<string>.",
        ) from error
    _require_distinct(data_type, f"topic {topic!r}: the schema", field)
    return JsonDecoder(data_type)


def _require_distinct(data_type: t.DataType, what: str, field: str) -> None:
    match data_type:
        case t.StructType():
            require_distinct_columns(data_type.names, label=what, field=f"{field}.schema")
            for each in data_type.fields:
                _require_distinct(each.dataType, f"{what}, field {each.name!r}", field)
        case t.ArrayType():
            _require_distinct(data_type.elementType, what, field)
        case t.MapType():
            _require_distinct(data_type.valueType, what, field)
        case _:
            pass


def _known_ddl(columns: Mapping[str, str] | None, part: Part) -> str | None:
    key_name = KEPT_ORDER["key"]
    if part == "key":
        return None if columns is None else columns.get(key_name)
    own = {name: text for name, text in (columns or {}).items() if name not in KEPT_ORDER.values()}
    return ", ".join(f"`{name.replace('`', '``')}` {text}" for name, text in own.items()) or None


def _plan_avro(spec: DecoderSpec, tools: PlanningTools, topic: str, part: Part, field: str) -> AvroDecoder:
    given = None
    if spec.schema_ is not None:
        given = make_whole(spec.schema_, {}, label="the reader's schema", field=f"{field}.schema")
    if spec.framing == "none":
        if given is None:
            raise RejectedError(
                "Avro without framing needs its schema",
                field=f"{field}.schema",
                hint="Give Avro's JSON as `schema`, or framing: confluent.",
            )
        _require_readable(given, tools.spark(), "the schema", f"{field}.schema")
        return AvroDecoder(wrap(given), is_record(given), {0: wrap(given)})
    if tools.registry is None:
        raise RejectedError(
            "Avro in Confluent's wire format needs a schema registry, and the connection has none",
            field=f"{field}.format",
            hint="Give the connection its registry, or framing: none and a schema.",
        )
    subject = spec.subject or f"{topic}-{part}"
    try:
        versions = tools.registry.list_versions(subject)[-VERSIONS_MAX:]
        registered = [tools.registry.get_version(subject, number) for number in versions]
    except RejectedError as error:
        raise _at_field(error, field) from error
    wholes = {
        each.id: _whole(each.schema, tools.registry, f"version {each.version} of subject {subject!r}", field)
        for each in registered
    }
    reader = given if given is not None else wholes[registered[-1].id]
    label = f"version {registered[-1].version} of subject {subject!r}" if given is None else "the reader's schema"
    _require_readable(reader, tools.spark(), label, f"{field}.schema")
    return AvroDecoder(wrap(reader), is_record(reader), {each: wrap(whole) for each, whole in wholes.items()}, subject)


def _whole(schema: RegisteredSchema, registry: SchemaRegistry, label: str, field: str) -> object:
    if schema.type != "AVRO":
        raise RejectedError(
            f"{label} is a {schema.type} schema", field=f"{field}.format", hint="Write the format it is in."
        )
    references = {name: each.text for name, each in registry.get_references(schema).items()}
    return make_whole(schema.text, references, label=label, field=f"{field}.subject")


def _at_field(error: RejectedError, field: str) -> RejectedError:
    """The same error at the job's field: the registry client knows only the subject."""
    if error.field != "subject":
        return error
    return RejectedError(
        error.message.removeprefix("subject: "), field=f"{field}.subject", hint=error.hint, **_facts(error)
    )


def _facts(error: GobblinError) -> dict[str, object]:
    return {name: value for name, value in error.fields.items() if name != "field"}


def _require_readable(reader: object, spark: SparkSession, label: str, field: str) -> None:
    """Have Spark's Avro parse the reader's schema now: if this failed at a record, Spark would call the record broken.

    Writers' schemas are not parsed. Spark looks at one only when a record comes, and the reader's may omit its trouble.
    """
    hint = "Give a reader's schema that Spark can hold as `schema`."
    recursive = find_recursive(reader)
    if recursive is not None:
        raise RejectedError(
            f"{label}: the record {recursive!r} holds itself, and no Spark type does", field=field, hint=hint
        )
    try:
        with spark_families(f"take {label} for Avro"):
            _ = spark.range(0).select(from_avro(f.lit(b""), wrap(reader))).schema
    except (RejectedError, RetryableError) as error:
        said = error.message.removeprefix("spark: ")
        raise RejectedError(said, field=field, hint=f"{hint} Spark needs the capability avro.") from error


def _plan_protobuf(spec: DecoderSpec, field: str) -> ProtobufDecoder:
    for option, value in (("descriptor_file", spec.descriptor_file), ("message", spec.message)):
        if value is None:
            raise RejectedError(
                "Protobuf needs a descriptor file and a message",
                field=f"{field}.{option}",
                hint="Write descriptor_file: FILE (by protoc --include_imports --descriptor_set_out=FILE) and message: "
                "package.Name.",
            )
    path = Path(spec.descriptor_file or "")
    try:
        with path.open("rb") as file:
            content = file.read(DESCRIPTOR_BYTES_MAX + 1)
    except OSError as error:
        raise RejectedError(
            f"can't read {path}: {error.strerror}", field=f"{field}.descriptor_file", hint="Correct the path."
        ) from error
    if len(content) > DESCRIPTOR_BYTES_MAX:
        raise RejectedError(
            f"{path} has more than {DESCRIPTOR_BYTES_MAX} bytes",
            field=f"{field}.descriptor_file",
            hint="Write a descriptor set of this topic's messages alone.",
        )
    message = parse_message_type(content, spec.message or "", field=field)
    return ProtobufDecoder(message, is_framed=spec.framing == "confluent")


def _learn(
    plan: DecodingPlan, part: Part, decoder: PartDecoder, frame: DataFrame, registry: SchemaRegistry
) -> PartDecoder:
    if not isinstance(decoder, AvroDecoder) or decoder.subject is None:
        return decoder
    content = named(part)
    known = {*decoder.writers, *decoder.absent}
    ids = frame.where(is_framed(content)).select(schema_id_of(content).cast("bigint").alias("id")).distinct()
    with spark_families(f"look for schema ids in the topic {plan.topic!r}"):
        new = [row.id for row in ids.limit(ABSENT_IDS_MAX + len(known) + 1).collect() if row.id not in known]
    writers, absent = dict(decoder.writers), set(decoder.absent)
    field = f"{plan.field}.{part}"
    for schema_id in sorted(new):
        schema = registry.find_schema(schema_id)
        if schema is None:
            absent.add(schema_id)
        else:
            writers[schema_id] = wrap(_whole(schema, registry, f"schema {schema_id}", field))
        if len(absent) > ABSENT_IDS_MAX:
            raise RejectedError(
                f"the {part}s of topic {plan.topic!r} name more than {ABSENT_IDS_MAX} schemas that the registry does "
                "not have",
                field=f"{field}.framing",
                hint="They are not in Confluent's wire format, or were written with another registry.",
            )
    return replace(decoder, writers=writers, absent=frozenset(absent))
