"""A place of rows in tables of a real Postgres."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gobblin_assets.destinations.postgres.database_address import read_address, variable_of
from gobblin_assets.destinations.postgres.postgres_tables import PostgresTables
from gobblin_assets.destinations.postgres.tables_place import TablesPlace
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.model.urn import DatasetUrn
from tests.support.postgres import Database
from tests.support.tried_place import TriedPlace

CONNECTION = "warehouse"
SCHEMA = "shop"
MARKS_SCHEMA = "marks"


def variables_for(database: Database) -> dict[str, str]:
    """How a process reaches the database."""
    return {
        variable_of(CONNECTION, "URL"): database.jdbc_url,
        variable_of(CONNECTION, "USER"): database.user,
        variable_of(CONNECTION, "PASSWORD"): database.password,
    }


@dataclass(frozen=True)
class PostgresRows(TriedPlace):
    """``database``: where the tables are, and their marks."""

    database: Database

    loss = "restored from an older backup"
    absences: ClassVar = {"database": "is out of reach"}

    @property
    def variables(self) -> Mapping[str, str]:
        return variables_for(self.database)

    def open(self, names: Mapping[DatasetUrn, str], key: str) -> TablesPlace:
        del key
        return TablesPlace(CONNECTION, {urn: LoadedTable(SCHEMA, name) for urn, name in names.items()}, MARKS_SCHEMA)

    def connect(self, kind: type[PostgresTables] | None = None) -> PostgresTables:
        return (kind or PostgresTables)(read_address(CONNECTION, self.variables))

    def uri_of(self, name: str) -> str:
        return f"jdbc:{CONNECTION}/{SCHEMA}.{name}"

    def read(self, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        return self._select(f"{SCHEMA}.{name}", ", ".join(columns))

    def marks(self, name: str) -> list[tuple[Any, ...]]:
        """Without the time of their change."""
        del name
        return sorted(self._select(f"{MARKS_SCHEMA}.gobblin_lane", "lane, version, recent, given_up, loaded_rows"))

    def _select(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        with self.database.connect() as session:
            if session.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
                return []
            return session.execute(f"SELECT {columns} FROM {table}").fetchall()

    def lose(self) -> None:
        with self.database.connect() as session:
            session.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
            session.execute(f"DROP SCHEMA {MARKS_SCHEMA} CASCADE")

    def go_away(self, absence: str) -> Mapping[str, str]:
        del absence
        return {variable_of(CONNECTION, "URL"): "jdbc:postgresql://127.0.0.1:1/gone"}
