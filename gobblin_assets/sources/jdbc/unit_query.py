"""The rows of a layout that one WorkUnit reads, in the source's SQL."""

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.sources.jdbc.dialect import Dialect
from gobblin_assets.sources.jdbc.layout import Layout
from gobblin_assets.sources.jdbc.planning import CONDITION, WITH_NULLS
from gobblin_assets.sources.jdbc.positions import write_interval


def write_unit(dialect: Dialect, layout: Layout, unit: WorkUnit) -> str:
    """The condition on ``Layout.source_query`` with its ``hidden_columns``."""
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
        # If the first column alone decides the comparison, it is true even with NULL in the second column.
        return f"({condition}) AND {names[1]} IS NOT NULL"
    return condition
