"""The tables of a database into which the rows of a job's datasets go, and the steps that load staged files there."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gobblin_assets.commit.step_kinds import JsonCodec
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import CommitStep, StepKind
from gobblin_assets.destinations.lane_marks import MarkPlace
from gobblin_assets.destinations.load_rows import (
    LoadRows,
    MarkedRows,
    TableBatch,
    read_table_load,
    table_batch,
    write_table_load,
)
from gobblin_assets.destinations.place_of_tables import KeptTables, PlaceOfTables
from gobblin_assets.destinations.postgres.database_address import read_address
from gobblin_assets.destinations.postgres.postgres_tables import open_tables
from gobblin_assets.destinations.postgres.tables_kind import NAME_BYTES_MAX, TablesSpec, postgres_table
from gobblin_assets.destinations.rows_place import PlaceRequest, PlannedLoad
from gobblin_assets.destinations.table_names import LoadedTable, require_distinct_tables
from gobblin_assets.model.urn import DatasetUrn

LOAD_TABLE: Final = "load_table"


class MarkedTables(MarkedRows[TableBatch], Protocol):
    """The tables of a database that keeps a mark of each lane."""

    def find_gone(self, table: LoadedTable, place: MarkPlace) -> str | None:
        """Why the table is not the one into which the dataset's rows were loaded; None: it is, or there are none."""
        ...


@dataclass(frozen=True, slots=True)
class LoadTable(LoadRows[TableBatch]):
    """Load the rows of staged files into a table."""

    @property
    def kind(self) -> str:
        return LOAD_TABLE

    @property
    def place(self) -> str:
        return str(self.batch.table)

    def open_marked(self, world: StepWorld) -> MarkedTables:
        return world.get(MarkedTables, self.connection)

    def find_gone(self, world: StepWorld) -> str | None:
        return self.open_marked(world).find_gone(self.batch.table, self.batch.mark)


def _read(stored: Mapping[str, Any]) -> LoadTable:
    return LoadTable(*read_table_load(stored))


LOAD_TABLE_KIND: Final = StepKind(LOAD_TABLE, JsonCodec(write_table_load, _read), opens={MarkedTables: open_tables})


def choose_tables(request: PlaceRequest) -> "TablesPlace":
    """The table of each dataset. RejectedError names the field and the fix."""
    into: TablesSpec = request.into
    read_address(into.connection)
    tables = {urn: postgres_table(urn, each) for urn, each in request.of_datasets.items()}
    require_distinct_tables(tables, "tables_schema", NAME_BYTES_MAX)
    return TablesPlace(into.connection, tables, into.marks_schema)


@dataclass(frozen=True, slots=True)
class TablesPlace(PlaceOfTables):
    """The tables of a job in the database of a connection. ``marks``: their schema."""

    @property
    def can_replace(self) -> bool:
        return True

    def uri_of(self, urn: DatasetUrn) -> str:
        return f"jdbc:{self.connection}/{self.tables[urn]}"

    def make_step(self, urn: DatasetUrn, load: PlannedLoad) -> CommitStep:
        return LoadTable(self.connection, table_batch(self.tables[urn], load), load.files)

    def open_kept(self) -> AbstractContextManager[KeptTables]:
        return open_tables(self.connection)
