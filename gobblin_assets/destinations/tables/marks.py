"""What a publication loads into a table of a database. Pure."""

from dataclasses import dataclass
from typing import Final

from gobblin_assets.destinations.lane_marks import MarkPlace

MARKS: Final = "gobblin_lane"
"""The table of marks."""


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table in the database of a connection."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class TableBatch:
    """The ``LoadBatch`` of a table. The place of its mark names a schema."""

    table: LoadedTable
    mark: MarkPlace
    version: int
    sequence_id: str
    row_count: int
    is_marked: bool = False
