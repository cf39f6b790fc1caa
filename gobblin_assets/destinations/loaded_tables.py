"""Tables that rows are loaded into, by their names, and one load of them. Pure, but for the names of the steps' files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gobblin_assets.destinations.lane_marks import MarkPlace
from gobblin_assets.destinations.load_rows import LoadRows, read_files, read_is_marked, write_load
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.urn import DatasetUrn

_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table in the database or the catalog of a connection. ``schema``: of a catalog, the namespace."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class TableBatch:
    """The ``LoadBatch`` of a table. ``replaces``: the rows take the place of all rows that are there."""

    table: LoadedTable
    mark: MarkPlace
    version: int
    sequence_id: str
    row_count: int
    is_marked: bool = False
    replaces: bool = False


def name_table(urn: DatasetUrn, name: str | None) -> str:
    """The name of a dataset's table: ``name`` as the job gives it, or the URN in letters that need no quotes."""
    return _UNUSUAL.sub("_", urn) if name is None else name


def require_distinct_tables(tables: Mapping[DatasetUrn, LoadedTable], option: str, bytes_max: int) -> None:
    """RejectedError for a name that is too long, and for two datasets of one table. ``option``: says the schema."""
    chosen: dict[LoadedTable, DatasetUrn] = {}
    for urn, table in tables.items():
        if len(table.table) > bytes_max:
            raise RejectedError(
                f"the table of {urn} would be {table}, and names have at most {bytes_max} bytes",
                field=f"datasets[{urn}].urn",
                hint="Give the dataset a shorter urn, or a table by its own `into: {table: NAME}`.",
            )
        if table in chosen:
            raise RejectedError(
                f"{chosen[table]} and {urn} would both go into {table}",
                field=f"datasets[{urn}].urn",
                hint=f"Give one of them another urn, or its own `into: {{table: NAME}}` or `into: {{{option}: NAME}}`.",
            )
        chosen[table] = urn


def write_table_load(step: LoadRows[TableBatch]) -> Mapping[str, object]:
    """A load of a table as plain values."""
    table = step.batch.table
    stored = {**write_load(step), "table": [table.schema, table.table]}
    return {**stored, "replaces": True} if step.batch.replaces else stored


def read_table_load(stored: Mapping[str, Any]) -> tuple[str, TableBatch, tuple[DataFile, ...]]:
    """What ``write_table_load`` stored: the connection, the batch and the files."""
    files = read_files(stored)
    batch = TableBatch(
        LoadedTable(*stored["table"]),
        MarkPlace(*stored["mark"]),
        stored["version"],
        stored["sequence"],
        sum(each.row_count for each in files),
        read_is_marked(stored),
        bool(stored.get("replaces", False)),
    )
    return stored["connection"], batch, files
