"""The JDBC source: opens a view of the database, plans in it, and gives DataFrames of what was planned.

It also describes a table to the author of a job: columns, types, key, a watermark, needed casts.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.watermark import Watermark, WatermarkType
from gobblin_assets.model.work_unit import WorkUnit, sum_rows
from gobblin_assets.run.job_kind import UnitPlan
from gobblin_assets.sources.discovery import Discovery, find_changes
from gobblin_assets.sources.jdbc.catalog import Catalog, Table, TableColumn
from gobblin_assets.sources.jdbc.connection import JdbcConnection, dialect_of
from gobblin_assets.sources.jdbc.dialect import write_table
from gobblin_assets.sources.jdbc.expressions import require_expressions
from gobblin_assets.sources.jdbc.jdbc_kind import JdbcSourceSpec
from gobblin_assets.sources.jdbc.layout import Layout, list_table_names
from gobblin_assets.sources.jdbc.names import parse_table_name
from gobblin_assets.sources.jdbc.planning import Planner
from gobblin_assets.sources.jdbc.postgres import PostgresCatalog, open_postgres
from gobblin_assets.sources.jdbc.postgres_arrow import PostgresArrowReader, ReaderConnections, can_read
from gobblin_assets.sources.jdbc.questions import Asking, plan_together
from gobblin_assets.sources.jdbc.table_reader import TableReader, ZoneCheck
from gobblin_assets.sources.source_port import ColumnDescription, PlanSession, SourceRequest, TableDescription
from gobblin_assets.spec.job_spec import DatasetSpec

_CHANGED: Final = re.compile(r"updat|modif|chang|touch", re.IGNORECASE)
_CREATED: Final = re.compile(r"creat|insert|added|(^|_)(at|ts|time|timestamp)$", re.IGNORECASE)


def describe_table(catalog: Catalog, urn: DatasetUrn, spec: DatasetSpec) -> TableDescription:
    """Ask about one table, without reading rows. For a refused table the description holds the error."""
    written = spec.table or urn
    try:
        name = parse_table_name(written, field=f"datasets[{urn}].table")
        table = catalog.find_table(name)
        if table is None:
            return TableDescription(urn, written, error="the source has no such table")
        return _describe(catalog, urn, spec, table)
    except RejectedError as error:
        return TableDescription(urn, written, error=str(error))


def _describe(catalog: Catalog, urn: DatasetUrn, spec: DatasetSpec, table: Table) -> TableDescription:
    names = [column.name for column in table.columns]
    casts = {name: text for name, text in spec.casts.items() if name in names}
    selected = catalog.select(table, names, casts)
    types = catalog.find_spark_types(table, [each for each in selected if each.problem is None])
    places = {name: place for place, name in enumerate(table.primary_key, 1)}
    columns = tuple(
        ColumnDescription(
            column.name,
            column.type_text,
            column.nullable,
            types.get(column.name),
            places.get(column.name),
            column.watermark_type,
            each.problem,
            None if each.problem is None else each.cast,
            column.comment,
        )
        for column, each in zip(table.columns, selected, strict=True)
    )
    return TableDescription(urn, str(table.name), columns, suggest_watermark(table, spec.casts), table.comment)


def suggest_watermark(table: Table, casts: Collection[str] = ()) -> str | None:
    """A time of change by its name, else a primary key of whole numbers, else a time of creation; else None. Pure.

    The suggestion looks only at names and types: the table's owner knows whether values grow with each change.
    """
    usable = [column for column in table.columns if column.name not in casts and not column.nullable]
    times = [column for column in table.columns if column.name not in casts and _is_time(column)]
    changed = [column.name for column in times if _CHANGED.search(column.name)]
    key = [c.name for c in usable if (c.name,) == table.primary_key and c.watermark_type is WatermarkType.LONG]
    created = [column.name for column in times if _CREATED.search(column.name)]
    return next(iter((*changed, *key, *created)), None)


def _is_time(column: TableColumn) -> bool:
    return column.watermark_type in (WatermarkType.TIMESTAMP, WatermarkType.LOCAL_TIMESTAMP)


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOGETHER_MAX: Final = 200
"""Partitions of one dataset whose plans ask the source together: a statement for all of them is not large."""


class JdbcPlanSession:
    """One run's view. Only one thread may call ``plan``; many threads may read the plans."""

    def __init__(
        self,
        catalog: Catalog,
        connection: JdbcConnection,
        spec: JdbcSourceSpec,
        readers: ReaderConnections | None,
        requests: Sequence[SourceRequest] = (),
    ) -> None:
        """``requests``: what ``plan`` will be asked for, in this order, as far as it is known."""
        self._catalog = catalog
        self._connection = connection
        self._spec = spec
        self._readers = readers
        self._planner = Planner(catalog, SystemClock().new_id, os.cpu_count() or 1, self._needs_spark)
        self._zone = ZoneCheck()
        self._prefetched = _PrefetchedPlans(requests if catalog.shares_snapshot else ())

    def plan(self, request: SourceRequest) -> UnitPlan:
        require_expressions(request.spec, request.urn, self._connection.subprotocol)
        if not self._prefetched.has(request):
            together = self._prefetched.take(request)
            self._prefetched.keep(together, plan_together(self._catalog, [self._asking(each) for each in together]))
        try:
            found = self._prefetched.pop(request)
            if isinstance(found, Exception):
                raise found
        except RejectedError as error:
            if error.field != "datasets":
                raise
            # The database refused one of our queries: name the dataset of the query.
            message = error.message.removeprefix("datasets: ")
            raise RejectedError(message, field=f"datasets[{request.urn}]", hint=error.hint) from None

        return found

    def _asking(self, request: SourceRequest) -> Asking[UnitPlan]:
        needs_arrow = self._spec.reader == "arrow"
        return self._planner.plan(request, self._make_reader, self._find_arrow, needs_arrow=needs_arrow)

    def _make_reader(self, request: SourceRequest, layout: Layout) -> TableReader:
        fetch_size_rows = request.spec.split.fetch_size_rows
        return TableReader(self._catalog, self._connection, layout, request.urn, fetch_size_rows, self._zone)

    def _needs_spark(self, layout: Layout, row_count: int | None) -> bool:
        is_large = self._spec.reader == "auto" and (row_count or 0) > self._spec.arrow_rows_max
        return self._readers is None or is_large or not can_read(layout)

    def _find_arrow(
        self, request: SourceRequest, layout: Layout, units: Sequence[WorkUnit]
    ) -> PostgresArrowReader | None:
        if self._readers is None or self._needs_spark(layout, sum_rows(units)):
            return None
        if any(not unit.is_empty for unit in units):
            self._readers.prepare()
        return PostgresArrowReader(self._readers, self._connection, self._catalog.dialect, layout, request.urn)


class _PrefetchedPlans:
    """Plans that were made together with another one, until they are asked for."""

    def __init__(self, requests: Sequence[SourceRequest]) -> None:
        self._requests = requests
        self._places = {_name_of(each): place for place, each in enumerate(requests)}
        self._made: dict[_Name, UnitPlan | Exception] = {}

    def has(self, request: SourceRequest) -> bool:
        return _name_of(request) in self._made

    def take(self, request: SourceRequest) -> list[SourceRequest]:
        """The request, and those of its dataset that come next."""
        place = self._places.get(_name_of(request))
        if place is None:
            return [request]
        next_ones = self._requests[place + 1 : place + TOGETHER_MAX]
        return [request, *takewhile(lambda each: each.urn == request.urn, next_ones)]

    def keep(self, requests: Sequence[SourceRequest], plans: Sequence[UnitPlan | Exception]) -> None:
        # What was made for a request that nobody came for is of no use behind it.
        self._made = {_name_of(each): plan for each, plan in zip(requests, plans, strict=True)}

    def pop(self, request: SourceRequest) -> UnitPlan | Exception:
        return self._made.pop(_name_of(request))


_Name = tuple[DatasetUrn, str | None]


def _name_of(request: SourceRequest) -> _Name:
    return request.urn, request.partition.key


class JdbcSource:
    """Tables of one connection. Nothing connects before ``open_plan`` or ``discover``.

    ``known``: the tables that patterns chose when the definitions were made; a run says if the source has other
    tables now.
    """

    def __init__(self, connection: JdbcConnection, spec: JdbcSourceSpec, *, known: Discovery | None = None) -> None:
        self._connection = connection
        self._spec = spec
        self._known = known

    @contextmanager
    def open_plan(
        self, spark: "Callable[[], SparkSession]", say: Callable[[str], None], requests: Sequence[SourceRequest] = ()
    ) -> Iterator[PlanSession]:
        with self._open_catalog(spark) as catalog, self._open_readers(catalog) as readers:
            say(self._describe_view(catalog))
            catalog.look_up(list_table_names(requests))
            if self._known is not None and self._spec.include:
                now = [str(name) for name in catalog.list_tables()]
                if changes := find_changes(self._known, now, self._spec):
                    say(changes)
            yield JdbcPlanSession(catalog, self._connection, self._spec, readers, requests)

    def discover(self, spark: "Callable[[], SparkSession]") -> Sequence[str]:
        with self._open_catalog(spark) as catalog:
            return [str(name) for name in catalog.list_tables()]

    def describe(
        self, spark: "Callable[[], SparkSession]", datasets: Mapping[DatasetUrn, DatasetSpec]
    ) -> Sequence[TableDescription]:
        """What the source says about each dataset's table. A table takes some queries: ask only about a few tables."""
        with self._open_catalog(spark) as catalog:
            return [describe_table(catalog, urn, spec) for urn, spec in datasets.items()]

    def find_first(self, spark: "Callable[[], SparkSession]", table: str, column: str) -> Watermark | None:
        """None as well of a database that Spark would be started for."""
        if self._connection.subprotocol != "postgresql":
            return None
        with self._open_catalog(spark) as catalog:
            found = catalog.find_table(parse_table_name(table, field="table"))
            held = None if found is None else found.find_column(column)
            if found is None or held is None or held.watermark_type is None:
                return None
            kind, dialect = held.watermark_type, catalog.dialect
            least = dialect.show(f"MIN({dialect.in_order(dialect.quote(column), kind)})", kind)
            try:
                (value,) = catalog.fetch_row(f"SELECT {least} FROM {write_table(dialect, found.name)}", [kind])
            except RetryableError:
                return None
            return None if value is None else Watermark(kind, value)

    @contextmanager
    def _open_readers(self, catalog: Catalog) -> Iterator[ReaderConnections | None]:
        """Connections for Arrow; None: Spark reads. RejectedError if the job wants Arrow and this is not Postgres."""
        if self._spec.reader == "jdbc":
            yield None
            return
        if not isinstance(catalog, PostgresCatalog):
            if self._spec.reader == "arrow":
                raise RejectedError(
                    f"{dialect_of(self._connection.subprotocol).title} is read by JDBC alone",
                    field="source.reader",
                    hint="Write reader: auto. Arrow reads Postgres.",
                )
            yield None
            return
        readers = ReaderConnections(self._connection, catalog.list_reader_statements())
        try:
            yield readers
        finally:
            readers.close()

    def _describe_view(self, catalog: Catalog) -> str:
        """What a person who reads the run's notes must know about this database."""
        if catalog.shares_snapshot:
            return "one snapshot of the source is open for all readers"
        dialect = dialect_of(self._connection.subprotocol)
        if dialect.is_experimental:
            return f"{dialect.title} is experimental: written from its documentation, never tried against a server"
        return f"{dialect.title} shares no snapshot: each reader sees the source at its own moment"

    @contextmanager
    def _open_catalog(self, spark: "Callable[[], SparkSession]") -> Iterator[Catalog]:
        if self._connection.subprotocol == "postgresql":
            with open_postgres(self._connection, self._spec.read_timeout_s) as catalog:
                yield catalog
        else:
            from gobblin_assets.sources.jdbc.spark_catalog import SparkCatalog  # noqa: PLC0415  Postgres needs no Spark

            dialect = dialect_of(self._connection.subprotocol)
            yield SparkCatalog(spark, self._connection, dialect, self._spec.read_timeout_s)
