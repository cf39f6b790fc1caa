"""The kind of steps that load staged files into a table of a database."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gobblin_assets.commit.step_kinds import JsonCodec
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import StepKind
from gobblin_assets.destinations.lane_marks import MarkPlace
from gobblin_assets.destinations.load_rows import LoadRows, MarkedRows
from gobblin_assets.destinations.postgres.postgres_tables import open_tables
from gobblin_assets.destinations.table_loads import TableBatch, read_table_load, write_table_load
from gobblin_assets.destinations.table_names import LoadedTable

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
