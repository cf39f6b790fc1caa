"""The tables of Iceberg into which the rows of a job's datasets go. The code that opens them is imported when it is
needed.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.iceberg.catalog_address import read_catalog_address
from gobblin_assets.destinations.iceberg.iceberg_kind import IcebergSpec, iceberg_table
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace
from gobblin_assets.destinations.load_rows import table_batch
from gobblin_assets.destinations.rows_place import PlaceRequest, PlannedLoad
from gobblin_assets.destinations.table_names import LoadedTable, require_distinct_tables
from gobblin_assets.model.urn import DatasetUrn

_NAME_BYTES_MAX: Final = 255
"""A catalog in a database has no longer ones, and neither has a directory."""


def choose_iceberg(request: PlaceRequest) -> "IcebergPlace":
    """The table of each dataset. RejectedError names the field and the fix."""
    into: IcebergSpec = request.into
    read_catalog_address(into.connection)
    tables = {urn: iceberg_table(urn, each) for urn, each in request.of_datasets.items()}
    require_distinct_tables(tables, "namespace", _NAME_BYTES_MAX)
    return IcebergPlace(into.connection, tables, into.namespace)


@dataclass(frozen=True, slots=True)
class IcebergPlace:
    """The tables of a job.

    ``connection``: the name of the catalog's. ``tables``: the table of each dataset, in the namespace ``marks``.

    The mark of a lane is a property of its dataset's table.
    """

    connection: str
    tables: Mapping[DatasetUrn, LoadedTable]
    marks: str

    def require(self) -> None:
        with self._open() as tables:
            tables.require(self.tables.values())

    def uri_of(self, urn: DatasetUrn) -> str:
        return f"iceberg:{self.connection}/{self.tables[urn]}"

    @property
    def can_replace(self) -> bool:
        return False

    def make_step(self, urn: DatasetUrn, load: PlannedLoad) -> CommitStep:
        from gobblin_assets.destinations.iceberg.append_step import AppendToTable  # noqa: PLC0415  takes half a second

        marked = replace(load, mark=self._place(urn, load.mark))
        return AppendToTable(self.connection, table_batch(self.tables[urn], marked), load.files)

    def find_mark(self, urn: DatasetUrn, mark: MarkPlace) -> LaneMark | None:
        with self._open() as tables:
            found: LaneMark | None = tables.find_mark(self._place(urn, mark))
            return found

    def find_gone(self, urn: DatasetUrn, mark: MarkPlace) -> str | None:
        del mark
        with self._open() as tables:
            gone: str | None = tables.find_gone(self.tables[urn])
            return gone

    def adopt(self, urn: DatasetUrn, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        with self._open() as tables:
            tables.adopt(self.tables[urn], {self._place(urn, place): mark for place, mark in marks.items()}, row_count)

    def count_loaded(self, marks: Mapping[DatasetUrn, MarkPlace]) -> Mapping[DatasetUrn, int]:
        with self._open() as tables:
            return {urn: tables.count_loaded(self._place(urn, mark)) for urn, mark in marks.items()}

    def count_rows(self, urn: DatasetUrn) -> int | None:
        with self._open() as tables:
            found: int = tables.count_rows(self.tables[urn])
            return found

    def _place(self, urn: DatasetUrn, mark: MarkPlace) -> MarkPlace:
        return replace(mark, marks=str(self.tables[urn]))

    def _open(self) -> AbstractContextManager[Any]:
        from gobblin_assets.destinations.iceberg.iceberg_tables import (  # noqa: PLC0415  takes half a second
            open_iceberg_tables,
        )

        return open_iceberg_tables(self.connection)
