"""A Kafka job in a real Dagster instance: its definitions, runs of them, and ticks of its sensors."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._serdes import deserialize_value, serialize_value
from pyspark.sql import SparkSession

from demo.kafka.broker import KafkaBroker
from gobblin_assets.dagster.factory import build_gobblin_definitions
from gobblin_assets.dagster.resources import (
    CommitStoreResource,
    GobblinSparkResource,
    KafkaConnectionResource,
    gobblin_resources,
)
from gobblin_assets.spark.spark_settings import SparkSettings
from gobblin_assets.spec.job_parsing import parse_job
from tests.support.dagster_instance import open_instance

NEW_DATA = "events_new_data_sensor"


def spark_resource(settings: SparkSettings) -> GobblinSparkResource:
    """The resource of the session that the tests share."""
    return GobblinSparkResource(
        master=settings.master,
        spark_config=dict(settings.conf),
        capabilities=list(settings.capabilities),
        coordinates=dict(settings.coordinates),
        work_folder=str(settings.work_folder),
    )


class Events:
    """One job, its Dagster instance, and ticks of its sensors. Sensors keep their cursors, like the daemon's."""

    def __init__(
        self, settings: SparkSettings, database_url: str, bootstrap: str, folder: Path, instance: dg.DagsterInstance
    ) -> None:
        self.instance = instance
        self.folder = folder
        self.resources = gobblin_resources(
            {"kafka": KafkaConnectionResource(bootstrap_servers=bootstrap, timeout_s=15.0)},
            spark=spark_resource(settings),
            stores=CommitStoreResource(database_url=database_url),
        )
        self._cursors: dict[str, str | None] = {}

    def define(
        self,
        *datasets: Mapping[str, Any],
        source: Mapping[str, Any] | None = None,
        discovered: Sequence[str] | None = None,
        discovery_path: Path | None = None,
        **options: Any,
    ) -> None:
        """Load the definitions, as a code location does."""
        job = parse_job({
            "job": "events",
            "source": {"type": "kafka", "connection": "kafka", **(source or {})},
            "destination": str(self.folder / "lake"),
            "datasets": list(datasets),
            "retire_grace_s": 0.0,
            **options,
        })  # fmt: skip
        built = build_gobblin_definitions(job, discovered=discovered, discovery_path=discovery_path)
        self.definitions = dg.Definitions.merge(built, dg.Definitions(resources=self.resources))

    def tick(self, name: str = NEW_DATA) -> SensorExecutionData:
        sensor = self.definitions.resolve_sensor_def(name)
        with dg.build_sensor_context(
            instance=self.instance,
            resources=self.resources,
            cursor=self._cursors.get(name),
            repository_def=self.definitions.get_repository_def(),
        ) as context:
            # The daemon gets a tick's results as text.
            given = deserialize_value(serialize_value(sensor.evaluate_tick(context)), SensorExecutionData)
        self._cursors[name] = given.cursor
        for event in given.asset_events:
            self.instance.report_runless_asset_event(event)
        return given

    def run(self, request: dg.RunRequest) -> None:
        tags = {**request.tags, "dagster/sensor_name": NEW_DATA, "dagster/run_key": str(request.run_key)}
        result = self.definitions.resolve_job_def(request.job_name or "events_whole").execute_in_process(
            instance=self.instance,
            asset_selection=list(request.asset_selection or ()),
            partition_key=request.partition_key,
            tags=tags,
        )
        assert result.success

    def follow(self, topic: str, stream_s: float) -> dg.DagsterRun:
        """Run the job as a person would who lets it follow the topic."""
        result = self.definitions.resolve_job_def("events_whole").execute_in_process(
            instance=self.instance,
            asset_selection=[self.key(topic)],
            run_config={"ops": {"events": {"config": {"stream_s": stream_s}}}},
            raise_on_error=False,
        )
        run = self.instance.get_run_by_id(result.run_id)
        assert run is not None
        return run

    def key(self, topic: str) -> dg.AssetKey:
        return dg.AssetKey(["events", topic])

    def shown(self, topic: str) -> list[Mapping[str, Any]]:
        """The metadata of each materialization, oldest first."""
        records = self.instance.fetch_materializations(self.key(topic), limit=100, ascending=True).records
        events = [record.asset_materialization for record in records]
        return [{name: value.value for name, value in event.metadata.items()} for event in events if event]

    def lag_check(self, topic: str) -> dg.AssetCheckEvaluation:
        """The latest evaluation."""
        check = dg.AssetCheckKey(self.key(topic), "lag")
        record = self.instance.get_latest_asset_check_evaluation_record(check)
        assert record is not None
        assert record.evaluation is not None
        return record.evaluation


@pytest.fixture
def events(
    spark: SparkSession,
    spark_settings: SparkSettings,
    database_url: str,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
) -> Iterator[Events]:
    with open_instance(tmp_path) as instance:
        yield Events(spark_settings, database_url, kafka_broker.bootstrap, tmp_path, instance)
