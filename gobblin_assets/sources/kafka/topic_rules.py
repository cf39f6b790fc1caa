"""Rules between the fields of a job and its datasets when the source is Kafka, each with its own message."""

from types import MappingProxyType
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.sources.kafka.kafka_spec import (
    BootstrapWith,
    Decoder,
    DecoderSpec,
    KafkaSourceSpec,
    topic_options,
)
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.spec_model import list_differing

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
