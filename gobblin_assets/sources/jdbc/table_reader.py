"""A reader of the WorkUnits of one plan of a table: by queries that Spark's JDBC source sends, one for each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.sources.jdbc.catalog import Catalog
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.failures import find_refused_value, judge_driver
from gobblin_assets.sources.jdbc.layout import Layout, hidden_columns
from gobblin_assets.sources.jdbc.planning import SPLIT_BY, write_unit
from gobblin_assets.sources.jdbc.split import decide_fetch_size
from gobblin_assets.sources.source_port import ReadPlan, SharedRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOTHING: Final = "1 = 0"


class ZoneCheck:
    """A check whether Spark's Java runs in UTC: asked once for all tables of a run."""

    def __init__(self) -> None:
        self._is_known = False

    def require_utc(self, spark: "SparkSession") -> None:
        """Drivers turn times into moments by the JVM's zone; in any but UTC some would be changed on the way."""
        if self._is_known:
            return
        zone = spark.sql("SELECT reflect('java.util.TimeZone', 'getDefault')").collect()[0][0]
        if not any(f'id="{name}"' in zone for name in ("UTC", "Etc/UTC", "GMT", "Z")):
            raise RejectedError(
                "Spark's Java runs in a zone other than UTC",
                field="spark.conf",
                hint="Set spark.driver.extraJavaOptions and spark.executor.extraJavaOptions to -Duser.timezone=UTC.",
                zone=zone,
            )
        self._is_known = True


class TableReader:
    """``Reader`` of one plan."""

    def __init__(
        self,
        catalog: Catalog,
        connection: JdbcConnection,
        layout: Layout,
        urn: DatasetUrn,
        fetch_size_rows: int | None,
        zone: ZoneCheck,
    ) -> None:
        self._catalog = catalog
        self._connection = connection
        self._layout = layout
        self._urn = urn
        self._fetch_size_rows = fetch_size_rows
        self._zone = zone

    def read(self, spark: "SparkSession", units: Sequence[WorkUnit]) -> "DataFrame":
        from gobblin_assets.sources.jdbc.spark_values import read_values, wire_schema  # noqa: PLC0415  Arrow needs no Spark

        layout, dialect = self._layout, self._catalog.dialect
        needed = [unit for unit in units if not unit.is_empty]
        split_by = next((unit.properties[SPLIT_BY] for unit in needed if SPLIT_BY in unit.properties), None)
        hidden = hidden_columns(dialect, layout, split_by)
        conditions = [write_unit(dialect, layout, unit) for unit in needed] or [_NOTHING]
        try:
            self._zone.require_utc(spark)
            frame = spark.read.jdbc(
                self._connection.spark_url,
                f"({layout.source_query(dialect, hidden)}) gobblin_source",
                predicates=conditions,
                properties=self._properties(needed, wire_schema(layout.columns)),
            )
            frame = read_values(frame, layout.columns)
        except Exception as error:  # noqa: BLE001  (py4j raises its own errors, which no family of pyspark's covers)
            raise self.explain(error) from None
        return frame.toDF(*[column.name for column in layout.columns])

    def read_together(
        self,
        spark: "SparkSession",  # noqa: ARG002  the port's
        parts: Sequence[tuple[ReadPlan, Sequence[WorkUnit]]],  # noqa: ARG002  the port's
    ) -> SharedRows:
        raise CorruptionError(f"{self._urn} is a table, and tables are read by themselves")

    def learn(self, error: Exception) -> None:
        """Nothing: each try reads in the same way."""

    def explain(self, error: Exception) -> Exception:
        layout = self._layout
        positions = () if layout.axis is None else layout.axis.columns
        found = find_refused_value(error, layout.columns, str(layout.table.name), self._urn, positions=positions)
        return found or judge_driver(error, self._connection)

    def _properties(self, units: Sequence[WorkUnit], schema: str) -> dict[str, str]:
        fetch_size_rows = self._fetch_size_rows or decide_fetch_size(units, len(self._layout.columns))
        return {
            **self._connection.spark_properties(),
            **self._catalog.read_properties(fetch_size_rows),
            **({"customSchema": schema} if schema else {}),
            "preferTimestampNTZ": "true",
            # Filters of converters stay in Spark: the source compares texts by its own collation.
            "pushDownPredicate": "false",
        }
