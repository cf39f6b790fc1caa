"""Rules of a sink for a job and its datasets, beyond what every job keeps. Checked before anything is written."""

import datetime as dt
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.files import TEXT_COMPRESSIONS, FileFormat
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import kind_of, require_connection
from gobblin_assets.spec.source_spec import LogSourceSpec

EMPTY_CUT_AGE_S: Final = 60.0
"""Seconds after which positions that moved without rows are cut, so that the log can be truncated."""

FAR_CUT_AGE_S: Final = 5.0
"""The same, of positions that moved far."""

STREAM_SPAN_MAX: Final = 8 << 20
"""Bytes of a stream's log behind which a position without rows is urgent: the log fills the disk of its server."""


@dataclass(frozen=True, slots=True)
class RollPolicy:
    """Bounds at which a lane's open files are due to be cut. None: no such bound; the first that is reached counts.
    Small epochs gather in open, invisible files. A cut costs a transaction and makes at least one file, so that a
    policy weighs the size of files against the time that rows wait for readers.

    ``rows_max`` and ``bytes_max``: of all open files of the lane together. ``age_s``: seconds between barriers, by the
    log's own times; 0: each checkpoint barrier that has rows is a cut. ``span_max``: so far positions move without rows
    before a cut of them is urgent, because the log's server keeps what lies behind them.
    """

    rows_max: int | None = None
    bytes_max: int | None = None
    age_s: float | None = None
    span_max: int | None = None

    def is_full(self, *, row_count: int, size_bytes: int) -> bool:
        """Whether so much is gathered that the next checkpoint barrier is a cut."""
        return (self.rows_max is not None and row_count >= self.rows_max) or (
            self.bytes_max is not None and size_bytes >= self.bytes_max
        )

    def is_old(self, *, opened_at: dt.datetime, at: dt.datetime, has_rows: bool) -> bool:
        """Whether what began at the barrier of ``opened_at`` has waited long enough at the barrier of ``at``.

        Without rows, only positions wait, and a cut of them is less urgent.
        """
        waited_s = (at - opened_at).total_seconds()
        if has_rows:
            return self.age_s is not None and waited_s >= self.age_s
        return waited_s >= max(EMPTY_CUT_AGE_S, self.age_s or 0.0)

    def is_far(self, *, opened_at: dt.datetime, at: dt.datetime, span: int) -> bool:
        """Whether positions have moved so far without rows, since the barrier of ``opened_at``, that a cut is due."""
        waited_s = (at - opened_at).total_seconds()
        return self.span_max is not None and span >= self.span_max and waited_s >= FAR_CUT_AGE_S


def check_roll_policy(policy: RollPolicy, *, field: str) -> None:
    """RejectedError for a policy that never closes a file, or that has a bound that is no bound.

    ``field``: the options' place in the job file.
    """
    if policy.rows_max is None and policy.bytes_max is None and policy.age_s is None:
        raise RejectedError(
            "files would never be closed: rows_max, bytes_max and age_s are all null",
            field=field,
            hint="Set at least one of them; age_s is the longest time that rows wait for readers, in seconds.",
        )
    for name, bound in (("rows_max", policy.rows_max), ("bytes_max", policy.bytes_max)):
        if bound is not None and bound < 1:
            raise RejectedError(f"expected at least 1, found {bound}", field=f"{field}.{name}", hint="Raise it.")
    if policy.age_s is not None and not 0 <= policy.age_s < float("inf"):
        raise RejectedError(
            f"expected seconds from 0 on, found {policy.age_s}",
            field=f"{field}.age_s",
            hint="0 closes files at each checkpoint barrier; null sets no bound of time.",
        )


def has_sink(job: JobSpec) -> bool:
    """Whether the job file says that the job has a sink; a change log is followed by one, whatever it says."""
    return isinstance(job.source, LogSourceSpec) and ("sink" in job.model_fields_set or is_one_stream(job))


def is_one_stream(job: JobSpec) -> bool:
    """Whether the job's datasets come together, read by one worker."""
    return isinstance(job.source, LogSourceSpec) and job.source.is_one_stream


def lag_unit_of(job: JobSpec) -> str:
    """The unit of the lag of the job's datasets."""
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
    """The compression of the sink's files; text files have gzip, as every reader knows it, if the job says none."""
    given = dataset.writer.compression
    is_text = FileFormat(job.sink.format) is not FileFormat.PARQUET
    said = "compression" in dataset.writer.model_fields_set
    return "gzip" if is_text and not said and given not in TEXT_COMPRESSIONS else given
