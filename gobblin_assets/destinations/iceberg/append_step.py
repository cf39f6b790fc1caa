"""The kind of steps that append staged files to a table of Iceberg."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gobblin_assets.commit.step_kinds import JsonCodec
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import StepKind
from gobblin_assets.destinations.iceberg.iceberg_tables import IcebergTables, open_iceberg_tables
from gobblin_assets.destinations.load_rows import LoadRows, TableBatch, read_table_load, write_table_load

APPEND_TO_TABLE: Final = "append_to_table"


@dataclass(frozen=True, slots=True)
class AppendToTable(LoadRows[TableBatch]):
    """The append of the rows of staged files to a table. The place of its mark names the table."""

    @property
    def kind(self) -> str:
        return APPEND_TO_TABLE

    @property
    def place(self) -> str:
        return str(self.batch.table)

    def open_marked(self, world: StepWorld) -> IcebergTables:
        return world.get(IcebergTables, self.connection)


def _read(stored: Mapping[str, Any]) -> AppendToTable:
    return AppendToTable(*read_table_load(stored))


APPEND_TO_TABLE_KIND: Final = StepKind(
    APPEND_TO_TABLE, JsonCodec(write_table_load, _read), opens={IcebergTables: open_iceberg_tables}
)
