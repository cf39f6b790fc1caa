"""A copy of a table that fits its change log. It is made from one snapshot, which lists the transactions in it.

First the place is taken from which the log will be followed. Then the copy waits until all running transactions have
ended. Now every later snapshot sees each transaction that committed before the place, even if its commit was
acknowledged late. (A commit that waits for a standby is in the log, and not yet seen.) Then the snapshot is taken, with
the list of transactions that it saw. Of the log after the place, exactly the transactions on the list are left out.

A big table is copied in ranges of its key, each by a ``TableCopy`` of its own. They share the place of the first one: a
transaction that a later snapshot does not see has committed after this place as well. Between two ranges, the table is
not locked. If it was emptied, written anew, or defined otherwise meanwhile, the copy begins anew.
"""

import datetime as dt
import hashlib
import json
import math
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import adbc_driver_manager as adbc
import psycopg
import pyarrow as pa

from gobblin_assets.errors import CorruptionError, GobblinError, RejectedError, RetryableError
from gobblin_assets.rows.arrow_types import arrow_schema
from gobblin_assets.rows.arrow_writer import prefetching
from gobblin_assets.sources.jdbc.catalog import Selected
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.dialect import write_table
from gobblin_assets.sources.jdbc.dialects.postgres import PostgresDialect
from gobblin_assets.sources.jdbc.failures import find_refused_value, judge_words
from gobblin_assets.sources.jdbc.postgres import postgres_families
from gobblin_assets.sources.jdbc.postgres_arrow import ReaderConnections, convert_batch
from gobblin_assets.sources.jdbc.postgres_sessions import SETTINGS, open_source_session, write_set_config
from gobblin_assets.sources.jdbc.postgres_tables import KeyColumn, find_problem, find_tables, suggest_cast, write_read
from gobblin_assets.sources.postgres_log.copy_ranges import KeyRange, PartialCopy, SeenRanges, read_snapshot, split_keys
from gobblin_assets.sources.postgres_log.log_starts import TableStart
from gobblin_assets.sources.postgres_log.logged_table import (
    LoggedColumn,
    LoggedReading,
    LoggedTable,
    list_readings,
    table_to_json,
)
from gobblin_assets.sources.postgres_log.pgoutput import parse_lsn
from gobblin_assets.sources.postgres_log.server_state import (
    LogSession,
    PublishedTable,
    find_publication,
    open_log_session,
)
from gobblin_assets.sources.postgres_log.table_terms import TableTerms, TermsLook, find_break

_NUMBERS: Final = frozenset({"int2", "int4", "int8"})
# As the snapshot has it, and now. Of a table with partitions, there is none. And whether the name is still its own.
_STORAGE: Final = """
    SELECT c.relfilenode::bigint, coalesce(pg_relation_filenode(c.oid), 0)::bigint,
           coalesce(to_regclass(%s) = c.oid, false)
      FROM pg_class c WHERE c.oid = %s"""

_STEPS: Final = """
    SELECT histogram_bounds::text::bigint[] FROM pg_stats
     WHERE schemaname = %s AND tablename = %s AND attname = %s AND NOT inherited"""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The ranges in which a table is copied.

    ``shape`` as a ``PartialCopy`` has it, ``column`` and ``bounds`` as ``SeenRanges``.
    """

    shape: str
    column: str | None = None
    bounds: tuple[int, ...] = ()


def plan_ranges(
    session: LogSession, published: PublishedTable, table: LoggedTable, *, range_rows: int | None
) -> TablePlan:
    """``table``: as the session's snapshot has it. ``range_rows`` None: only its shape is wanted.

    RetryableError if the table was written anew since the snapshot, which sees nothing of it then, or another one has
    its name.
    """
    dialect = PostgresDialect()
    name, rows = write_table(dialect, published.name), write_rows_of(published)
    # From here on until the end of the transaction, nobody empties the table, writes it anew, or takes its name.
    session.execute(f"SELECT FROM {rows} LIMIT 0".encode())
    ((seen, now, is_named),) = session.execute(_STORAGE.encode(), [name, published.oid]).fetchall()
    if seen != now or not is_named:
        raise RetryableError(f"{table.label} was emptied, written anew or replaced as its copy began")
    shape = json.dumps([seen, table_to_json(table), published.row_filter, published.key])
    digest = hashlib.sha256(shape.encode()).hexdigest()
    key = next((each for each in table.columns if published.key and each.name == published.key[0]), None)
    if range_rows is None or not seen or key is None or key.type.name not in _NUMBERS:
        return TablePlan(digest)
    condition = "true" if published.row_filter is None else f"({published.row_filter})"
    ((explained,),) = session.execute(f"EXPLAIN (FORMAT JSON) SELECT FROM {rows} WHERE {condition}".encode()).fetchall()
    parts = math.ceil(explained[0]["Plan"]["Plan Rows"] / range_rows)
    if parts == 1:
        return TablePlan(digest)
    steps = _list_steps(session, published, key.name)
    bounds = split_keys(steps, parts) if steps else ()
    return TablePlan(digest, key.name if bounds else None, bounds)


def write_rows_of(table: PublishedTable) -> str:
    """What a query reads the rows FROM that the table's log has: those of its children have logs of their own."""
    name = write_table(PostgresDialect(), table.name)
    return name if table.look.is_partitioned else f"ONLY {name}"


def _list_steps(session: LogSession, table: PublishedTable, column: str) -> Sequence[int]:
    """As ``split_keys`` takes them: by the server's statistics, or else from the least key to the greatest."""
    found = session.execute(_STEPS.encode(), [table.name.schema, table.name.table, column]).fetchall()
    if found and found[0][0]:
        return tuple(found[0][0])
    quoted, rows = PostgresDialect().quote(column), write_rows_of(table)
    ((low, high),) = session.execute(f"SELECT min({quoted}), max({quoted}) FROM {rows}".encode()).fetchall()
    return () if low is None else (low, high)


_WAIT_S: Final = 0.2
_AHEAD: Final = 4
"""Batches that are read while rows are encoded, which takes many of them at once."""

_PLACE: Final = "SELECT pg_current_wal_insert_lsn()::text"
# It takes a number, and does not only look: a snapshot's xmax is the number behind the newest that has ended, and those
# that are running may have it, or a higher one.
_NEXT_XID: Final = "SELECT pg_current_xact_id()::text::bigint"
_XMIN: Final = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_SNAPSHOT: Final = """
    SELECT pg_export_snapshot(), pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text, clock_timestamp()"""
# A copy reads for hours, and waits for no lock: the other tables of the log wait meanwhile. And whoever waits for our
# own lock would stand between it and our readers.
_TIMEOUTS: Final = """
    SELECT set_config(name, CASE name WHEN 'lock_timeout' THEN '2s' ELSE '0' END, false) FROM pg_settings
     WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
"""
_MAY_NOT_READ: Final = """
    SELECT column_name FROM unnest(%s::text[]) column_name WHERE NOT has_column_privilege(%s, column_name, 'SELECT')"""
_FLUSHED: Final = "SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn"


@dataclass(frozen=True, slots=True)
class CopiedFrom:
    """The origin of copied rows.

    ``partial``: what there is with these rows. ``table``: as the copy has it, ``schema`` its rows.

    ``is_first``: the rows of no range before them belong to the copy.
    """

    partial: PartialCopy
    at: dt.datetime
    table: LoggedTable
    schema: pa.Schema
    is_first: bool


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A read under a snapshot by its exported name, until the server's log ends there."""

    name: str
    until: str
    source: CopiedFrom
    query: "_CopyQuery"
    range: KeyRange | None


class TableCopy:
    """One copy, or its next range. ``step`` until it gives no more; then ``source`` says what it was.

    Errors are families. ``partial``: what was published of it; None: nothing.
    """

    def __init__(self, connection: JdbcConnection, start: TableStart, partial: PartialCopy | None = None) -> None:
        self._connection = connection
        self._start = start
        self._partial = partial
        self._steps = self._run()
        self._source: CopiedFrom | None = None

    @property
    def source(self) -> CopiedFrom:
        """Known once the first batch was given, or the copy has ended."""
        if self._source is None:
            raise AssertionError("the copy has not begun")
        return self._source

    def step(self) -> "pa.RecordBatch | str | None":
        """The next rows; or a sentence on what is waited for, after a moment. None: all rows were given."""
        return next(self._steps, None)

    def close(self) -> None:
        """End it, also in the middle."""
        self._steps.close()

    def _run(self) -> "Generator[pa.RecordBatch | str]":
        with ExitStack() as stack:
            with postgres_families(self._connection):
                session = stack.enter_context(open_source_session(self._connection))
                session.execute(_TIMEOUTS)
            taken = None if self._partial is None else self._take(session, self._partial)
            if taken is None:
                if self._partial is not None:
                    self._end_transaction(session)
                place = yield from self._find_place(session)
                taken = self._take(session, None, place)
            if taken is None:
                raise AssertionError("a copy that begins fits itself")
            self._source = taken.source
            yield from self._read(taken.name, taken.query, taken.source.schema, taken.range)
            self._end_transaction(session)
            # What the copy saw and the server has not kept could be lost with it, and would never be in the log.
            while not self._ask(session, _FLUSHED, [taken.until]):
                yield "waits for the server to keep what was copied"
                # A server without transactions leaves the end of its log as it is; one of ours wakes its writer up.
                self._ask(session, _NEXT_XID)
                time.sleep(_WAIT_S)

    def _find_place(self, session: "psycopg.Connection[Any]") -> "Generator[str, None, int]":
        """What has committed before the place is seen by each snapshot that is taken from now on."""
        with postgres_families(self._connection):
            # In this order: whatever has committed before the place has a lower number.
            (place,) = _one(session, _PLACE)
            (before,) = _one(session, _NEXT_XID)
        while (xmin := self._ask(session, _XMIN)) < before:
            yield f"waits for transactions that were running, the oldest is {xmin}"
            time.sleep(_WAIT_S)
        found = parse_lsn(place)
        if self._partial is not None and found <= self._partial.place:
            raise CorruptionError(f"the log ends at {place}, before the place of a copy that was begun")
        return found

    def _take(
        self, session: "psycopg.Connection[Any]", partial: PartialCopy | None, place: int = 0
    ) -> _Snapshot | None:
        """A snapshot, and what is to be read under it; None: it does not go on with what there is."""
        with postgres_families(self._connection):
            session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            session.read_only = True
            session.autocommit = False
            name, seen, until, at = _one(session, _SNAPSHOT)
            published = self._find_published(session, partial)
            table, query = self._lay_out(session, published)
            plan = self._plan(session, published, table, partial)
        terms = published.look.terms
        if partial is None:
            partial = PartialCopy(place, plan.shape, SeenRanges(plan.column, plan.bounds, ()), terms)
        elif partial.shape != plan.shape or _is_broken(partial.terms, published.look):
            return None
        ranges = partial.ranges
        source = CopiedFrom(
            replace(partial, ranges=ranges.add(read_snapshot(seen, parse_lsn(until)))),
            at.astimezone(dt.UTC),
            table,
            arrow_schema([(each.name, each.held_as) for each in query.selected]),
            is_first=not ranges.seen,
        )
        return _Snapshot(name, until, source, query, ranges.next_range)

    def _end_transaction(self, session: "psycopg.Connection[Any]") -> None:
        with postgres_families(self._connection):
            session.rollback()
            session.autocommit = True

    def _ask(self, session: "psycopg.Connection[Any]", sql: str, arguments: Sequence[Any] | None = None) -> Any:
        with postgres_families(self._connection):
            (found,) = _one(session, sql, arguments)
        return found

    def _find_published(self, session: "psycopg.Connection[Any]", partial: PartialCopy | None) -> PublishedTable:
        """The table as the publication has it now: it may be another one than when the start was looked for.

        Behind the place of a copy, whoever writes must find it published as it was before.
        """
        start = self._start
        if start.table is None:
            raise AssertionError(f"{start.urn}: messages are not copied")
        found = find_publication(session, start.place.publication)
        table = None if found is None else found.tables.get(start.table.name)
        if table is None or (table.key or None) != start.decided.key:
            raise RetryableError(f"{start.urn}: its table has another key than a moment ago, or is not published")
        if partial is None and _is_broken(start.table.look.terms, table.look):
            raise RetryableError(f"{start.urn}: its table or its publication was altered as its copy began")
        return table

    def _lay_out(
        self, session: "psycopg.Connection[Any]", published: PublishedTable
    ) -> "tuple[LoggedTable, _CopyQuery]":
        table, readings = lay_out_table(session, published, self._start.casts, urn=self._start.urn)
        columns, dialect = table.columns, PostgresDialect()
        selected = []
        for number, (column, reading) in enumerate(zip(columns, readings, strict=True)):
            quoted = dialect.quote(column.name)
            read = f"({quoted}::{reading.held.text})" if reading.is_cast else quoted
            key = KeyColumn(quoted, column.type.text) if reading.in_key else None
            expression = write_read(reading.held, read, number, key=key)
            selected.append(
                Selected(
                    column.name,
                    expression,
                    reading.held.text,
                    find_problem(reading.held),
                    suggest_cast(column.type, quoted, in_key=column.in_key),
                    held_as=reading.spark_type,
                )
            )
        return table, _CopyQuery(tuple(selected), _write_query(dialect, published, selected))

    def _plan(
        self,
        session: "psycopg.Connection[Any]",
        published: PublishedTable,
        table: LoggedTable,
        partial: PartialCopy | None,
    ) -> TablePlan:
        rows = self._start.range_rows if partial is None else None
        return plan_ranges(session, published, table, range_rows=rows)

    def _read(
        self, snapshot: str, query: "_CopyQuery", schema: pa.Schema, keys: KeyRange | None
    ) -> "Generator[pa.RecordBatch]":
        readers = ReaderConnections(self._connection, _list_reader_statements(snapshot))
        try:
            with readers.take() as reader, reader.read(query.write(keys)) as (batches, interrupt):
                converted = (convert_batch(batch, schema) for batch in batches)
                with prefetching(converted, ahead=_AHEAD) as coming:
                    try:
                        yield from coming
                    except GeneratorExit:
                        # What is being read is waited for.
                        interrupt()
                        raise
        except (adbc.Error, OSError, pa.ArrowException) as error:
            raise self._explain(error, query) from None
        finally:
            readers.close()

    def _explain(self, error: Exception, query: "_CopyQuery") -> GobblinError:
        name = self._start.vnode.rpartition(":")[0]
        found = find_refused_value(error, query.selected, name, self._start.urn, positions=())
        if found is not None:
            return found
        text = self._connection.scrub(str(error)).removeprefix("[libpq] ")
        return judge_words(text, self._connection) if text else RetryableError(f"{name} could not be copied")


@dataclass(frozen=True, slots=True)
class _CopyQuery:
    selected: tuple[Selected, ...]
    sql: str

    def write(self, keys: KeyRange | None) -> str:
        """``sql`` ends with a condition."""
        if keys is None:
            return self.sql
        column = PostgresDialect().quote(keys.column)
        low = "" if keys.low is None else f" AND {column} >= {keys.low}"
        return f"{self.sql}{low}" + ("" if keys.high is None else f" AND {column} < {keys.high}")


def lay_out_table(
    session: "psycopg.Connection[Any]", published: PublishedTable, casts: Mapping[str, str], *, urn: str
) -> tuple[LoggedTable, tuple[LoggedReading, ...]]:
    """The table as it is now, and how its columns are read. RejectedError names one that can't be."""

    def query(sql: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        return session.execute(sql.encode(), arguments).fetchall()

    name = published.name
    found = find_tables(query, [name]).get(name)
    if found is None:
        raise RejectedError(
            f"the source has no table {name}",
            field=f"datasets[{urn}].table",
            hint="It was dropped a moment ago: take the dataset out.",
        )
    wanted = published.columns
    columns = tuple(
        LoggedColumn(column.name, found.types[column.name], column.name in published.key)
        for column in found.table.columns
        if wanted is None or column.name in wanted
    )
    table = LoggedTable(0, name.schema or "", name.table, published.identity, columns)
    return table, list_readings(table, casts, urn=urn)


def require_copyable(connection: JdbcConnection, published: PublishedTable, casts: Mapping[str, str], urn: str) -> None:
    """RejectedError if the table can't be copied: its rows may not be read, or a column has no type to be read as."""
    with open_log_session(connection) as session, postgres_families(connection):
        table, _readings = lay_out_table(session, published, casts, urn=urn)
        names = [column.name for column in table.columns]
        found = session.execute(_MAY_NOT_READ, [names, write_table(PostgresDialect(), published.name)]).fetchall()
    refused = [str(name) for (name,) in found]
    if refused:
        columns = "" if len(refused) == len(names) else f"{', '.join(refused)} of "
        raise RejectedError(
            f"the user may not read {columns}{published.name}, which is to be copied",
            field=f"connections[{connection.name}].user",
            hint=f"Run GRANT SELECT ON {published.name} TO …, as its owner.",
        )


def _is_broken(was: TableTerms | None, now: TermsLook) -> bool:
    return was is not None and (was.publication != now.terms.publication or find_break(was, now) is not None)


def _list_reader_statements(snapshot: str) -> Sequence[str]:
    return (
        # The snapshot must come first: it can't be set once the transaction has seen rows.
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
        f"SET TRANSACTION SNAPSHOT '{snapshot}'",
        write_set_config(SETTINGS, is_local=True),
        _TIMEOUTS.replace("false", "true"),
    )


def _write_query(dialect: PostgresDialect, table: PublishedTable, selected: Sequence[Selected]) -> str:
    shown = ", ".join(f"{each.expression} AS {dialect.quote(f'c{number}')}" for number, each in enumerate(selected))
    condition = "true" if table.row_filter is None else f"({table.row_filter})"
    return f"SELECT {shown} FROM {write_rows_of(table)} WHERE {condition}"


def _one(session: "psycopg.Connection[Any]", sql: str, arguments: Sequence[Any] | None = None) -> tuple[Any, ...]:
    (row,) = session.execute(sql.encode(), arguments).fetchall()
    return tuple(row)
