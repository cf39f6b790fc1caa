"""Tables as a place of rows: each dataset has one, and whoever keeps the tables answers all questions."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.model.urn import DatasetUrn


class KeptTables(Protocol):
    """The tables of one connection, and the marks of lanes beside them. Every answer is of what is committed."""

    def require(self, tables: Iterable[LoadedTable]) -> None:
        """Connect, and raise if one of the tables can't be loaded."""
        ...

    def find_mark(self, place: MarkPlace) -> LaneMark | None:
        """None: nothing of the lane was ever loaded or given up."""
        ...

    def find_gone(self, table: LoadedTable, place: MarkPlace) -> str | None:
        """Why the table is not the one into which the dataset's rows were loaded; None: it is, or there are none."""
        ...

    def adopt(self, table: LoadedTable, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        """Let the table, which is made unless it exists, go on behind these marks. Marks that are there stay.

        ``row_count``: of all rows that the log has; those of which no mark says anything count as loaded.
        """
        ...

    def count_loaded(self, place: MarkPlace) -> int:
        """The rows that all lanes of the dataset have loaded, whichever lane ``place`` is of."""
        ...

    def count_rows(self, table: LoadedTable) -> int:
        """How many rows the table has, whoever wrote them."""
        ...


@dataclass(frozen=True, slots=True)
class PlaceOfTables(ABC):
    """The tables of a job: most of a ``RowsPlace``.

    ``connection``: the name of that to the keeper. ``tables``: the table of each dataset. ``marks``: where they are.
    """

    connection: str
    tables: Mapping[DatasetUrn, LoadedTable]
    marks: str

    @abstractmethod
    def open_kept(self) -> AbstractContextManager[KeptTables]: ...

    def mark_of(self, urn: DatasetUrn, mark: MarkPlace) -> MarkPlace:
        """The place of a mark as the keeper knows it."""
        del urn
        return mark

    def require(self) -> None:
        with self.open_kept() as tables:
            tables.require(self.tables.values())

    def find_mark(self, urn: DatasetUrn, mark: MarkPlace) -> LaneMark | None:
        with self.open_kept() as tables:
            return tables.find_mark(self.mark_of(urn, mark))

    def find_gone(self, urn: DatasetUrn, mark: MarkPlace) -> str | None:
        with self.open_kept() as tables:
            return tables.find_gone(self.tables[urn], self.mark_of(urn, mark))

    def adopt(self, urn: DatasetUrn, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        with self.open_kept() as tables:
            kept = {self.mark_of(urn, place): mark for place, mark in marks.items()}
            tables.adopt(self.tables[urn], kept, row_count)

    def count_loaded(self, marks: Mapping[DatasetUrn, MarkPlace]) -> Mapping[DatasetUrn, int]:
        with self.open_kept() as tables:
            return {urn: tables.count_loaded(self.mark_of(urn, mark)) for urn, mark in marks.items()}

    def count_rows(self, urn: DatasetUrn) -> int | None:
        with self.open_kept() as tables:
            return tables.count_rows(self.tables[urn])
