"""The JDBC source: opens a view of the database, plans in it, and gives DataFrames of what was planned."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.sources.discovery import Discovery, find_changes
from gobblin_assets.sources.jdbc.catalog import Catalog
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.description import TableDescription, describe_table
from gobblin_assets.sources.jdbc.dialects.choice import dialect_of
from gobblin_assets.sources.jdbc.expressions import require_expressions
from gobblin_assets.sources.jdbc.failures import find_refused_value, judge_driver
from gobblin_assets.sources.jdbc.layout import Layout, hidden_columns
from gobblin_assets.sources.jdbc.planning import CONDITION, SPLIT_BY, WITH_NULLS, Planner
from gobblin_assets.sources.jdbc.positions import write_interval
from gobblin_assets.sources.jdbc.postgres import open_postgres
from gobblin_assets.sources.jdbc.spark_catalog import SparkCatalog
from gobblin_assets.sources.jdbc.spark_values import read_values, wire_schema
from gobblin_assets.sources.port import PartitionPlan, PlanRequest, PlanSession
from gobblin_assets.spec.job_spec import DatasetSpec, JdbcSourceSpec

_NOTHING: Final = "1 = 0"


class JdbcPlanSession:
    """One run's view. ``plan`` is for one thread; ``read`` and ``explain_failure`` may be called from many."""

    def __init__(
        self,
        catalog: Catalog,
        connection: JdbcConnection,
        new_id: Callable[[], uuid.UUID],
    ) -> None:
        self._catalog = catalog
        self._connection = connection
        self._planner = Planner(catalog, new_id)
        self._layouts: dict[tuple[DatasetUrn, AssetPartition], Layout] = {}
        self._zone_is_known = False

    def plan(self, request: PlanRequest) -> PartitionPlan:
        require_expressions(request.spec, request.urn, self._connection.subprotocol)
        try:
            plan, layout = self._planner.plan(request)
        except RejectedError as error:
            if error.field != "datasets":
                raise
            # The database spoke of a query of ours; say whose it was.
            message = error.message.removeprefix("datasets: ")
            raise RejectedError(message, field=f"datasets[{request.urn}]", hint=error.hint) from None
        self._layouts[plan.urn, plan.partition] = layout
        return plan

    def read(self, spark: SparkSession, plan: PartitionPlan, spec: DatasetSpec, units: Sequence[WorkUnit]) -> DataFrame:
        layout = self._layouts[plan.urn, plan.partition]
        dialect = self._catalog.dialect
        needed = [unit for unit in units if not unit.is_empty]
        split_by = next((unit.properties[SPLIT_BY] for unit in needed if SPLIT_BY in unit.properties), None)
        hidden = hidden_columns(dialect, layout, split_by)
        conditions = [self._write_condition(layout, unit) for unit in needed] or [_NOTHING]
        try:
            if not self._zone_is_known:
                _require_utc(spark)
                self._zone_is_known = True
            frame = spark.read.jdbc(
                self._connection.spark_url,
                f"({layout.source_query(dialect, hidden)}) gobblin_source",
                predicates=conditions,
                properties=self._properties(spec, layout),
            )
            frame = read_values(frame, layout.columns)
        except Exception as error:  # noqa: BLE001  (py4j raises its own errors, which no family of pyspark's covers)
            raise self.explain_failure(plan, spec, error) from None
        return frame.toDF(*[column.name for column in layout.columns])

    def explain_failure(self, plan: PartitionPlan, spec: DatasetSpec, error: Exception) -> Exception:  # noqa: ARG002  (the port's)
        layout = self._layouts.get((plan.urn, plan.partition))
        if layout is not None:
            positions = () if layout.axis is None else layout.axis.columns
            found = find_refused_value(error, layout.columns, str(layout.table.name), plan.urn, positions=positions)
            if found is not None:
                return found
        return judge_driver(error, self._connection)

    def _write_condition(self, layout: Layout, unit: WorkUnit) -> str:
        dialect = self._catalog.dialect
        if unit.interval is None:
            return str(unit.properties.get(CONDITION, "1 = 1"))
        if layout.axis is None:
            raise RejectedError("an interval needs a column of positions", field=f"datasets[{unit.dataset}].watermark")
        names = tuple(dialect.quote(f"w{number}") for number in range(len(layout.axis.columns)))
        low = unit.interval.low if unit.reread_from is None else unit.reread_from
        condition = write_interval(dialect, layout.axis, names, Interval(low, unit.interval.high))
        if unit.properties.get(WITH_NULLS):
            return f"(({condition}) OR {' OR '.join(f'{name} IS NULL' for name in names)})"
        if len(names) > 1:
            # A NULL in the second column leaves the comparison true where the first alone decides it.
            return f"({condition}) AND {names[1]} IS NOT NULL"
        return condition

    def _properties(self, spec: DatasetSpec, layout: Layout) -> dict[str, str]:
        schema = wire_schema(layout.columns)
        return {
            **self._connection.spark_properties(),
            **self._catalog.read_properties(spec.split.fetch_size_rows),
            **({"customSchema": schema} if schema else {}),
            "preferTimestampNTZ": "true",
            # Filters of converters stay in Spark: the source compares texts by its own collation.
            "pushDownPredicate": "false",
        }


class JdbcSource:
    """Tables of one connection. Nothing connects before ``open_plan`` or ``discover``.

    ``known`` are the tables that the definitions were made from, where patterns chose them: a run says when
    the source has others now.
    """

    def __init__(
        self,
        connection: JdbcConnection,
        spec: JdbcSourceSpec,
        new_id: Callable[[], uuid.UUID] | None = None,
        *,
        known: Discovery | None = None,
    ) -> None:
        self._connection = connection
        self._spec = spec
        self._known = known
        self._new_id = new_id or SystemClock().new_id

    def open_plan(
        self,
        spark: Callable[[], SparkSession],
        report: Callable[[str], None],
        requests: Sequence[PlanRequest] = (),  # noqa: ARG002  the port's
    ) -> AbstractContextManager[PlanSession]:
        return self._open(spark, report)

    def discover(self, spark: Callable[[], SparkSession]) -> Sequence[str]:
        with self._open_catalog(spark) as catalog:
            return [str(name) for name in catalog.list_tables()]

    def describe(
        self, spark: Callable[[], SparkSession], datasets: Mapping[DatasetUrn, DatasetSpec]
    ) -> Sequence[TableDescription]:
        """What the source says of each dataset's table, some questions each: for those that a person asks about."""
        with self._open_catalog(spark) as catalog:
            return [describe_table(catalog, urn, spec) for urn, spec in datasets.items()]

    @contextmanager
    def _open(self, spark: Callable[[], SparkSession], report: Callable[[str], None]) -> Iterator[PlanSession]:
        with self._open_catalog(spark) as catalog:
            report(self._describe_view())
            if self._known is not None and self._spec.include:
                now = [str(name) for name in catalog.list_tables()]
                if changes := find_changes(self._known, now, self._spec):
                    report(changes)
            yield JdbcPlanSession(catalog, self._connection, self._new_id)

    def _describe_view(self) -> str:
        """What a reader of the run's notes has to know of this database."""
        if self._connection.subprotocol == "postgresql":
            return "one snapshot of the source is open for all readers"
        dialect = dialect_of(self._connection.subprotocol)
        if dialect.is_experimental:
            return f"{dialect.title} is read experimentally: by its documentation, and never tried against a server"
        return f"{dialect.title} shares no snapshot: each reader sees the source at its own moment"

    @contextmanager
    def _open_catalog(self, spark: Callable[[], SparkSession]) -> Iterator[Catalog]:
        if self._connection.subprotocol == "postgresql":
            with open_postgres(self._connection, self._spec.read_timeout_s) as catalog:
                yield catalog
        else:
            dialect = dialect_of(self._connection.subprotocol)
            yield SparkCatalog(spark, self._connection, dialect, self._spec.read_timeout_s)


def _require_utc(spark: SparkSession) -> None:
    """Drivers turn times into moments by the JVM's zone; in any zone but UTC some would be changed on the way."""
    zone = spark.sql("SELECT reflect('java.util.TimeZone', 'getDefault')").collect()[0][0]
    if not any(f'id="{name}"' in zone for name in ("UTC", "Etc/UTC", "GMT", "Z")):
        raise RejectedError(
            "Spark's Java runs in a zone other than UTC",
            field="spark.conf",
            hint="Set spark.driver.extraJavaOptions and spark.executor.extraJavaOptions to -Duser.timezone=UTC.",
            zone=zone,
        )
