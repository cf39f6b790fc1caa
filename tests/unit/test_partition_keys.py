"""Partition keys become the same windows as Dagster's, or are refused by name."""

import datetime as dt

import dagster as dg
import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.partition import WHOLE, AssetPartition, PartitionKind
from gobblin_assets.spec.job_options import PartitionsSpec
from gobblin_assets.spec.job_spec import DatasetSpec
from gobblin_assets.spec.partition_keys import asset_partition

ZONES = ["UTC", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Asia/Kolkata"]


def _spec(**partitions: object) -> DatasetSpec:
    return DatasetSpec(urn="public.orders", partitions=PartitionsSpec.model_validate(partitions))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    ("kind", "definition", "start", "end"),
    [
        ("hourly", dg.HourlyPartitionsDefinition, "2018-10-25-00:00", "2018-11-06-00:00"),
        ("hourly", dg.HourlyPartitionsDefinition, "2018-03-09-00:00", "2018-03-27-00:00"),
        ("daily", dg.DailyPartitionsDefinition, "2018-02-01", "2019-01-01"),
        ("weekly", dg.WeeklyPartitionsDefinition, "2018-02-04", "2019-01-06"),
        ("monthly", dg.MonthlyPartitionsDefinition, "2018-02-01", "2019-02-01"),
    ],
)
def test_every_key_that_dagster_offers_has_dagsters_window(
    kind: str, definition: type, start: str, end: str, zone: str
) -> None:
    theirs = definition(start_date=start, end_date=end, timezone=zone)
    spec = _spec(kind=kind, zone=zone, start=dt.date.fromisoformat(start[:10]), end=dt.date.fromisoformat(end[:10]))
    keys = theirs.get_partition_keys()
    assert len(keys) >= 12
    for key in keys:
        window = theirs.time_window_for_partition_key(key)
        ours = asset_partition(spec, key).window
        assert ours is not None
        assert (ours.start, ours.end) == (window.start.astimezone(dt.UTC), window.end.astimezone(dt.UTC))


@pytest.mark.parametrize(
    ("kind", "key", "said"),
    [
        ("monthly", "2013-01-15", "no monthly partition begins at"),
        ("monthly", "2012-12-01", "before the first partition"),
        ("monthly", "2014-01-01", "after the last partition"),
        ("monthly", "2013-1-01", "expected a key like '2013-01-31'"),
        ("monthly", "2013-01", "expected a key like"),
        ("weekly", "2013-01-07", "The next one that could is '2013-01-13'"),
        ("hourly", "2013-01-07-05:30", "no hourly partition begins at"),
        ("hourly", "2013-03-31-02:00", "clocks in Europe/Berlin jump over"),
        ("hourly", "2013-10-27-03:00+0100", "is no repeated hour"),
        ("hourly", "2013-10-27-02:00+0300", "is no repeated hour"),
        ("daily", None, "expected a partition key"),
        ("daily", "'; drop", "expected a key like"),
        ("daily", "9999-12-31", "an end of the calendar"),
    ],
)
def test_a_key_that_does_not_belong_is_refused_and_names_the_dataset(kind: str, key: str | None, said: str) -> None:
    start, end = dt.date(2013, 1, 1), dt.date(2014, 1, 1)
    if kind == "weekly":
        start = dt.date(2012, 12, 30)
    with pytest.raises(RejectedError) as refused:
        asset_partition(_spec(kind=kind, start=start, end=end, zone="Europe/Berlin"), key)
    assert said in str(refused.value)
    assert "'public.orders'" in str(refused.value)
    assert refused.value.field == "partition"


def test_named_partitions_take_their_key_as_it_is() -> None:
    static = _spec(kind="static", keys=["eu", "us"], column="region")
    dynamic = _spec(kind="dynamic", name="customers", column="customer")
    assert asset_partition(static, "eu") == AssetPartition("eu")
    assert asset_partition(dynamic, "ü b/%") == AssetPartition("ü b/%")
    assert asset_partition(DatasetSpec(urn="x"), None) is WHOLE
    for spec, key, said in [
        (static, "EU", "expected one of 'eu', 'us'"),
        (dynamic, "a...b", "Dagster refuses such keys"),
        (dynamic, "a\tb", "Dagster refuses such keys"),
        (DatasetSpec(urn="x"), "2013-01-01", "expected no partition"),
    ]:
        with pytest.raises(RejectedError, match=said):
            asset_partition(spec, key)


def test_only_the_kinds_of_windows_are_time_kinds() -> None:
    assert {kind for kind in PartitionKind if kind.is_time} == {
        PartitionKind.HOURLY,
        PartitionKind.DAILY,
        PartitionKind.WEEKLY,
        PartitionKind.MONTHLY,
    }
