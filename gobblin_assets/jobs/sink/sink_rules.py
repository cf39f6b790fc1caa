"""Rules of a sink for a job and its datasets, beyond what every job keeps. Checked before anything is written."""

from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink.roll_policy import RollPolicy, check_roll_policy
from gobblin_assets.model.files import TEXT_COMPRESSIONS, FileFormat
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import kind_of, require_connection
from gobblin_assets.spec.source_spec import LogSourceSpec

STREAM_SPAN_MAX: Final = 8 << 20
"""Bytes of a stream's log behind which a position without rows is urgent: the log fills the disk of its server."""


def has_sink(job: JobSpec) -> bool:
    """Whether the job file says that the job has a sink; a change log is followed by one, whatever it says."""
    return isinstance(job.source, LogSourceSpec) and ("sink" in job.model_fields_set or is_one_stream(job))


def is_one_stream(job: JobSpec) -> bool:
    """Whether the job's datasets come together, read by one worker."""
    return isinstance(job.source, LogSourceSpec) and job.source.is_one_stream


def lag_unit_of(job: JobSpec) -> str:
    """In what the lag of the job's datasets is measured."""
    return "bytes" if is_one_stream(job) else "records"


def check_sink_job(job: JobSpec) -> RollPolicy:
    """The job's roll policy. RejectedError names the field and the fix."""
    require_connection(kind_of(job.source))
    if not isinstance(job.source, LogSourceSpec):
        raise RejectedError(
            f"a sink follows a log, and {job.job} reads tables",
            field="source.type",
            hint="Have a schedule or a sensor run it instead.",
        )
    if job.sink.bases is not None and not is_one_stream(job):
        raise RejectedError(
            "a base is the current rows of a change log, and topics have none", field="sink.bases", hint="Take it out."
        )
    roll = job.sink.roll
    span_max = STREAM_SPAN_MAX if is_one_stream(job) else None
    policy = RollPolicy(roll.rows_max, roll.bytes_max, roll.age_s, span_max)
    check_roll_policy(policy, field="sink.roll")
    return policy


def check_sink_dataset(urn: DatasetUrn, dataset: DatasetSpec) -> None:
    """RejectedError for an option of a dataset that sinks do not have."""
    kind = dataset.partitions.kind
    if kind is not PartitionKind.NONE and not kind.is_time:
        raise RejectedError(
            f"{urn}: a sink publishes windows of time, and the dataset has {kind} partitions",
            field=f"datasets[{urn}].partitions.kind",
            hint="Write hourly, daily, weekly or monthly, or leave the partitions out.",
        )


def find_need_of_spark(dataset: DatasetSpec, decoding: str | None) -> str | None:
    """Why Spark makes the dataset's rows, as a clause; None: the worker makes them by Arrow, in its own process.

    Arrow does what it can, since it starts nothing and reads the log once. ``decoding``: why only Spark decodes the
    records, if so. Directories by event time are ``event_directories``' to judge, which knows the columns.
    """
    asked = {
        "it has converters": dataset.converters,
        "it has quality.rows": dataset.quality.rows,
        "it has writer.partition_by": dataset.writer.partition_by,
        "it has writer.time_column": dataset.writer.time_column,
    }
    return decoding or next((why for why, is_asked in asked.items() if is_asked), None)


def check_spark_dataset(job: JobSpec, urn: DatasetUrn, need: str) -> None:
    """RejectedError for an option of the sink that datasets do not have whose rows come from Spark."""
    if FileFormat(job.sink.format) is not FileFormat.PARQUET:
        raise RejectedError(
            f"{urn}: its rows are made by Spark, since {need}, and a sink's Spark writes no {job.sink.format}",
            field="sink.format",
            hint="Write parquet, or put the dataset into a job of its own.",
        )


def choose_compression(job: JobSpec, dataset: DatasetSpec) -> str:
    """Of the sink's files: text files that say nothing of it are compressed by gzip, as every reader knows it."""
    given = dataset.writer.compression
    is_text = FileFormat(job.sink.format) is not FileFormat.PARQUET
    said = "compression" in dataset.writer.model_fields_set
    return "gzip" if is_text and not said and given not in TEXT_COMPRESSIONS else given
