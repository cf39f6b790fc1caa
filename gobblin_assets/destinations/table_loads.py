"""One load of a table, and how the log stores it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gobblin_assets.destinations.lane_marks import MarkPlace
from gobblin_assets.destinations.load_rows import LoadRows, read_files, read_is_marked, write_load
from gobblin_assets.destinations.rows_place import PlannedLoad
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.model.files import DataFile


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


def table_batch(table: LoadedTable, load: PlannedLoad) -> TableBatch:
    """A planned load of a table."""
    return TableBatch(table, load.mark, load.version, load.sequence_id, load.row_count, load.is_marked, load.replaces)


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
