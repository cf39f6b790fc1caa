"""Cutting an interval: the pieces cover it exactly, never overlap, and are not too many."""

import datetime as dt
import itertools
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.model.interval import Interval
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.watermark import Watermark, WatermarkType, long_watermark
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from gobblin_assets.sources.jdbc.catalog import Estimate
from gobblin_assets.sources.jdbc.split import (
    Readers,
    cut_interval,
    decide_count,
    decide_fetch_size,
    equal_width_points,
    extend_quantiles,
    quantile_points,
)
from gobblin_assets.spec.job_spec import SplitSpec

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


@pytest.mark.parametrize(
    ("rows", "work_unit_rows", "count"),
    [(None, 10, 1), (0, 10, 1), (11, 10, 2), (10**9, 10, 20), (None, None, 1), (0, None, 1), (10**9, None, 20)],
)
def test_the_count_follows_the_rows_and_its_bound(rows: int | None, work_unit_rows: int | None, count: int) -> None:
    assert decide_count(Estimate(rows, 100), SplitSpec(work_unit_rows=work_unit_rows), Readers(4)) == count


@pytest.mark.parametrize(
    ("rows", "row_bytes", "processors", "count"),
    [
        (100_000, 100, 4, 1),
        (300_000, 100, 4, 3),
        (900_000, 100, 4, 4),
        (900_000, None, 1, 1),
        (2_500_000, 100, 1, 3),
        (2_500_000, 100, 2, 4),
        (2_500_000, 100, 4, 4),
        (4_500_000, 100, 4, 8),
        (5_000, 10_000, 4, 2),
        (5_000, None, 4, 1),
        (900_000, 100, 64, 8),
    ],
)
def test_processors_read_equal_parts_of_what_is_worth_it(
    rows: int, row_bytes: int | None, processors: int, count: int
) -> None:
    assert decide_count(Estimate(rows, row_bytes), SplitSpec(), Readers(processors)) == count
    assert decide_count(Estimate(rows, row_bytes), SplitSpec(max_partitions=2), Readers(processors)) == min(count, 2)
    assert decide_count(Estimate(rows, row_bytes), SplitSpec(work_unit_rows=10**9), Readers(processors)) == 1


@pytest.mark.parametrize(
    ("rows", "split", "slots", "count"),
    [
        # One task: no more readers than its rows are worth, and no more than it has slots.
        (900_000, {}, 64, 9),
        (1_900_000, {}, 4, 4),
        # Each task has readers for the cluster, since few tasks run at once.
        (6_000_000, {}, 16, 48),
        (100_000_000, {}, 16, 128),
        # The database has an end as well.
        (100_000_000, {}, 1_000, 256),
        (100_000_000, {"max_multi_work_units": 2}, 16, 32),
        # What the job says goes first.
        (100_000_000, {"max_partitions": 20}, 16, 20),
        (100_000_000, {"work_unit_rows": 1_000_000}, 16, 100),
        (100_000_000, {"work_unit_rows": 1_000_000, "max_partitions": 30}, 16, 30),
        (100_000_000, {"work_unit_rows": 1_000}, 16, 128),
    ],
)
def test_spark_on_a_cluster_reads_by_its_slots(rows: int, split: dict[str, int], slots: int, count: int) -> None:
    assert decide_count(Estimate(rows, 100), SplitSpec(**split), Readers(2, slots)) == count


def test_without_a_shared_snapshot_only_large_reads_are_divided_on_a_cluster_too() -> None:
    for rows, count in [(900_000, 1), (30_000_000, 30)]:
        assert decide_count(Estimate(rows, 100), SplitSpec(), Readers(2, 64, divided=False)) == count
    assert decide_count(Estimate(30_000_000, 100), SplitSpec(), Readers(2, divided=False)) == 20


@pytest.mark.parametrize(
    ("row_bytes", "columns", "fetched"),
    [(100, 12, 10_000), (1_400, 200, 676), (2 << 20, 2, 1), (8 << 20, 1, 1), (None, 5, 10_000), (None, 100, 748)],
)
def test_a_round_trip_holds_a_bounded_number_of_bytes(row_bytes: int | None, columns: int, fetched: int) -> None:
    units = [
        WorkUnit(WorkUnitId(uuid.uuid4()), DatasetUrn("t"), WHOLE, "t", 0, None,
                 estimated_row_count=rows, estimated_bytes=None if row_bytes is None else row_bytes * rows)
        for rows in (0, 1_000)
    ]  # fmt: skip
    assert decide_fetch_size(units, columns) == fetched


@pytest.mark.parametrize(
    "make",
    [
        lambda n: n,
        lambda n: dt.date(2020, 1, 1) + dt.timedelta(n),
        lambda n: dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(n),
    ],
)
def test_what_was_added_since_the_histogram_was_made_is_as_dense_as_the_rest(make: Callable[[int], Any]) -> None:
    known = [make(number) for number in range(0, 101, 10)]
    grown = [make(number) for number in range(0, 141, 10)]
    assert extend_quantiles(known, make(140), 1.0) == grown
    assert extend_quantiles(known, make(140), 0.0) == known
    # A table that shrank since its statistics were made.
    assert extend_quantiles(known, make(140), -0.9) == known
    assert extend_quantiles(known, make(100), 1.0) == known
    assert extend_quantiles(known[:1], make(140), 1.0) == known[:1]
    # One row far away is no sign of many: as many are added as the table has grown by.
    assert extend_quantiles(known, make(100_100), 0.2) == [*known, make(50_100), make(100_100)]


def test_texts_are_left_as_they_are() -> None:
    assert extend_quantiles(["a", "b"], "z", 1.0) == ["a", "b"]


def kind_of(value: object) -> WatermarkType:
    return WatermarkType.LOCAL_TIMESTAMP if isinstance(value, dt.datetime) else WatermarkType.DATE
