"""A table into which a sink loaded rows is renamed, dropped or made anew while the sink works: it is not made again.

What was there comes back and all goes on, each record once; or a person adopts what is there now.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema

from gobblin_assets.destinations import load_rows
from gobblin_assets.destinations.iceberg import iceberg_tables
from gobblin_assets.destinations.iceberg.catalog_address import read_catalog_address
from gobblin_assets.destinations.iceberg.iceberg_tables import IcebergTables
from gobblin_assets.destinations.lane_marks import decide_load
from gobblin_assets.destinations.loaded_destination import LoadedDestination
from gobblin_assets.destinations.postgres import postgres_tables
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint, install
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.sink.adopting import adopt_place
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import JobName, Role
from gobblin_assets.run.destination import DestinationRequest
from tests.crash.test_sinks import some_published
from tests.support.iceberg_sink import CATALOG, IcebergSinkLake
from tests.support.loaded_sink import LoadedSinkWorld
from tests.support.postgres import Database
from tests.support.random_logs import Records
from tests.support.sink_lake import JOB, URN
from tests.support.table_sink import TABLE, TableSinkLake, TableSinkWorld, variables_for

AWAY = "moved_away"


@dataclass
class Stranger:
    """Does something to the table or topic at the ``count``-th time that the point is reached, once."""

    world: LoadedSinkWorld
    point: Failpoint
    act: Callable[[], None]
    count: int = 4
    lost: Records = field(default_factory=Records)

    def __call__(self, reached: Failpoint) -> None:
        if reached is self.point:
            self.count -= 1
            if self.count == 0:
                published = self.world.published().items()
                self.lost = Records({key: n for key, n in published if key[0] == Role.DATA})
                self.act()


class TableActs:
    def __init__(self, lake: TableSinkLake) -> None:
        self.database = lake.database

    def execute(self, *statements: str) -> None:
        with self.database.connect() as session:
            for statement in statements:
                session.execute(statement)

    def rename(self) -> None:
        self.execute(f"ALTER TABLE {TABLE} RENAME TO {AWAY}")

    def rename_back(self) -> None:
        self.execute(f"ALTER TABLE {TABLE.schema}.{AWAY} RENAME TO {TABLE.table}")

    def drop(self) -> None:
        self.execute(f"DROP TABLE {TABLE}")

    def make_anew(self) -> None:
        self.execute(
            f"CREATE TABLE {TABLE.schema}.{AWAY} (LIKE {TABLE})",
            f"DROP TABLE {TABLE}",
            f"ALTER TABLE {TABLE.schema}.{AWAY} RENAME TO {TABLE.table}",
        )

    def drop_marks(self) -> None:
        self.execute("DROP SCHEMA marks CASCADE")

    def is_there(self) -> bool:
        with self.database.connect() as session:
            return session.execute(f"SELECT to_regclass('{TABLE}')").fetchone() != (None,)


class IcebergActs(TableActs):
    def __init__(self, lake: IcebergSinkLake) -> None:
        super().__init__(lake)
        self.lake = lake

    def _with_catalog(self, act: Callable[[Any], Any]) -> Any:
        tables = IcebergTables(read_catalog_address(CATALOG, self.lake.variables))
        try:
            return act(tables._open())
        finally:
            tables.close()

    def rename(self) -> None:
        self._with_catalog(lambda catalog: catalog.rename_table((TABLE.schema, TABLE.table), (TABLE.schema, AWAY)))

    def rename_back(self) -> None:
        self._with_catalog(lambda catalog: catalog.rename_table((TABLE.schema, AWAY), (TABLE.schema, TABLE.table)))

    def drop(self) -> None:
        self._with_catalog(lambda catalog: catalog.drop_table((TABLE.schema, TABLE.table)))

    def make_anew(self) -> None:
        self.drop()
        self._with_catalog(lambda catalog: catalog.create_table((TABLE.schema, TABLE.table), Schema()))

    def is_there(self) -> bool:
        return bool(self._with_catalog(lambda catalog: catalog.table_exists((TABLE.schema, TABLE.table))))


@pytest.fixture(params=["postgres", "iceberg"])
def lake(
    request: pytest.FixtureRequest,
    database_url: str,
    fresh_database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> TableSinkLake:
    made = (
        TableSinkLake(database_url, str(tmp_path), database=fresh_database)
        if request.param == "postgres"
        else IcebergSinkLake(database_url, str(tmp_path), database=fresh_database)
    )
    for name, value in {**variables_for(fresh_database), **made.variables}.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def world(lake: TableSinkLake) -> Iterator[TableSinkWorld]:
    opened = lake.open_world()
    yield opened
    opened.close()


@pytest.fixture
def acts(lake: TableSinkLake) -> TableActs:
    return IcebergActs(lake) if isinstance(lake, IcebergSinkLake) else TableActs(lake)


def work_until_it_stops(world: LoadedSinkWorld, stranger: Stranger) -> None:
    with install(stranger):
        world.work(lambda: any(" is gone" in line or "is another t" in line for line in world.lines))
    assert stranger.count <= 0
    world.expire()


def sequences_of(world: LoadedSinkWorld) -> list[str]:
    return [str(each) for each in world.open_sequences()]


def resume_all(world: LoadedSinkWorld) -> None:
    for sequence_id in world.open_sequences():
        world.operations().resume(sequence_id)


def adopt(world: LoadedSinkWorld, **decided: list[str]) -> list[int]:
    request = DestinationRequest(
        *(JobName(JOB), world.lake.root, world.fs, world.root),
        *(world.stores, open_file_system, SystemClock().new_id),
    )
    destination = world.open_destination(request)
    assert isinstance(destination, LoadedDestination)
    destination.bind()
    return list(adopt_place(world.stores, destination, URN, world.register(), **decided))


of_postgres = pytest.mark.parametrize("lake", ["postgres"], indirect=True)
"""Marks of Iceberg are in the table itself."""

POINTS = [Failpoint.SEALED_BEFORE_EXECUTE, Failpoint.STAGED_BEFORE_SEAL]


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_table_that_was_renamed_is_not_made_again_and_goes_on_once_it_is_back(
    world: TableSinkWorld, acts: TableActs, point: Failpoint
) -> None:
    work_until_it_stops(world, Stranger(world, point, acts.rename))
    assert not acts.is_there()

    acts.rename_back()
    resume_all(world)
    world.work()

    world.check_exactly_once()


@pytest.mark.parametrize("act", ["drop", "make_anew"])
def test_what_is_there_instead_is_adopted_and_has_each_further_record_once(
    world: TableSinkWorld, acts: TableActs, act: str
) -> None:
    stranger = Stranger(world, Failpoint.SEALED_BEFORE_EXECUTE, getattr(acts, act))
    work_until_it_stops(world, stranger)
    assert acts.is_there() == (act == "make_anew")
    assert stranger.lost

    adopt(world, missing=sequences_of(world))
    resume_all(world)
    world.work()

    assert world.published() == world.expected() - stranger.lost
    assert world.published().total() == world.expected().total() - stranger.lost.total()


def test_a_sink_that_takes_absence_for_a_beginning_is_noticed(
    world: TableSinkWorld, acts: TableActs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (load_rows, postgres_tables, iceberg_tables):
        monkeypatch.setattr(
            module, "decide_batch", lambda mark, batch: decide_load(mark, batch.version, batch.sequence_id)
        )
    monkeypatch.setattr(postgres_tables, "_find_gone", lambda *_asked: None)
    monkeypatch.setattr(IcebergTables, "_find_of", lambda self, batch: self._find(batch.table))
    stranger = Stranger(world, Failpoint.SEALED_BEFORE_EXECUTE, acts.rename)

    with install(stranger):
        world.work()

    assert stranger.lost
    assert world.published() == world.expected() - stranger.lost, "the rows are all there"


@of_postgres
def test_marks_that_are_gone_stop_the_lane_and_are_adopted_with_what_a_person_has_seen(
    world: TableSinkWorld, acts: TableActs
) -> None:
    work_until_it_stops(world, Stranger(world, Failpoint.SEALED_BEFORE_EXECUTE, acts.drop_marks))
    assert world.open_sequences()

    with pytest.raises(RejectedError, match="no mark says whether their rows are there") as refused:
        adopt(world)
    assert refused.value.field == "--there"
    assert adopt(world, missing=sequences_of(world))
    assert adopt(world) == []
    resume_all(world)
    world.work()

    world.check_exactly_once()


@of_postgres
def test_rows_that_are_there_are_not_loaded_again_after_their_mark_was_lost(
    world: TableSinkWorld, acts: TableActs
) -> None:
    """The worst case: a COMMIT whose answer was lost, and then the marks."""

    there: list[str] = []

    def lose_all() -> None:
        there.extend(str(sequence) for _lane, _version, (sequence, *_earlier), *_rest in world.marks())
        acts.drop_marks()
        raise ConnectionError("the answer was lost")

    work_until_it_stops(world, Stranger(world, Failpoint.LOAD_COMMITTED, lose_all))
    loaded = set(there) & set(sequences_of(world))
    assert loaded
    adopt(world, there=sorted(loaded), missing=sorted(set(sequences_of(world)) - loaded))
    resume_all(world)
    world.work()

    world.check_exactly_once()


@of_postgres
def test_a_table_of_marks_of_an_earlier_release_is_taken_over(lake: TableSinkLake, world: TableSinkWorld) -> None:
    world.work(some_published(world))
    acts = TableActs(lake)
    acts.execute("ALTER TABLE marks.gobblin_lane DROP COLUMN table_oid")

    world.work()

    world.check_exactly_once()
    query = "SELECT DISTINCT table_oid = 'shop.records'::regclass FROM marks.gobblin_lane"
    with lake.database.connect() as session:
        assert (True,) in session.execute(query).fetchall()
