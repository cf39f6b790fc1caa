"""A sink whose rows go into a table of Iceberg: its catalog is a real Postgres, its files stand on the disk."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table

from gobblin_assets.destinations.iceberg.catalog_address import catalog_variable, read_catalog_address
from gobblin_assets.destinations.iceberg.iceberg_place import IcebergPlace
from gobblin_assets.destinations.iceberg.iceberg_tables import IcebergTables
from gobblin_assets.destinations.loaded_destination import open_loaded_destination
from gobblin_assets.model.urn import Role
from gobblin_assets.run.destination import Destination, DestinationRequest
from tests.support.postgres import Database
from tests.support.random_logs import Records
from tests.support.sink_lake import URN, SinkWorld
from tests.support.table_sink import TABLE, TableSinkLake, TableSinkWorld

CATALOG = "lakehouse"
MARK = "gobblin.lane."


def iceberg_variables(database: Database, warehouse: str) -> dict[str, str]:
    """How a process reaches the catalog."""
    return {
        catalog_variable(CATALOG, "URL"): f"postgresql://{database.host}:{database.port}/{database.database}",
        catalog_variable(CATALOG, "USER"): database.user,
        catalog_variable(CATALOG, "PASSWORD"): database.password,
        catalog_variable(CATALOG, "WAREHOUSE"): warehouse,
    }


def find_table(variables: Mapping[str, str], namespace: str, name: str) -> Table | None:
    """The table as it is now."""
    tables = IcebergTables(read_catalog_address(CATALOG, variables))
    catalog = tables._open()
    try:
        return catalog.load_table((namespace, name)) if catalog.table_exists((namespace, name)) else None
    finally:
        tables.close()


def list_data_files(table: Table | None) -> tuple[set[str], set[str]]:
    """The data files that the table's snapshot names, and those that stand in its directory."""
    if table is None:
        return set(), set()
    named = {str(task.file.file_path) for task in table.scan().plan_files()}
    return named, {f"file://{path}" for path in Path(table.location().removeprefix("file://")).glob("data/*.parquet")}


@dataclass(frozen=True)
class IcebergSinkLake(TableSinkLake):
    """``database``: of the catalog. The warehouse stands beside the lake."""

    @property
    def variables(self) -> Mapping[str, str]:
        return iceberg_variables(self.database, f"file://{self.warehouse}")

    @property
    def warehouse(self) -> Path:
        return Path(self.directory, "warehouse")

    def open_world(self) -> "IcebergSinkWorld":
        self.warehouse.mkdir(exist_ok=True)
        return IcebergSinkWorld(self)


@dataclass
class IcebergSinkWorld(TableSinkWorld):
    lake: IcebergSinkLake

    def open_destination(self, request: DestinationRequest) -> Destination:
        return open_loaded_destination(request, IcebergPlace(CATALOG, {URN: TABLE}, TABLE.schema))

    def table(self) -> Table | None:
        return find_table(self.lake.variables, TABLE.schema, TABLE.table)

    def marks(self) -> list[tuple[str, str]]:
        table = self.table()
        found = {} if table is None else table.properties
        return sorted((name, value) for name, value in found.items() if name.startswith(MARK))

    def published(self) -> Records:
        records: Records = SinkWorld.published(self)
        assert not any(role == Role.DATA for role, _vnode, _n in records)
        table = self.table()
        rows = pa.table({}) if table is None else table.scan().to_arrow()
        records.update(Counter((Role.DATA.value, str(row["vnode"]), int(row["n"])) for row in rows.to_pylist()))
        return records
