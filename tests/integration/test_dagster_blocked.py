"""A publication that waits for a person: what Dagster shows of it, and how it goes on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import Engine, text

from gobblin_assets import failpoints
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from tests.support.dagster_instance import open_instance
from tests.support.dagster_world import build_world, published_numbers, write_numbers

pytestmark = pytest.mark.turns(of=8)

MONTHLY, JANUARY, FEBRUARY = "by month", "2013-01-01", "2013-02-01"
OPTIONS: dict[str, Any] = {
    "publish_tries_max": 1,
    "datasets": [
        {
            "table": MONTHLY,
            "extract": "append_only",
            "watermark": {"column": "day", "type": "date"},
            "partitions": {"kind": "monthly", "start": "2013-01-01", "end": "2014-01-01"},
        }
    ],
}
KEY = dg.AssetKey(["shop", MONTHLY])
CHECK = dg.AssetCheckKey(KEY, "gobblin_published")


@dataclass
class Shop:
    folder: Path
    definitions: dg.Definitions
    instance: dg.DagsterInstance
    stores: Stores
    engine: Engine
    hidden: tuple[Path, Path] = (Path(), Path())

    def run(self, job: str, **arguments: Any) -> Any:
        return self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance, raise_on_error=False, **arguments
        )

    def run_check(self, **tags: str) -> Any:
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.get_subset(asset_selection=set(), asset_check_selection={CHECK}).execute_in_process(
            instance=self.instance, raise_on_error=False, tags=tags
        )

    def block(self) -> str:
        """Kill January's run between a rename and the watermark, and move the next file away."""

        class Died(BaseException):
            pass

        def die(reached: Failpoint) -> None:
            if reached is Failpoint.STEP_AFTER:
                raise Died

        with failpoints.install(die), pytest.raises(Died):
            self.definitions.resolve_job_def("shop_monthly").execute_in_process(
                instance=self.instance, partition_key=JANUARY
            )
        with self.engine.begin() as connection:
            connection.execute(text("UPDATE gobblin.lease SET expires_at = clock_timestamp() - interval '1 minute'"))
        (sequence,) = self.stores.commits.list_open(None, limit=9)
        (staging,) = {each.staging_path for each in self.stores.commits.list_attempts(sequence.sequence_id)}
        Path(staging).rename(self.folder / "hidden")
        self.hidden = (self.folder / "hidden", Path(staging))
        return str(sequence.sequence_id)

    def mend(self) -> None:
        hidden, staging = self.hidden
        hidden.rename(staging)

    def tick(self) -> Any:
        sensor = self.definitions.resolve_sensor_def("shop_recovery_sensor")
        assert self.definitions.resources is not None
        with dg.build_sensor_context(instance=self.instance, resources=dict(self.definitions.resources)) as context:
            return sensor.evaluate_tick(context)

    def checks(self) -> list[tuple[str | None, bool, str | None]]:
        """Every evaluation, the latest first: partition, result and description."""
        found = self.instance.event_log_storage.get_asset_check_execution_history(CHECK, limit=50)
        events = [each.event.dagster_event for each in found if each.event and each.event.dagster_event]
        told = [e.asset_check_evaluation_data for e in events if e.event_type_value == "ASSET_CHECK_EVALUATION"]
        return [(each.partition, each.passed, each.description) for each in told]


@pytest.fixture
def shop(tmp_path: Path, database_url: str, engine: Engine) -> Iterator[Shop]:
    write_numbers(tmp_path / "source", MONTHLY, JANUARY, [1, 2])
    definitions = build_world(tmp_path, database_url, **OPTIONS)
    with open_instance(tmp_path) as instance:
        yield Shop(tmp_path, definitions, instance, open_stores(engine), engine)


@pytest.mark.core
def test_what_is_blocked_is_said_by_its_try_and_by_the_sensor_and_goes_on_by_the_resume_job(shop: Shop) -> None:
    sequence = shop.block()
    blocking = shop.run("shop_recovery")
    assert not blocking.success
    (event,) = [each for each in blocking.all_events if each.event_type_value == "STEP_FAILURE"]
    said = str(event.event_specific_data.user_failure_data.description)
    assert "BLOCKED after 1 failed try," in said
    assert f"gobblin-assets commit resume {sequence}" in said
    assert "next try" not in said
    assert shop.checks() == [], "the sensor has nothing to do"

    for _ in range(2):
        tick = shop.tick()
        assert not tick.run_requests
        assert "shop_resume" in tick.skip_message
    ((partition, passed, description),) = shop.checks()
    assert (partition, passed) == (JANUARY, False)
    assert f"gobblin-assets commit resume {sequence}" in (description or "")

    assert not shop.run("shop_resume").success, "its cause was not mended"
    shop.mend()
    assert shop.run("shop_resume", run_config=config_of(sequence)).success
    assert published_numbers(shop.folder) == [1, 2]
    assert shop.checks()[0][:2] == (JANUARY, True)
    assert "shop_resume" not in shop.tick().skip_message
    assert not shop.run("shop_resume").success, "it had nothing to resume, and did not say so"


def config_of(sequence: str) -> dict[str, Any]:
    return {"ops": {"shop_resume_op": {"config": {"sequence_id": sequence}}}}


def test_a_check_alone_is_evaluated_against_what_is_published(shop: Shop) -> None:
    assert shop.run("shop_monthly", partition_key=JANUARY).success
    write_numbers(shop.folder / "source", MONTHLY, JANUARY, ["no number"])
    assert shop.run_check(**{"dagster/partition": JANUARY}).success
    assert [each[:2] for each in shop.checks()] == [(JANUARY, True)] * 2
    (found,) = shop.instance.event_log_storage.get_asset_check_partition_info([CHECK])
    assert found.is_current
    assert shop.run_check(**{"dagster/partition": FEBRUARY}).success
    assert shop.checks()[0][:2] == (FEBRUARY, False)
    assert shop.run_check().success, "all that were published"
    assert shop.checks()[0][:2] == (JANUARY, True)


def test_a_check_alone_says_what_is_blocked(shop: Shop) -> None:
    sequence = shop.block()
    assert not shop.run("shop_recovery").success
    assert shop.run_check(**{"dagster/partition": JANUARY}).success
    ((partition, passed, description),) = shop.checks()
    assert (partition, passed) == (JANUARY, False)
    assert sequence in (description or "")
