"""Cutting an interval: the pieces cover it exactly, never overlap, and are not too many."""

import datetime as dt
import itertools

from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.model.interval import Interval
from gobblin_assets.model.watermark import Watermark, WatermarkType, long_watermark
from gobblin_assets.sources.jdbc.split import cut_interval, decide_count, equal_width_points, quantile_points

_LONGS = st.integers(-(2**63), 2**63 - 1)
_MOMENTS = st.datetimes()


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    low, high = sorted((draw(_LONGS), draw(_LONGS)))
    return Interval(draw(st.sampled_from([None, long_watermark(low)])), long_watermark(high))


@given(intervals(), st.lists(_LONGS, max_size=30))
def test_pieces_cover_the_interval_exactly_and_never_overlap(interval: Interval, points: list[int]) -> None:
    pieces = cut_interval(interval, [long_watermark(point) for point in points])
    assert pieces[0].low == interval.low
    assert pieces[-1].high == interval.high
    for earlier, later in itertools.pairwise(pieces):
        assert earlier.high == later.low
        assert not earlier.overlaps(later)
    assert interval.is_empty or not any(piece.is_empty for piece in pieces)


@given(_LONGS, _LONGS, st.integers(1, 40))
def test_even_cuts_of_numbers_stay_in_bounds_and_within_one_of_each_other(one: int, other: int, count: int) -> None:
    first, last = sorted((one, other))
    points = equal_width_points(first, last, count)
    assert len(points) <= count - 1
    assert all(isinstance(p, int) and first < p <= last for p in points)
    if last - first >= count:
        widths = [b - a for a, b in itertools.pairwise([first, *points, last])]  # type: ignore[operator]  # integers
        assert max(widths) - min(widths) <= 1


@given(_MOMENTS, _MOMENTS, st.integers(1, 40))
def test_even_cuts_of_times_ascend_inside_the_span(one: dt.datetime, other: dt.datetime, count: int) -> None:
    first, last = sorted((one, other))
    for points in (equal_width_points(first, last, count), equal_width_points(first.date(), last.date(), count)):
        assert len(points) <= count - 1
        marks = [Watermark(kind_of(point), point) for point in points]
        assert all(a < b for a, b in itertools.pairwise(marks))


@given(st.lists(_LONGS, max_size=100), intervals(), st.integers(2, 40))
def test_cuts_by_quantiles_never_make_more_pieces_than_asked(ranks: list[int], interval: Interval, count: int) -> None:
    quantiles = [long_watermark(rank) for rank in sorted(ranks)]
    assert len(cut_interval(interval, quantile_points(quantiles, interval, count))) <= count


def test_the_count_follows_the_rows_and_its_bound() -> None:
    assert decide_count(None, 10, 20) == 1
    assert decide_count(0, 10, 20) == 1
    assert decide_count(11, 10, 20) == 2
    assert decide_count(10**9, 10, 20) == 20


def kind_of(value: object) -> WatermarkType:
    return WatermarkType.LOCAL_TIMESTAMP if isinstance(value, dt.datetime) else WatermarkType.DATE
