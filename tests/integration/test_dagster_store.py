"""Dagster's recovery sensor where rows go to a bucket: what a killed run left open is finished or discarded."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData

from gobblin_assets.failpoints import Failpoint
from tests.support.dagster_instance import open_instance
from tests.support.dagster_mirror import Mirror
from tests.support.kinds import OBJECTS
from tests.support.lake import World
from tests.support.postgres import Database
from tests.support.s3_servers import S3Server
from tests.support.shares import rotating
from tests.support.table_lake import TableLake, make_table_lake, start_command


class Shop(Mirror):
    """The job of a lake of tables as one code location."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, lake: TableLake) -> None:
        super().__init__(folder, instance)
        self.lake = lake
        self.world = World(lake)

    @property
    def job(self) -> dict[str, Any]:
        return self.lake.job().model_dump(mode="json", exclude_unset=True)

    def kill(self, point: Failpoint) -> None:
        """A run that is killed there, and whose leases have run out."""
        killed = start_command(self.lake, f"{point}=kill")
        assert killed.wait() == -signal.SIGKILL
        assert killed.reached()
        self.world.expire_leases()

    def recovered(self) -> list[dg.AssetMaterialization]:
        return [event for key in self.definitions.resolve_all_asset_keys() for event in self.events(key)]

    def recover(self) -> SensorExecutionData:
        return self.tick(None, "crash_recovery_sensor")


@pytest.fixture
def shop(
    versitygw: S3Server,
    database_url: str,
    fresh_database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shop]:
    store = f"s3://{versitygw.make_bucket()}"
    (tmp_path / "lake").mkdir()
    lake = make_table_lake(
        database_url, tmp_path / "lake", fresh_database, OBJECTS, store=store, environment=versitygw.environment
    )
    connection = lake.connection()
    variables = {
        **versitygw.environment,
        "GOBBLIN_DATABASE_URL": database_url,
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_JDBC_SHOP_URL": connection.url,
        "GOBBLIN_JDBC_SHOP_USER": connection.user or "",
        "GOBBLIN_JDBC_SHOP_PASSWORD": connection.password or "",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with open_instance(tmp_path) as instance:
        made = Shop(tmp_path, instance, lake)
        yield made
        made.world.close()


@pytest.mark.parametrize("point", [Failpoint.STEP_AFTER, rotating(Failpoint.SEAL_COMMITTED)], ids=str)
def test_what_a_killed_run_had_sealed_is_published_by_the_sensor(shop: Shop, point: Failpoint) -> None:
    shop.kill(point)

    assert len(shop.recover().run_requests or ()) == 1

    (event,) = shop.recovered()
    assert str(event.metadata["dagster/uri"].value).startswith(f"{shop.lake.root}/crash/data/public.")
    assert (event.metadata["gobblin/recovered"].value, event.metadata["gobblin/rows"].value) == (True, 13)
    assert not shop.recover().run_requests
    shop.lake.add_rows(shop.lake.urns[0], 5)
    assert shop.run("crash_whole").success
    shop.world.check_exactly_once()


def test_what_a_killed_run_had_only_uploaded_is_discarded_by_the_next(shop: Shop) -> None:
    shop.kill(Failpoint.ATTEMPT_WRITTEN)
    assert shop.world.staging_left()

    shop.recover()
    assert shop.run("crash_whole").success

    shop.world.check_exactly_once()
