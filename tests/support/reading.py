"""What a JDBC source reads, as texts that no zone of this process changes."""

from collections import Counter

from pyspark.sql import types as T  # noqa: N812  (pyspark's own name for it)

from gobblin_assets.sources.port import PartitionPlan, PlanRequest
from tests.support.jdbc import Bench

Rows = Counter[tuple[str | None, ...]]
"""A multiset."""


def run(bench: Bench, request: PlanRequest) -> tuple[PartitionPlan, Rows]:
    """The plan, and all rows; bytes in hexadecimal."""
    with bench.source.open_plan(lambda: bench.spark, bench.reports.append) as session:
        plan = session.plan(request)
        frame = bench.read(session, plan, request)
        kinds = {f"c{n}": field.dataType for n, field in enumerate(frame.schema.fields)}
        shown = frame.toDF(*kinds).selectExpr(*[
            f"hex({name})" if isinstance(kind, T.BinaryType) else f"CAST({name} AS STRING)"
            for name, kind in kinds.items()
        ])  # fmt: skip
        try:
            return plan, Counter(tuple(row) for row in shown.collect())
        except Exception as error:
            raise session.explain_failure(plan, request.spec, error) from error


def read_types(bench: Bench, request: PlanRequest) -> list[str]:
    """Spark's types of the columns."""
    with bench.source.open_plan(lambda: bench.spark, bench.reports.append) as session:
        frame = bench.read(session, session.plan(request), request)
        return [field.dataType.simpleString() for field in frame.schema.fields]


def firsts(rows: Rows) -> list[str | None]:
    """The first column, sorted, repeats kept."""
    return sorted((row[0] for row in rows.elements()), key=str)
