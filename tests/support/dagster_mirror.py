"""A job of copies as a code location of Dagster, in this process and without Spark."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData

from gobblin_assets.dagster.code_location import build_definitions
from tests.support.dagster_instance import open_instance

PHOTOS = dg.AssetKey(["mirror", "photos"])


class Mirror:
    """A job that copies ``in`` to ``out``, as one code location, with an instance of Dagster."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.folder = folder
        self.instance = instance
        self.options: dict[str, Any] = {"datasets": [{"urn": "photos", "deletes": "ours"}]}
        (folder / "in").mkdir()

    @property
    def job(self) -> dict[str, Any]:
        places = {"source": str(self.folder / "in"), "destination": str(self.folder / "out")}
        return {"job": "mirror", "kind": "distcp", **places, "retry": {"back_off_s": 0}, **self.options}

    @property
    def definitions(self) -> dg.Definitions:
        return build_definitions([self.job])

    @property
    def copied_keys(self) -> list[dg.AssetKey]:
        """Those of the datasets, without their sources."""
        return [dg.AssetKey(["mirror", each["urn"]]) for each in self.options["datasets"]]

    def write(self, path: str, text: str, *, at_s: int = 1_000) -> None:
        place = self.folder / "in" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        os.utime(place, (at_s, at_s))

    def run(self, job: str = "mirror_whole", **arguments: Any) -> dg.ExecuteInProcessResult:
        found = self.definitions.resolve_job_def(job)
        return found.execute_in_process(instance=self.instance, **{"raise_on_error": False, **arguments})

    def audit(self, key: dg.AssetKey = PHOTOS) -> dg.AssetCheckEvaluation:
        """Evaluate the check ``sides_agree`` alone."""
        (evaluation,) = self.audits(key)
        return evaluation

    def audits(self, *keys: dg.AssetKey) -> list[dg.AssetCheckEvaluation]:
        """Evaluate the check ``sides_agree`` of these datasets, or of all, in one run."""
        definitions = self.definitions
        checks = [dg.AssetCheckKey(key, "sides_agree") for key in keys or self.copied_keys]
        only = dg.AssetSelection.checks(*checks)
        job = dg.define_asset_job("audit", selection=only, executor_def=dg.in_process_executor)
        definitions = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
        result = definitions.resolve_job_def("audit").execute_in_process(instance=self.instance)
        return list(result.get_asset_check_evaluations())

    def events(self, key: dg.AssetKey = PHOTOS) -> list[dg.AssetMaterialization]:
        records = self.instance.fetch_materializations(key, limit=100, ascending=True).records
        return [event for record in records if (event := record.asset_materialization) is not None]

    def tick(
        self,
        cursor: str | None,
        name: str = "mirror_new_data_sensor",
        definitions: dg.Definitions | None = None,
    ) -> SensorExecutionData:
        """One tick of a sensor. The runs that it asks for are made, and succeed or fail as they are."""
        definitions = definitions or self.definitions
        sensor = definitions.resolve_sensor_def(name)
        context = dg.build_sensor_context(
            # As the daemon's: by its reference Dagster knows the dynamic partitions that there are.
            instance_ref=self.instance.get_ref(),
            instance=self.instance,
            cursor=cursor,
            resources=dict(definitions.resources or {}),
            definitions=definitions,
        )
        with context:
            ticked = sensor.evaluate_tick(context)
        for added in ticked.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions(added.partitions_def_name, list(added.partition_keys))
        for asked in ticked.run_requests or ():
            found = definitions.resolve_job_def(asked.job_name or sensor.job_name)
            found.execute_in_process(
                instance=self.instance,
                partition_key=asked.partition_key,
                asset_selection=asked.asset_selection,
                tags={"dagster/run_key": str(asked.run_key)},
                raise_on_error=False,
            )
        return ticked

    def follow(self, job: str, *steps: Callable[[], object], **arguments: Any) -> list[str]:
        """A run that repeats itself until the steps, each in its turn, are over. Returns the lines of its log."""

        failed: list[BaseException] = []

        def go() -> None:
            try:
                for step in steps:
                    step()
            except BaseException as error:  # noqa: BLE001  the test's thread raises it
                failed.append(error)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=go)
        self.options["stream"] = {"publish_every_s": 0.2}
        thread.start()
        result = self.run(job, run_config={"ops": {"mirror": {"config": {"stream_s": 300}}}}, **arguments)
        thread.join()
        assert failed == []
        return [record.user_message for record in self.instance.all_logs(result.run_id)]

    def checked(self, key: dg.AssetKey, partition: str | None = None) -> bool | None:
        """Whether the latest evaluation of ``gobblin_published`` passed; None without any."""
        check = dg.AssetCheckKey(key, "gobblin_published")
        records = self.instance.event_log_storage.get_asset_check_execution_history(check, limit=100)
        events = [each.event.dagster_event for each in records if each.event and each.partition == partition]
        found = [each for each in events if each and each.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION]
        return found[0].asset_check_evaluation_data.passed if found else None

    def count_runs(self) -> int:
        """The runs that the log knows."""
        url = os.environ["GOBBLIN_DATABASE_URL"].replace("postgresql+psycopg:", "postgresql:")
        with psycopg.connect(url) as connection:
            ((count,),) = connection.execute("SELECT count(*) FROM gobblin.run").fetchall()
        return int(count)

    def copied(self) -> dict[str, str]:
        root = self.folder / "out"
        paths = [path for path in root.rglob("*") if path.is_file() and ".gobblin" not in path.parts]
        return {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in paths}


@pytest.fixture
def mirror(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    with open_instance(tmp_path) as instance:
        yield Mirror(tmp_path, instance)
