"""Cut an interval into the intervals of WorkUnits: they follow each other without gap or overlap."""

import datetime as dt
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.model.interval import Interval
from gobblin_assets.model.watermark import Scalar, Watermark
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.sources.jdbc.catalog import Estimate
from gobblin_assets.spec.job_spec import WORK_UNIT_ROWS, SplitSpec

# A query for fewer rows or bytes costs more than it gains. Each needs a connection of its own.
_READER_ROWS_MIN: Final = 100_000
_READER_BYTES_MIN: Final = 16 << 20
_READERS_MAX: Final = 8
# Of a task on a cluster. Two tasks run at once, and a database serves about a hundred connections if nobody says more.
_READERS_OF_TASK_MAX: Final = 32
_FETCH_BYTES: Final = 4 << 20
_FETCH_ROWS_MAX: Final = 10_000
# What drivers hold of a value beside its bytes.
_VALUE_OVERHEAD_BYTES: Final = 24
_VALUE_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Readers:
    """The readers of a table's WorkUnits at once.

    ``slots``: of the cluster on which Spark reads it; None: it is read on this machine, or nobody knows. ``divided``:
    a read may be divided for readers alone, since all see the source at one moment.
    """

    processors: int
    slots: int | None = None
    divided: bool = True


def decide_count(estimate: Estimate, split: SplitSpec, readers: Readers) -> int:
    """How many WorkUnits; one when nobody knows how many rows there are.

    Where the job does not say how large they are, each reader gets equally many. Readers are up to eight processors, or
    the slots of a cluster, as many again for each task that the rows are worth. Unless the job says how many WorkUnits
    there may be, there may be one for each of these slots.
    """
    rows = estimate.row_count
    if rows is None:
        return 1
    count, most = min(readers.processors, _READERS_MAX), split.max_partitions
    if readers.slots is not None:
        tasks = max(1, min(split.max_multi_work_units, -(-rows // split.task_rows_min)))
        count = min(readers.slots, _READERS_OF_TASK_MAX) * tasks
        most = most if "max_partitions" in split.model_fields_set else max(most, count)
    if split.work_unit_rows is not None:
        return max(1, min(most, -(-rows // split.work_unit_rows)))
    return max(1, min(most, _share(estimate, rows, count if readers.divided else 1)))


def _share(estimate: Estimate, rows: int, readers: int) -> int:
    worth = max(rows // _READER_ROWS_MIN, rows * (estimate.row_bytes or 0) // _READER_BYTES_MIN)
    needed = -(-rows // WORK_UNIT_ROWS)
    return min(-(-needed // readers) * readers, worth)


def decide_fetch_size(units: Sequence[WorkUnit], column_count: int) -> int:
    """Rows of a round trip, for about 4 MiB of them in the driver; by a guess where the source says no width."""
    widths = [
        -(-unit.estimated_bytes // unit.estimated_row_count)
        for unit in units
        if unit.estimated_row_count and unit.estimated_bytes is not None
    ]
    row_bytes = max(widths, default=_VALUE_BYTES * column_count) + _VALUE_OVERHEAD_BYTES * column_count
    return max(1, min(_FETCH_ROWS_MAX, _FETCH_BYTES // max(row_bytes, 1)))


def cut_interval(interval: Interval, points: Sequence[Watermark]) -> tuple[Interval, ...]:
    """Cut at those of ``points`` that lie inside; any order, repeats allowed. The union is ``interval``."""
    if interval.is_empty:
        return (interval,)
    inside = sorted(
        {point for point in points if point < interval.high and (interval.low is None or interval.low < point)}
    )
    edges = [interval.low, *inside, interval.high]
    return tuple(Interval(low, high) for low, high in itertools.pairwise(edges) if high is not None)


def equal_width_points(first: Scalar, last: Scalar, count: int) -> list[Scalar]:
    """Up to ``count - 1`` ascending values in ``(first, last]`` that part the span evenly; none for texts."""
    match first, last:
        case dt.datetime(), dt.datetime():
            span = (last - first) // dt.timedelta(microseconds=1)
            return [first + dt.timedelta(microseconds=offset) for offset in _offsets(span, count)]
        case dt.date(), dt.date() if not isinstance(last, dt.datetime) and not isinstance(first, dt.datetime):
            return [first + dt.timedelta(days=offset) for offset in _offsets((last - first).days, count)]
        case int(), int():
            return [first + offset for offset in _offsets(last - first, count)]
        case _:
            return []


def quantile_points(quantiles: Sequence[Watermark], interval: Interval, count: int) -> list[Watermark]:
    """Up to ``count - 1`` of the quantiles inside ``interval``, evenly spaced by rank."""
    inside = [q for q in quantiles if q < interval.high and (interval.low is None or interval.low < q)]
    ranks = (len(inside) * step // count for step in range(1, count))
    return [inside[rank] for rank in ranks] if inside else []


def extend_quantiles(values: Sequence[Scalar], last: Scalar, growth: float) -> list[Scalar]:
    """The same, and more up to ``last``: as dense as the others, and at most ``growth`` times as many.

    Where rows come in ascending order, what is known of a table says nothing of its newest rows.
    """
    steps = len(values) - 1
    if steps < 1:
        return list(values)
    first, end = values[0], values[-1]
    match first, end, last:
        case (
            (int(), int(), int()) | (dt.datetime(), dt.datetime(), dt.datetime()) | (dt.date(), dt.date(), dt.date())
        ) if first < end < last:  # type: ignore[operator]  # of one type
            dense: int = (last - end) * steps // (end - first)  # type: ignore[operator, assignment]  # the same
        case _:
            return list(values)
    added = min(dense, int(growth * steps))
    return [*values, *equal_width_points(end, last, added), last] if added > 0 else list(values)


def _offsets(span: int, count: int) -> list[int]:
    # In whole numbers, so that spans of 64 bits lose nothing.
    return sorted({span * step // count for step in range(1, count)} - {0}) if span > 0 else []
