"""Which partitions are chosen, and the errors for partitions that can't be chosen."""

import datetime as dt

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets
from gobblin_assets.spec.selection import Selection, select_partitions

JOB = parse_job(
    {
        "job": "shop",
        "source": {"connection": "shop"},
        "destination": "/lake",
        "datasets": [
            {"table": "whole"},
            {"table": "days", "partitions": {"kind": "daily", "start": "2026-01-01"}, "watermark": {"column": "at"}},
            {"table": "sides", "partitions": {"kind": "static", "keys": ["n", "e", "s"], "column": "side"}},
            {"table": "any", "partitions": {"kind": "dynamic", "name": "sides", "column": "side"}},
        ],
    }
)
NOW = dt.datetime(2026, 1, 5, 12, tzinfo=dt.UTC)


def select(*urns: str, keys: tuple[str, ...] = (), ranges: tuple[tuple[str, str], ...] = ()) -> Selection:
    return select_partitions(JOB, resolve_datasets(JOB, None), urns=urns, keys=keys, ranges=ranges, begun_by=NOW)


def keys_of(selection: Selection) -> dict[str, list[str | None]]:
    return {urn: [each.key for each in partitions] for urn, partitions in selection.items()}


def test_without_partitions_those_that_have_none_are_chosen() -> None:
    assert keys_of(select()) == {"whole": [None]}


def test_keys_and_ranges_give_each_partition_once() -> None:
    found = select("days", keys=("2026-01-02",), ranges=(("2026-01-01", "2026-01-03"), ("2026-01-03", "2026-01-03")))
    assert keys_of(found) == {"days": ["2026-01-02", "2026-01-01", "2026-01-03"]}
    assert keys_of(select("sides", ranges=(("e", "s"),))) == {"sides": ["e", "s"]}


def test_the_window_of_today_has_begun() -> None:
    (partition,) = select("days", keys=("2026-01-05",))[DatasetUrn("days")]
    assert partition.window is not None
    assert partition.window.start < NOW < partition.window.end


@pytest.mark.parametrize(
    ("urn", "keys", "ranges", "said"),
    [
        ("other", (), (), "datasets: the job shop has no dataset 'other'. It has: whole, days, sides, any."),
        ("days", ("2026-01-06",), (), "partitions: the partition 2026-01-06 of 'days' begins at 2026-01-06 00:00Z"),
        ("days", (), (("2026-01-05", "9998-01-01"),), "partitions: the partition 2026-01-06 of 'days' begins at"),
        ("days", (), (("2026-01-03", "2026-01-02"),), "partition_ranges: 2026-01-03...2026-01-02 is no range"),
        ("sides", (), (("s", "n"),), "Its partitions, in order, are: n, e, s."),
        ("sides", (), (("n", "w"),), "expected one of 'n', 'e', 's', found 'w'"),
        ("any", (), (("a", "b"),), "partition_ranges: the dataset 'any' has dynamic partitions"),
        ("whole", (), (("a", "b"),), "partition_ranges: the dataset 'whole' has no partitions"),
        ("days", (), (), "expected a partition key, found none"),
    ],
)
def test_what_can_not_be_chosen_is_said(
    urn: str, keys: tuple[str, ...], ranges: tuple[tuple[str, str], ...], said: str
) -> None:
    with pytest.raises(RejectedError) as refused:
        select(urn, keys=keys, ranges=ranges)
    assert said in str(refused.value)
