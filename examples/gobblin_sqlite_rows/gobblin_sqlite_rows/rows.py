"""Rows in tables of an SQLite file, each load in one transaction with the mark of its lane."""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from gobblin_assets.commit.step_kinds import JsonCodec
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import CommitStep, StepKind, StepVerdict
from gobblin_assets.destinations.lane_marks import RECENT_MAX, LaneMark, MarkPlace, decide_batch, require_row_count
from gobblin_assets.destinations.load_rows import LoadRows, TableBatch, read_table_load, table_batch, write_table_load
from gobblin_assets.destinations.rows_place import PlaceRequest, PlannedLoad
from gobblin_assets.destinations.table_names import LoadedTable, name_table, require_distinct_tables
from gobblin_assets.errors import ConflictError, RejectedError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.urn import DatasetUrn

MAKE_MARKS: Final = (
    "CREATE TABLE IF NOT EXISTS gobblin_lane (dataset, lane, mark, row_count, PRIMARY KEY (dataset, lane))"
)
NO_MARK: Final = LaneMark(0)


@dataclass(frozen=True)
class SqliteRows:
    """``MarkedRows`` of the file at ``path``. A process that dies in a transaction leaves none of it."""

    path: str

    def find_mark(self, place: MarkPlace) -> LaneMark | None:
        with self.begin() as sql:
            return _read_mark(sql, place)[0]

    def prepare(self, batch: TableBatch, columns: pa.Schema) -> None:
        with self.begin() as sql:
            known = _list_columns(sql, batch.table)
            if columns.names and not known:
                sql.execute(f'CREATE TABLE "{batch.table.table}" ({", ".join(map(_quote, columns.names))})')
            elif known:
                for name in columns.names:
                    if name not in known:
                        sql.execute(f'ALTER TABLE "{batch.table.table}" ADD COLUMN {_quote(name)}')

    def load(self, batch: TableBatch, rows: Iterable[pa.RecordBatch]) -> None:
        with self.begin() as sql:
            mark, counted = _read_mark(sql, batch.mark)
            if decide_batch(mark, batch) is not StepVerdict.DO:
                raise ConflictError(f"{batch.mark} refuses sequence {batch.sequence_id}")
            if batch.replaces and _list_columns(sql, batch.table):
                counted = 0
                sql.execute(f'DELETE FROM "{batch.table.table}"')
            sent = 0
            for each in rows:
                names, holes = ", ".join(map(_quote, each.schema.names)), ", ".join("?" * each.num_columns)
                values = zip(*(column.to_pylist() for column in each.columns), strict=True)
                sql.executemany(f'INSERT INTO "{batch.table.table}" ({names}) VALUES ({holes})', values)
                sent += each.num_rows
            require_row_count(batch, sent)
            reach(Failpoint.LOAD_COPIED)
            recent = (batch.sequence_id, *(mark or NO_MARK).recent)[:RECENT_MAX]
            _write_mark(sql, batch.mark, LaneMark(batch.version, recent), counted + sent)
            reach(Failpoint.LOAD_BEFORE_COMMIT)
        reach(Failpoint.LOAD_COMMITTED)

    def give_up(self, batch: TableBatch) -> bool:
        with self.begin() as sql:
            found, counted = _read_mark(sql, batch.mark)
            mark = found or NO_MARK
            if (verdict := decide_batch(found, batch)) is StepVerdict.DO:
                given_up = LaneMark(mark.version, mark.recent, (*mark.given_up, batch.sequence_id))
                _write_mark(sql, batch.mark, given_up, counted)
            reach(Failpoint.GIVE_UP_BEFORE_COMMIT)
        return verdict is not StepVerdict.DONE

    @contextmanager
    def begin(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as sql:
            sql.execute("PRAGMA synchronous = EXTRA")
            try:
                sql.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                is_locked = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
                raise RetryableError(f"{self.path}: {error}", passes=is_locked) from error
            sql.execute(MAKE_MARKS)
            yield sql
            sql.execute("COMMIT")


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _list_columns(sql: sqlite3.Connection, table: LoadedTable) -> list[str]:
    return [row[1] for row in sql.execute(f'PRAGMA table_info("{table.table}")')]


def _dataset(place: MarkPlace) -> str:
    return json.dumps([place.destination, place.job, place.dataset])


def _read_mark(sql: sqlite3.Connection, place: MarkPlace) -> tuple[LaneMark | None, int]:
    query = "SELECT mark, row_count FROM gobblin_lane WHERE dataset = ? AND lane = ?"
    row = sql.execute(query, (_dataset(place), place.lane)).fetchone()
    if row is None:
        return None, 0
    version, *lists = json.loads(row[0])
    return LaneMark(version, *map(tuple, lists)), row[1]


def _count_loaded(sql: sqlite3.Connection, place: MarkPlace) -> int:
    """Of all lanes of the dataset."""
    query = "SELECT coalesce(sum(row_count), 0) FROM gobblin_lane WHERE dataset = ?"
    return int(sql.execute(query, (_dataset(place),)).fetchone()[0])


def _write_mark(sql: sqlite3.Connection, place: MarkPlace, mark: LaneMark, row_count: int) -> None:
    stored = json.dumps([mark.version, mark.recent, mark.given_up])
    sql.execute("REPLACE INTO gobblin_lane VALUES (?, ?, ?, ?)", (_dataset(place), place.lane, stored, row_count))


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
class SqlitePlace:
    """``RowsPlace``: ``tables`` has that of each dataset."""

    connection: str
    tables: Mapping[DatasetUrn, LoadedTable]
    marks: str = "gobblin_lane"
    can_replace: bool = True

    def require(self) -> None:
        self.count_loaded({})

    def uri_of(self, urn: DatasetUrn) -> str:
        return f"sqlite:{self.connection}/{self.tables[urn].table}"

    def make_step(self, urn: DatasetUrn, load: PlannedLoad) -> CommitStep:
        return LoadSqlite(self.connection, table_batch(self.tables[urn], load), load.files)

    def find_mark(self, urn: DatasetUrn, mark: MarkPlace) -> LaneMark | None:  # noqa: ARG002  a part of the port
        with open_rows(self.connection) as rows:
            return rows.find_mark(mark)

    def find_gone(self, urn: DatasetUrn, mark: MarkPlace) -> str | None:  # noqa: ARG002  a part of the port
        with open_rows(self.connection) as rows, rows.begin() as sql:
            return None if _list_columns(sql, self.tables[urn]) else f"{self.uri_of(urn)} is gone"

    def adopt(self, urn: DatasetUrn, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        table = self.tables[urn]
        with open_rows(self.connection) as rows, rows.begin() as sql:
            if not _list_columns(sql, table):
                # A table of SQLite has a column at least. The next load adds its own.
                sql.execute(f'CREATE TABLE "{table.table}" (gobblin_adopted)')
            for place, mark in marks.items():
                known, counted = _read_mark(sql, place)
                if known is None or not known.has_loaded:
                    missing = max(0, row_count - _count_loaded(sql, place))
                    _write_mark(sql, place, mark, counted + missing)

    def count_loaded(self, marks: Mapping[DatasetUrn, MarkPlace]) -> Mapping[DatasetUrn, int]:
        with open_rows(self.connection) as rows, rows.begin() as sql:
            return {urn: _count_loaded(sql, mark) for urn, mark in marks.items()}

    def count_rows(self, urn: DatasetUrn) -> int | None:
        with open_rows(self.connection) as rows, rows.begin() as sql:
            table = self.tables[urn]
            return (
                sql.execute(f'SELECT count(*) FROM "{table.table}"').fetchone()[0] if _list_columns(sql, table) else 0
            )


def choose_tables(request: PlaceRequest) -> SqlitePlace:
    tables = {urn: LoadedTable("main", name_table(urn, None)) for urn in request.specs}
    require_distinct_tables(tables, "urn", 1_000)
    return SqlitePlace(request.into.connection, tables)
