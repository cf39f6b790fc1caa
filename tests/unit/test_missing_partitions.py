"""What a run is asked for where nobody named a partition: what is over, and not published since."""

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.selection import leave_published, measure_wait_s, select_missing, select_partitions

DAYS, PLAIN, KEYS = DatasetUrn("s.days"), DatasetUrn("s.plain"), DatasetUrn("s.keys")
LAG_S: Final = 600
WATERMARK: Final = {"column": "at", "commit_lag_s": LAG_S}
DAILY: Final = {"urn": DAYS, "watermark": WATERMARK, "partitions": {"kind": "daily", "start": "2026-01-01"}}
STATIC: Final = {"urn": KEYS, "partitions": {"kind": "static", "column": "region", "keys": ["eu", "us", "as"]}}
ENDED: Final = dt.timedelta(seconds=LAG_S + 60)
"""So long after its end, a window is over: the rows' lag, and what clocks differ."""


def at(day: int, hour: int = 0) -> dt.datetime:
    return dt.datetime(2026, 1, day, hour, tzinfo=dt.UTC)


def make_job(*datasets: Mapping[str, Any]) -> JobSpec:
    return parse_job({"job": "j", "source": {"connection": "c"}, "destination": "/lake", "datasets": list(datasets)})


def select(
    *datasets: Mapping[str, Any],
    published: Mapping[DatasetUrn, Mapping[str, dt.datetime]] | None = None,
    now: dt.datetime,
    limit: int = 100,
    urns: tuple[str, ...] = (),
    ended_by: dt.datetime | None = None,
) -> dict[str, list[str | None]]:
    job = make_job(*datasets)
    resolved = resolve_datasets(job, None)
    found = select_missing(job, resolved, published or {}, urns=urns, now=now, limit=limit, ended_by=ended_by)
    return {urn: [each.key for each in partitions] for urn, partitions in found.items()}


def test_windows_that_are_over_are_missing_the_oldest_first() -> None:
    assert select(DAILY, now=at(4, 1)) == {DAYS: ["2026-01-01", "2026-01-02", "2026-01-03"]}
    assert select(DAILY, now=at(4, 1), limit=2) == {DAYS: ["2026-01-01", "2026-01-02"]}


def test_a_window_is_over_once_its_late_rows_have_come() -> None:
    assert select(DAILY, now=at(2) + ENDED) == {DAYS: ["2026-01-01"]}
    assert select(DAILY, now=at(2) + ENDED - dt.timedelta(seconds=1)) == {}
    assert select(DAILY, now=at(1)) == {}


def test_what_was_read_before_the_window_was_over_is_not_all_of_it() -> None:
    read_at = {"2026-01-01": at(2) + ENDED, "2026-01-02": at(3) + ENDED - dt.timedelta(seconds=1)}
    assert select(DAILY, published={DAYS: read_at}, now=at(3, 2)) == {DAYS: ["2026-01-02"]}


def test_a_run_that_begins_late_takes_no_window_that_ended_after_its_slot() -> None:
    assert select(DAILY, now=at(9), ended_by=at(3)) == {DAYS: ["2026-01-01", "2026-01-02"]}
    assert select(DAILY, now=at(9), ended_by=at(3) - dt.timedelta(seconds=1)) == {DAYS: ["2026-01-01"]}
    assert select(DAILY, now=at(3), ended_by=at(3)) == {DAYS: ["2026-01-01"]}, "rows of yesterday still come"


def test_a_run_whose_slot_is_the_end_of_a_window_waits_for_its_last_rows() -> None:
    datasets = resolve_datasets(make_job(DAILY, STATIC), None)
    begun = at(3) + dt.timedelta(seconds=5)
    assert measure_wait_s(datasets, at(3), begun) == ENDED.total_seconds() - 5
    assert measure_wait_s(datasets, at(3), at(3) + ENDED) == 0
    assert measure_wait_s(datasets, at(3, 12), at(3, 12)) == 0
    assert measure_wait_s(resolve_datasets(make_job(STATIC), None), at(3), begun) == 0


def test_named_windows_that_are_published_are_left_out() -> None:
    job = make_job(DAILY, {"urn": PLAIN})
    datasets = resolve_datasets(job, None)
    named = select_partitions(job, datasets, keys=["2026-01-01", "2026-01-02", "2026-01-03"], begun_by=at(9))
    read_at = {"2026-01-01": at(2) + ENDED, "2026-01-02": at(3)}
    (kept,) = leave_published(datasets, named, {DAYS: read_at}).values()
    assert [each.key for each in kept] == ["2026-01-02", "2026-01-03"]
    assert leave_published(datasets, {DAYS: named[DAYS][:1]}, {DAYS: read_at}) == {}


def test_no_window_after_the_end_of_all_is_missing() -> None:
    ending = {**DAILY, "partitions": {"kind": "daily", "start": "2026-01-01", "end": "2026-01-03"}}
    assert select(ending, now=at(20)) == {DAYS: ["2026-01-01", "2026-01-02"]}


def test_the_windows_of_a_zone_are_those_that_dagster_has() -> None:
    zoned = {**DAILY, "partitions": {"kind": "daily", "start": "2026-01-01", "zone": "Europe/Berlin"}}
    assert select(zoned, now=at(1, 23) + ENDED) == {DAYS: ["2026-01-01"]}
    assert select(zoned, now=at(1, 23)) == {}


def test_hours_across_a_change_of_the_clock() -> None:
    hourly = {
        **DAILY,
        "partitions": {"kind": "hourly", "start": "2026-10-25 01:00", "zone": "Europe/Berlin"},
    }
    now = dt.datetime(2026, 10, 25, 2, 0, tzinfo=dt.UTC) + ENDED
    keys = ["2026-10-25-01:00", "2026-10-25-02:00", "2026-10-25-02:00+0100"]
    assert select(hourly, now=now) == {DAYS: keys}


def test_datasets_without_partitions_are_taken_whole_each_time_and_keys_once() -> None:
    published = {KEYS: {"eu": at(1)}, PLAIN: {"": at(1)}}
    assert select({"urn": PLAIN}, STATIC, DAILY, published=published, now=at(1)) == {
        PLAIN: [None],
        KEYS: ["us", "as"],
    }


def test_only_named_datasets_are_taken() -> None:
    assert select({"urn": PLAIN}, DAILY, now=at(9), urns=(PLAIN,)) == {PLAIN: [None]}
    with pytest.raises(RejectedError) as refused:
        select(DAILY, now=at(9), urns=("s.none",))
    assert refused.value.field == "datasets"


def test_partitions_that_only_a_person_can_name_are_refused() -> None:
    dynamic = {"urn": KEYS, "partitions": {"kind": "dynamic", "column": "region", "name": "regions"}}
    with pytest.raises(RejectedError) as refused:
        select(dynamic, DAILY, now=at(9))
    assert refused.value.field == "partitions"
    assert "'s.keys'" in str(refused.value)
    assert select(dynamic, {"urn": PLAIN}, now=at(9), urns=(PLAIN,)) == {PLAIN: [None]}


def test_of_topics_the_open_window_is_read() -> None:
    job = parse_job(
        {
            "job": "j",
            "source": {"type": "kafka", "connection": "c"},
            "destination": "/lake",
            "datasets": [{"topic": "clicks", "kafka": {"value": {"format": "string"}}}],
        }
    )
    found = select_missing(job, resolve_datasets(job, None), {}, now=at(1), limit=1)
    assert [each.key for each in found[DatasetUrn("clicks")]] == [None]
