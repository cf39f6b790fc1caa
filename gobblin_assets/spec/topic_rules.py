"""What the fields of a dataset promise together when its source is Kafka, each rule with its own message."""

from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.kafka_spec import BootstrapWith, Decoder, DecoderSpec, KafkaSourceSpec, SizeEstimator
from gobblin_assets.spec.spec_model import SpecModel

_OF_TABLES: Final = {
    "table": "write topic",
    "extract": "a topic is a log: every run appends from where the last one ended",
    "watermark": "the positions of a topic are its offsets",
    "columns": "use converters: [{select: [...]}]",
    "casts": "use converters: [{cast: {...}}]",
    "where": "use converters: [{where: ...}]",
}
_OF_PRODUCE_RATE: Final = ("catch_up_sla_hours", "produce_rate_scaling")
_OF_TOPICS: Final = ("topic", "kafka")


def check_words(written: DatasetSpec, where: str, *, source: str) -> None:
    """Refuse what only the other kind of source has; ``written`` as the person wrote it, without defaults of a job."""
    given = _differing(written)
    if source == "kafka":
        for name in sorted(_OF_TABLES.keys() & given):
            raise RejectedError(
                "a Kafka source has no such option", field=f"{where}.{name}", hint=f"Take it out: {_OF_TABLES[name]}."
            )
        return
    foreign = [*sorted(given.intersection(_OF_TOPICS)), *["quality.lag_max"] * (written.quality.lag_max is not None)]
    if foreign:
        raise RejectedError(f"a {source} source has no such option", field=f"{where}.{foreign[0]}", hint="Take it out.")


def check_new_data(job: JobSpec) -> None:
    """RejectedError for a longest wait where nothing waits."""
    source = job.source
    if not isinstance(source, KafkaSourceSpec) or source.new_data.wait_s_max is None:
        return
    if source.new_data.records_min == 1:
        raise RejectedError(
            "ends the wait for records_min, and one new record is waited for by nobody",
            field="source.new_data.wait_s_max",
            hint="Raise records_min, or take it out.",
        )


def check_packing(job: JobSpec) -> None:
    """What the packer and the size estimator promise together. RejectedError for the first rule that does not hold."""
    packer, source = job.packer, job.source
    if packer.type != "topic_grouping" and (idle := sorted(_differing(packer) - {"type"})):
        raise RejectedError(
            f"the packer {packer.type} has no such option",
            field=f"packer.{idle[0]}",
            hint="Take it out, or write type: topic_grouping.",
        )
    by_rate = isinstance(source, KafkaSourceSpec) and source.size_estimator is SizeEstimator.PRODUCE_RATE
    if not by_rate and "capacity_strategy" in _differing(packer):
        raise RejectedError(
            "chooses among the rates of earlier tasks, which only the size estimator produce_rate compares with",
            field="packer.capacity_strategy",
            hint="Take it out, or write source.size_estimator: produce_rate.",
        )
    if not by_rate and (idle := sorted(_differing(source).intersection(_OF_PRODUCE_RATE))):
        raise RejectedError(
            "belongs to the size estimator produce_rate",
            field=f"source.{idle[0]}",
            hint="Take it out, or write size_estimator: produce_rate.",
        )
    tasks_max = max(each.split.max_multi_work_units for each in (job.defaults, *job.datasets))
    if packer.containers_min > tasks_max:
        raise RejectedError(
            f"expected at most split.max_multi_work_units, {tasks_max}; found {packer.containers_min}",
            field="packer.containers_min",
            hint="Lower it, or raise max_multi_work_units in the defaults.",
        )


def _differing(spec: SpecModel) -> set[str]:
    """The options that are not what they are by default. What was written and changes nothing does no harm."""
    fields = type(spec).model_fields
    return {name for name, value in spec if value != fields[name].get_default(call_default_factory=True)}


def check_topic(spec: DatasetSpec, where: str) -> None:
    """Raise RejectedError for the first rule that does not hold."""
    kafka, path = spec.kafka, f"{where}.kafka"
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
    given = _differing(decoder)
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
