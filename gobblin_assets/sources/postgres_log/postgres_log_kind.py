"""The change log of a Postgres database as a kind of source: a job's options, and the rules between them."""

import hashlib
import re
from types import MappingProxyType
from typing import Final, Literal

from pydantic import Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import Scaffold, SourceKind
from gobblin_assets.spec.source_spec import LogSourceSpec
from gobblin_assets.spec.spec_model import SpecModel, list_differing

_SLOT_LENGTH_MAX: Final = 63
_DIGITS: Final = 8


class PostgresLogSourceSpec(LogSourceSpec):
    """The changes of the tables of one publication, as one replication slot gives them."""

    type: Literal["postgres_log"] = "postgres_log"
    connection: str = Field(description="Name of a connection resource to the database that has the publication.")
    include: tuple[str, ...] = Field((), description="Patterns of the publication's tables, from discovery.")
    publication: str = Field(min_length=1, description="CREATE PUBLICATION … made it: it says which tables are read.")
    slot: str | None = Field(
        None,
        pattern=r"^[a-z0-9_]{1,63}$",
        description="The replication slot, which no other program may read. Default: gobblin_ and the job's name.",
    )
    first_copy: bool = Field(
        True, description="Begin with a copy of what each table holds already. false: only what changes from now on."
    )

    copy_rows: int = Field(
        10_000_000,
        ge=1,
        description="A copy of a table with more rows is published in ranges of about so many, by its integer key.",
    )

    @property
    def is_one_stream(self) -> bool:
        return True

    def slot_of(self, job: str) -> str:
        """The slot's name. Letters that slots can't have are replaced, and then a digest tells jobs apart."""
        if self.slot is not None:
            return self.slot
        plain = re.sub(r"[^a-z0-9_]", "_", job.lower())
        name = f"gobblin_{plain}"
        if plain == job and len(name) <= _SLOT_LENGTH_MAX:
            return name
        digest = hashlib.sha256(job.encode()).hexdigest()[:_DIGITS]
        return f"{name[: _SLOT_LENGTH_MAX - _DIGITS - 1]}_{digest}"


class LoggedOptions(SpecModel):
    """Further options of a dataset of a change log."""

    message: str | None = Field(
        None,
        min_length=1,
        description="The prefix of messages that somebody writes by pg_logical_emit_message; instead of a table.",
    )


def message_of(dataset: DatasetSpec) -> str | None:
    """The prefix of the dataset's messages; None: it is a table."""
    found = (dataset.model_extra or {}).get("message")
    return found if isinstance(found, str) else None


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


POSTGRES_LOG: Final = SourceKind(
    name="postgres_log",
    noun="table",
    title="Postgres log",
    spec=PostgresLogSourceSpec,
    dataset_options=LoggedOptions,
    refused=REFUSED,
    connection="gobblin_assets.sources.postgres_log.log_database:LogDatabase",
    shown_as="postgres",
    scaffold=Scaffold(
        dataset="public.orders",
        address="jdbc:postgresql://db.example.com:5432/sales",
        beside="_USER, _PASSWORD",
        source="publication: lake",
        datasets="""\
  datasets:
    # A table of the publication, with all of its changes. Write a list of those that you have.
{datasets}
""",
    ),
    check_job=check_log_job,
    check_dataset=check_logged_dataset,
)
