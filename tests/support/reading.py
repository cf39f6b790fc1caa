"""The values that a JDBC source reads, as texts that no zone of this process changes."""

from collections import Counter

from pyspark.sql import types as T  # noqa: N812  (pyspark's own name for it)

from gobblin_assets.run.job_kind import UnitPlan
from gobblin_assets.sources.source_port import SourceRequest, read_plan_of
from tests.support.jdbc import Bench

Rows = Counter[tuple[str | None, ...]]
"""A multiset of rows."""


def run(bench: Bench, request: SourceRequest) -> tuple[UnitPlan, Rows]:
    """The plan, and all rows; bytes in hexadecimal."""
    plan, _types, rows = run_typed(bench, request)
    return plan, rows


def run_typed(bench: Bench, request: SourceRequest) -> tuple[UnitPlan, list[str], Rows]:
    """The same with Spark's types of the columns."""
    with bench.source.open_plan(lambda: bench.spark, bench.reports.append) as session:
        plan = session.plan(request)
        frame = bench.read(plan)
        types = [field.dataType.simpleString() for field in frame.schema.fields]
        kinds = {f"c{n}": field.dataType for n, field in enumerate(frame.schema.fields)}
        shown = frame.toDF(*kinds).selectExpr(*[
            f"hex({name})" if isinstance(kind, T.BinaryType) else f"CAST({name} AS STRING)"
            for name, kind in kinds.items()
        ])  # fmt: skip
        try:
            return plan, types, Counter(tuple(row) for row in shown.collect())
        except Exception as error:
            raise read_plan_of(plan).reader.explain(error) from error


def firsts(rows: Rows) -> list[str | None]:
    """The first column, sorted, repeats kept."""
    return sorted((row[0] for row in rows.elements()), key=str)
