"""Workers of a sink that appends to a table of Iceberg are killed, paused and not answered: each record is there once.

Log and catalog are real Postgres databases, the warehouse is a directory, and workers are processes.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets.commit.driver import PUBLISH_TRIES_MAX
from gobblin_assets.destinations.iceberg.catalog_address import catalog_variable
from gobblin_assets.failpoints import Failpoint, install
from tests.support.iceberg_sink import CATALOG, IcebergSinkLake, IcebergSinkWorld, list_data_files
from tests.support.postgres import Database
from tests.support.shares import rotating
from tests.support.sink_lake import start_sink_worker


@pytest.fixture
def lake(
    database_url: str, fresh_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> IcebergSinkLake:
    made = IcebergSinkLake(database_url, str(tmp_path), database=fresh_database)
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def world(lake: IcebergSinkLake) -> Iterator[IcebergSinkWorld]:
    opened = lake.open_world()
    yield opened
    opened.close()


def test_only_files_that_the_table_names_are_left(world: IcebergSinkWorld) -> None:
    world.work()

    named, standing = list_data_files(world.table())
    assert standing == named


@pytest.mark.parametrize(
    "point", [Failpoint.LOAD_BEFORE_COMMIT, rotating(Failpoint.LOAD_COPIED), rotating(Failpoint.STEP_AFTER)], ids=str
)
@pytest.mark.turns("a load that slept")
def test_a_zombie_that_wakes_up_appends_nothing(
    lake: IcebergSinkLake, world: IcebergSinkWorld, point: Failpoint
) -> None:
    zombie = start_sink_worker(lake, failpoint=f"{point}=stop")
    zombie.wait_until_stopped()
    world.expire()
    world.work()
    world.check_exactly_once()
    before = world.marks()

    zombie.wake_up()

    assert zombie.wait() == 0, "the zombie crashed instead of giving up"
    world.check_exactly_once()
    assert world.marks() == before
    named, standing = list_data_files(world.table())
    assert standing == named, "what was surely refused is left"


@pytest.mark.turns("a place that lost rows")
def test_a_table_that_lost_rows_is_not_loaded_any_more(lake: IcebergSinkLake, world: IcebergSinkWorld) -> None:
    world.work()
    with lake.database.connect() as session:
        session.execute("DELETE FROM iceberg_tables")
    longer = replace(lake, epoch_count=lake.epoch_count + 1)

    with closing(longer.open_world()) as again:
        again.work(lambda: any("backs off" in line for line in again.lines))

        assert any("shop.records is gone" in line for line in again.lines)
        assert again.marks() == []


@pytest.mark.parametrize("what", ["catalog", "warehouse"])
@pytest.mark.turns("a place that is away")
def test_what_is_away_for_long_blocks_nothing(
    lake: IcebergSinkLake, world: IcebergSinkWorld, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """More failures than a publication has tries. Workers rest, and go on by themselves."""
    kept = Path(lake.directory, "kept")

    def go_away(reached: Failpoint) -> None:
        if reached is Failpoint.STAGED_BEFORE_SEAL and what == "catalog":
            monkeypatch.setenv(catalog_variable(CATALOG, "URL"), "postgresql://127.0.0.1:1/gone")
        elif reached is Failpoint.STAGED_BEFORE_SEAL and not kept.exists():
            shutil.move(lake.warehouse, kept)

    def has_failed_often() -> bool:
        said = "is out of reach" if what == "catalog" else "is not there"
        return sum(said in line for line in world.lines) > lake.lanes * PUBLISH_TRIES_MAX

    with install(go_away):
        world.work(has_failed_often)
    for name, value in lake.variables.items():
        monkeypatch.setenv(name, value)
    if kept.exists():
        shutil.move(kept, lake.warehouse)

    world.work()

    world.check_exactly_once()
