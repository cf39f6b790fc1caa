"""The tables of Iceberg into which the rows of a job's datasets go. The code that opens them is imported when it is
needed.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final

from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.iceberg.catalog_address import read_catalog_address
from gobblin_assets.destinations.iceberg.iceberg_kind import IcebergSpec, iceberg_table
from gobblin_assets.destinations.lane_marks import MarkPlace
from gobblin_assets.destinations.load_rows import table_batch
from gobblin_assets.destinations.place_of_tables import KeptTables, PlaceOfTables
from gobblin_assets.destinations.rows_place import PlaceRequest, PlannedLoad
from gobblin_assets.destinations.table_names import require_distinct_tables
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
class IcebergPlace(PlaceOfTables):
    """The tables of a job in the catalog of a connection, in the namespace ``marks``.

    The mark of a lane is a property of its dataset's table.
    """

    @property
    def can_replace(self) -> bool:
        return False

    def uri_of(self, urn: DatasetUrn) -> str:
        return f"iceberg:{self.connection}/{self.tables[urn]}"

    def make_step(self, urn: DatasetUrn, load: PlannedLoad) -> CommitStep:
        from gobblin_assets.destinations.iceberg.append_step import AppendToTable  # noqa: PLC0415  takes half a second

        marked = replace(load, mark=self.mark_of(urn, load.mark))
        return AppendToTable(self.connection, table_batch(self.tables[urn], marked), load.files)

    def mark_of(self, urn: DatasetUrn, mark: MarkPlace) -> MarkPlace:
        return replace(mark, marks=str(self.tables[urn]))

    def open_kept(self) -> AbstractContextManager[KeptTables]:
        from gobblin_assets.destinations.iceberg.iceberg_tables import (  # noqa: PLC0415  takes half a second
            open_iceberg_tables,
        )

        return open_iceberg_tables(self.connection)
