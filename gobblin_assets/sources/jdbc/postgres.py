"""Postgres reached by psycopg: fast metadata, and one exported snapshot that planning and all readers share.

The session holds a read-only REPEATABLE READ transaction from planning until the last reader has ended. For so long
nobody can drop or alter the tables it asked about, and VACUUM keeps old row versions. A reader that starts after the
session was lost fails, and the run is planned again.
"""

import datetime as dt
import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

import psycopg

from gobblin_assets.db.transactions import is_passing_state
from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.model.watermark import Scalar, Watermark, WatermarkType
from gobblin_assets.sources.jdbc.catalog import (
    Answer,
    Estimate,
    EstimateQuestion,
    Question,
    RowQuestion,
    Selected,
    Table,
    TableColumn,
)
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.dialect import Dialect, write_table
from gobblin_assets.sources.jdbc.dialects.postgres import PostgresDialect
from gobblin_assets.sources.jdbc.failures import POLICY_HINT, POSITIONS_HINT
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.jdbc.postgres_sessions import (
    SETTINGS,
    SourceSession,
    open_source_session,
    write_set_config,
)
from gobblin_assets.sources.jdbc.postgres_tables import (
    KeyColumn,
    PgTable,
    PgType,
    find_problem,
    find_spark_type,
    find_tables,
    find_types,
    suggest_cast,
    write_read,
)
from gobblin_assets.sources.jdbc.questions import answer_one
from gobblin_assets.sources.jdbc.split import extend_quantiles

_TABLES: Final = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
       AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%'"""

_HISTOGRAM: Final = """
    SELECT b FROM pg_stats s CROSS JOIN LATERAL unnest(s.histogram_bounds::text::{type}[]) AS b
     WHERE s.schemaname = %s AND s.tablename = %s AND s.attname = %s {finite} ORDER BY b"""

# By what share a table has grown since its pages were counted, which is when its histograms were made.
_GROWTH: Final = """
    SELECT pg_relation_size(c.oid)::float8 / (current_setting('block_size')::float8 * nullif(c.relpages, 0)) - 1
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s"""

CLIENT_GONE_S: Final = 1
"""The server ends a session within about this time after the client's process has ended, even during a query.

Without this check, a query that sends no rows (it waits for a lock, or counts) goes on, with its snapshot and locks.
"""

# The server's probes of a client whose machine is gone, in seconds: a session then ends within about a minute.
_KEEPALIVES: Final = MappingProxyType(
    {"tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3"}
)

_SAVEPOINT: Final = "gobblin_table"

_STATISTIC_TYPES: Final = MappingProxyType(
    {
        WatermarkType.LONG: "numeric",
        WatermarkType.DATE: "date",
        WatermarkType.TIMESTAMP: "timestamptz",
        WatermarkType.LOCAL_TIMESTAMP: "timestamp",
    }
)


class PostgresCatalog:
    """A catalogue over one open session, with its snapshot.

    Only one thread may use it; what readers ask needs no session.
    """

    shares_snapshot = True

    def __init__(self, session: SourceSession, connection: JdbcConnection, settings: Mapping[str, str]) -> None:
        self._session = session
        self._connection = connection
        self._settings = settings
        with postgres_families(connection):
            # In this order: the clock must not be later than the snapshot, and a snapshot can't be exported
            # once the transaction has savepoints.
            row = session.execute("SELECT clock_timestamp(), pg_export_snapshot()").fetchone()
            if row is None:
                raise RetryableError("the source gave no snapshot")
            # One savepoint for all questions about a table: one for each question would double the round trips.
            session.execute(f"SAVEPOINT {_SAVEPOINT}".encode())
        self._clock: dt.datetime = row[0].astimezone(dt.UTC)
        self._snapshot: str = row[1]
        self._looked_up: dict[TableName, PgTable | None] = {}
        self._types: dict[TableName, Mapping[str, PgType]] = {}
        self._answered: dict[Question, Answer | Exception] = {}
        self._found_last: TableName | None = None
        self.dialect: Dialect = PostgresDialect()

    def now(self) -> dt.datetime:
        return self._clock

    def list_tables(self) -> Sequence[TableName]:
        return sorted(TableName(schema, table) for schema, table in self._query(_TABLES))

    def look_up(self, names: Sequence[TableName]) -> None:
        """Ask for these tables at once."""
        self._looked_up |= dict.fromkeys(names) | find_tables(self._query, names)

    def find_table(self, name: TableName) -> Table | None:
        if name != self._found_last:
            # A question about this table may fail. The new savepoint then keeps the locks on other tables.
            self._execute(f"RELEASE SAVEPOINT {_SAVEPOINT}; SAVEPOINT {_SAVEPOINT}")
            self._found_last = name
        if name not in self._looked_up:
            self.look_up([name])
        found = self._looked_up[name]
        if found is None:
            return None
        self._types[found.table.name] = found.types
        return found.table

    def select(
        self, table: Table, columns: Sequence[str], casts: Mapping[str, str], *, key: Collection[str] = ()
    ) -> tuple[Selected, ...]:
        cast = {name: f"({casts[name]})" for name in columns if name in casts}
        declared = self._types[table.name]
        keys = {name: KeyColumn(self.dialect.quote(name), declared[name].text) for name in columns if name in key}
        for name in keys.keys() & cast.keys():
            self._require_way_back(table, name, cast[name], keys[name])
        types = dict(declared)
        types |= zip(cast, self._describe(table.name, list(cast.values())) if cast else (), strict=True)
        selected = []
        for number, name in enumerate(columns):
            found, quoted = types[name], self.dialect.quote(name)
            column = cast.get(name, quoted)
            in_key = name in keys or name in table.primary_key
            selected.append(
                Selected(
                    name,
                    write_read(found, column, number, key=keys.get(name)),
                    found.text,
                    find_problem(found),
                    suggest_cast(found, quoted if in_key else column, in_key=in_key),
                    held_as=find_spark_type(found) if find_problem(found) is None else "",
                )
            )
        return tuple(selected)

    def _require_way_back(self, table: Table, name: str, cast: str, key: KeyColumn) -> None:
        try:
            self._describe(table.name, [key.is_changed(cast)])
        except RejectedError as error:
            raise RejectedError(
                f"{table.name}.{name} tells late rows apart, and its cast may give two of them one key: {error}",
                field="casts",
                hint=f"Write {key.quoted}::text, or leave the cast out.",
                column=name,
            ) from None

    def find_spark_types(self, table: Table, selected: Sequence[Selected]) -> Mapping[str, str]:
        types = self._describe(table.name, [each.expression for each in selected]) if selected else []
        return {each.name: find_spark_type(found) for each, found in zip(selected, types, strict=True)}

    def fetch_row(self, sql: str, types: Sequence[WatermarkType]) -> tuple[Scalar | None, ...]:
        rows = self._query(sql)
        return tuple(_to_scalar(value) for value in rows[0][: len(types)])

    def estimate(self, table: Table, condition: str) -> Estimate:
        """The estimate of Postgres' planner: it needs no scan, and is good enough for the number of WorkUnits."""
        return _read_estimate(self._query(self._write_explain(table, condition))[0][0])

    def answer_together(self, questions: Sequence[Question]) -> Sequence[Answer | Exception]:
        new = [each for each in dict.fromkeys(questions) if each not in self._answered]
        found = dict(self._answered)
        try:
            with postgres_families(self._connection):
                found |= self._ask_rows([each for each in new if isinstance(each, RowQuestion)])
                found |= self._ask_estimates([each for each in new if isinstance(each, EstimateQuestion)])
        except GobblinError:
            # One of them was refused: each is asked alone, so that the others have their answers.
            found |= {each: answer_one(self, each) for each in new}
        self._answered |= {
            each: found[each]
            for each in new
            if isinstance(each, RowQuestion) and each.repeats and not isinstance(found[each], Exception)
        }
        return [found[each] for each in questions]

    def _ask_rows(self, questions: Sequence[RowQuestion]) -> dict[Question, Answer | Exception]:
        """Each as an expression of one row; none of them has more than one column."""
        if not questions:
            return {}
        (row,) = self._execute(f"SELECT {', '.join(f'({each.sql})' for each in questions)}").fetchall()
        return {each: (_to_scalar(value),) for each, value in zip(questions, row, strict=True)}

    def _ask_estimates(self, questions: Sequence[EstimateQuestion]) -> dict[Question, Answer | Exception]:
        if not questions:
            return {}
        cursor = self._execute("; ".join(self._write_explain(each.table, each.condition) for each in questions))
        plans = []
        for _each in questions:
            plans.append(cursor.fetchall()[0][0])
            cursor.nextset()
        return {each: _read_estimate(plan) for each, plan in zip(questions, plans, strict=True)}

    def _write_explain(self, table: Table, condition: str) -> str:
        return f"EXPLAIN (FORMAT JSON) SELECT * FROM {write_table(self.dialect, table.name)}{condition}"

    def find_quantiles(self, table: Table, column: TableColumn, last: Scalar) -> Sequence[Watermark]:
        kind = column.watermark_type
        if kind is None or kind not in _STATISTIC_TYPES:
            return []
        finite = "AND isfinite(b)" if kind.is_time else ""
        sql = _HISTOGRAM.format(type=_STATISTIC_TYPES[kind], finite=finite)
        rows = self._query(sql, (table.name.schema, table.name.table, column.name))
        values = [value for row in rows if (value := _to_scalar(row[0])) is not None]
        growth = self._query(_GROWTH, (table.name.schema, table.name.table))[0][0] if values else None
        return [Watermark(kind, value) for value in extend_quantiles(values, last, growth or 0.0)]

    def cut_rows(self, table: Table, count: int) -> Sequence[str]:
        sql = "SELECT relkind::text, pg_relation_size(c.oid) / current_setting('block_size')::int FROM pg_class c"
        sql += " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = %s AND relname = %s"
        kind, pages = self._query(sql, (table.name.schema, table.name.table))[0]
        edges = sorted({pages * step // count for step in range(1, count)} - {0})
        if kind != "r" or not edges:
            return []
        address = self.dialect.quote("s0")
        first, last = f"{address} < '({edges[0]},0)'::tid", f"{address} >= '({edges[-1]},0)'::tid"
        inner = [
            f"{address} >= '({low},0)'::tid AND {address} < '({high},0)'::tid"
            for low, high in itertools.pairwise(edges)
        ]
        return [first, *inner, last]

    def read_properties(self, fetch_size_rows: int) -> Mapping[str, str]:
        return {"fetchsize": str(fetch_size_rows), "sessionInitStatement": "; ".join(self.list_reader_statements())}

    def list_reader_statements(self) -> Sequence[str]:
        """The first statements of a reader's transaction."""
        return (
            # The snapshot must come first: it can't be set once the transaction has seen rows.
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
            f"SET TRANSACTION SNAPSHOT '{self._snapshot}'",
            # One statement for all settings needs one round trip.
            write_set_config(self._settings, is_local=True),
        )

    def _describe(self, table: TableName, expressions: Sequence[str]) -> list[PgType]:
        """The types of expressions over a table, domains resolved, without reading a row."""
        shown = ", ".join(f"{expression} AS c{number}" for number, expression in enumerate(expressions))
        result = self._execute(f"SELECT {shown} FROM {write_table(self.dialect, table)} LIMIT 0").pgresult
        found = [(result.ftype(place), result.fmod(place)) for place in range(len(expressions))] if result else []
        types = find_types(self._query, found)
        return [types[each] for each in found]

    def _query(self, sql: str, arguments: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        # A value without a Python type fails in the client; the server does not notice.
        with postgres_families(self._connection):
            return self._execute(sql, arguments).fetchall()

    def _execute(self, sql: str, arguments: Sequence[Any] | None = None) -> "psycopg.Cursor[tuple[Any, ...]]":
        """Raises the families of errors. The transaction that holds the snapshot goes on after an error."""
        with postgres_families(self._connection):
            try:
                return self._session.execute(sql.encode(), arguments)
            except psycopg.Error:
                if not self._session.broken:
                    self._session.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}".encode())
                raise


@contextmanager
def open_postgres(connection: JdbcConnection, read_timeout_s: int) -> Iterator[PostgresCatalog]:
    """A session with its snapshot, closed at the end. RetryableError if the server can't be reached."""
    with postgres_families(connection):
        session = open_source_session(connection)
    try:
        with postgres_families(connection):
            settings = _prepare(session, connection, read_timeout_s)
        yield PostgresCatalog(session, connection, settings)
    finally:
        session.close()


def _prepare(session: SourceSession, connection: JdbcConnection, read_timeout_s: int) -> Mapping[str, str]:
    """Prepare the session; returns the settings that readers need too, by name."""
    session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    session.read_only = True
    timeouts = {"statement_timeout": str(read_timeout_s * 1000), **_KEEPALIVES}
    session.execute(write_set_config(timeouts, is_local=False).encode())
    settings = {**SETTINGS, **timeouts}
    check = {"client_connection_check_interval": str(CLIENT_GONE_S * 1000)}
    # Servers before 14 don't know this setting, and some systems don't support it: there only sending rows fails.
    with suppress(psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError):
        session.execute(write_set_config(check, is_local=False).encode())
        settings |= check
    # Servers drop idle transactions by these; transaction_timeout exists from 17 on.
    session.execute(
        "SELECT set_config(name, '0', false) FROM pg_settings"
        " WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')"
    )
    session.autocommit = False
    encoding = session.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise RejectedError(
            f"the database's encoding is {encoding}; expected UTF8",
            field=f"connections[{connection.name}].url",
            hint="Texts of other encodings don't compare as their UTF-8 bytes do.",
        )
    return settings


@contextmanager
def postgres_families(connection: JdbcConnection) -> Iterator[None]:
    """Turn psycopg's errors into families, without secrets and without the chain that may hold them."""
    try:
        yield
    except psycopg.Error as error:
        raise judge_postgres(error, connection) from None


def judge_postgres(error: psycopg.Error, connection: JdbcConnection) -> GobblinError:
    """RejectedError for what a person can correct, RetryableError for what may pass by itself."""
    text = connection.scrub(str(error)).strip()
    state = error.sqlstate or ""
    where = f"connections[{connection.name}]"
    lowered = text.lower()
    if state.startswith("28") or "authentication failed" in lowered or "no password supplied" in lowered:
        return RejectedError(
            f"the source refused the login: {text}",
            field=f"{where}.password",
            hint="Give the right user and password, and check what pg_hba.conf lets in.",
        )
    if state == "3D000" or ('database "' in lowered and "does not exist" in lowered):
        return RejectedError(f"{text}", field=f"{where}.url", hint="Correct the database's name at the URL's end.")
    if isinstance(error, psycopg.OperationalError) and not state:
        return RetryableError(
            f"the source can't be reached: {text}",
            passes=True,
            hint=f"Check {where}.url, and that the server runs.",
            field=where,
        )
    if state == "42501" and "row-level security" in lowered:
        return RejectedError(text, field=f"{where}.user", hint=POLICY_HINT)
    if state == "42501":
        return RejectedError(text, field=f"{where}.user", hint="Grant SELECT to this user, and USAGE on the schema.")
    if isinstance(error, psycopg.DataError) and not state:
        # The server did not fail: the client has no type for the value that the server sent.
        return RejectedError(
            f"a column of positions holds what can't be read: {text}",
            field="datasets",
            hint=f"Leave such rows out: {POSITIONS_HINT}",
        )
    if state.startswith(("42", "22")) or isinstance(error, (psycopg.DataError, psycopg.ProgrammingError)):
        return RejectedError(
            f"the source refused a query: {text}",
            field="datasets",
            hint="Correct the dataset's where, casts, partition key or positions that the message names.",
            sqlstate=state,
        )
    if state == "55P03":
        return RetryableError(f"another session keeps the table locked: {text}", passes=True, sqlstate=state)
    return RetryableError(f"the source failed: {text}", passes=is_passing_state(state), sqlstate=state)


def _read_estimate(found: Any) -> Estimate:
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return Estimate(int(plan["Plan Rows"]), int(plan["Plan Width"]))


def _to_scalar(value: object) -> Scalar | None:
    match value:
        case dt.datetime():
            return value if value.tzinfo is None else value.astimezone(dt.UTC)
        case Decimal():
            return int(value)
        case None | int() | dt.date() | str():
            return value
        case _:
            raise RejectedError(f"{value!r} is no position", field="watermark.column", hint="Name another column.")
