"""Runs through a real Dagster instance: one partition, ranges, mixtures, modes, checks and recovery."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from sqlalchemy import Engine, text

from gobblin_assets import failpoints
from gobblin_assets.dagster.factory import build_gobblin_layout
from gobblin_assets.dagster.materialization import materialize_selection
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY
from gobblin_assets.dagster.run_config import GobblinRunConfig
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.spec.selection import select_partitions
from tests.support.dagster_instance import open_instance
from tests.support.dagster_world import build_world, describe_job, published_numbers, write_numbers

pytestmark = pytest.mark.turns(of=8)

ORDERS, STOCK, MONTHLY = "public.orders", "a/b c.Ü", "by month"
KEYS = {urn: dg.AssetKey(["shop", name]) for urn, name in ((ORDERS, ORDERS), (STOCK, "a%2Fb c.Ü"), (MONTHLY, MONTHLY))}
OPTIONS: dict[str, Any] = {
    "datasets": [
        {"table": ORDERS},
        {"table": STOCK},
        {
            "table": MONTHLY,
            "extract": "append_only",
            "watermark": {"column": "day", "type": "date"},
            "partitions": {"kind": "monthly", "start": "2013-01-01", "end": "2014-01-01"},
        },
    ]
}
JANUARY, FEBRUARY, MARCH = "2013-01-01", "2013-02-01", "2013-03-01"


class Shop:
    """The world of one test, with a Dagster instance on the default storage."""

    def __init__(self, folder: Path, database_url: str, instance: dg.DagsterInstance) -> None:
        self.folder = folder
        self.database_url = database_url
        self.instance = instance

    def write(self, urn: str, partition: str | None, *numbers: object) -> None:
        write_numbers(self.folder / "source", urn, partition, numbers)

    def run(self, job: str = "shop_whole", *urns: str, options: dict[str, Any] | None = None, **arguments: Any) -> Any:
        definitions = build_world(self.folder, self.database_url, **{**OPTIONS, **(options or {})})
        selection = [KEYS[urn] for urn in urns] or None
        arguments = {"raise_on_error": False, **arguments}
        return definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance, asset_selection=selection, **arguments
        )

    def run_range(self, first: str, last: str, **arguments: Any) -> Any:
        tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        return self.run("shop_monthly", tags={**tags, **arguments.pop("tags", {})}, **arguments)

    def events(self, urn: str) -> list[dg.AssetMaterialization]:
        records = self.instance.fetch_materializations(KEYS[urn], limit=100, ascending=True).records
        events = [record.asset_materialization for record in records]
        return [event for event in events if event is not None]

    def partitions(self, urn: str) -> list[str]:
        return sorted(self.instance.get_materialized_partitions(KEYS[urn]))

    def failure_of(self, result: Any) -> str:
        (event,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
        data = event.event_specific_data.user_failure_data
        return str(data.description if data else event.event_specific_data.error.message)

    @property
    def numbers(self) -> list[int]:
        return published_numbers(self.folder)


@pytest.fixture
def shop(tmp_path: Path, database_url: str) -> Iterator[Shop]:
    with open_instance(tmp_path) as instance:
        yield Shop(tmp_path, database_url, instance)


class TestOneRun:
    @pytest.mark.core
    def test_each_dataset_gets_its_event_with_sequence_watermark_and_rows(self, shop: Shop) -> None:
        shop.write(ORDERS, None, 1, 2)
        shop.write(STOCK, None, 3)
        assert shop.run().success
        assert shop.numbers == [1, 2, 3]
        (event,) = shop.events(ORDERS)
        shown = {name: value.value for name, value in event.metadata.items()}
        assert (shown["gobblin/rows"], shown["dagster/row_count"], shown["gobblin/files"]) == (2, 2, 2)
        assert (shown["gobblin/watermark_before"], shown["gobblin/watermark_after"]) == ("(none)", "2")
        assert shown["gobblin/sequence_id"] == event.tags["dagster/data_version"]
        assert len(shop.events(STOCK)) == 1

    def test_one_selected_dataset_leaves_the_others_alone(self, shop: Shop) -> None:
        shop.write(ORDERS, None, 1)
        shop.write(STOCK, None, 3)
        assert shop.run("shop_whole", STOCK).success
        assert (shop.numbers, shop.events(ORDERS)) == ([3], [])

    def test_what_it_is_read_from_lies_upstream_and_makes_nothing_stale(
        self, shop: Shop, tmp_path: Path, database_url: str
    ) -> None:
        shop.write(ORDERS, None, 1)
        assert shop.run("shop_whole", ORDERS).success
        graph = build_world(tmp_path, database_url, **OPTIONS).resolve_asset_graph()
        assert graph.get(KEYS[ORDERS]).parent_keys == {dg.AssetKey(["source", "jdbc", "numbers", ORDERS])}
        (record,) = shop.instance.fetch_observations(dg.AssetKey(["source", "jdbc", "numbers", ORDERS]), 9).records
        assert record.asset_observation is not None
        shown = {name: value.value for name, value in record.asset_observation.metadata.items()}
        assert (shown["gobblin/rows_read"], shown["gobblin/watermark_after"]) == (1, "1")
        stale = CachingStaleStatusResolver(shop.instance, graph, LoadingContextForTest(shop.instance))
        assert [stale.get_status(KEYS[urn]) for urn in (ORDERS, STOCK)] == [StaleStatus.FRESH, StaleStatus.MISSING]

    def test_its_log_does_not_call_checks_missing_that_it_has(self, shop: Shop) -> None:
        shop.write(ORDERS, None, 1)
        shop.write(STOCK, None, 3)
        run = shop.run()
        said = [each.user_message for each in shop.instance.all_logs(run.run_id)]
        assert not [line for line in said if "expected outputs" in line]
        assert [line for line in said if line.startswith("Published public.orders")], "it says nothing at all"

    def test_a_failed_dataset_is_named_after_its_siblings_were_logged(self, shop: Shop) -> None:
        shop.write(ORDERS, None, 1)
        shop.write(STOCK, None, "no number")
        result = shop.run()
        assert not result.success
        assert shop.numbers == [1]
        assert len(shop.events(ORDERS)) == 1
        assert "1 of 2 dataset partitions failed" in shop.failure_of(result)
        assert STOCK in shop.failure_of(result)
        check = dg.AssetCheckKey(KEYS[STOCK], "gobblin_published")
        (record,) = shop.instance.event_log_storage.get_asset_check_execution_history(check, limit=5)
        assert record.status.value == "FAILED"

    @pytest.mark.core
    def test_one_partition_is_materialized_and_no_other(self, shop: Shop) -> None:
        shop.write(MONTHLY, JANUARY, 1)
        shop.write(MONTHLY, FEBRUARY, 2)
        assert shop.run("shop_monthly", partition_key=FEBRUARY).success
        assert (shop.numbers, shop.partitions(MONTHLY)) == ([2], [FEBRUARY])
        (event,) = shop.events(MONTHLY)
        assert event.metadata["dagster/partition_row_count"].value == 1

    def test_a_partition_s_check_is_about_the_data_that_lies_there(self, shop: Shop) -> None:
        shop.write(MONTHLY, JANUARY, 1)
        assert shop.run("shop_monthly", partition_key=JANUARY).success
        shop.write(MONTHLY, JANUARY, "no number")
        assert not shop.run("shop_monthly", partition_key=JANUARY).success
        check = dg.AssetCheckKey(KEYS[MONTHLY], "gobblin_published")
        (found,) = shop.instance.event_log_storage.get_asset_check_partition_info([check])
        assert (found.partition_key, found.latest_execution_status.value) == (JANUARY, "FAILED")
        assert found.is_current, "Dagster would call the result older than the data"


class TestModes:
    def test_auto_by_hand_refreshes_and_append_continues(self, shop: Shop) -> None:
        shop.write(ORDERS, None, 1)
        assert shop.run("shop_whole", ORDERS).success
        shop.write(ORDERS, None, 1, 2)
        config = {"ops": {"shop": {"config": {"mode": "append"}}}}
        assert shop.run("shop_whole", ORDERS, run_config=config).success
        assert shop.run("shop_whole", ORDERS, tags={"gobblin/mode": "refresh"}).success
        assert shop.run("shop_whole", ORDERS).success
        assert [event.metadata["gobblin/mode"].value for event in shop.events(ORDERS)] == [
            "append",
            "append",
            "refresh",
            "refresh",
        ]
        assert [event.metadata["gobblin/rows"].value for event in shop.events(ORDERS)] == [1, 1, 2, 2]
        assert shop.numbers == [1, 2]

    def test_an_append_of_nothing_shows_the_rows_that_lie_there(self, shop: Shop) -> None:
        shop.write(MONTHLY, JANUARY, 1, 2)
        for mode in ("refresh", "append"):
            assert shop.run("shop_monthly", partition_key=JANUARY, tags={"gobblin/mode": mode}).success
        shown = [event.metadata for event in shop.events(MONTHLY)]
        assert [each["gobblin/rows"].value for each in shown] == [2, 0]
        assert [each["dagster/partition_row_count"].value for each in shown] == [2, 2]

    def test_a_run_that_a_sensor_asked_for_appends(self, shop: Shop) -> None:
        shop.write(ORDERS, None, 1)
        for _ in range(2):
            assert shop.run("shop_whole", ORDERS, tags={"dagster/sensor_name": "new_data"}).success
        assert [event.metadata["gobblin/mode"].value for event in shop.events(ORDERS)] == ["append"] * 2

    def test_an_unknown_mode_is_refused_before_anything_is_written(self, shop: Shop) -> None:
        result = shop.run("shop_whole", ORDERS, tags={"gobblin/mode": "everything"})
        assert "expected one of append, refresh, auto, found 'everything'" in shop.failure_of(result)
        assert not (shop.folder / "lake").exists()


class TestRanges:
    def test_in_a_single_run_a_bad_partition_fails_alone(self, shop: Shop) -> None:
        shop.write(MONTHLY, JANUARY, 1)
        shop.write(MONTHLY, FEBRUARY, "no number")
        shop.write(MONTHLY, MARCH, 3)
        result = shop.run_range(JANUARY, MARCH)
        assert not result.success
        assert (shop.numbers, shop.partitions(MONTHLY)) == ([1, 3], [JANUARY, MARCH])
        assert f"{MONTHLY} [{FEBRUARY}]" in shop.failure_of(result)
        ids = {event.metadata["gobblin/sequence_id"].value for event in shop.events(MONTHLY)}
        assert len(ids) == 2

    @pytest.mark.parametrize(
        ("job", "urns", "arguments", "said"),
        [
            ("__ASSET_JOB", (ORDERS, MONTHLY), {"partition_key": JANUARY}, "'public.orders' has no partitions"),
            ("__ASSET_JOB", (ORDERS, MONTHLY), {}, "'by month' has partitions, and the run asks for none"),
            (
                "__ASSET_JOB",
                (MONTHLY,),
                {"tags": {"dagster/partition": "2012-12-01"}},
                "not a partition of the dataset",
            ),
        ],
    )
    def test_a_run_whose_partitions_are_not_all_datasets_is_refused_before_anything_is_written(
        self, shop: Shop, job: str, urns: tuple[str, ...], arguments: dict[str, Any], said: str
    ) -> None:
        shop.write(ORDERS, None, 1)
        shop.write(MONTHLY, JANUARY, 2)
        if "partition_key" in arguments:
            arguments = {"tags": {"dagster/partition": arguments["partition_key"]}}
        result = shop.run(job, *urns, **arguments)
        assert not result.success
        assert said in shop.failure_of(result)
        assert not (shop.folder / "lake").exists()


class TestRecovery:
    def crash(self, shop: Shop, point: Failpoint, job: str = "shop_whole", **arguments: Any) -> None:
        """Leave a run as its death would: the exception is no Exception, so no code of ours handles it."""

        class Died(BaseException):
            pass

        def die(reached: Failpoint) -> None:
            if reached is point:
                raise Died

        with failpoints.install(die), pytest.raises(Died):
            shop.run(job, raise_on_error=True, **arguments)

    @pytest.mark.core
    def test_the_next_run_finishes_it_and_tells_of_it(self, shop: Shop, engine: Engine) -> None:
        shop.write(MONTHLY, JANUARY, 1)
        self.crash(shop, Failpoint.STEP_AFTER, "shop_monthly", partition_key=JANUARY)
        assert shop.events(MONTHLY) == []
        expire_leases(engine)
        shop.write(MONTHLY, FEBRUARY, 2)
        assert shop.run("shop_monthly", partition_key=FEBRUARY).success
        assert (shop.numbers, shop.partitions(MONTHLY)) == ([1, 2], [JANUARY, FEBRUARY])
        recovered, own = shop.events(MONTHLY)
        assert (recovered.partition, recovered.metadata["gobblin/recovered"].value) == (JANUARY, True)
        assert (own.partition, own.metadata["gobblin/recovered"].value) == (FEBRUARY, False)

    @pytest.mark.parametrize("point", [Failpoint.STEP_AFTER, Failpoint.FINISHED_BEFORE_EVENTS])
    def test_the_recovery_job_finishes_and_announces_under_the_sequence_s_id(
        self, shop: Shop, engine: Engine, point: Failpoint
    ) -> None:
        shop.write(MONTHLY, JANUARY, 1)
        self.crash(shop, point, "shop_monthly", partition_key=JANUARY)
        expire_leases(engine)
        assert shop.run("shop_recovery").success
        (event,) = shop.events(MONTHLY)
        with engine.connect() as connection:
            (sequence,) = connection.execute(text("SELECT sequence_id, state FROM gobblin.commit_sequence")).all()
        assert sequence.state == "DONE"
        assert event.metadata["gobblin/sequence_id"].value == str(sequence.sequence_id)
        assert (event.partition, shop.numbers) == (JANUARY, [1])
        assert shop.run("shop_recovery").success
        assert len(shop.events(MONTHLY)) == 1, "it was announced twice"


def expire_leases(engine: Engine) -> None:
    """Let the leases of dead owners run out, some time ago."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.lease SET expires_at = clock_timestamp() - interval '1 minute'"))


def test_a_month_ahead_of_the_clock_is_not_offered(shop: Shop) -> None:
    later = f"{dt.datetime.now(dt.UTC).year + 2}-01-01"
    options = {"datasets": [{**OPTIONS["datasets"][2], "partitions": {"kind": "monthly", "start": "2013-01-01"}}]}
    result = shop.run("shop_monthly", options=options, tags={"dagster/partition": later})
    assert f"'{later}' is not a partition" in shop.failure_of(result)


def test_a_job_that_is_known_only_at_run_time_is_materialized_by_the_same_function(shop: Shop) -> None:
    shop.write(ORDERS, None, 1, 2)
    shop.write(MONTHLY, JANUARY, 3)

    @dg.op(required_resource_keys={STORES_KEY, FILE_SYSTEMS_KEY, SPARK_KEY, "jdbc__numbers"}, config_schema=dict)
    def run_any(context: dg.OpExecutionContext) -> None:
        layout = build_gobblin_layout(context.op_config)
        for urn, keys in {ORDERS: (), MONTHLY: (JANUARY,)}.items():
            selection = select_partitions(layout.job, layout.datasets, urns=[urn], keys=keys, begun_by=None)
            materialize_selection(context, layout, GobblinRunConfig(), selection)

    @dg.job(resource_defs=build_world(shop.folder, shop.database_url, **OPTIONS).resources)
    def flows() -> None:
        run_any()

    options = describe_job(shop.folder, **OPTIONS)
    assert flows.execute_in_process(
        instance=shop.instance, run_config={"ops": {"run_any": {"config": options}}}
    ).success
    assert shop.numbers == [1, 2, 3]
    assert (len(shop.events(ORDERS)), shop.partitions(MONTHLY)) == (1, [JANUARY])
