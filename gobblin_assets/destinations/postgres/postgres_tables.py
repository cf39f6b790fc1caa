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
from operator import attrgetter
from typing import Final, LiteralString, TypeVar

import psycopg
import pyarrow as pa
from psycopg import sql

from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.lane_marks import (
    RECENT_MAX,
    LaneMark,
    MarkPlace,
    PlaceGoneError,
    decide_batch,
    require_row_count,
)
from gobblin_assets.destinations.load_rows import TableBatch
from gobblin_assets.destinations.postgres.copy_text import NAME_BYTES_MAX, column_type, holds, write_copy_text
from gobblin_assets.destinations.postgres.database_address import DatabaseAddress, Session, read_address, variable_of
from gobblin_assets.destinations.row_forms import prefetch_written
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.errors import ConflictError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach

T = TypeVar("T")

MARKS: Final = "gobblin_lane"
"""The table of marks."""

_MAKE_MARKS: Final = """
    CREATE TABLE IF NOT EXISTS {marks} (
        destination text NOT NULL, job text NOT NULL, dataset text NOT NULL, lane integer NOT NULL,
        version bigint NOT NULL DEFAULT 0, recent uuid[] NOT NULL DEFAULT '{{}}',
        given_up uuid[] NOT NULL DEFAULT '{{}}',
        loaded_rows bigint NOT NULL DEFAULT 0, table_name text NOT NULL,
        changed_at timestamptz NOT NULL DEFAULT clock_timestamp(), table_oid oid,
        PRIMARY KEY (destination, job, dataset, lane))
"""
# Tables of marks that an earlier release made.
_ADD_TABLE_OID: Final = "ALTER TABLE {marks} ADD COLUMN IF NOT EXISTS table_oid oid"
_OF_LANE: Final = "destination = %(destination)s AND job = %(job)s AND dataset = %(dataset)s AND lane = %(lane)s"
_FIND_MARK: Final = f"SELECT version, recent::text[], given_up::text[] FROM {{marks}} WHERE {_OF_LANE}"
_COUNT_LOADED: Final = """
    SELECT coalesce(sum(loaded_rows), 0) FROM {marks}
     WHERE destination = %(destination)s AND job = %(job)s AND dataset = %(dataset)s
"""
_COUNT_PUBLICATIONS: Final = """
    SELECT coalesce(sum(version), 0) FROM {marks}
     WHERE destination = %(destination)s AND job = %(job)s AND dataset = %(dataset)s
"""
# The oid survives whatever keeps the table's rows (a rename, VACUUM FULL, TRUNCATE), and no table gets it again.
_FIND_GONE: Final = """
    SELECT sum(loaded_rows), to_regclass(%(table)s) IS NOT NULL,
           count(*) FILTER (WHERE table_oid <> to_regclass(%(table)s)::oid)
      FROM {marks}
     WHERE destination = %(destination)s AND job = %(job)s AND dataset = %(dataset)s
       AND loaded_rows > 0 AND table_name = %(table_name)s
"""
_ADD_MARK: Final = """
    INSERT INTO {marks} (destination, job, dataset, lane, table_name)
    VALUES (%(destination)s, %(job)s, %(dataset)s, %(lane)s, %(table_name)s) ON CONFLICT DO NOTHING
"""
_MOVE_MARK: Final = f"""
    UPDATE {{marks}}
       SET version = %(version)s, recent = (%(sequence)s::uuid || recent)[:{RECENT_MAX}], given_up = '{{{{}}}}',
           loaded_rows = CASE WHEN %(replaces)s THEN 0 ELSE loaded_rows END + %(rows)s, table_name = %(table_name)s,
           table_oid = to_regclass(%(table)s)::oid, changed_at = clock_timestamp()
     WHERE {_OF_LANE} AND version < %(version)s AND %(sequence)s::uuid <> ALL (given_up)
"""
_GIVE_UP: Final = f"""
    UPDATE {{marks}} SET given_up = given_up || %(sequence)s::uuid, changed_at = clock_timestamp() WHERE {_OF_LANE}
"""
_ADOPT_LANE: Final = f"""
    UPDATE {{marks}}
       SET version = %(version)s, recent = %(recent)s::uuid[], loaded_rows = loaded_rows + %(rows)s,
           changed_at = clock_timestamp()
     WHERE {_OF_LANE} AND version = 0
"""
_ADOPT_TABLE: Final = """
    UPDATE {marks} SET table_oid = to_regclass(%(table)s)::oid, table_name = %(table_name)s
     WHERE destination = %(destination)s AND job = %(job)s AND dataset = %(dataset)s
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

    def find_gone(self, table: LoadedTable, place: MarkPlace) -> str | None:
        try:
            return self._ask(lambda session: _find_gone(session, table, place))
        except (_NoTableError, _OlderMarksError):
            # No marks: nothing was ever loaded, or whoever loaded it knows that they were there.
            return None

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
        if found is None and (gone := self.find_gone(batch.table, batch.mark)) is not None:
            raise PlaceGoneError(gone, batch.mark.dataset)
        if found is None or wanted.keys() - found.keys():
            found = self._ask(lambda session: _make_table(session, batch.table, wanted))
        _require_columns(batch.table, wanted, found)
        if batch.mark not in self._marked:
            self._ask(lambda session: _make_mark(session, batch.mark, batch.table))
            self._marked.add(batch.mark)

    def load(self, batch: TableBatch, rows: Iterable[pa.RecordBatch]) -> None:
        try:
            self._load(batch, rows)
            reach(Failpoint.LOAD_COMMITTED)
        except (OutcomeUnknownError, RetryableError, ConnectionError):
            # The answer to a COMMIT may be lost on its way.
            self.close()
            mark = self.find_mark(batch.mark)
            if decide_batch(mark, batch) is not StepVerdict.DONE:
                raise

    def _load(self, batch: TableBatch, rows: Iterable[pa.RecordBatch]) -> None:
        with self._judging(), self._transaction() as session:
            if batch.replaces:
                _remove_rows(session, batch)
            sent, added = _copy(session, batch.table, rows)
            require_row_count(batch, sent)
            _require_added(batch, added)
            reach(Failpoint.LOAD_COPIED)
            # The table that was copied into is locked, and so keeps its name to the end of the transaction.
            if (gone := _find_gone(session, batch.table, batch.mark)) is not None:
                raise PlaceGoneError(gone, batch.mark.dataset)
            self._move_mark(session, batch)
            reach(Failpoint.LOAD_BEFORE_COMMIT)

    def _move_mark(self, session: Session, batch: TableBatch) -> None:
        """Compare and set. From here to the end of the transaction, the mark is locked."""
        if session.execute(_on(_MOVE_MARK, batch.mark), _name_batch(batch)).rowcount != 1:
            raise ConflictError(f"{batch.mark} refuses sequence {batch.sequence_id}")

    def give_up(self, batch: TableBatch) -> bool:
        self._ask(lambda session: _make_mark(session, batch.mark, batch.table))
        with self._judging(), self._transaction() as session:
            # A load that is at its end is waited for.
            statement = _on(f"{_FIND_MARK} FOR UPDATE", batch.mark)
            version, recent, given_up = session.execute(statement, _name_lane(batch.mark)).fetchone() or (0, (), ())
            verdict = decide_batch(LaneMark(version, tuple(recent), tuple(given_up)), batch)
            if verdict is StepVerdict.DO:
                session.execute(_on(_GIVE_UP, batch.mark), _name_batch(batch))
            reach(Failpoint.GIVE_UP_BEFORE_COMMIT)
        return verdict is not StepVerdict.DONE

    def adopt(self, table: LoadedTable, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        """Let the table, which is made unless it exists, go on behind these marks. Marks that are there stay.

        ``row_count``: of all rows that the log has; those of which no mark says anything count as loaded.
        """
        if self._ask(lambda session: _find_columns(session, table)) is None:
            self._ask(lambda session: _make_table(session, table, {}))
        for place in marks:
            self._ask(partial(_make_mark, place=place, table=table))
        with self._judging(), self._transaction() as session:
            for place, mark in marks.items():
                row = session.execute(_on(_COUNT_LOADED, place), _name_lane(place)).fetchone()
                missing = max(0, row_count - int(row[0])) if row is not None else 0
                named = {"version": mark.version, "recent": list(mark.recent), "rows": missing, **_name_lane(place)}
                session.execute(_on(_ADOPT_LANE, place), named)
            place = next(iter(marks))
            session.execute(_on(_ADOPT_TABLE, place), {**_name_lane(place), **_name_table(table)})

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
        except psycopg.errors.UndefinedColumn as error:
            if "table_oid" in (error.diag.message_primary or ""):
                raise _OlderMarksError("the table of marks is of an earlier release") from None
            raise self.address.judge(error) from None
        except psycopg.Error as error:
            raise self.address.judge(error) from None


class _NoTableError(RetryableError):
    """A table was removed, or is not there yet."""


class _OlderMarksError(RetryableError):
    """The table of marks does not say into which tables rows were loaded. The next load makes it say so."""


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
        "replaces": batch.replaces,
        **_name_table(batch.table),
    }


def _name_table(table: LoadedTable) -> dict[str, object]:
    """The name as marks have it, and as the server reads names."""
    return {"table_name": str(table), "table": sql.Identifier(table.schema, table.table).as_string()}


def _find_gone(session: Session, table: LoadedTable, place: MarkPlace) -> str | None:
    """Why the table is not the one into which the dataset's rows were loaded; None: it is, or there are none."""
    row = session.execute(_on(_FIND_GONE, place), {**_name_lane(place), **_name_table(table)}).fetchone()
    loaded, is_there, others = row if row is not None else (None, True, 0)
    if not loaded or (is_there and not others):
        return None
    what = "is another table than the one" if is_there else "is gone, the table"
    return f"{table} {what} into which {loaded:,} rows of {place.dataset} were loaded"


def _remove_rows(session: Session, batch: TableBatch) -> None:
    """Remove all rows in the open transaction; whoever reads the table sees them to its end.

    RejectedError if the table has rows and the dataset never loaded any: they are somebody else's.
    """
    name = sql.Identifier(batch.table.schema, batch.table.table)
    row = session.execute(_on(_COUNT_PUBLICATIONS, batch.mark), _name_lane(batch.mark)).fetchone()
    if row is None or not row[0]:
        if session.execute(sql.SQL("SELECT FROM {} LIMIT 1").format(name)).fetchone() is not None:
            raise RejectedError(
                f"{batch.table} has rows that this dataset never loaded, and a snapshot would take their place",
                field="into",
                hint="Nothing was removed or loaded. Empty the table, name another one by the dataset's own "
                "`into: {table: NAME}`, or append: extract: append_only with a watermark. Then resume the publication.",
            )
        return
    session.execute(sql.SQL("DELETE FROM {}").format(name))


def _copy(session: Session, table: LoadedTable, rows: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    """Add the rows in the open transaction. Returns how many were sent, and how many the server has added."""
    sent = added = 0
    with session.cursor() as cursor:
        for names, some in groupby(prefetch_written(rows, _write_lines), key=attrgetter("names")):
            statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT text)").format(
                sql.Identifier(table.schema, table.table), sql.SQL(", ").join(map(sql.Identifier, names))
            )
            with cursor.copy(statement) as copy:
                for lines in some:
                    copy.write(lines.text)
                    sent += lines.row_count
            added += cursor.rowcount
    return sent, added


@dataclass(frozen=True, slots=True)
class _Lines:
    """Rows as COPY takes them. ``names``: of their columns."""

    names: tuple[str, ...]
    text: bytes
    row_count: int


def _write_lines(batch: pa.RecordBatch) -> _Lines:
    return _Lines(tuple(batch.schema.names), write_copy_text(batch), batch.num_rows)


def _require_added(batch: TableBatch, added: int) -> None:
    """RejectedError if the table took fewer rows than it was sent."""
    if added != batch.row_count:
        raise RejectedError(
            f"{batch.table} took {added:,} of {batch.row_count:,} rows: a trigger or a rule of it leaves rows out",
            field="into",
            hint="Nothing was loaded. Drop or change the trigger, then resume the publication; or have a converter "
            "leave such rows out, and abandon it.",
        )


def _find_columns(session: Session, table: LoadedTable) -> dict[str, _Column] | None:
    """The columns of a table; None: there is no table."""
    rows = session.execute(_COLUMNS, (table.schema, table.table)).fetchall()
    if not rows:
        return None
    if not rows[0][0]:
        raise RejectedError(
            f"{table} is a view, an unlogged table or another relation that does not keep its rows itself",
            field="into",
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


def _make_mark(session: Session, place: MarkPlace, table: LoadedTable) -> None:
    """The table of marks, and the lane's row, unless they exist."""
    found = _find_columns(session, LoadedTable(place.marks, MARKS))
    if found is None or "table_oid" not in found:
        with session.transaction():
            session.execute(_MAKING)
            _make_schema(session, place.marks)
            session.execute(_on(_MAKE_MARKS, place))
            session.execute(_on(_ADD_TABLE_OID, place))
    session.execute(_on(_ADD_MARK, place), {**_name_lane(place), **_name_table(table)})


def _require_names(table: LoadedTable, wanted: Mapping[str, str]) -> None:
    for name in wanted:
        if len(name.encode()) > NAME_BYTES_MAX or not name or "\0" in name:
            raise RejectedError(
                f"{table} can't have a column {name!a}: names have 1 to {NAME_BYTES_MAX} bytes",
                field="into",
                hint="Rename the column by a converter.",
            )


def _require_columns(table: LoadedTable, wanted: Mapping[str, str], found: Mapping[str, _Column]) -> None:
    for name, kind in wanted.items():
        if found[name].is_generated or not holds(found[name].kind, kind):
            raise RejectedError(
                f"{table} has the column {name!a} as {found[name].kind}"
                f"{', generated by the database' if found[name].is_generated else ''}, and rows have {kind}",
                field="into",
                hint=f"Change the column's type to {kind}, or cast the rows by a converter.",
            )
    for name, column in found.items():
        if column.is_required and name not in wanted:
            raise RejectedError(
                f"{table} has the column {name!a}, which may not be NULL, and rows don't have it",
                field="into",
                hint="Give the column a default, or let it be NULL.",
            )
