"""The kind of steps that append staged files to a table of Iceberg, and what else there is of such tables."""

from dataclasses import dataclass
from typing import Final

from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import StepKind
from gobblin_assets.destinations.iceberg.iceberg_tables import IcebergTables, open_iceberg_tables
from gobblin_assets.destinations.tables.load_step import LoadTable, load_codec
from gobblin_assets.destinations.tables.table_kinds import TableKind

APPEND_TO_TABLE: Final = "append_to_table"


@dataclass(frozen=True, slots=True)
class AppendToTable(LoadTable):
    """Append the rows of staged files. ``connection``: the name of the catalog's."""

    @property
    def kind(self) -> str:
        return APPEND_TO_TABLE

    def _tables(self, world: StepWorld) -> IcebergTables:
        return world.get(IcebergTables, self.connection)


APPEND_TO_TABLE_KIND: Final = StepKind(
    APPEND_TO_TABLE, load_codec(AppendToTable), opens={IcebergTables: open_iceberg_tables}
)

ICEBERG: Final = TableKind("iceberg", open_iceberg_tables, AppendToTable)
