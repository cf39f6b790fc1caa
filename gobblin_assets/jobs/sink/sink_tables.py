"""The tables of a sink whose rows go into tables. Checked before anything is written, and connected to nothing."""

from collections.abc import Mapping
from typing import Final

from gobblin_assets.destinations.iceberg.catalog_address import read_catalog_address
from gobblin_assets.destinations.iceberg.iceberg_place import IcebergPlace
from gobblin_assets.destinations.postgres.column_types import NAME_BYTES_MAX
from gobblin_assets.destinations.postgres.database_address import read_address
from gobblin_assets.destinations.loaded_tables import LoadedTable
from gobblin_assets.destinations.postgres.tables_place import TablesPlace
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink.table_names import split_table_name
from gobblin_assets.model.file_formats import FileFormat
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.sink_spec import IcebergSpec, TablesSpec, TopicsSpec

_ICEBERG_NAME_BYTES_MAX: Final = 255
"""A catalog in a database has no longer ones, and neither has a directory."""


def choose_tables(job: JobSpec, specs: Mapping[DatasetUrn, DatasetSpec]) -> TablesPlace | IcebergPlace | None:
    """The table of each dataset; None: rows go into no tables. RejectedError names the field and the fix."""
    into = job.sink.into
    if into is None or isinstance(into, TopicsSpec):
        return None
    require_staged_types(job)
    if isinstance(into, IcebergSpec):
        read_catalog_address(into.connection)
        named = _name_tables(specs, into, "namespace", _ICEBERG_NAME_BYTES_MAX)
        return IcebergPlace(into.connection, named, into.namespace)
    read_address(into.connection)
    named = _name_tables(specs, into, "tables_schema", NAME_BYTES_MAX)
    return TablesPlace(into.connection, named, into.marks_schema)


def _name_table(urn: DatasetUrn, into: TablesSpec | IcebergSpec) -> LoadedTable:
    """The table of a dataset."""
    return LoadedTable(*split_table_name(urn, into))


def _name_tables(
    specs: Mapping[DatasetUrn, DatasetSpec], into: TablesSpec | IcebergSpec, option: str, bytes_max: int
) -> Mapping[DatasetUrn, LoadedTable]:
    """``option``: of the job file, which says the schema."""
    chosen: dict[LoadedTable, DatasetUrn] = {}
    for urn, spec in specs.items():
        refuse_directories(urn, spec)
        table = _name_table(urn, into)
        if len(table.table) > bytes_max:
            raise RejectedError(
                f"the table of {urn} would be {table}, and names have at most {bytes_max} bytes",
                field=f"datasets[{urn}].urn",
                hint="Give the dataset a shorter urn.",
            )
        if table in chosen:
            raise RejectedError(
                f"{chosen[table]} and {urn} would both go into {table}",
                field=f"datasets[{urn}].urn",
                hint=f"Give one of them another urn, or put it into a job with another {option}.",
            )
        chosen[table] = urn
    return {urn: table for table, urn in chosen.items()}


def require_staged_types(job: JobSpec) -> None:
    """RejectedError for a format of staged files in which rows lose their types."""
    if FileFormat(job.sink.format) is not FileFormat.PARQUET:
        raise RejectedError(
            f"rows that are loaded are staged with their types, found {job.sink.format}",
            field="sink.format",
            hint="Leave it out: staged files are Parquet.",
        )


def refuse_directories(urn: DatasetUrn, spec: DatasetSpec) -> None:
    """RejectedError for an option of files that rows elsewhere do not have."""
    writer = spec.writer
    asked = {
        "partition_by": writer.partition_by,
        "time_column": writer.time_column,
        "event_time": writer.event_time,
    }
    for name, value in asked.items():
        if value:
            raise RejectedError(
                "tables and topics have no directories",
                field=f"datasets[{urn}].writer.{name}",
                hint="Leave it out, and have a column instead.",
            )
