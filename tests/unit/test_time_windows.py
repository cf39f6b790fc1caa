"""Windows of every zone, around every clock change: Dagster's keys, and each moment in exactly one window."""

import datetime as dt
import itertools
from collections.abc import Iterable, Iterator
from zoneinfo import ZoneInfo

import pytest

from gobblin_assets.dagster.partitions import build_partitions_def
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.extract import ExtractType, Mode
from gobblin_assets.model.partition import AssetPartition, PartitionKind, PartitionWindow
from gobblin_assets.model.state import DatasetId, DatasetState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import Watermark, WatermarkType
from gobblin_assets.sources.jdbc.bounds import Limits, plan_limits, plan_window, read_clock
from gobblin_assets.sources.jdbc.positions import Axis, least_wall_from
from gobblin_assets.sources.source_port import SourceRequest
from gobblin_assets.spec.dataset_rules import check_dataset
from gobblin_assets.spec.job_options import PartitionsSpec
from gobblin_assets.spec.job_spec import DatasetSpec, WatermarkSpec
from gobblin_assets.spec.partition_keys import asset_partition, boundary_of, list_time_partitions, open_partition
from tests.support.shares import Share
from tests.support.zones import ODD_ZONES, Transition, all_zones, distinct_transitions, list_transitions

URN = DatasetUrn("orders")
HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
TRANSITIONS_OF = 6
"""A run tries one in so many kinds of clock changes; the thorough test tries every change."""
MICROSECOND = dt.timedelta(microseconds=1)
CALENDAR = {
    PartitionKind.DAILY: 4 * DAY,
    PartitionKind.WEEKLY: 15 * DAY,
    PartitionKind.MONTHLY: 70 * DAY,
}
WALL, DATE = Axis("at", WatermarkType.LOCAL_TIMESTAMP), Axis("day", WatermarkType.DATE)


def dataset(kind: PartitionKind, zone: str, start: dt.date, end: dt.datetime | None = None) -> DatasetSpec:
    partitions = PartitionsSpec(kind=kind, zone=zone, start=start, end=end)
    watermark = WatermarkSpec(column="at", zone=zone, commit_lag_s=0)
    return DatasetSpec(urn=URN, extract=ExtractType.APPEND_ONLY, watermark=watermark, partitions=partitions)


def request_of(spec: DatasetSpec, partition: AssetPartition) -> SourceRequest:
    return SourceRequest(
        URN, partition, DatasetState(DatasetId(1), JobName("j"), URN, 0), Mode.APPEND, by_hand=False, spec=spec
    )


def limits_of(request: SourceRequest, axis: Axis, clock: dt.datetime) -> Limits:
    times, window = read_clock(request, axis, clock), plan_window(request, axis)
    return plan_limits(request, axis, Mode.APPEND, None, times, window)


def window_of(partition: AssetPartition) -> PartitionWindow:
    assert partition.window is not None
    return partition.window


def first_day(kind: PartitionKind, near: dt.date) -> dt.date:
    """A day on which a window of that kind begins, up to a month before ``near``."""
    if kind is PartitionKind.WEEKLY:
        return near - (near.isoweekday() % 7) * DAY
    return near.replace(day=1) if kind is PartitionKind.MONTHLY else near


def around(transition: Transition, kind: PartitionKind) -> tuple[DatasetSpec, list[AssetPartition]]:
    """Neighbouring partitions from before a transition to after it."""
    zone, at = transition.zone.key, transition.at
    moved = abs(transition.after - transition.before)
    reach = CALENDAR.get(kind, 2 * HOUR + moved)
    start = min(transition.wall.date(), (at + transition.before).date()) - reach - DAY
    spec = dataset(kind, zone, first_day(kind, start))
    first, last = open_partition(spec, at - reach), open_partition(spec, at + reach)
    keys = list(list_time_partitions(spec, first.key or "", last.key or ""))
    assert (keys[0], keys[-1]) == (first.key, last.key)
    return spec, [asset_partition(spec, key) for key in keys]


def positions_of(spec: DatasetSpec, partitions: Iterable[AssetPartition], axis: Axis) -> list[tuple[object, object]]:
    found: list[tuple[object, object]] = []
    for partition in partitions:
        low, high = plan_window(request_of(spec, partition), axis)
        assert low is not None
        assert high is not None
        found.append((low.value, high.value))
    return found


def require_tiles(edges: list[tuple[object, object]]) -> None:
    assert all(low <= high for low, high in edges), edges  # type: ignore[operator]  # both are times, or dates
    assert all(one[1] == next_one[0] for one, next_one in itertools.pairwise(edges)), edges


def moments_around(transition: Transition) -> Iterator[dt.datetime]:
    """Moments in both passes of an hour that clocks show twice, and at the edges of an hour that they skip."""
    moved = abs(transition.after - transition.before)
    for part in (-1, -0.75, -0.5, -0.25, 0.25, 0.5, 0.75, 1):
        yield transition.at + part * moved
    yield from (transition.at - MICROSECOND, transition.at, transition.at + MICROSECOND)


def check_tiling(transition: Transition) -> None:
    moments = list(moments_around(transition))
    for kind in (PartitionKind.HOURLY, *CALENDAR):
        spec, partitions = around(transition, kind)
        windows = [window_of(partition) for partition in partitions]
        require_tiles([(window.start, window.end) for window in windows])
        walls = positions_of(spec, partitions, WALL)
        require_tiles(walls)
        if kind is not PartitionKind.HOURLY:
            require_tiles(positions_of(spec, partitions, DATE))
        for moment in moments:
            opened = open_partition(spec, moment)
            assert window_of(opened).start <= moment < window_of(opened).end
            assert opened in partitions
            # One window reads a row that is written now, and the row is there when that window is over.
            shown = moment.astimezone(transition.zone).replace(tzinfo=None)
            [taken] = [number for number, (low, high) in enumerate(walls) if low <= shown < high]  # type: ignore[operator]  # wall times
            assert windows[taken].end > moment


def check_ceiling(transition: Transition) -> None:
    """No row is written any more below the end of a run's read."""
    moments = sorted(moments_around(transition))
    least = [least_wall_from(moment, transition.zone) for moment in moments]
    shown = [moment.astimezone(transition.zone).replace(tzinfo=None, fold=0) for moment in moments]
    after = min(transition.wall, shown[-1])
    for number, value in enumerate(least):
        later = min(shown[number:])
        assert value == (min(later, after) if moments[number] < transition.at else later), moments[number]


def check_keys(transition: Transition) -> None:
    """Compare with Dagster's own list of keys, for the definition that it gets from us."""
    for kind in (PartitionKind.HOURLY, *CALENDAR):
        spec, partitions = around(transition, kind)
        bounded = dataset(
            kind, transition.zone.key, spec.partitions.start or dt.date.min, window_of(partitions[-1]).end
        )
        check_dataset(bounded, "datasets[0]", has_own_positions=False)
        theirs = build_partitions_def(bounded.partitions, job=JobName("j"), urn=URN)
        assert theirs is not None
        keys = theirs.get_partition_keys(current_time=transition.at + 400 * DAY)
        assert keys == list(list_time_partitions(bounded, keys[0], partitions[-1].key or ""))
        assert keys[-len(partitions) :] == [partition.key for partition in partitions]
        assert len(set(keys)) == len(keys)


def test_every_zone_s_windows_tile_around_each_kind_of_transition(share: Share) -> None:
    transitions = list(distinct_transitions(all_zones()))
    assert len(transitions) > 900
    for number in Share(share.seed, of=TRANSITIONS_OF).numbers(len(transitions), "transitions"):
        check_tiling(transitions[number])
        check_ceiling(transitions[number])


def test_keys_are_dagster_s_where_clocks_do_odd_things() -> None:
    for transition in distinct_transitions(ODD_ZONES):
        check_keys(transition)


@pytest.mark.thorough
def test_every_zone_s_windows_tile_around_every_transition_from_1970_to_2037() -> None:
    for name in all_zones():
        for transition in list_transitions(name):
            check_tiling(transition)
            check_ceiling(transition)


@pytest.mark.thorough
def test_keys_are_dagster_s_in_every_zone() -> None:
    for transition in distinct_transitions(all_zones()):
        check_keys(transition)


@pytest.mark.parametrize(
    ("zone", "kind", "key", "start", "end"),
    [
        # Two hours back: each pass has its own hours, and the second pass gets the wall times of both.
        ("Antarctica/Troll", "hourly", "2024-10-27-01:00", "2024-10-26T23:00", "2024-10-27T00:00"),
        ("Antarctica/Troll", "hourly", "2024-10-27-01:00+0000", "2024-10-27T01:00", "2024-10-27T02:00"),
        ("Antarctica/Troll", "hourly", "2024-10-27-02:00+0000", "2024-10-27T02:00", "2024-10-27T03:00"),
        ("Australia/Lord_Howe", "hourly", "2024-04-07-01:30+1030", "2024-04-06T15:00", "2024-04-06T16:00"),
        ("Australia/Lord_Howe", "hourly", "2024-04-07-02:30", "2024-04-06T16:00", "2024-04-06T17:00"),
        ("Pacific/Apia", "daily", "2011-12-29", "2011-12-29T10:00", "2011-12-30T10:00"),
        ("Pacific/Apia", "daily", "2011-12-30", "2011-12-30T10:00", "2011-12-30T10:00"),
        ("Pacific/Apia", "daily", "2011-12-31", "2011-12-30T10:00", "2011-12-31T10:00"),
        ("Africa/Cairo", "daily", "2023-04-28", "2023-04-27T22:00", "2023-04-28T21:00"),
        ("America/St_Johns", "daily", "2010-11-06", "2010-11-06T02:30", "2010-11-07T02:30"),
    ],
)
def test_known_windows(zone: str, kind: str, key: str, start: str, end: str) -> None:
    spec = dataset(PartitionKind(kind), zone, dt.date.fromisoformat(key[:8] + "01"))
    window = window_of(asset_partition(spec, key))
    assert (window.start, window.end) == tuple(dt.datetime.fromisoformat(f"{each}Z") for each in (start, end))


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Africa/Cairo", dt.date(2023, 4, 28)),
        ("America/Santiago", dt.date(2024, 9, 8)),
        ("America/Havana", dt.date(2024, 3, 10)),
        ("Asia/Beirut", dt.date(2024, 3, 31)),
        ("Pacific/Apia", dt.date(2011, 12, 30)),
        ("Pacific/Kwajalein", dt.date(1993, 8, 21)),
    ],
)
def test_dates_have_their_day_where_it_has_no_midnight_or_never_was(zone: str, day: dt.date) -> None:
    spec = dataset(PartitionKind.DAILY, zone, day - DAY)
    edges = positions_of(spec, [asset_partition(spec, str(each)) for each in (day - DAY, day, day + DAY)], DATE)
    assert edges == [(day - DAY, day), (day, day + DAY), (day + DAY, day + 2 * DAY)]


def test_hours_cut_through_days() -> None:
    spec = dataset(PartitionKind.HOURLY, "UTC", dt.date(2024, 1, 1))
    with pytest.raises(RejectedError, match="cuts through a day"):
        plan_window(request_of(spec, asset_partition(spec, "2024-01-01-00:00")), DATE)


def test_dates_of_partitions_are_over_by_the_calendar_of_the_partitions() -> None:
    # At four in the morning of the second in UTC, New York still has the first.
    spec = dataset(PartitionKind.DAILY, "America/New_York", dt.date(2024, 1, 1))
    spec = spec.model_copy(update={"watermark": WatermarkSpec(column="day")})
    clock = dt.datetime(2024, 1, 2, 4, tzinfo=dt.UTC)
    limits = limits_of(request_of(spec, asset_partition(spec, "2024-01-01")), DATE, clock)
    assert limits.ceiling == Watermark(WatermarkType.DATE, dt.date(2024, 1, 1))


def test_what_a_wall_clock_shows_again_waits_until_it_has() -> None:
    zone = ZoneInfo("Antarctica/Troll")
    shown_again = dt.datetime.fromisoformat("2024-10-27T01:00")
    for utc, expected in [
        ("2024-10-26T22:59:59Z", "2024-10-27T00:59:59"),
        ("2024-10-26T23:00:00Z", "2024-10-27T01:00"),
        ("2024-10-27T00:59:59Z", "2024-10-27T01:00"),
        ("2024-10-27T01:00:00Z", "2024-10-27T01:00"),
        ("2024-10-27T01:30:00Z", "2024-10-27T01:30"),
    ]:
        assert least_wall_from(dt.datetime.fromisoformat(utc), zone) == dt.datetime.fromisoformat(expected), utc
    spec = dataset(PartitionKind.HOURLY, "Antarctica/Troll", dt.date(2024, 10, 1))
    partition = asset_partition(spec, "2024-10-27-01:00+0000")
    clock = dt.datetime.fromisoformat("2024-10-27T00:30Z")
    limits = limits_of(request_of(spec, partition), WALL, clock)
    assert limits.ceiling == limits.low == Watermark(WatermarkType.LOCAL_TIMESTAMP, shown_again)


def test_an_end_of_hours_lies_between_two_of_them() -> None:
    spec = dataset(PartitionKind.HOURLY, "Australia/Lord_Howe", dt.date(2024, 10, 1))
    ends = {"2024-10-06T03:00": "2024-10-06 03:30:00", "2024-10-06T03:30": None}
    for end, expected in ends.items():
        bounded = ending_at(spec, end)
        if expected is None:
            check_dataset(bounded, "datasets[0]", has_own_positions=False)
            continue
        with pytest.raises(RejectedError, match="no hourly window begins at") as refused:
            check_dataset(bounded, "datasets[0]", has_own_positions=False)
        assert expected in refused.value.hint
        assert refused.value.field == "datasets[0].partitions.end"


def ending_at(spec: DatasetSpec, text: str) -> DatasetSpec:
    return DatasetSpec.model_validate(
        {**spec.model_dump(), "partitions": {**spec.partitions.model_dump(exclude_none=True), "end": text}}
    )


@pytest.mark.parametrize(
    ("kind", "zone", "end"),
    [
        (PartitionKind.HOURLY, "UTC", "2024-10-27T10:30"),
        (PartitionKind.HOURLY, "Europe/Berlin", "2024-10-27T01:30+02:00"),
        (PartitionKind.HOURLY, "Europe/Berlin", "2024-10-27T02:30+02:00"),
        (PartitionKind.HOURLY, "UTC", "2024-10-26T23:30"),
        (PartitionKind.DAILY, "UTC", "2024-10-26T23:30"),
        (PartitionKind.WEEKLY, "Europe/Berlin", "2024-10-23"),
        (PartitionKind.MONTHLY, "America/New_York", "2024-10-23"),
    ],
)
def test_what_is_hinted_is_an_end_that_is_taken(kind: PartitionKind, zone: str, end: str) -> None:
    # A Sunday, where weeks begin, and the first of a month.
    spec = dataset(kind, zone, dt.date(2023, 10, 1))
    with pytest.raises(RejectedError) as refused:
        check_dataset(ending_at(spec, end), "datasets[0]", has_own_positions=False)
    hinted = refused.value.hint.split("'")[1]
    taken = ending_at(spec, hinted)
    check_dataset(taken, "datasets[0]", has_own_positions=False)
    assert taken.partitions.end is not None
    assert boundary_of(taken.partitions, taken.partitions.end) > boundary_of(
        taken.partitions, ending_at(spec, end).partitions.end or dt.date.max
    )
