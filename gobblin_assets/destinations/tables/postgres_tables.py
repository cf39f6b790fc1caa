"""Tables of Postgres that are loaded by COPY, each load with the mark of its lane in one transaction.

The mark is compared and set at the end of the transaction, by one statement that locks it: whoever comes second waits
there, and adds nothing. So a process that is paused while it copies holds no lock that others need, and one that is
paused between the mark and the COMMIT is ended by the server.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, LiteralString, TypeVar

import psycopg
import pyarrow as pa
from psycopg import sql

from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.lane_marks import RECENT_MAX, LaneMark, MarkPlace, decide_load, require_row_count
from gobblin_assets.destinations.tables.column_types import NAME_BYTES_MAX, column_type, holds
from gobblin_assets.destinations.tables.copy_text import write_copy_text
from gobblin_assets.destinations.tables.database_address import DatabaseAddress, Session, read_address, variable_of
from gobblin_assets.destinations.tables.marks import MARKS, LoadedTable, TableBatch
from gobblin_assets.destinations.written_ahead import write_ahead
from gobblin_assets.errors import ConflictError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach

T = TypeVar("T")

_MAKE_MARKS: Final = """
    CREATE TABLE IF NOT EXISTS {marks} (
        destination text NOT NULL, job text NOT NULL, dataset text NOT NULL, lane integer NOT NULL,
        version bigint NOT NULL DEFAULT 0, recent uuid[] NOT NULL DEFAULT '{{}}',
        given_up uuid[] NOT NULL DEFAULT '{{}}',
        loaded_rows bigint NOT NULL DEFAULT 0, table_name text NOT NULL,
        changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (destination, job, dataset, lane))
"""
_OF_LANE: Final = "destination = %(destination)s AND job = %(job)s AND dataset = %(dataset)s AND lane = %(lane)s"
_FIND_MARK: Final = f"SELECT version, recent::text[], given_up::text[] FROM {{marks}} WHERE {_OF_LANE}"
_COUNT_LOADED: Final = """
    SELECT coalesce(sum(loaded_rows), 0) FROM {marks}
     WHERE destination = %(destination)s AND job = %(job)s AND dataset = %(dataset)s
"""
_ADD_MARK: Final = """
    INSERT INTO {marks} (destination, job, dataset, lane, table_name)
    VALUES (%(destination)s, %(job)s, %(dataset)s, %(lane)s, %(table_name)s) ON CONFLICT DO NOTHING
"""
_MOVE_MARK: Final = f"""
    UPDATE {{marks}}
       SET version = %(version)s, recent = (%(sequence)s::uuid || recent)[:{RECENT_MAX}], given_up = '{{{{}}}}',
           loaded_rows = loaded_rows + %(rows)s, table_name = %(table_name)s, changed_at = clock_timestamp()
     WHERE {_OF_LANE} AND version < %(version)s AND %(sequence)s::uuid <> ALL (given_up)
"""
_GIVE_UP: Final = f"""
    UPDATE {{marks}} SET given_up = given_up || %(sequence)s::uuid, changed_at = clock_timestamp() WHERE {_OF_LANE}
"""
# Off and local lose a COMMIT that was answered; a stronger setting of the server stays.
_DURABLE: Final = """
    SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') IN ('off', 'local')
"""
_COLUMNS: Final = """
    SELECT c.relkind IN ('r', 'p') AND c.relpersistence = 'p', a.attname, format_type(a.atttypid, a.atttypmod),
           a.attnotnull AND NOT a.atthasdef AND a.attidentity = '', a.attgenerated <> ''
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
     WHERE n.nspname = %s AND c.relname = %s
"""
_SCHEMA_EXISTS: Final = "SELECT count(*) > 0 FROM pg_catalog.pg_namespace WHERE nspname = %s"
_MAKING: Final = "SELECT pg_catalog.pg_advisory_xact_lock(7203414551)"
"""One process makes tables at a time: two that make the same one at once would fail each other."""


# All who read the table queue behind a statement that waits to change it: it waits briefly, and gives way for longer.
_BRIEFLY: Final = "SELECT set_config('lock_timeout', '300ms', true)"
_GIVE_WAY_S: Final = 1.0
_CHANGE_S_MAX: Final = 20.0
"""A table that could not be changed for so long is left to the next try."""


@dataclass(frozen=True, slots=True)
class _Column:
    kind: str
    is_required: bool
    is_generated: bool


@dataclass(slots=True)
class PostgresTables:
    """``MarkedTables`` of one database. One thread at a time uses it; it connects when it is first needed."""

    address: DatabaseAddress
    _session: Session | None = field(default=None, init=False)
    _marked: set[MarkPlace] = field(default_factory=set, init=False)

    def close(self) -> None:
        if self._session is not None:
            with suppress(psycopg.Error):
                self._session.close()
            self._session = None

    def require(self, tables: Iterable[LoadedTable]) -> None:
        """Connect, and raise if the database or one of the tables can't be loaded."""
        if self._ask(lambda session: session.execute("SELECT pg_is_in_recovery()").fetchone()) != (False,):
            raise RejectedError(
                "the server is a standby, which takes no rows",
                field=variable_of(self.address.name, "URL"),
                hint="Name the primary, or both with targetServerType=primary.",
            )
        for table in tables:
            self._ask(partial(_find_columns, table=table))

    def find_mark(self, place: MarkPlace) -> LaneMark | None:
        try:
            found = self._ask(lambda session: session.execute(_on(_FIND_MARK, place), _name_lane(place)).fetchone())
        except _NoTableError:
            return None
        return None if found is None else LaneMark(found[0], tuple(found[1]), tuple(found[2]))

    def count_loaded(self, place: MarkPlace) -> int:
        """The rows that all lanes of the dataset have loaded, whichever lane ``place`` is of."""
        try:
            row = self._ask(lambda session: session.execute(_on(_COUNT_LOADED, place), _name_lane(place)).fetchone())
        except _NoTableError:
            return 0
        return int(row[0]) if row is not None else 0

    def count_rows(self, table: LoadedTable) -> int:
        """How many rows the table has, whoever wrote them. Reads all of it."""
        statement = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table.schema, table.table))
        try:
            row = self._ask(lambda session: session.execute(statement).fetchone())
        except _NoTableError:
            return 0
        return int(row[0]) if row is not None else 0

    def prepare(self, batch: TableBatch, columns: pa.Schema) -> None:
        wanted = {name: column_type(kind) for name, kind in zip(columns.names, columns.types, strict=True)}
        _require_names(batch.table, wanted)
        found = self._ask(lambda session: _find_columns(session, batch.table))
        if found is None or wanted.keys() - found.keys():
            found = self._ask(lambda session: _make_table(session, batch.table, wanted))
        _require_columns(batch.table, wanted, found)
        if batch.mark not in self._marked:
            self._ask(lambda session: _make_mark(session, batch))
            self._marked.add(batch.mark)

    def load(self, batch: TableBatch, rows: Iterable[pa.RecordBatch]) -> None:
        try:
            self._load(batch, rows)
            reach(Failpoint.LOAD_COMMITTED)
        except (OutcomeUnknownError, RetryableError, ConnectionError):
            # The answer to a COMMIT may be lost on its way.
            self.close()
            mark = self.find_mark(batch.mark)
            if decide_load(mark, batch.version, batch.sequence_id) is not StepVerdict.DONE:
                raise

    def _load(self, batch: TableBatch, rows: Iterable[pa.RecordBatch]) -> None:
        with self._judging(), self._transaction() as session:
            count = _copy(session, batch.table, rows)
            require_row_count(batch, count)
            reach(Failpoint.LOAD_COPIED)
            self._move_mark(session, batch)
            reach(Failpoint.LOAD_BEFORE_COMMIT)

    def _move_mark(self, session: Session, batch: TableBatch) -> None:
        """Compare and set. From here to the end of the transaction, the mark is locked."""
        if session.execute(_on(_MOVE_MARK, batch.mark), _name_batch(batch)).rowcount != 1:
            raise ConflictError(f"{batch.mark} refuses sequence {batch.sequence_id}")

    def give_up(self, batch: TableBatch) -> bool:
        self._ask(lambda session: _make_mark(session, batch))
        with self._judging(), self._transaction() as session:
            # A load that is at its end is waited for.
            statement = _on(f"{_FIND_MARK} FOR UPDATE", batch.mark)
            version, recent, given_up = session.execute(statement, _name_lane(batch.mark)).fetchone() or (0, (), ())
            verdict = decide_load(LaneMark(version, tuple(recent), tuple(given_up)), batch.version, batch.sequence_id)
            if verdict is StepVerdict.DO:
                session.execute(_on(_GIVE_UP, batch.mark), _name_batch(batch))
            reach(Failpoint.GIVE_UP_BEFORE_COMMIT)
        return verdict is not StepVerdict.DONE

    def _connect(self) -> Session:
        if self._session is None or self._session.closed:
            self._session = self.address.open_session()
        return self._session

    @contextmanager
    def _transaction(self) -> Iterator[Session]:
        session = self._connect()
        with session.transaction():
            session.execute(_DURABLE)
            yield session

    def _ask(self, ask: Callable[[Session], T]) -> T:
        with self._judging():
            return ask(self._connect())

    @contextmanager
    def _judging(self) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.UndefinedTable as error:
            raise _NoTableError(error.diag.message_primary or "no table") from None
        except psycopg.Error as error:
            raise self.address.judge(error) from None


class _NoTableError(RetryableError):
    """A table was removed, or is not there yet."""


@contextmanager
def open_tables(name: str) -> Iterator[PostgresTables]:
    """The tables of the database of a connection, by its name."""
    tables = PostgresTables(read_address(name))
    try:
        yield tables
    finally:
        tables.close()


def _on(statement: LiteralString, place: MarkPlace) -> sql.Composed:
    return sql.SQL(statement).format(marks=sql.Identifier(place.marks, MARKS))


def _name_lane(place: MarkPlace) -> dict[str, object]:
    return {"destination": place.destination, "job": place.job, "dataset": place.dataset, "lane": place.lane}


def _name_batch(batch: TableBatch) -> dict[str, object]:
    return {
        **_name_lane(batch.mark),
        "version": batch.version,
        "sequence": batch.sequence_id,
        "rows": batch.row_count,
        "table_name": str(batch.table),
    }


def _copy(session: Session, table: LoadedTable, rows: Iterable[pa.RecordBatch]) -> int:
    """Add the rows in the open transaction. Returns how many the server has added."""
    count = 0
    with session.cursor() as cursor:
        for names, some in groupby(write_ahead(rows, _write_lines), key=itemgetter(0)):
            statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT text)").format(
                sql.Identifier(table.schema, table.table), sql.SQL(", ").join(map(sql.Identifier, names))
            )
            with cursor.copy(statement) as copy:
                for _names, lines in some:
                    copy.write(lines)
            count += cursor.rowcount
    return count


_Lines = tuple[tuple[str, ...], bytes]
"""The names of columns, and rows as COPY takes them."""


def _write_lines(batch: pa.RecordBatch) -> _Lines:
    return tuple(batch.schema.names), write_copy_text(batch)


def _find_columns(session: Session, table: LoadedTable) -> dict[str, _Column] | None:
    """The columns of a table; None: there is no table."""
    rows = session.execute(_COLUMNS, (table.schema, table.table)).fetchall()
    if not rows:
        return None
    if not rows[0][0]:
        raise RejectedError(
            f"{table} is a view, an unlogged table or another relation that does not keep its rows itself",
            field="sink.into",
            hint="Name a schema in which it is an ordinary table, or where it does not exist yet.",
        )
    return {name: _Column(*column) for _is_table, name, *column in rows if name is not None}


def _make_table(session: Session, table: LoadedTable, wanted: Mapping[str, str]) -> dict[str, _Column]:
    """Make the table, or the columns that it lacks. Nobody who reads it is kept waiting meanwhile."""
    deadline_s = time.monotonic() + _CHANGE_S_MAX
    while True:
        try:
            return _try_to_make(session, table, wanted)
        except psycopg.errors.LockNotAvailable:
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(_GIVE_WAY_S)


def _try_to_make(session: Session, table: LoadedTable, wanted: Mapping[str, str]) -> dict[str, _Column]:
    name = sql.Identifier(table.schema, table.table)
    with session.transaction():
        session.execute(_MAKING)
        _make_schema(session, table.schema)
        found = _find_columns(session, table)
        missing = {column: kind for column, kind in wanted.items() if column not in (found or {})}
        columns = [sql.SQL("{} {}").format(sql.Identifier(each), _type(kind)) for each, kind in missing.items()]
        if found is None:
            session.execute(sql.SQL("CREATE TABLE {} ({})").format(name, sql.SQL(", ").join(columns)))
        elif columns:
            added = sql.SQL(", ").join(sql.SQL("ADD COLUMN {}").format(column) for column in columns)
            session.execute(_BRIEFLY)
            session.execute(sql.SQL("ALTER TABLE {} {}").format(name, added))
        return _find_columns(session, table) or {}


def _type(kind: str) -> sql.SQL:
    # Of the types that `column_type` knows, and not of a name that somebody wrote.
    return sql.SQL(kind)


def _make_schema(session: Session, schema: str) -> None:
    row = session.execute(_SCHEMA_EXISTS, (schema,)).fetchone()
    # IF NOT EXISTS asks for a right on the database even where the schema is there.
    if row is None or not row[0]:
        session.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))


def _make_mark(session: Session, batch: TableBatch) -> None:
    """The table of marks, and the lane's row, unless they exist."""
    place = batch.mark
    if _find_columns(session, LoadedTable(place.marks, MARKS)) is None:
        with session.transaction():
            session.execute(_MAKING)
            _make_schema(session, place.marks)
            session.execute(_on(_MAKE_MARKS, place))
    session.execute(_on(_ADD_MARK, place), _name_batch(batch))


def _require_names(table: LoadedTable, wanted: Mapping[str, str]) -> None:
    for name in wanted:
        if len(name.encode()) > NAME_BYTES_MAX or not name or "\0" in name:
            raise RejectedError(
                f"{table} can't have a column {name!a}: names have 1 to {NAME_BYTES_MAX} bytes",
                field="sink.into",
                hint="Rename the column by a converter.",
            )


def _require_columns(table: LoadedTable, wanted: Mapping[str, str], found: Mapping[str, _Column]) -> None:
    for name, kind in wanted.items():
        if found[name].is_generated or not holds(found[name].kind, kind):
            raise RejectedError(
                f"{table} has the column {name!a} as {found[name].kind}"
                f"{', generated by the database' if found[name].is_generated else ''}, and rows have {kind}",
                field="sink.into",
                hint=f"Change the column's type to {kind}, or cast the rows by a converter.",
            )
    for name, column in found.items():
        if column.is_required and name not in wanted:
            raise RejectedError(
                f"{table} has the column {name!a}, which may not be NULL, and rows don't have it",
                field="sink.into",
                hint="Give the column a default, or let it be NULL.",
            )
