"""Tables of Postgres as Arrow batches, by ADBC: binary COPY, one connection for each reader, one snapshot for all.

A connection that has read is kept for the next reader of the run, because its transaction sees the same snapshot. After
any failure the connection is closed.
"""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Final

import adbc_driver_manager as adbc
import adbc_driver_postgresql
import pyarrow as pa
from psycopg.conninfo import make_conninfo

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.rows.arrow_types import arrow_schema, arrow_type
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.dialect import Dialect
from gobblin_assets.sources.jdbc.failures import find_refused_value, judge_words
from gobblin_assets.sources.jdbc.layout import Layout, hidden_columns
from gobblin_assets.sources.jdbc.planning import SPLIT_BY, write_unit
from gobblin_assets.sources.jdbc.postgres_sessions import plan_conninfo
from gobblin_assets.sources.source_port import ArrowRows

_BATCH_BYTES: Final = 8 << 20
_BATCH_OPTION: Final = "adbc.postgresql.batch_size_hint_bytes"
_NOISE: Final = "[libpq] "


class _Connection:
    """One connection in a transaction. Its statements run one after another."""

    def __init__(self, database: adbc.AdbcDatabase) -> None:
        # ADBC's DB-API is not used, because it imports pandas.
        self._connection = adbc.AdbcConnection(database)
        self._connection.set_autocommit(False)

    def execute(self, sql: str) -> None:
        with adbc.AdbcStatement(self._connection) as statement:
            statement.set_sql_query(sql)
            statement.execute_update()

    @contextmanager
    def read(self, sql: str) -> Iterator[tuple[Iterator[pa.RecordBatch], Callable[[], None]]]:
        """The rows of a query, and a function that ends it from another thread. The first request starts the query."""
        with adbc.AdbcStatement(self._connection) as statement:
            statement.set_options(**{_BATCH_OPTION: str(_BATCH_BYTES)})
            statement.set_sql_query(sql)
            with closing(_read_all(statement)) as batches:
                yield batches, partial(_cancel, statement)

    def close(self) -> None:
        # Even closing may fail if the connection is lost; the server then ends the session.
        with suppress(adbc.Error, RuntimeError):
            self._connection.close()


def _cancel(statement: adbc.AdbcStatement) -> None:
    # A lost connection has no query to end.
    with suppress(adbc.Error):
        statement.cancel()


def _read_all(statement: adbc.AdbcStatement) -> Generator[pa.RecordBatch]:
    # This call returns with the first rows, which may take long.
    stream, _count = statement.execute_query()
    with pa.RecordBatchReader.from_stream(stream) as reader:
        yield from reader


class ReaderConnections:
    """Connections of one run's readers to one database. Any thread may take one; ``close`` ends those that are idle.

    Opening the driver's database takes longer than opening a connection, because the driver asks the server for all of
    its types. So all connections share one database, and ``prepare`` begins to open it while the caller goes on.
    """

    def __init__(self, connection: JdbcConnection, statements: Sequence[str]) -> None:
        self._conninfo = make_conninfo(**{**plan_conninfo(connection), "client_encoding": "UTF8"})
        self._statements = statements
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="arrow-database")
        self._database: Future[adbc.AdbcDatabase] | None = None
        self._idle: list[_Connection] = []
        self._is_closed = False

    def prepare(self) -> None:
        """Begin to open the database. If that fails, ``take`` tries it again and raises what fails."""
        with self._lock:
            self._find_database()

    @contextmanager
    def take(self) -> Iterator[_Connection]:
        """A connection in a transaction that sees the run's snapshot."""
        with self._lock:
            taken = self._idle.pop() if self._idle else None
        opened = taken or self._open()
        try:
            yield opened
        except BaseException:
            opened.close()
            raise
        with self._lock:
            if not self._is_closed:
                self._idle.append(opened)
                return
        opened.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            database, self._database = self._database, None
        for each in idle:
            each.close()
        self._pool.shutdown()
        # If a reader still has a connection open, the database can't be closed here: it ends with that connection.
        if database is not None and database.exception() is None:
            with suppress(RuntimeError):
                database.result().close()

    def _find_database(self) -> "Future[adbc.AdbcDatabase]":
        if self._database is None or (self._database.done() and self._database.exception() is not None):
            self._database = self._pool.submit(adbc_driver_postgresql.connect, self._conninfo)
        return self._database

    def _open(self) -> _Connection:
        with self._lock:
            database = self._find_database()
        opened = _Connection(database.result())
        try:
            for statement in self._statements:
                opened.execute(statement)
        except BaseException:
            opened.close()
            raise
        return opened


class PostgresArrowReader:
    """``ArrowReader`` of one plan."""

    def __init__(
        self,
        connections: ReaderConnections,
        connection: JdbcConnection,
        dialect: Dialect,
        layout: Layout,
        urn: DatasetUrn,
    ) -> None:
        self._connections = connections
        self._connection = connection
        self._dialect = dialect
        self._layout = layout
        self._urn = urn

    @property
    def columns(self) -> Sequence[tuple[str, str]]:
        return [(column.name, column.held_as) for column in self._layout.columns]

    @contextmanager
    def open(self, unit: WorkUnit) -> Iterator[ArrowRows]:
        schema = arrow_schema(self.columns)
        with self._connections.take() as connection, connection.read(self._write_query(unit)) as (batches, interrupt):
            yield ArrowRows((convert_batch(batch, schema) for batch in batches), interrupt)

    def explain(self, error: Exception) -> GobblinError:
        layout = self._layout
        positions = () if layout.axis is None else layout.axis.columns
        found = find_refused_value(error, layout.columns, str(layout.table.name), self._urn, positions=positions)
        if found is not None:
            return found
        text = self._connection.scrub(str(error))
        if not isinstance(error, adbc.Error | OSError | pa.ArrowException):
            return RetryableError(f"{self._urn}: could not be read: {type(error).__name__}: {text}")
        return judge_words(text.removeprefix(_NOISE), self._connection)

    def _write_query(self, unit: WorkUnit) -> str:
        dialect, layout = self._dialect, self._layout
        hidden = hidden_columns(dialect, layout, unit.properties.get(SPLIT_BY))
        shown = ", ".join(dialect.quote(f"c{number}") for number in range(len(layout.columns)))
        inner = layout.source_query(dialect, hidden)
        return f"SELECT {shown} FROM ({inner}) gobblin_source WHERE {write_unit(dialect, layout, unit)}"


def can_read(layout: Layout) -> bool:
    """Whether each column has an Arrow type."""
    return all(arrow_type(column.held_as) is not None for column in layout.columns)


def convert_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch that the driver gave, in the types of ``schema``, which is as long."""
    columns = [_as_type(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same values in the wanted type. Numerics, and such elements of arrays, come as text in an extension type."""
    if isinstance(column, pa.ExtensionArray):
        if pa.types.is_binary(column.storage.type) and not pa.types.is_binary(wanted):
            # The driver asks for the names of types before any statement of ours, and does not know them in quotes.
            raise RejectedError(
                "the driver does not know the types of columns: the server writes their names in quotes",
                field="source.connection",
                hint="Run ALTER ROLE … RESET quote_all_identifiers, or ALTER DATABASE … RESET quote_all_identifiers; "
                "or give the connection the property options: -c quote_all_identifiers=off.",
            )
        return _as_type(column.storage, wanted)
    if pa.types.is_list(wanted) and pa.types.is_list(column.type):
        values = _as_type(column.values, wanted.value_type)
        return pa.ListArray.from_arrays(column.offsets, values, type=wanted, mask=column.is_null())
    return column if column.type == wanted else column.cast(wanted)
