"""Rows in tables of an SQLite file, each load in one transaction with the mark of its lane."""

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from gobblin_assets.commit.step_kinds import JsonCodec
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import CommitStep, StepKind
from gobblin_assets.destinations.load_rows import LoadRows, TableBatch, read_table_load, table_batch, write_table_load
from gobblin_assets.destinations.place_of_tables import PlaceOfTables
from gobblin_assets.destinations.rows_place import PlaceRequest, PlannedLoad
from gobblin_assets.destinations.table_names import LoadedTable, name_table, require_distinct_tables
from gobblin_assets.destinations.transacted_rows import TransactedRows
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.model.urn import DatasetUrn

MAKE_MARKS: Final = "CREATE TABLE IF NOT EXISTS gobblin_lane (name PRIMARY KEY, mark)"


@dataclass(frozen=True)
class SqliteTransaction:
    """``TableTransaction``."""

    sql: sqlite3.Connection

    def read_marks(self) -> Mapping[str, str]:
        return dict(self.sql.execute("SELECT name, mark FROM gobblin_lane").fetchall())

    def write_marks(self, marks: Mapping[str, str]) -> None:
        self.sql.executemany("REPLACE INTO gobblin_lane VALUES (?, ?)", marks.items())

    def list_columns(self, table: LoadedTable) -> Sequence[str]:
        return [row[1] for row in self.sql.execute(f"PRAGMA table_info({_quote(table.table)})")]

    def make_table(self, table: LoadedTable, names: Sequence[str]) -> None:
        # A table of SQLite has a column at least. The next load adds its own.
        columns = ", ".join(map(_quote, names or ["gobblin_adopted"]))
        self.sql.execute(f"CREATE TABLE {_quote(table.table)} ({columns})")

    def add_column(self, table: LoadedTable, name: str) -> None:
        self.sql.execute(f"ALTER TABLE {_quote(table.table)} ADD COLUMN {_quote(name)}")

    def insert_rows(self, table: LoadedTable, rows: pa.RecordBatch) -> None:
        names, holes = ", ".join(map(_quote, rows.schema.names)), ", ".join("?" * rows.num_columns)
        values = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        self.sql.executemany(f"INSERT INTO {_quote(table.table)} ({names}) VALUES ({holes})", values)

    def delete_rows(self, table: LoadedTable) -> None:
        self.sql.execute(f"DELETE FROM {_quote(table.table)}")

    def count_rows(self, table: LoadedTable) -> int:
        return int(self.sql.execute(f"SELECT count(*) FROM {_quote(table.table)}").fetchone()[0])


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class SqliteRows(TransactedRows):
    """The rows of the file at ``path``. ``wait_s``: for others who use it."""

    path: str
    wait_s: float = 30.0

    @contextmanager
    def begin(self) -> Iterator[SqliteTransaction]:
        try:
            with closing(sqlite3.connect(self.path, timeout=self.wait_s, isolation_level=None)) as sql:
                sql.execute("PRAGMA synchronous = EXTRA")
                sql.execute("BEGIN IMMEDIATE")
                sql.execute(MAKE_MARKS)
                yield SqliteTransaction(sql)
                # Whoever reads the file meanwhile is waited for here.
                sql.execute("COMMIT")
        except sqlite3.OperationalError as error:
            is_locked = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            raise RetryableError(f"{self.path}: {error}", passes=is_locked) from error


@dataclass(frozen=True)
class LoadSqlite(LoadRows[TableBatch]):
    """A step that loads the rows of staged files into a table of the file."""

    kind: str = "gobblin_sqlite_rows.load"

    @property
    def place(self) -> str:
        return str(self.batch.table)

    def open_marked(self, world: StepWorld) -> SqliteRows:
        return world.get(SqliteRows, self.connection)


@contextmanager
def open_rows(connection: str) -> Iterator[SqliteRows]:
    variable = f"GOBBLIN_SQLITE_{connection.upper()}_FILE"
    if not (path := os.environ.get(variable)):
        raise RejectedError("expected the path of an SQLite file, found none", field=variable, hint="Set it.")
    yield SqliteRows(path)


CODEC: Final = JsonCodec(write_table_load, lambda stored: LoadSqlite(*read_table_load(stored)))
LOAD_KIND: Final = StepKind("gobblin_sqlite_rows.load", CODEC, opens={SqliteRows: open_rows})


@dataclass(frozen=True)
class SqlitePlace(PlaceOfTables):
    """``RowsPlace``."""

    marks: str = "gobblin_lane"
    can_replace = True

    def open_kept(self) -> AbstractContextManager[SqliteRows]:
        return open_rows(self.connection)

    def uri_of(self, urn: DatasetUrn) -> str:
        return f"sqlite:{self.connection}/{self.tables[urn].table}"

    def make_step(self, urn: DatasetUrn, load: PlannedLoad) -> CommitStep:
        return LoadSqlite(self.connection, table_batch(self.tables[urn], load), load.files)


def choose_tables(request: PlaceRequest) -> SqlitePlace:
    tables = {urn: LoadedTable("main", name_table(urn, None)) for urn in request.specs}
    require_distinct_tables(tables, "urn", 1_000)
    return SqlitePlace(request.into.connection, tables)
