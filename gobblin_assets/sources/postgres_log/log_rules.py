"""Rules between the fields of a job whose source is a Postgres log, each with its own message."""

from types import MappingProxyType
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.sources.postgres_log.postgres_log_spec import message_of
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.spec_model import list_differing

_FOLLOWED: Final = "a change log is followed: every publication appends what has changed"

REFUSED: Final = MappingProxyType(
    {
        "extract": _FOLLOWED,
        "watermark": "the positions of a change log are places in it (LSN)",
        "columns": "give the publication a list of columns: ALTER PUBLICATION … SET TABLE orders (id, total)",
        "where": "give the publication a condition: ALTER PUBLICATION … SET TABLE orders WHERE (…)",
        "primary_key": "the key is the table's own",
        "converters": "convert what read_dataset or read_current gives",
        "split": "one worker reads the slot",
    }
)
"""Options of a dataset that change logs do not have, and what to do instead."""

_OF_RUNS: Final = ("records_per_run_max", "new_data")
_OF_SPARK: Final = ("partition_by", "time_column", "time_pattern", "event_time")


def check_log_job(job: JobSpec) -> None:
    """RejectedError for what only runs and topics have."""
    for name in _OF_RUNS:
        if name in list_differing(job.source):
            raise RejectedError(
                "is for runs, and a change log is followed by a sink", field=f"source.{name}", hint="Take it out."
            )
    if "sink" in job.model_fields_set:
        given = list_differing(job.sink)
        if "barriers" in given:
            raise RejectedError(
                "the barriers of a change log are its transactions", field="sink.barriers", hint="Take it out."
            )
        if job.sink.format == "csv":
            raise RejectedError(
                "columns of a table come and go, and CSV tells them apart by their place alone",
                field="sink.format",
                hint="Write parquet or json.",
            )
        if "lanes" in given and job.sink.lanes != 1:
            raise RejectedError(
                f"one worker reads the slot, and a table has one lane; found {job.sink.lanes}",
                field="sink.lanes",
                hint="Take it out. More workers stand by, and take over from one that dies.",
            )


def check_logged_dataset(spec: DatasetSpec, where: str) -> None:
    """Raise RejectedError for the first rule that does not hold."""
    if message_of(spec) is not None and (spec.table not in (None, spec.urn) or spec.casts):
        raise RejectedError(
            "messages are of no table, and have no columns to cast",
            field=f"{where}.message",
            hint="Take table and casts out, or message.",
        )
    given = list_differing(spec.writer)
    for name in _OF_SPARK:
        if name in given:
            raise RejectedError(
                "rows of a change log are written in the order of the log, without directories",
                field=f"{where}.writer.{name}",
                hint="Take it out; write what read_current gives into directories of your own.",
            )
    if spec.quality.rows or spec.quality.tasks:
        raise RejectedError(
            "a change log is published as it is: without one of its rows the table can't be rebuilt",
            field=f"{where}.quality",
            hint="Take it out; check what read_current gives.",
        )
    if spec.partitions.kind in (PartitionKind.STATIC, PartitionKind.DYNAMIC):
        raise RejectedError(
            "expected windows of ingestion (hourly, daily, weekly or monthly), or none; "
            f"found {spec.partitions.kind.value}",
            field=f"{where}.partitions.kind",
            hint="Take it out.",
        )
