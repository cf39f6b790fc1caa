"""What a job says of Kafka: the source, how a topic is read and decoded, and where an event's time stands."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from gobblin_assets.ingest.spec_model import Moment, SpecModel


class BootstrapWith(StrEnum):
    """Where a topic's partitions begin at the first run that sees the topic (Gobblin: bootstrap.with.offset)."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET_LOOKBACK = "offset_lookback"
    TIMESTAMP = "timestamp"
    SKIP = "skip"


class ResetOnOutOfRange(StrEnum):
    """What to do when the broker no longer has, or never had, the offset that the watermark names."""

    FAIL = "fail"
    NEAREST = "nearest"
    EARLIEST = "earliest"
    LATEST = "latest"
    SKIP = "skip"


class Decoder(StrEnum):
    BYTES = "bytes"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class DecoderSpec(SpecModel):
    """How the bytes of a key or a value become columns.

    ``json``: ``schema_`` (written ``schema``) is a Spark DDL, or is inferred at the first run that has records, and
    kept. ``avro``: Confluent's wire format against the source's registry, read by the newest schema of ``subject``;
    with ``schema`` (Avro's JSON) it is the reader's schema, and with ``framing: none`` also the writer's.
    ``protobuf``: ``descriptor_file`` (as ``protoc --descriptor_set_out`` writes it) and ``message``.
    """

    format: Decoder = Decoder.BYTES
    schema_: str | None = Field(None, alias="schema")
    subject: str | None = Field(None, description="Avro: default <topic>-value, and <topic>-key for keys.")
    framing: Literal["confluent", "none"] = Field("confluent", description="Avro and Protobuf: what stands in front.")
    descriptor_file: str | None = None
    message: str | None = Field(None, description="Protobuf: the message's full name.")


Kept = Literal["topic", "key", "headers", "partition", "offset", "timestamp", "timestamp_type"]


class KafkaReadSpec(SpecModel):
    """How one topic is read. Columns of ``keep`` are called ``kafka_key``, ``kafka_offset`` and so on."""

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
    dead_letter_fraction_max: float = Field(
        0.05, ge=0, le=1, description="More undecodable records than this share fail the task."
    )


class KafkaSourceSpec(SpecModel):
    """Topics of one Kafka cluster."""

    type: Literal["kafka"]
    connection: str = Field(description="Name of a Kafka connection resource.")
    include: tuple[str, ...] = Field((), description="Patterns of topic names, such as page_*; from discovery.")
    exclude: tuple[str, ...] = ()
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    records_per_run_max: int | None = Field(
        None, ge=1, description="Offsets of all topics in one run, shared out fairly; the rest follows in the next."
    )


class TimeUnit(StrEnum):
    """What a number that stands for a time counts since 1970."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"


class EventTimeSpec(SpecModel):
    """The output partition of a row by its event time, under an explicit rule for rows without a usable one.

    The time is read from a ``column`` (date, time, number or text), or by a ``json_path`` from a text column
    that holds JSON. Numbers, and texts that are numbers, count ``unit`` since 1970; other texts are ISO 8601, and
    those without a zone are in ``zone``. The directory is ``<name>=<pattern of the time in zone, cut down to
    granularity>``.
    """

    column: str = Field(description="Where the time, or the JSON text that holds it, stands after the converters.")
    json_path: Annotated[str, Field(pattern=r"^\$")] | None = Field(
        None, description="Spark's JSON path into the column, such as $.header.time."
    )
    unit: TimeUnit = TimeUnit.MILLISECONDS
    pattern: str = Field("yyyy-MM-dd", description="Spark date pattern of the directory's value.")
    granularity: Literal["minute", "hour", "day", "month", "year"] = "day"
    zone: str = Field("UTC", description="IANA name: where a day begins.")
    name: str = Field("event_time", description="Name of the directory column.")
    on_missing: Literal["fail", "directory", "dead_letter"] = Field(
        "fail", description="A row whose time is NULL, absent or unreadable."
    )
    missing_name: str = Field("missing", description="The directory of such rows, for on_missing: directory.")
    future_s_max: float | None = Field(
        86_400.0, ge=0, description="A time further ahead than this of the run's clock is taken for wrong."
    )
    on_future: Literal["fail", "directory", "dead_letter", "accept"] = "fail"
    future_name: str = Field("future", description="The directory of such rows, for on_future: directory.")
