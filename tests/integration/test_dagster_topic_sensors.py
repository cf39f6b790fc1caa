"""A Kafka job's sensors, tick by tick, over brokers whose logs never change: which topics are busy, what is written."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData
from sqlalchemy import Engine

from gobblin_assets.dagster.factory import build_gobblin_definitions
from gobblin_assets.dagster.log_sensors import EVALUATIONS_PER_TICK_MAX
from gobblin_assets.dagster.resources import CommitStoreResource, KafkaConnectionResource, gobblin_resources
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.discovery import find_discovery
from gobblin_assets.sources.kafka.cluster import TopicOffsets
from gobblin_assets.sources.kafka.kafka_kind import KafkaSourceSpec
from gobblin_assets.sources.kafka.watch import TopicWatch
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.state.datasets import NewRun
from gobblin_assets.state.leases import Holder
from tests.support.dagster_instance import open_instance
from tests.support.topic_plans import FixedCluster, offsets_of

pytestmark = pytest.mark.turns(of=8)

JOB = JobName("events")
NEW_DATA, DISCOVERY = "events_new_data_sensor", "events_discovery_sensor"
A, B = dg.AssetKey(["events", "a"]), dg.AssetKey(["events", "b"])


@dataclass
class FixedConnection:
    """Takes the place of the connection resource."""

    cluster: FixedCluster

    def open_watch(self, job: JobSpec, *, timeout_s_max: float) -> TopicWatch:
        assert timeout_s_max < 60, "Dagster would end the tick first"
        assert isinstance(job.source, KafkaSourceSpec)
        return TopicWatch(self.cluster, job.source)


@dataclass
class Sensors:
    instance: dg.DagsterInstance
    stores: Stores
    database_url: str
    lake: Path
    topics: dict[str, TopicOffsets] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def define(self, source: dict[str, Any], **arguments: Any) -> dg.Definitions:
        job = {
            "job": "events",
            "source": {"type": "kafka", "connection": "kafka", **source},
            "destination": str(self.lake),
            **self.options,
        }
        resources = gobblin_resources(
            {"kafka": KafkaConnectionResource(bootstrap_servers="nowhere:9092")},
            stores=CommitStoreResource(database_url=self.database_url),
        )
        return dg.Definitions.merge(build_gobblin_definitions(job, **arguments), dg.Definitions(resources=resources))

    def tick(self, definitions: dg.Definitions, name: str = NEW_DATA, cursor: str | None = None) -> SensorExecutionData:
        sensor = definitions.resolve_sensor_def(name)
        assert definitions.resources is not None
        resources = {**definitions.resources, "kafka__kafka": FixedConnection(FixedCluster(self.topics))}
        with dg.build_sensor_context(instance=self.instance, resources=resources, cursor=cursor) as context:
            return sensor.evaluate_tick(context)

    def asked(self, definitions: dg.Definitions) -> set[dg.AssetKey]:
        return {key for each in self.tick(definitions).run_requests or () for key in each.asset_selection or ()}


@pytest.fixture
def sensors(tmp_path: Path, database_url: str, engine: Engine) -> Iterator[Sensors]:
    with open_instance(tmp_path) as instance:
        yield Sensors(instance, open_stores(engine), database_url, tmp_path / "lake")


class TestBusy:
    @pytest.fixture
    def two(self, sensors: Sensors) -> dg.Definitions:
        sensors.topics = {"a": offsets_of({0: (0, 5)}), "b": offsets_of({0: (0, 5)})}
        sensors.options = {"datasets": [{"topic": "a"}, {"topic": "b"}]}
        definitions = sensors.define({})
        assert sensors.asked(definitions) == {A, B}
        return definitions

    @pytest.mark.parametrize("status", [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED])
    def test_what_an_unfinished_run_has_selected_is_left_out(
        self, sensors: Sensors, two: dg.Definitions, status: dg.DagsterRunStatus
    ) -> None:
        job = two.resolve_job_def("events_whole")
        run = sensors.instance.create_run_for_job(job, status=status, asset_selection=frozenset({A}))
        assert sensors.asked(two) == {B}
        sensors.instance.report_run_failed(run)
        assert sensors.asked(two) == {A, B}

    def test_a_run_without_a_selection_has_all_of_them(self, sensors: Sensors, two: dg.Definitions) -> None:
        job = two.resolve_job_def("events_whole")
        sensors.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTING)
        result = sensors.tick(two)
        assert not result.run_requests
        assert result.skip_message == "2 at work or queued already: a, b."

    def test_another_job_s_run_is_none_of_ours(self, sensors: Sensors, two: dg.Definitions) -> None:
        job = two.resolve_job_def("events_recovery")
        sensors.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
        assert sensors.asked(two) == {A, B}

    @pytest.mark.core
    def test_a_dataset_that_a_run_outside_of_dagster_holds_is_left_out(
        self, sensors: Sensors, two: dg.Definitions
    ) -> None:
        run_id = RunId(uuid.uuid4())
        sensors.stores.runs.begin(NewRun(run_id, JOB, "host:1"))
        ids = list(sensors.stores.datasets.register(JOB, [DatasetUrn("a")]).values())
        leases = sensors.stores.leases.take(ids, Holder("host:1", run_id), ttl_s=60)
        assert sensors.asked(two) == {B}
        sensors.stores.leases.release(leases)
        assert sensors.asked(two) == {A, B}


class TestDefinitions:
    def test_the_sensor_that_starts_runs_waits_to_be_turned_on_unless_the_job_says_otherwise(
        self, sensors: Sensors
    ) -> None:
        sensors.options = {"datasets": [{"topic": "a"}]}
        for running in (False, True):
            sensor = sensors.define({"new_data": {"running": running}}).resolve_sensor_def(NEW_DATA)
            assert (sensor.default_status is dg.DefaultSensorStatus.RUNNING) == running

    def test_topics_that_are_listed_one_by_one_need_no_discovery(self, sensors: Sensors) -> None:
        sensors.options = {"datasets": [{"topic": "a"}]}
        names = {each.name for each in sensors.define({}).sensors or ()}
        assert names == {NEW_DATA, "events_recovery_sensor", "events_reporting_sensor"}

    def test_a_lag_check_is_there_where_a_threshold_is(self, sensors: Sensors) -> None:
        sensors.options = {"datasets": [{"topic": "a", "quality": {"lag_max": 5}}, {"topic": "b"}]}
        graph = sensors.define({}).get_repository_def().asset_graph
        assert {key.asset_key for key in graph.asset_check_keys if key.name == "lag"} == {A}


class TestLag:
    def test_of_many_topics_is_told_in_several_ticks_the_late_ones_first(self, sensors: Sensors) -> None:
        names = [f"t{number:03}" for number in range(EVALUATIONS_PER_TICK_MAX + 10)]
        late = set(names[-3:])
        sensors.topics = {name: offsets_of({0: (0, 9 if name in late else 1)}) for name in names}
        sensors.options = {"datasets": [{"topic": name} for name in names], "defaults": {"quality": {"lag_max": 5}}}
        definitions = sensors.define({})
        told: list[tuple[str, bool]] = []
        for _tick in range(3):
            for event in sensors.tick(definitions).asset_events:
                assert isinstance(event, dg.AssetCheckEvaluation)
                sensors.instance.report_runless_asset_event(event)
                told.append((event.asset_key.path[-1], event.passed))
        assert {name for name, passed in told[:3] if not passed} == late
        assert sorted(name for name, _passed in told) == names, "each once, in as many ticks as it takes"


class TestDiscovery:
    @pytest.mark.core
    def test_says_what_came_and_went_once_and_writes_the_state_file(self, sensors: Sensors, tmp_path: Path) -> None:
        path = tmp_path / "discovery" / "events.json"
        sensors.topics = {name: offsets_of({0: (0, 0)}) for name in ("a", "c", "other")}
        definitions = sensors.define({"include": ["[a-c]"]}, discovered=["a", "b"], discovery_path=path)
        first = sensors.tick(definitions, DISCOVERY)
        assert "(new: c; gone: b)" in str(first.skip_message)
        found = find_discovery(path)
        assert found is not None
        assert found.tables == ("a", "c", "other")
        second = sensors.tick(definitions, DISCOVERY, first.cursor)
        assert "new:" not in str(second.skip_message)
        assert second.cursor == first.cursor
        sensors.topics["b"] = offsets_of({0: (0, 0)})
        assert "(new: c)" in str(sensors.tick(definitions, DISCOVERY, second.cursor).skip_message)

    def test_brokers_that_show_nothing_to_this_user_empty_no_state_file(self, sensors: Sensors, tmp_path: Path) -> None:
        path = tmp_path / "events.json"
        definitions = sensors.define({"include": ["*"]}, discovered=["a"], discovery_path=path)
        assert "Nothing was written" in str(sensors.tick(definitions, DISCOVERY).skip_message)
        assert not path.exists()

    def test_without_a_state_file_it_says_who_writes_one(self, sensors: Sensors) -> None:
        sensors.topics = {"a": offsets_of({0: (0, 0)}), "b": offsets_of({0: (0, 0)})}
        definitions = sensors.define({"include": ["*"]}, discovered=["a"])
        assert "Run gobblin-assets discover" in str(sensors.tick(definitions, DISCOVERY).skip_message)

    def test_a_state_file_that_can_t_be_written_is_one_line_and_said_again(
        self, sensors: Sensors, tmp_path: Path
    ) -> None:
        blocked = tmp_path / "no folder"
        blocked.write_text("", encoding="utf-8")
        sensors.topics = {"b": offsets_of({0: (0, 0)})}
        definitions = sensors.define({"include": ["*"]}, discovered=["a"], discovery_path=blocked / "events.json")
        first = sensors.tick(definitions, DISCOVERY)
        assert "can't be written" in str(first.skip_message)
        assert "can't be written" in str(sensors.tick(definitions, DISCOVERY, first.cursor).skip_message)
