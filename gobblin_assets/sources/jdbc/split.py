"""Cut an interval into the intervals of WorkUnits: they follow each other without gap or overlap."""

import datetime as dt
import itertools
from collections.abc import Sequence

from gobblin_assets.model.interval import Interval
from gobblin_assets.model.watermark import Scalar, Watermark


def decide_count(row_count: int | None, work_unit_rows: int, count_max: int) -> int:
    """How many WorkUnits; one when nobody knows how many rows there are."""
    return 1 if row_count is None else max(1, min(count_max, -(-row_count // work_unit_rows)))


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


def _offsets(span: int, count: int) -> list[int]:
    # In whole numbers, so that spans of 64 bits lose nothing.
    return sorted({span * step // count for step in range(1, count)} - {0}) if span > 0 else []
