"""Change logs of a real Postgres in Dagster: runs that catch up, what the sensors tell, and what has no use here."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData
from sqlalchemy import Engine

from gobblin_assets.dagster.factory import build_gobblin_definitions
from gobblin_assets.dagster.resources import CommitStoreResource, gobblin_resources
from gobblin_assets.dagster.resources.connections import connection_from_environment
from gobblin_assets.sources.discovery import find_discovery
from tests.support.changed_tables import ChangedTables, set_log_variables
from tests.support.command_lake import invoke
from tests.support.postgres import Database

pytestmark = pytest.mark.turns(of=8)

ORDERS, NOTES = dg.AssetKey(["shop", "public.orders"]), dg.AssetKey(["shop", "public.notes"])
SINK, DISCOVERY = "shop_sink_sensor", "shop_discovery_sensor"


class ShopInDagster:
    """The job's definitions, a Dagster instance, runs of assets, and ticks of sensors."""

    def __init__(self, tables: ChangedTables, instance: dg.DagsterInstance, database_url: str) -> None:
        self.tables = tables
        self.instance = instance
        self.database_url = database_url

    def define(self, **discovery: Any) -> dg.Definitions:
        job = self.tables.job
        resources = gobblin_resources(
            {"shop": connection_from_environment(job.source)},
            stores=CommitStoreResource(database_url=self.database_url),
        )
        return dg.Definitions.merge(build_gobblin_definitions(job, **discovery), dg.Definitions(resources=resources))

    def run(
        self, *keys: dg.AssetKey, config: Mapping[str, object] | None = None, partition: str | None = None
    ) -> dg.DagsterRun:
        definitions = self.define()
        (name,) = [each.name for each in definitions.jobs or () if each.name in ("shop_whole", "shop_daily")]
        result = definitions.resolve_job_def(name).execute_in_process(
            instance=self.instance,
            asset_selection=list(keys) or None,
            run_config={"ops": {"shop": {"config": dict(config or {})}}},
            partition_key=partition,
            raise_on_error=False,
        )
        run = self.instance.get_run_by_id(result.run_id)
        assert run is not None
        return run

    def failure_of(self, run: dg.DagsterRun) -> str:
        assert run.status is dg.DagsterRunStatus.FAILURE
        told = [record.dagster_event for record in self.instance.all_logs(run.run_id)]
        (failure,) = [event.step_failure_data.user_failure_data for event in told if event and event.is_step_failure]
        assert failure is not None
        return str(failure.description)

    def said(self, run: dg.DagsterRun) -> str:
        return "\n".join(record.user_message for record in self.instance.all_logs(run.run_id))

    def tick(self, name: str, definitions: dg.Definitions | None = None, cursor: str | None = None) -> Any:
        defined = definitions or self.define()
        assert defined.resources is not None
        with dg.build_sensor_context(
            instance=self.instance, resources=dict(defined.resources), cursor=cursor
        ) as context:
            found = defined.resolve_sensor_def(name).evaluate_tick(context)
        assert isinstance(found, SensorExecutionData)
        return found

    def check(self, key: dg.AssetKey) -> dg.AssetCheckEvaluation:
        """The newest evaluation of its lag."""
        found = self.instance.event_log_storage.get_asset_check_execution_history(dg.AssetCheckKey(key, "sink_lag"), 1)
        event = found[0].event
        assert event is not None
        assert event.dagster_event is not None
        return event.dagster_event.asset_check_evaluation_data


@pytest.fixture
def shop(
    tmp_path: Path, source_database: Database, engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ShopInDagster]:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    tables = ChangedTables(tmp_path, source_database, engine, ["orders", "notes"])
    tables.do(
        "CREATE TABLE orders (id int PRIMARY KEY, total int)",
        "CREATE TABLE notes (id int PRIMARY KEY, body text)",
        "CREATE PUBLICATION lake FOR TABLE orders, notes",
        "INSERT INTO orders SELECT n, n FROM generate_series(1, 30) n",
    )
    set_log_variables(tables, monkeypatch)
    with dg.DagsterInstance.ephemeral() as instance:
        yield ShopInDagster(tables, instance, database_url)


@pytest.mark.core
def test_a_run_ends_once_all_is_published_that_was_committed_before(shop: ShopInDagster) -> None:
    """The first one copies. Whatever is selected, the tables are followed together."""
    tables = shop.tables
    assert shop.run(ORDERS, NOTES).status is dg.DagsterRunStatus.SUCCESS
    tables.require_same("orders", "id")
    tables.do("DELETE FROM orders WHERE id = 1", "INSERT INTO notes VALUES (1, 'one')")
    run = shop.run(ORDERS)
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert "Published is all that was committed when the run began, of: public.orders." in shop.said(run)
    tables.require_same("orders", "id")
    tables.require_same("notes", "id")


def test_a_run_waits_for_the_worker_that_has_the_tables(shop: ShopInDagster) -> None:
    tables = shop.tables
    with tables.working():
        tables.await_published()
        tables.do("UPDATE orders SET total = 0", "INSERT INTO notes VALUES (1, 'one')")
        run = shop.run()
        assert run.status is dg.DagsterRunStatus.SUCCESS, shop.said(run)
        tables.require_same("orders", "id")
        tables.require_same("notes", "id")


def test_a_run_over_a_table_that_has_stopped_fails_with_the_fix(shop: ShopInDagster) -> None:
    shop.run()
    shop.tables.ask("SELECT pg_drop_replication_slot('gobblin_shop')::text")
    found = shop.failure_of(shop.run(ORDERS))
    assert "the replication slot gobblin_shop is gone" in found
    assert "gobblin-assets sink recopy JOB --all" in found


def test_options_of_runs_are_refused_by_their_names(shop: ShopInDagster) -> None:
    assert "mode: a change log has every change once" in shop.failure_of(shop.run(config={"mode": "refresh"}))
    assert "restart: is for topics" in shop.failure_of(shop.run(config={"restart": "start_over"}))
    assert "is followed by workers of a sink" in shop.failure_of(shop.run(config={"stream_s": 5}))
    shop.tables.options = {"defaults": {"partitions": {"kind": "daily", "start": "2026-01-01"}}}
    assert "partition: a stream of public" in shop.failure_of(shop.run(partition="2026-01-01"))


@pytest.mark.core
def test_the_sensor_tells_lag_and_what_the_server_keeps_also_without_a_worker(shop: ShopInDagster) -> None:
    tables = shop.tables
    tables.options = {**tables.options, "sink": {"every_s": 0.2, "roll": {"age_s": 0}, "lag_max": 100_000}}
    assert not [each for each in shop.define().sensors or () if each.name == "shop_new_data_sensor"]
    with tables.working():
        tables.await_published()
        shop.tick(SINK)
    (observed,) = shop.instance.fetch_observations(ORDERS, limit=5).records
    assert observed.asset_observation is not None
    metadata = {name: each.value for name, each in observed.asset_observation.metadata.items()}
    assert metadata["gobblin/copy"] == 1
    position = tables.ask(f"SELECT '{metadata['gobblin/position']}'::pg_lsn - '0/0'::pg_lsn")
    assert 0 < position <= tables.published_to("orders"), "it has moved since, at most"
    assert {"gobblin/lag_bytes", "gobblin/retained_bytes"} < metadata.keys()
    assert shop.check(ORDERS).passed

    tables.do("INSERT INTO orders SELECT n, n FROM generate_series(1000, 9000) n")
    storage = shop.instance.event_log_storage
    storage.wipe()
    shop.tick(SINK)
    late = shop.check(ORDERS)
    assert not late.passed
    assert "bytes of the server's log are not published" in str(late.description)
    figures = {name: int(str(each.value)) for name, each in late.metadata.items() if name != "lag_s"}
    assert min(figures["lag_bytes"], figures["retained_bytes"]) > figures["lag_max"] == 100_000

    tables.ask("SELECT pg_drop_replication_slot('gobblin_shop')::text")
    storage.wipe()
    shop.tick(SINK)
    assert "gobblin_shop is gone" in str(shop.check(NOTES).description)


def test_a_source_that_does_not_answer_is_said_and_the_rest_is_told(
    shop: ShopInDagster, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run()
    monkeypatch.setenv("GOBBLIN_POSTGRES_LOG_SHOP_URL", "jdbc:postgresql://127.0.0.1:1/none")
    said = str(shop.tick(SINK).skip_message)
    assert "The source did not answer" in said
    assert "2 partitions were reported" in said or "1 partition was reported" in said


def test_tables_that_join_the_publication_are_found(shop: ShopInDagster, tmp_path: Path) -> None:
    shop.tables.source, shop.tables.tables = {"include": ["public.*"]}, []
    found = invoke("discover", shop.tables.write_job())
    assert found.exit_code == 0, found.output
    path = tmp_path / "home" / "discovery" / "shop.json"
    known = find_discovery(path)
    assert known is not None
    assert known.tables == ("public.notes", "public.orders")
    shop.tables.do("CREATE TABLE late (id int PRIMARY KEY)", "ALTER PUBLICATION lake ADD TABLE late")
    definitions = shop.define(discovered=known.tables, discovery_path=path)
    assert {spec.key for spec in definitions.resolve_all_asset_specs()} >= {ORDERS, NOTES}
    assert "(new: public.late)" in str(shop.tick(DISCOVERY, definitions).skip_message)
    with_late = find_discovery(path)
    assert with_late is not None
    assert "public.late" in with_late.tables


def test_commands_of_runs_name_the_command_that_follows(shop: ShopInDagster) -> None:
    job = shop.tables.write_job()
    for arguments in (["run", job, "--no-dagster"], ["stream", job, "--no-dagster"], ["plan", job]):
        found = invoke(*arguments)
        assert found.exit_code != 0, found.output
        assert "gobblin-assets sink run" in f"{found.output}{found.exception}", arguments
