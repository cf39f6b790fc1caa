"""Kafka as a kind of source: its options, how a topic is read and decoded, and the rules among the options."""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal

from pydantic import Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.column_names import name_key
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.rows.hidden_columns import DEAD_LETTER_COLUMN, SHARE_COLUMN
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import Scaffold, SourceKind
from gobblin_assets.spec.source_spec import LogSourceSpec
from gobblin_assets.spec.spec_model import Moment, SpecModel, list_differing


class BootstrapWith(StrEnum):
    """The begin of a topic's partitions at the first run that sees the topic (Gobblin: bootstrap.with.offset)."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET_LOOKBACK = "offset_lookback"
    TIMESTAMP = "timestamp"
    SKIP = "skip"


class ResetOnOutOfRange(StrEnum):
    """The way to go on when the broker no longer has, or never had, the offset that the watermark names."""

    FAIL = "fail"
    NEAREST = "nearest"
    EARLIEST = "earliest"
    LATEST = "latest"
    SKIP = "skip"


class SizeEstimator(StrEnum):
    """The size of a WorkUnit when it is packed (Gobblin: kafka.workunit.size.estimator.type), by earlier runs.

    ``UNIT``: one. ``AVERAGE_RECORD_SIZE``: its bytes as written. ``AVERAGE_RECORD_TIME``: the time to read it.
    ``PRODUCE_RATE``: the rate of reading that catches up in time, while more is produced.
    """

    UNIT = "unit"
    AVERAGE_RECORD_SIZE = "average_record_size"
    AVERAGE_RECORD_TIME = "average_record_time"
    PRODUCE_RATE = "produce_rate"


class Decoder(StrEnum):
    BYTES = "bytes"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class DecoderSpec(SpecModel):
    """The decoding of a key or a value: how its bytes become columns.

    The fields of a record become columns of their own; any other value is one column, ``value``. A key is always the
    one column ``kafka_key``, and is decoded only where it is kept.
    ``json``: ``schema_`` (written ``schema``) is a Spark DDL, or is inferred at the first run that has records, and
    kept. A row holds exactly what was sent; otherwise the record is a dead letter with the reason. By type:

        bigint, int, …     whole numbers of its range, without a point or an exponent; ``-0`` is 0
        decimal(p,s)       numbers, or texts that are numbers, with at most ``s`` places; trailing zeros don't count
        double, float      the nearest one: 0.1 is exact in neither. A number beyond the range is a dead letter. The
                           texts NaN, Infinity and -Infinity are what JSON's numbers lack (also +Infinity, +INF and
                           -INF, as to Spark). Where digits count, choose decimal or string
        string             a text, or the JSON of any other value without white space: ``1.10`` stays 1.10
        timestamp          ISO 8601 with a date, to microseconds; without a zone in UTC; or whole seconds since 1970
        timestamp_ntz      the same without zones and seconds
        date               yyyy-mm-dd, without a time of day
        binary             the bytes that a text in Base64 stands for
        variant            the value as Spark reads it: an odd or long number becomes the nearest double

    Fields that the schema does not have are ignored, also those that appear after it was inferred. A record is a dead
    letter if a field of the schema comes twice, if a key differs from a field by case alone, or if it has half of a
    surrogate pair (the escape d800 alone), which UTF-8 can't hold. An inferred schema holds exactly what the sample
    had: a number that a double would not give back makes the column a string. ``avro``: Confluent's wire format against
    the source's registry, read by the newest schema of ``subject``; with ``schema`` (Avro's JSON) it is the reader's
    schema, and with ``framing: none`` also the writer's. ``protobuf``: ``descriptor_file`` (as ``protoc
    --include_imports --descriptor_set_out`` writes it) and ``message``. A google.protobuf.Timestamp is cut to
    microseconds. Times beyond the type's range (in Avro, milliseconds that don't fit into 64 bits as microseconds) are
    dead letters.
    """

    format: Decoder = Decoder.BYTES
    schema_: str | None = Field(None, alias="schema")
    subject: str | None = Field(None, description="Avro: default <topic>-value, and <topic>-key for keys.")
    framing: Literal["confluent", "none"] = Field("confluent", description="Avro and Protobuf: the bytes' prefix.")
    descriptor_file: str | None = None
    message: str | None = Field(None, description="Protobuf: the message's full name.")


Kept = Literal["topic", "key", "headers", "partition", "offset", "timestamp", "timestamp_type"]


class KafkaReadSpec(SpecModel):
    """The reading of one topic. Columns of ``keep`` are called ``kafka_key``, ``kafka_offset`` and so on.

    ``kafka_timestamp`` is NULL for a record without a time, and for one whose time does not fit into 64 bits as
    microseconds: its key and value are sound. An event time that is read from it follows its rule for missing times.
    """

    bootstrap_with: BootstrapWith = BootstrapWith.EARLIEST
    offset_lookback: int | None = Field(None, ge=1, description="Records before the end, for bootstrap_with.")
    bootstrap_timestamp: Moment | None = Field(None, description="Records from this time on; without a zone: UTC.")
    reset_on_out_of_range: ResetOnOutOfRange = ResetOnOutOfRange.FAIL
    records_per_partition_max: int | None = Field(
        None, ge=1, description="Offsets of one partition in one run; the rest follows in the next."
    )
    key: DecoderSpec = DecoderSpec()
    value: DecoderSpec = DecoderSpec()
    keep: tuple[Kept, ...] = ()
    on_tombstone: Literal["keep", "drop"] = Field(
        "keep", description="A record without a value: a row of NULLs with the columns of keep, or no row."
    )


class TopicOptions(SpecModel):
    """A dataset's options for its topic, besides the options that all datasets have."""

    topic: str | None = Field(None, description="Kafka: the topic; default: the URN.")
    kafka: KafkaReadSpec = KafkaReadSpec()


def topic_options(dataset: DatasetSpec) -> TopicOptions:
    return TopicOptions.model_validate(dataset.model_extra or {})


class KafkaSourceSpec(LogSourceSpec):
    """Topics of one Kafka cluster."""

    type: Literal["kafka"]
    connection: str = Field(description="Name of a Kafka connection resource.")
    include: tuple[str, ...] = Field((), description="Patterns of topic names, such as page_*; from discovery.")
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    size_estimator: SizeEstimator = SizeEstimator.AVERAGE_RECORD_SIZE
    catch_up_sla_hours: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="produce_rate: the lag is to be read within this time."
    )
    produce_rate_scaling: float = Field(
        1.3, ge=0, allow_inf_nan=False, description="produce_rate: counts what is produced meanwhile this many times."
    )

    @property
    def packs_by_rate(self) -> bool:
        return self.size_estimator is SizeEstimator.PRODUCE_RATE


KEPT_ORDER: Final[Mapping[Kept, str]] = {
    "key": "kafka_key",
    "topic": "kafka_topic",
    "partition": "kafka_partition",
    "offset": "kafka_offset",
    "timestamp": "kafka_timestamp",
    "timestamp_type": "kafka_timestamp_type",
    "headers": "kafka_headers",
}
"""The names of the columns that ``keep`` asks for, in their order."""


KEPT_TYPES: Final[Mapping[str, str]] = MappingProxyType({
    "kafka_topic": "string",
    "kafka_partition": "int",
    "kafka_offset": "bigint",
    "kafka_timestamp": "timestamp",
    "kafka_timestamp_type": "string",
    "kafka_headers": "array<struct<key:string,value:binary>>",
})  # fmt: skip
"""Their types, as Spark writes types; that of the key is its decoder's."""


def list_kept(keep: Collection[Kept]) -> list[str]:
    """The columns' names, in their order."""
    return [column for kept, column in KEPT_ORDER.items() if kept in keep]


def require_own_names(decoded: Sequence[str], kept: Sequence[str], *, topic: str, field: str) -> None:
    """RejectedError for a field with the name of a kept or a hidden column. ``field`` is the place of the spec."""
    seen: dict[str, str] = {name_key(name): f"the kept column {name!r}" for name in kept}
    for name in decoded:
        other = seen.get(name_key(name))
        if other is not None:
            raise RejectedError(
                f"topic {topic!r}: the decoded field {name!r} and {other} would be one column",
                field=f"{field}.keep" if "kept" in other else f"{field}.value.schema",
                hint="Leave the one out of keep, or give a reader's schema without the other as `value.schema`.",
            )
        if name_key(name).startswith((DEAD_LETTER_COLUMN, SHARE_COLUMN)):
            raise RejectedError(
                f"topic {topic!r}: the decoded field {name!r} has the name of a column that Gobblin hides in rows",
                field=f"{field}.value.schema",
                hint="Give a reader's schema without it as `value.schema`.",
            )
        seen[name_key(name)] = f"the field {name!r}"


REFUSED: Final = MappingProxyType(
    {
        "table": "write topic",
        "extract": "a topic is a log: every run appends from where the last one ended",
        "watermark": "the positions of a topic are its offsets",
        "columns": "use converters: [{select: [...]}]",
        "casts": "use converters: [{cast: {...}}]",
        "where": "use converters: [{where: ...}]",
    }
)
"""Options of a dataset that topics do not have, and what to do instead."""

_OF_PRODUCE_RATE: Final = ("catch_up_sla_hours", "produce_rate_scaling")


def check_source(job: JobSpec) -> None:
    """RejectedError for an option of another size estimator."""
    source = job.source
    if not isinstance(source, KafkaSourceSpec) or source.packs_by_rate:
        return
    if idle := sorted(list_differing(source).intersection(_OF_PRODUCE_RATE)):
        raise RejectedError(
            "belongs to the size estimator produce_rate",
            field=f"source.{idle[0]}",
            hint="Take it out, or write size_estimator: produce_rate.",
        )


def check_topic(spec: DatasetSpec, where: str) -> None:
    """Raise RejectedError for the first rule that does not hold."""
    kafka, path = topic_options(spec).kafka, f"{where}.kafka"
    for rule, name in (
        (BootstrapWith.OFFSET_LOOKBACK, "offset_lookback"),
        (BootstrapWith.TIMESTAMP, "bootstrap_timestamp"),
    ):
        given = getattr(kafka, name) is not None
        if kafka.bootstrap_with is rule and not given:
            raise RejectedError(
                f"bootstrap_with {rule.value} needs it, found none", field=f"{path}.{name}", hint="Add it."
            )
        if given and kafka.bootstrap_with is not rule:
            raise RejectedError(
                f"belongs to bootstrap_with {rule.value}, found {kafka.bootstrap_with.value}",
                field=f"{path}.{name}",
                hint=f"Write bootstrap_with: {rule.value}, or take it out.",
            )
    for name in ("key", "value"):
        _check_decoder(getattr(kafka, name), f"{path}.{name}")
    if len(set(kafka.keep)) != len(kafka.keep):
        raise RejectedError("names a column twice", field=f"{path}.keep", hint="Name each once.")
    if spec.partitions.kind in (PartitionKind.STATIC, PartitionKind.DYNAMIC):
        raise RejectedError(
            "expected windows of ingestion (hourly, daily, weekly or monthly), or none; "
            f"found {spec.partitions.kind.value}",
            field=f"{where}.partitions.kind",
            hint="Directories by what is in a record are made by writer.event_time and writer.partition_by.",
        )


def _check_decoder(decoder: DecoderSpec, where: str) -> None:
    avro_or_protobuf = decoder.format in (Decoder.AVRO, Decoder.PROTOBUF)
    given = list_differing(decoder)
    allowed = {
        "schema_": decoder.format in (Decoder.JSON, Decoder.AVRO),
        "subject": decoder.format is Decoder.AVRO,
        "framing": avro_or_protobuf,
        "descriptor_file": decoder.format is Decoder.PROTOBUF,
        "message": decoder.format is Decoder.PROTOBUF,
    }
    for name, right in allowed.items():
        if name in given and not right:
            raise RejectedError(
                f"the format {decoder.format.value} has no such option",
                field=f"{where}.{name.rstrip('_')}",
                hint="Take it out, or choose another format.",
            )
    if decoder.format is Decoder.PROTOBUF:
        for name in ("descriptor_file", "message"):
            if getattr(decoder, name) is None:
                raise RejectedError("the format protobuf needs it, found none", field=f"{where}.{name}", hint="Add it.")
    if decoder.format is Decoder.AVRO and decoder.framing == "none" and decoder.schema_ is None:
        raise RejectedError(
            "without framing nothing says by which schema records were written",
            field=f"{where}.schema",
            hint="Give the writer's schema, as Avro's JSON.",
        )


KAFKA: Final = SourceKind(
    name="kafka",
    noun="topic",
    title="Kafka",
    spec=KafkaSourceSpec,
    dataset_options=TopicOptions,
    refused=REFUSED,
    connection="gobblin_assets.sources.kafka.cluster_connection:ClusterConnection",
    shown_as="kafka",
    scaffold=Scaffold(
        dataset="page_views",
        address="broker.example.com:9092",
        beside="_REGISTRY_URL, _USERNAME, _PASSWORD",
        datasets="""\
  datasets:
    # A topic, read on from where the last run ended. Write a list of those that you have.
{datasets}
""",
    ),
    check_job=check_source,
    check_dataset=check_topic,
    has_dead_letters=True,
)
