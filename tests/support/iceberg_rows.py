"""A place of rows in tables of Iceberg: the catalog is a real Postgres, the files stand on the disk."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pyiceberg.table import Table

from gobblin_assets.destinations.iceberg.catalog_address import catalog_variable, read_catalog_address
from gobblin_assets.destinations.iceberg.iceberg_place import IcebergPlace
from gobblin_assets.destinations.iceberg.iceberg_tables import IcebergTables
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.model.urn import DatasetUrn
from tests.support.postgres import Database
from tests.support.tried_place import TriedPlace

CATALOG = "lakehouse"
SCHEMA = "shop"
_MARK = "gobblin.lane."


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
class IcebergRows(TriedPlace):
    """``database``: of the catalog. ``warehouse``: a directory."""

    database: Database
    warehouse: Path

    loss = f"{SCHEMA}.records is gone"
    absences: ClassVar = {"catalog": "is out of reach", "warehouse": "is not there"}

    @property
    def variables(self) -> Mapping[str, str]:
        return iceberg_variables(self.database, f"file://{self.warehouse}")

    def open(self, names: Mapping[DatasetUrn, str], key: str) -> IcebergPlace:
        del key
        return IcebergPlace(CATALOG, {urn: LoadedTable(SCHEMA, name) for urn, name in names.items()}, SCHEMA)

    def connect(self, kind: type[IcebergTables] | None = None) -> IcebergTables:
        return (kind or IcebergTables)(read_catalog_address(CATALOG, self.variables))

    def uri_of(self, name: str) -> str:
        return f"iceberg:{CATALOG}/{SCHEMA}.{name}"

    def read(self, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        table = self.find(name)
        if table is None or not table.schema().fields:
            return []
        return [tuple(row[column] for column in columns) for row in table.scan().to_arrow().to_pylist()]

    def marks(self, name: str) -> list[tuple[str, str]]:
        table = self.find(name)
        found = {} if table is None else table.properties
        return sorted((key, value) for key, value in found.items() if key.startswith(_MARK))

    def find(self, name: str) -> Table | None:
        return find_table(self.variables, SCHEMA, name)

    def lose(self) -> None:
        with self.database.connect() as session:
            session.execute("DELETE FROM iceberg_tables")

    def go_away(self, absence: str) -> Mapping[str, str]:
        if absence == "catalog":
            return {catalog_variable(CATALOG, "URL"): "postgresql://127.0.0.1:1/gone"}
        if not self._kept.exists():
            shutil.move(self.warehouse, self._kept)
        return {}

    def come_back(self) -> None:
        if self._kept.exists():
            shutil.move(self._kept, self.warehouse)

    @property
    def _kept(self) -> Path:
        return self.warehouse.with_name("kept")

    def list_strays(self, name: str) -> set[str]:
        named, on_disk = list_data_files(self.find(name))
        return on_disk - named
