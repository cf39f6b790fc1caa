"""A lake whose rows are loaded elsewhere than into files: runs and their checks are those of any lake."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gobblin_assets.destinations.iceberg.iceberg_place import IcebergPlace
from gobblin_assets.destinations.loaded_destination import open_loaded_destination
from gobblin_assets.destinations.postgres.tables_place import TablesPlace
from gobblin_assets.destinations.rows_place import RowsPlace
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.destination import Destination, DestinationRequest
from tests.support.iceberg_sink import CATALOG, find_table, iceberg_variables
from tests.support.lake import Lake, Rows, World, make_root
from tests.support.postgres import Database
from tests.support.sqlite_rows import SqlitePlace, read_rows
from tests.support.table_sink import CONNECTION, variables_for

SQLITE: Final = "sqlite"
POSTGRES: Final = "postgres"
ICEBERG: Final = "iceberg"
PLACES: Final = (SQLITE, POSTGRES, ICEBERG)


@dataclass(frozen=True)
class LoadedLake(Lake):
    """``place``: a type of ``into``. ``database``: of the tables, or of the catalog."""

    place: str = SQLITE
    database: Database | None = None
    tables: Mapping[DatasetUrn, LoadedTable] = field(default_factory=dict)

    @property
    def sqlite_file(self) -> str:
        return f"{self.directory}/rows.sqlite"

    def open_world(self) -> "LoadedWorld":
        return LoadedWorld(self)

    def open_place(self) -> RowsPlace:
        match self.place:
            case "postgres":
                return TablesPlace(CONNECTION, self.tables, "marks")
            case "iceberg":
                return IcebergPlace(CATALOG, self.tables, "shop")
            case _:
                return SqlitePlace(SQLITE, self.tables)


def make_loaded_lake(database_url: str, folder: str, place: str, database: Database) -> LoadedLake:
    """Thirteen rows in each of two datasets. ``database``: an empty one."""
    environment = {f"GOBBLIN_SQLITE_{SQLITE.upper()}_FILE": f"{folder}/rows.sqlite"}
    if place == POSTGRES:
        environment = variables_for(database)
    elif place == ICEBERG:
        Path(folder, "warehouse").mkdir()
        environment = iceberg_variables(database, f"file://{folder}/warehouse")
    made = LoadedLake(database_url, folder, place=place, database=database, environment=environment)
    tables = {DatasetUrn(urn): LoadedTable("shop", f"rows_{number}") for number, urn in enumerate(made.urns)}
    made.tables.update(tables)  # type: ignore[attr-defined]  # the mapping is a dict
    make_root(made)
    for urn in made.urns:
        made.add_rows(urn, 13)
    return made


@dataclass
class LoadedWorld(World):
    lake: LoadedLake

    def open_destination(self) -> Destination:
        lake = self.lake
        fs, root = open_file_system(lake.root)
        request = DestinationRequest(
            JobName(lake.job().job), lake.root, fs, root, self.stores, open_file_system, SystemClock().new_id
        )
        return open_loaded_destination(request, lake.open_place())

    def published_rows(self, urn: str) -> Rows:
        return Counter(self._read(self.lake.tables[DatasetUrn(urn)]))

    def published_paths(self, urn: str) -> list[str]:
        found = super().published_paths(urn)
        assert not found, "files were published beside the rows"
        return found

    def _read(self, table: LoadedTable) -> Sequence[tuple[int, str]]:
        lake = self.lake
        match lake.place:
            case "postgres":
                assert lake.database is not None
                with lake.database.connect() as session:
                    if session.execute("SELECT to_regclass(%s)", (f"shop.{table.table}",)).fetchone() == (None,):
                        return []
                    return session.execute(f"SELECT number, value FROM {table}").fetchall()
            case "iceberg":
                found = find_table(lake.environment, table.schema, table.table)
                rows = [] if found is None else found.scan().to_arrow().to_pylist()
                return [(row["number"], row["value"]) for row in rows]
            case _:
                return read_rows(lake.sqlite_file, table.table, "number, value")
