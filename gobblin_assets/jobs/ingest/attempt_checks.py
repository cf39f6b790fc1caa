"""Checks of every attempt, whether Spark or Arrow reads its rows."""

from collections.abc import Iterable, Mapping, Sequence

from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.rows.column_names import require_distinct_fields
from gobblin_assets.run.job_kind import WorkOrder
from gobblin_assets.sources.source_port import read_plan_of


def require_readable(orders: Sequence[WorkOrder], schemas: Iterable[Mapping[str, object]]) -> None:
    """Refuse to write rows that could not be read, alone or together with the published rows.

    ``schemas``: Spark's JSON of what is written.
    """
    for schema in schemas:
        require_distinct_fields(schema, label=f"dataset {orders[0].plan.urn!r}", field="converters")
        for order in orders:
            if any(each != schema for each in order.schemas_beside):
                _require_joinable(order, schema)


def _require_joinable(order: WorkOrder, schema: Mapping[str, object]) -> None:
    from gobblin_assets.rows.schema_merge import parse_schema, require_joinable  # noqa: PLC0415  Spark's types take 0.25 s

    require_joinable(
        parse_schema(schema),
        [parse_schema(each) for each in order.schemas_beside],
        allow_retyped=read_plan_of(order.plan).spec.schema_change.allow_retyped,
        label=f"dataset {order.plan.urn!r}",
        field=f"datasets[{order.plan.urn}].schema_change",
    )


def position_columns(order: WorkOrder) -> tuple[str, ...]:
    rules = read_plan_of(order.plan)
    watermark = rules.spec.watermark
    if rules.watermark_column is None or watermark is None or order.plan.is_snapshot:
        return ()
    return (watermark.column,) if watermark.key_column is None else (watermark.column, watermark.key_column)


def require_below(order: WorkOrder, high: Watermark | None) -> None:
    """Require that the source kept the pinned bound: the next run would read rows above it again, and double them."""
    ends = [unit.interval.high for unit in order.units if unit.interval is not None]
    if high is not None and ends and high.type is ends[0].type and high >= max(ends):
        raise CorruptionError(
            f"{order.plan.urn}: the source gave a row at {high}, which is not below the bound {max(ends)}",
            hint="Nothing that this task read was published. Does the watermark column change while it is read?",
        )
