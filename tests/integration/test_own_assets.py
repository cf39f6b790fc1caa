"""Functions of a user's own under ``@gobblin_assets``: what Dagster and the log have after each kind of run."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import Engine, text

from gobblin_assets import failpoints
from gobblin_assets.dagster import (
    DatasetTranslation,
    GobblinResource,
    GobblinRunConfig,
    GobblinTranslator,
    build_asset_specs,
    build_definitions,
    build_gobblin_definitions,
    gobblin_assets,
)
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, GOBBLIN_KEY, SPARK_KEY, STORES_KEY
from gobblin_assets.dagster.resources import CommitStoreResource, FileSystemsResource
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint
from tests.support.dagster_instance import open_instance
from tests.support.dagster_world import (
    ArrowResource,
    NumbersResource,
    build_world,
    describe_job,
    published_numbers,
    write_numbers,
)

pytestmark = pytest.mark.turns(of=8)

MONTHLY: dict[str, Any] = {
    "table": "sales",
    "extract": "append_only",
    "watermark": {"column": "day", "type": "date"},
    "partitions": {"kind": "monthly", "start": "2013-01-01", "end": "2014-01-01"},
}
DATASETS = [{"table": "orders"}, {"table": "stock"}, MONTHLY]
LEASE = {"ttl_s": 2, "wait_s": 0}
ORDERS, STOCK, SALES = (dg.AssetKey(["shop", name]) for name in ("orders", "stock", "sales"))

Function = Callable[..., Any]


def run_all(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> Iterator[Any]:
    yield from gobblin.run(context)


class World:
    """A job over a folder of numbers, with a function of the test's own in place of its op."""

    def __init__(self, folder: Path, database_url: str, instance: dg.DagsterInstance) -> None:
        self.folder = folder
        self.database_url = database_url
        self.instance = instance
        self.job = describe_job(folder, datasets=DATASETS, lease=LEASE)
        self.op_options: dict[str, Any] = {}

    def write(self, urn: str, partition: str | None, *numbers: object) -> None:
        write_numbers(self.folder / "source", urn, partition, numbers)

    @property
    def resources(self) -> dict[str, Any]:
        return {
            GOBBLIN_KEY: GobblinResource(),
            STORES_KEY: CommitStoreResource(database_url=self.database_url),
            FILE_SYSTEMS_KEY: FileSystemsResource(),
            SPARK_KEY: ArrowResource(folder=str(self.folder / "source")),
            "jdbc__numbers": NumbersResource(folder=str(self.folder / "source")),
        }

    def define(self, function: Function, **resources: Any) -> dg.Definitions:
        built = build_gobblin_definitions(gobblin_assets(job=self.job, **self.op_options)(function))
        return dg.Definitions.merge(built, dg.Definitions(resources={**self.resources, **resources}))

    def run(self, function: Function, *keys: dg.AssetKey, job: str = "shop_whole", **arguments: Any) -> Any:
        resources = arguments.pop("resources", {})
        return (
            self.define(function, **resources)
            .resolve_job_def(job)
            .execute_in_process(
                instance=self.instance, asset_selection=list(keys) or None, raise_on_error=False, **arguments
            )
        )

    def tick(self, definitions: dg.Definitions) -> Any:
        sensor = definitions.resolve_sensor_def("shop_recovery_sensor")
        with dg.build_sensor_context(
            instance=self.instance, resources=dict(definitions.resources or {}), definitions=definitions
        ) as context:
            return sensor.evaluate_tick(context)

    def count_events(self, key: dg.AssetKey) -> int:
        return len(self.instance.fetch_materializations(key, limit=100).records)

    @property
    def numbers(self) -> list[int]:
        return published_numbers(self.folder)


def failure_of(result: Any) -> str:
    (event,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    data = event.event_specific_data.user_failure_data
    return str(data.description if data else event.event_specific_data.error.to_string())


@pytest.fixture
def world(tmp_path: Path, database_url: str) -> Iterator[World]:
    with open_instance(tmp_path) as instance:
        yield World(tmp_path, database_url, instance)


class TestOptionsOfTheOp:
    def test_they_are_those_of_a_multi_asset(self, world: World) -> None:
        options: dict[str, Any] = {
            "op_tags": {"team": "shop"},
            "pool": "warehouse",
            "retry_policy": dg.RetryPolicy(max_retries=3),
        }
        others = dg.multi_asset(specs=[dg.AssetSpec("other")], name="others", **options)(lambda: None)
        ours = gobblin_assets(job=world.job, **options)(run_all)
        for op in (ours.op, others.op):
            assert (op.tags["team"], op.pool, op.retry_policy) == ("shop", "warehouse", options["retry_policy"])

    def test_a_line_of_the_function_is_tried_again_and_what_is_published_is_not_read_again(self, world: World) -> None:
        world.write("orders", None, 1, 2)
        world.op_options = {"retry_policy": dg.RetryPolicy(max_retries=1)}
        tries: list[int] = []

        def shop(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> Iterator[Any]:
            tries.append(context.retry_number)
            yield from gobblin.run(context, datasets=["orders"])
            if context.retry_number == 0:
                raise ValueError("the chat does not answer")

        assert world.run(shop, ORDERS).success
        assert (tries, world.count_events(ORDERS), world.numbers) == ([0, 1], 1, [1, 2])


class TestMaterializing:
    @pytest.mark.core
    def test_lines_before_between_and_after_see_events_that_dagster_has_once(self, world: World) -> None:
        world.write("orders", None, 1, 2)
        world.write("stock", None, 3)
        said: list[str] = []

        def shop(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> Iterator[Any]:
            """Orders and stock."""
            said.append("before")
            for event in gobblin.run(context):
                if isinstance(event, dg.AssetMaterialization):
                    said.append(f"{event.asset_key.path[-1]}: {event.metadata['gobblin/rows'].value}")
                    assert world.count_events(event.asset_key) == 1, "it is there before the function gets it"
                else:
                    assert (event.check_name, event.passed) == ("gobblin_published", True)
                yield event
            said.append("after")

        result = world.run(shop)
        assert result.success
        assert (said[0], sorted(said[1:-1]), said[-1]) == ("before", ["orders: 2", "stock: 1"], "after")
        assert (world.count_events(ORDERS), world.count_events(STOCK), world.numbers) == (1, 1, [1, 2, 3])
        evaluations = [e for e in result.all_events if e.event_type_value == "ASSET_CHECK_EVALUATION"]
        assert len(evaluations) == 2

    def test_its_events_are_those_of_the_job_s_own_assets(self, world: World) -> None:
        world.write("orders", None, 1, 2)
        tags = {"gobblin/mode": "refresh"}
        (own,) = world.run(run_all, ORDERS, tags=tags).asset_materializations_for_node("shop")
        job = build_world(world.folder, world.database_url, datasets=DATASETS, lease=LEASE).resolve_job_def(
            "shop_whole"
        )
        result = job.execute_in_process(instance=world.instance, asset_selection=[ORDERS], tags=tags)
        (plain,) = result.asset_materializations_for_node("shop")
        assert own.metadata.keys() == plain.metadata.keys()
        assert (own.description, own.tags.keys()) == (plain.description, plain.tags.keys())

    def test_a_function_may_yield_nothing_or_return_the_events(self, world: World) -> None:
        world.write("orders", None, 1)

        def drop(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> None:
            assert len(list(gobblin.run(context))) == 2

        def give(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> Iterator[Any]:
            return gobblin.run(context)

        for number, function in enumerate((drop, give), start=1):
            assert world.run(function, ORDERS).success
            assert world.count_events(ORDERS) == number

    def test_what_else_it_yields_goes_to_dagster(self, world: World) -> None:
        world.write("orders", None, 1)

        def shop(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> Iterator[Any]:
            yield dg.AssetObservation(ORDERS, description="mine")
            yield from gobblin.run(context)

        assert world.run(shop, ORDERS).success
        (record,) = world.instance.fetch_observations(ORDERS, 9).records
        assert record.asset_observation is not None
        assert record.asset_observation.description == "mine"

    def test_a_subset_runs_alone(self, world: World) -> None:
        world.write("orders", None, 1)
        world.write("stock", None, 3)
        assert world.run(run_all, STOCK).success
        assert (world.numbers, world.count_events(ORDERS)) == ([3], 0)

    def test_datasets_are_run_one_after_another_where_they_are_selected(self, world: World) -> None:
        world.write("orders", None, 1)
        world.write("stock", None, 3)
        seen: list[list[int]] = []

        def shop(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> Iterator[Any]:
            for urn in ("stock", "orders", "sales"):
                yield from gobblin.run(context, datasets=[urn])
                seen.append(world.numbers)

        assert world.run(shop).success
        assert seen == [[3], [1, 3], [1, 3]]
        assert world.run(shop, ORDERS).success
        assert (world.count_events(ORDERS), world.count_events(STOCK)) == (2, 1)

    def test_a_backfill_in_one_run_publishes_each_partition(self, world: World) -> None:
        for month, number in (("2013-01-01", 1), ("2013-02-01", 2), ("2013-03-01", 3)):
            world.write("sales", month, number)
        seen: list[str | None] = []

        def shop(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> Iterator[Any]:
            for event in gobblin.run(context):
                seen.append(event.partition)
                yield event

        tags = {
            "dagster/asset_partition_range_start": "2013-01-01",
            "dagster/asset_partition_range_end": "2013-03-01",
        }
        assert world.run(shop, job="shop_monthly", tags=tags).success
        assert world.instance.get_materialized_partitions(SALES) == {"2013-01-01", "2013-02-01", "2013-03-01"}
        assert (world.numbers, sorted(set(map(str, seen)))) == ([1, 2, 3], ["2013-01-01", "2013-02-01", "2013-03-01"])
        (assets,) = [
            each
            for each in world.define(shop).resolve_asset_graph().assets_defs
            if isinstance(each, dg.AssetsDefinition) and SALES in each.keys
        ]
        assert assets.backfill_policy == dg.BackfillPolicy.single_run()

    def test_checks_alone_are_given_too(self, world: World) -> None:
        world.write("orders", None, 1)
        assert world.run(run_all, ORDERS).success
        seen: list[Any] = []

        def shop(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> Iterator[Any]:
            for event in gobblin.run(context, datasets=["orders"]):
                seen.append(event)
                yield event

        definitions = world.define(shop)
        job = definitions.resolve_implicit_global_asset_job_def().get_subset(
            asset_check_selection={dg.AssetCheckKey(key, "gobblin_published") for key in (ORDERS, STOCK)},
            asset_selection=set(),
        )
        assert job.execute_in_process(instance=world.instance).success
        ((check, passed),) = [(event.asset_check_key, event.passed) for event in seen]
        assert (check.asset_key, passed, world.count_events(ORDERS)) == (ORDERS, True, 1)


class TestOptions:
    def test_options_of_its_own_lie_beside_those_of_the_run(self, world: World) -> None:
        world.write("orders", None, 1)
        seen: list[tuple[bool, str | None]] = []

        class Mine(GobblinRunConfig):
            notify: bool = False

        def shop(context: dg.AssetExecutionContext, config: Mine, gobblin: GobblinResource) -> Iterator[Any]:
            seen.append((config.notify, config.mode))
            yield from gobblin.run(context)

        # The annotation is a class of this test, which no module has.
        shop.__annotations__["config"] = Mine
        config = {"ops": {"shop": {"config": {"notify": True, "mode": "append"}}}}
        result = world.run(shop, ORDERS, run_config=config)
        assert result.success
        assert seen == [(True, "append")]
        (event,) = result.asset_materializations_for_node("shop")
        assert event.metadata["gobblin/mode"].value == "append"

    def test_other_resources_are_handed_over(self, world: World) -> None:
        world.write("orders", None, 1)
        sent: list[str] = []

        class Chat(dg.ConfigurableResource["Chat"]):
            room: str

            def send(self, line: str) -> None:
                sent.append(f"{self.room}: {line}")

        def shop(context: dg.AssetExecutionContext, chat: Chat, gobblin: GobblinResource) -> Iterator[Any]:
            for event in gobblin.run(context):
                chat.send(event.asset_key.to_user_string())
                yield event

        shop.__annotations__["chat"] = Chat
        assert world.run(shop, ORDERS, resources={"chat": Chat(room="data")}).success
        assert sent == ["data: shop/orders"] * 2


class TestFailures:
    def test_one_failed_dataset_gives_what_was_published_and_then_raises(self, world: World) -> None:
        world.write("orders", None, 1)
        world.write("stock", None, "broken")
        seen: list[str] = []

        def shop(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> Iterator[Any]:
            for event in gobblin.run(context):
                if isinstance(event, dg.AssetMaterialization):
                    seen.append(event.asset_key.path[-1])
                yield event
            seen.append("after")

        result = world.run(shop)
        assert not result.success
        assert "1 of 2 dataset partitions failed" in failure_of(result)
        assert (seen, world.numbers, world.count_events(ORDERS)) == (["orders"], [1], 1)

    def test_a_failure_that_the_function_does_not_read_is_raised_behind_it(self, world: World) -> None:
        world.write("orders", None, 1)
        world.write("stock", None, "broken")

        def shop(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> None:
            gobblin.run(context)

        result = world.run(shop)
        assert not result.success
        assert "1 of 2 dataset partitions failed" in failure_of(result)
        assert world.count_events(ORDERS) == 1

    def test_a_failure_that_the_function_catches_is_its_own_affair(self, world: World) -> None:
        world.write("stock", None, "broken")

        def shop(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> None:
            with pytest.raises(dg.Failure):
                list(gobblin.run(context))

        assert world.run(shop, STOCK).success

    def test_a_line_that_fails_leaves_what_is_published(self, world: World) -> None:
        world.write("orders", None, 1)
        world.write("stock", None, 3)

        def shop(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> Iterator[Any]:
            for event in gobblin.run(context):
                raise ValueError(f"no room for {event.asset_key}")
                yield event

        result = world.run(shop)
        assert not result.success
        assert "no room for" in failure_of(result)
        assert (world.numbers, world.count_events(ORDERS), world.count_events(STOCK)) == ([1, 3], 1, 1)

    def test_a_dataset_that_is_not_the_job_s_is_named(self, world: World) -> None:
        def shop(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> Iterator[Any]:
            yield from gobblin.run(context, datasets=["oders"])

        said = failure_of(world.run(shop))
        assert "the job shop has no dataset 'oders'" in said
        assert "orders, stock, sales" in said


class TestRecovery:
    @pytest.mark.core
    def test_what_a_killed_run_had_sealed_is_finished_by_the_sensor_s_job(self, world: World, engine: Engine) -> None:
        world.write("orders", None, 1, 2)
        program = f"""
import os, signal, sys
from pathlib import Path
import dagster as dg
from gobblin_assets import failpoints
from gobblin_assets.failpoints import Failpoint
from tests.integration.test_own_assets import ORDERS, World, run_all

def die(reached):
    if reached is Failpoint.STEP_AFTER:
        os.kill(os.getpid(), signal.SIGKILL)

with failpoints.install(die), dg.DagsterInstance.from_config({str(world.folder)!r}) as instance:
    World(Path({str(world.folder)!r}), {world.database_url!r}, instance).run(run_all, ORDERS)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        with engine.begin() as connection:
            assert connection.execute(text("SELECT state FROM gobblin.commit_sequence")).scalar_one() == "PREPARED"
            connection.execute(text("UPDATE gobblin.lease SET expires_at = now() - interval '1 hour'"))
        (dead,) = world.instance.get_runs()
        definitions = world.define(run_all)
        (request,) = world.tick(definitions).run_requests
        assert world.count_events(ORDERS) == 0
        job = definitions.resolve_job_def("shop_recovery")
        assert job.execute_in_process(instance=world.instance, tags=request.tags).success
        assert (world.numbers, world.count_events(ORDERS)) == ([1, 2], 1)
        found = world.instance.get_run_by_id(dead.run_id)
        assert found is not None
        assert found.status is dg.DagsterRunStatus.FAILURE, "the sensor reports the dead run"
        assert world.run(run_all, ORDERS).success
        assert (world.numbers, world.count_events(ORDERS)) == ([1, 2], 2)

    def test_the_next_run_gives_what_it_recovered(self, world: World) -> None:
        world.write("orders", None, 1)

        class Died(BaseException):
            pass

        def die(reached: Failpoint) -> None:
            if reached is Failpoint.STEP_AFTER:
                raise Died

        with failpoints.install(die):
            assert not world.run(run_all, ORDERS).success
        seen: list[bool] = []

        def shop(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> Iterator[Any]:
            for event in gobblin.run(context):
                if isinstance(event, dg.AssetMaterialization):
                    seen.append(bool(event.metadata["gobblin/recovered"].value))
                yield event

        assert world.run(shop, ORDERS, tags={"gobblin/mode": "append"}).success
        assert seen[0]
        assert world.numbers == [1]


class TestDefinitions:
    @pytest.mark.core
    def test_assets_checks_jobs_and_sensors_are_those_of_the_job(self, world: World) -> None:
        own = world.define(run_all)
        plain = build_world(world.folder, world.database_url, datasets=DATASETS, lease=LEASE)
        assert describe(own) == describe(plain)
        specs = {spec.key: spec for spec in own.resolve_all_asset_specs()}
        for spec in build_asset_specs(world.job):
            assert specs[spec.key] == spec
        assert [spec.key for spec in build_asset_specs(world.job)] == [ORDERS, STOCK, SALES]

    def test_two_functions_share_a_code_location_with_jobs(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GOBBLIN_DATABASE_URL", world.database_url)
        copies = [
            {
                "job": name,
                "kind": "distcp",
                "source": str(world.folder / f"{name}_in"),
                "destination": str(world.folder / name),
            }
            for name in ("first", "second", "third")
        ]
        for job in copies:
            Path(job["source"], "files").mkdir(parents=True)
            Path(job["source"], "files", "a.txt").write_text(job["job"], encoding="utf-8")
        own = [gobblin_assets(job=job)(run_all) for job in copies[:2]]
        definitions = build_definitions([*own, copies[2]])
        with pytest.raises(RejectedError, match="two jobs are called 'first'"):
            build_definitions([*own, copies[0]])
        for name in ("first", "second", "third"):
            assert definitions.resolve_job_def(f"{name}_whole").execute_in_process(instance=world.instance).success
            assert (world.folder / name / "files" / "a.txt").read_text(encoding="utf-8") == name

    def test_a_translator_gives_other_keys(self, world: World) -> None:
        class Mine(GobblinTranslator):
            def get_asset_spec(self, data: DatasetTranslation) -> dg.AssetSpec:
                return super().get_asset_spec(data).replace_attributes(key=["lake", data.urn])

        world.write("orders", None, 1)
        assets = gobblin_assets(job=world.job, translator=Mine())(run_all)
        built = build_gobblin_definitions(assets)
        definitions = dg.Definitions.merge(built, dg.Definitions(resources=world.resources))
        key = dg.AssetKey(["lake", "orders"])
        job = definitions.resolve_job_def("shop_whole")
        assert job.execute_in_process(instance=world.instance, asset_selection=[key]).success
        assert world.count_events(key) == 1
        assert key in {spec.key for spec in build_asset_specs(world.job, translator=Mine())}

    def test_keys_that_were_changed_afterwards_are_refused(self, world: World) -> None:
        assets = gobblin_assets(job=world.job)(run_all).with_attributes(
            asset_key_replacements={ORDERS: dg.AssetKey(["other"])}
        )
        with pytest.raises(RejectedError, match="give the decorator a translator"):
            build_gobblin_definitions(assets)


class TestMistakes:
    @pytest.mark.parametrize(
        ("job", "said"),
        [
            (5, "expected a job's options, found a value of the type int"),
            ("nowhere.yaml", "nowhere.yaml"),
            ({"job": "a", "kind": "nothing"}, "kind"),
        ],
    )
    def test_what_is_no_job(self, job: Any, said: str) -> None:
        for build in (lambda: gobblin_assets(job=job), lambda: build_asset_specs(job)):
            with pytest.raises(RejectedError, match=said):
                build()

    def test_functions_that_take_something_else(self, world: World) -> None:
        def without_context(gobblin: GobblinResource) -> None: ...

        def without_resource(context: dg.AssetExecutionContext) -> None: ...

        def with_input(context: dg.AssetExecutionContext, gobblin: GobblinResource, upstream: int) -> None: ...

        def with_options(context: dg.AssetExecutionContext, config: dg.Config, gobblin: GobblinResource) -> None: ...

        async def late(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> None: ...

        for function, said in (
            (without_context, "found no context"),
            (without_resource, "expected a parameter that is a GobblinResource"),
            (with_input, "found upstream"),
            (with_options, "expected GobblinRunConfig or a subclass"),
            (late, "without async"),
            (5, "expected a function"),
        ):
            with pytest.raises(RejectedError, match=said):
                gobblin_assets(job=world.job)(function)  # type: ignore[arg-type]  # 5 is one of the mistakes

    def test_a_function_that_returns_something_else(self, world: World) -> None:
        def shop(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> int:
            return 5

        assert "expected a generator, an iterator or None" in failure_of(world.run(shop, ORDERS))

    def test_a_resource_outside_of_such_a_function(self, world: World) -> None:
        @dg.asset
        def other(context: dg.AssetExecutionContext, gobblin: GobblinResource) -> None:
            gobblin.run(context)

        result = dg.materialize(
            [other], instance=world.instance, resources={"gobblin": GobblinResource()}, raise_on_error=False
        )
        assert "expected the context of a function under @gobblin_assets" in failure_of(result)

    def test_assets_that_are_no_job_s(self) -> None:
        @dg.asset
        def other() -> None: ...

        with pytest.raises(RejectedError, match="expected the assets of a function under @gobblin_assets"):
            build_definitions([other])


def describe(definitions: dg.Definitions) -> dict[str, Any]:
    graph = definitions.resolve_asset_graph()
    repository = definitions.get_repository_def()
    return {
        "assets": sorted(key.to_user_string() for key in graph.materializable_asset_keys),
        "checks": sorted(map(str, graph.asset_check_keys)),
        "partitions": {str(key): graph.get(key).partitions_def for key in graph.materializable_asset_keys},
        "jobs": sorted(repository.job_names),
        "sensors": sorted(each.name for each in repository.sensor_defs),
        "ops": json.dumps(sorted(node.name for node in definitions.resolve_implicit_global_asset_job_def().nodes)),
    }
