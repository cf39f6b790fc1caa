"""Partitions: Dagster's keys and ours are the same windows, and a run's partitions apply to all of its assets."""

import datetime as dt
from collections.abc import Mapping

import dagster as dg
import pytest

from gobblin_assets.dagster.partitions import build_partitions_def, find_run_range, list_keys
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.spec.job_options import PartitionsSpec
from gobblin_assets.spec.job_spec import DatasetSpec
from gobblin_assets.spec.partition_keys import asset_partition

JOB, URN = JobName("shop"), DatasetUrn("orders")
TIME_KINDS = (PartitionKind.HOURLY, PartitionKind.DAILY, PartitionKind.WEEKLY, PartitionKind.MONTHLY)


def build(**options: object) -> "dg.PartitionsDefinition[str] | None":
    return build_partitions_def(PartitionsSpec.model_validate(options), job=JOB, urn=URN)


class TestWindows:
    @pytest.mark.parametrize("kind", TIME_KINDS)
    @pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Sao_Paulo"])
    @pytest.mark.parametrize(
        "start",
        [dt.date(2013, 9, 5), dt.datetime.fromisoformat("2013-10-01T12:30"), dt.datetime(2013, 10, 1, tzinfo=dt.UTC)],
    )
    def test_each_key_of_dagster_is_the_window_that_the_engine_reads(
        self, kind: PartitionKind, zone: str, start: dt.date
    ) -> None:
        # From before summer time ends to after its end, in both hemispheres.
        spec = PartitionsSpec(kind=kind, start=start, end=dt.date(2013, 12, 1), zone=zone)
        partitions = build_partitions_def(spec, job=JOB, urn=URN)
        assert isinstance(partitions, dg.TimeWindowPartitionsDefinition)
        dataset = DatasetSpec(urn=URN, partitions=spec)
        keys = partitions.get_partition_keys()
        assert keys
        for key in keys:
            theirs, ours = partitions.time_window_for_partition_key(key), asset_partition(dataset, key).window
            assert ours is not None
            # As instants: in Python, times of different zones are never equal where clocks skip one of them.
            assert ours.start == theirs.start.astimezone(dt.UTC), key
            assert ours.end == theirs.end.astimezone(dt.UTC), key

    def test_the_open_window_can_be_materialized(self) -> None:
        today = dt.datetime.now(dt.UTC).date()
        partitions = build(kind="monthly", start=today.replace(day=1))
        assert partitions is not None
        assert partitions.get_partition_keys() == [f"{today:%Y-%m}-01"]

    def test_without_a_start_they_are_rejected(self) -> None:
        with pytest.raises(RejectedError, match=r"datasets\[orders\]\.partitions\.start"):
            build(kind="daily")


class TestOthers:
    def test_a_dataset_without_partitions_has_none(self) -> None:
        assert build(kind="none") is None

    def test_static_keys_keep_their_order(self) -> None:
        partitions = build(kind="static", keys=["EWR", "JFK", "LGA"], column="origin")
        assert partitions is not None
        assert partitions.get_partition_keys() == ["EWR", "JFK", "LGA"]

    @pytest.mark.parametrize("keys", [["a", "a"], ["a...b"], ["a\nb"]])
    def test_keys_that_dagster_refuses_are_rejected_with_the_dataset(self, keys: list[str]) -> None:
        with pytest.raises(RejectedError, match=r"datasets\[orders\]\.partitions"):
            build(kind="static", keys=keys, column="c")

    def test_dynamic_partitions_have_the_dataset_s_name_unless_given_one(self) -> None:
        partitions = build(kind="dynamic", column="tenant")
        assert isinstance(partitions, dg.DynamicPartitionsDefinition)
        assert partitions.name == "shop/orders"


class TestRunRange:
    def test_one_partition_is_a_range_of_itself(self) -> None:
        assert find_run_range({"dagster/partition": "a"}) == dg.PartitionKeyRange("a", "a")

    def test_a_range_has_both_its_ends(self) -> None:
        tags = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "c"}
        assert find_run_range(tags) == dg.PartitionKeyRange("a", "c")

    def test_other_runs_have_none(self) -> None:
        assert find_run_range({"dagster/sensor_name": "s"}) is None


class TestMembership:
    instance = dg.DagsterInstance.ephemeral()
    months: Mapping[str, object] = {"kind": "monthly", "start": dt.date(2013, 1, 1), "end": dt.date(2014, 1, 1)}

    def keys(self, options: Mapping[str, object], start: str | None, end: str | None = None) -> list:
        wanted = None if start is None else dg.PartitionKeyRange(start, end or start)
        spec = DatasetSpec(urn=URN, partitions=PartitionsSpec.model_validate(options))
        return list(list_keys(build(**options), wanted, spec=spec, instance=self.instance))

    def test_a_range_is_all_of_its_keys(self) -> None:
        assert self.keys(self.months, "2013-10-01", "2013-12-01") == ["2013-10-01", "2013-11-01", "2013-12-01"]

    @pytest.mark.parametrize(
        ("zone", "day", "first", "last", "expected"),
        [
            # The hour that is shown twice: asked for after its first pass, and the other way round.
            ("Europe/Berlin", dt.date(2024, 10, 27), "02:00", "02:00", ["02:00"]),
            ("Europe/Berlin", dt.date(2024, 10, 27), "02:00+0100", "02:00+0100", ["02:00+0100"]),
            ("Europe/Berlin", dt.date(2024, 10, 27), "02:00", "03:00", ["02:00", "02:00+0100", "03:00"]),
            ("Antarctica/Troll", dt.date(2024, 10, 27), "02:00", "02:00+0000", ["02:00", "01:00+0000", "02:00+0000"]),
            # Clocks go on by thirty minutes at 02:00, and by fifteen at midnight.
            ("Australia/Lord_Howe", dt.date(2024, 10, 6), "02:30", "04:30", ["02:30", "03:30", "04:30"]),
            ("Asia/Kathmandu", dt.date(1985, 12, 31), "23:00", "23:00", ["23:00"]),
        ],
    )
    def test_a_range_of_hours_has_the_keys_that_were_asked_for_whatever_the_clocks_do(
        self, zone: str, day: dt.date, first: str, last: str, expected: list[str]
    ) -> None:
        hours = {"kind": "hourly", "start": day, "zone": zone}
        assert self.keys(hours, f"{day}-{first}", f"{day}-{last}") == [f"{day}-{key}" for key in expected]

    def test_a_range_of_days_has_the_day_that_a_zone_left_out(self) -> None:
        days = {"kind": "daily", "start": dt.date(2011, 12, 1), "zone": "Pacific/Apia"}
        assert self.keys(days, "2011-12-29", "2011-12-31") == ["2011-12-29", "2011-12-30", "2011-12-31"]
        assert self.keys(days, "2011-12-30") == ["2011-12-30"]
        assert self.keys(days, "2011-12-31", "2011-12-30") == []

    def test_a_key_of_another_dataset_is_rejected(self) -> None:
        with pytest.raises(RejectedError, match="'2013-01-02' is not a partition of the dataset 'orders'") as caught:
            self.keys(self.months, "2013-01-02")
        assert "2013-12-01" in caught.value.hint

    def test_a_dataset_without_partitions_is_not_part_of_a_partition_s_run(self) -> None:
        with pytest.raises(RejectedError, match="'orders' has no partitions"):
            self.keys({}, "2013-01-01")

    def test_a_partitioned_dataset_is_not_part_of_a_run_without_partitions(self) -> None:
        with pytest.raises(RejectedError, match="'orders' has partitions"):
            self.keys({"kind": "static", "keys": ["a"], "column": "c"}, None)

    def test_neither_has_partitions(self) -> None:
        assert self.keys({}, None) == [None]

    def test_dynamic_keys_are_those_of_the_instance(self) -> None:
        tenants = {"kind": "dynamic", "column": "tenant", "name": "shop/orders"}
        with pytest.raises(RejectedError, match="not a partition"):
            self.keys(tenants, "acme")
        self.instance.add_dynamic_partitions("shop/orders", ["acme"])
        assert self.keys(tenants, "acme") == ["acme"]
