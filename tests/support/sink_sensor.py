"""A sink over the log in memory, as a real Dagster instance is told of it."""

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData
from sqlalchemy import text

from gobblin_assets.dagster.factory import build_gobblin_definitions, build_gobblin_layout
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.resources import CommitStoreResource, KafkaConnectionResource, gobblin_resources
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.model.urn import Role
from gobblin_assets.spec.job_options import PartitionsSpec
from tests.support.dagster_instance import open_instance
from tests.support.sink_lake import JOB, URN, SinkLake, SinkWorld

BEHIND_S: Final = 32 * 86_400.0
"""A clock that is so far behind is in an earlier month."""

MONTHLY: Final = PartitionsSpec(kind=PartitionKind.MONTHLY, start=dt.date(2026, 1, 1))
DATA: Final = dg.AssetKey([JOB, URN])


@dataclass
class SinkInDagster:
    """The sink, its Dagster instance, and ticks of its sensor."""

    lake: SinkLake
    instance: dg.DagsterInstance
    options: dict[str, Any] = field(default_factory=dict)
    worlds: list[SinkWorld] = field(default_factory=list)
    _defined: tuple[dict[str, Any], dg.Definitions] | None = None

    def open(self, **changes: Any) -> SinkWorld:
        """The sink, with other settings of the lake."""
        self.lake = replace(self.lake, **changes)
        self.worlds.append(SinkWorld(self.lake))
        return self.worlds[-1]

    def publish_some(self, world: SinkWorld, count: int) -> None:
        """Be a worker until there are so many publications."""
        query = "SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'DONE' AND step_count > 0"
        world.work(lambda: int(str(world.scalar(query))) >= count)

    @property
    def job(self) -> dict[str, Any]:
        start = None if self.lake.partitions.start is None else str(self.lake.partitions.start)
        partitions = {"kind": self.lake.partitions.kind.value, **({} if start is None else {"start": start})}
        return {
            "job": JOB,
            "source": {"type": "kafka", "connection": "kafka"},
            "destination": self.lake.root,
            "datasets": [{"topic": URN, "partitions": partitions}],
            "sink": {},
            **self.options,
        }

    @property
    def layout(self) -> JobLayout:
        return build_gobblin_layout(self.job)

    def define(self) -> dg.Definitions:
        """The definitions of the job as it is now."""
        if self._defined is None or self._defined[0] != self.job:
            self._defined = self.job, self._define()
        return self._defined[1]

    def _define(self) -> dg.Definitions:
        resources = gobblin_resources(
            {"kafka": KafkaConnectionResource(bootstrap_servers="nowhere:9092")},
            stores=CommitStoreResource(database_url=self.lake.database_url),
        )
        return dg.Definitions.merge(build_gobblin_definitions(self.job), dg.Definitions(resources=resources))

    def tick(self, name: str = f"{JOB}_sink_sensor", *, cursor: str | None = None) -> SensorExecutionData:
        definitions = self.define()
        sensor = definitions.resolve_sensor_def(name)
        assert definitions.resources is not None
        with dg.build_sensor_context(
            instance=self.instance, resources=dict(definitions.resources), cursor=cursor
        ) as context:
            return sensor.evaluate_tick(context)

    def pass_time(self, seconds: float) -> None:
        """As if so much time had passed since everything that was told."""
        engine = self.worlds[-1].engine
        with engine.begin() as connection:
            for table, column in (("sink_window", "told_at"), ("sink_observation", "observed_at")):
                connection.execute(
                    text(f"UPDATE gobblin.{table} SET {column} = {column} - make_interval(secs => :s)"),
                    {"s": seconds},
                )

    def reported(self, role: Role = Role.DATA) -> list[tuple[str | None, Mapping[str, Any]]]:
        """The partition and the metadata of each materialization, the oldest first."""
        found = self.instance.fetch_materializations(self.layout.get_key(URN, role), limit=1_000, ascending=True)
        events = [each.asset_materialization for each in found.records]
        return [
            (each.partition, {name: value.value for name, value in each.metadata.items()}) for each in events if each
        ]

    def observed(self) -> list[tuple[str | None, Mapping[str, Any]]]:
        found = self.instance.fetch_observations(DATA, limit=1_000, ascending=True)
        events = [each.asset_observation for each in found.records]
        return [
            (each.partition, {name: value.value for name, value in each.metadata.items()}) for each in events if each
        ]

    def checked(self, name: str) -> list[dg.AssetCheckEvaluation]:
        """The evaluations of a check, the oldest first."""
        found = self.instance.event_log_storage.get_asset_check_execution_history(dg.AssetCheckKey(DATA, name), 100)
        events = [each.event.dagster_event for each in reversed(found) if each.event]
        wanted = dg.DagsterEventType.ASSET_CHECK_EVALUATION
        return [each.asset_check_evaluation_data for each in events if each and each.event_type is wanted]

    def status_of(self, run: dg.DagsterRun) -> dg.DagsterRunStatus:
        found = self.instance.get_run_by_id(run.run_id)
        assert found is not None
        return found.status

    def move_runs(self, *, seconds: float) -> None:
        """As if all runs had ended so much earlier."""
        storage = self.instance.run_storage
        with storage.connect() as connection:  # type: ignore[attr-defined]  # of the SQLite storage of tests
            for column in ("start_time", "end_time"):
                connection.execute(text(f"UPDATE runs SET {column} = {column} - :s"), {"s": seconds})
            connection.commit()

    def close(self) -> None:
        for world in self.worlds:
            world.close()


def month(*, behind_s: float = BEHIND_S) -> str:
    """The partition that is open by a clock that is so far behind."""
    return (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=behind_s)).strftime("%Y-%m-01")


@pytest.fixture
def sink(tmp_path: Path, database_url: str) -> Iterator[SinkInDagster]:
    lake = SinkLake(database_url, str(tmp_path), partitions=MONTHLY, behind_s=BEHIND_S)
    with open_instance(tmp_path / "dagster") as instance:
        made = SinkInDagster(lake, instance)
        yield made
        made.close()
