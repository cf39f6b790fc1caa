"""A table or topic into which a sink loaded rows is renamed, dropped or made anew while the sink works.

The sink makes nothing again.

What was there comes back and all goes on, each record once; or a person adopts what is there now.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyiceberg.schema import Schema

from gobblin_assets.destinations import load_rows
from gobblin_assets.destinations.iceberg import iceberg_tables
from gobblin_assets.destinations.iceberg.catalog_address import read_catalog_address
from gobblin_assets.destinations.iceberg.iceberg_tables import IcebergTables
from gobblin_assets.destinations.kafka import kafka_topics
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
from tests.support import loaded_sink
from tests.support.iceberg_rows import CATALOG, IcebergRows
from tests.support.kafka import Record, delete_topics, make_topic, open_admin, produce
from tests.support.kafka_rows import PARTITIONS, KafkaRows
from tests.support.loaded_sink import RECORDS, LoadedSinkLake, LoadedSinkWorld
from tests.support.postgres_rows import SCHEMA, PostgresRows
from tests.support.random_logs import Records
from tests.support.rows_places import ICEBERG, KAFKA, POSTGRES
from tests.support.shares import often, rotating
from tests.support.sink_lake import JOB, URN

pytestmark = pytest.mark.turns(of=6)

AWAY = "moved_away"
TABLES = (POSTGRES, ICEBERG)
ACTS = ("drop", "make_anew")


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


class Acts(ABC):
    """What a stranger does to the table or topic of the rows, and to the marks."""

    @abstractmethod
    def drop(self) -> None: ...

    @abstractmethod
    def make_anew(self) -> None: ...

    @abstractmethod
    def drop_marks(self) -> None: ...

    @abstractmethod
    def is_there(self) -> bool: ...

    def rename(self) -> None:
        raise NotImplementedError

    def rename_back(self) -> None:
        raise NotImplementedError


@dataclass
class TableActs(Acts):
    place: PostgresRows

    def execute(self, *statements: str) -> None:
        with self.place.database.connect() as session:
            for statement in statements:
                session.execute(statement)

    def rename(self) -> None:
        self.execute(f"ALTER TABLE {SCHEMA}.{RECORDS} RENAME TO {AWAY}")

    def rename_back(self) -> None:
        self.execute(f"ALTER TABLE {SCHEMA}.{AWAY} RENAME TO {RECORDS}")

    def drop(self) -> None:
        self.execute(f"DROP TABLE {SCHEMA}.{RECORDS}")

    def make_anew(self) -> None:
        self.execute(
            f"CREATE TABLE {SCHEMA}.{AWAY} (LIKE {SCHEMA}.{RECORDS})",
            f"DROP TABLE {SCHEMA}.{RECORDS}",
            f"ALTER TABLE {SCHEMA}.{AWAY} RENAME TO {RECORDS}",
        )

    def drop_marks(self) -> None:
        self.execute("DROP SCHEMA marks CASCADE")

    def is_there(self) -> bool:
        with self.place.database.connect() as session:
            return session.execute(f"SELECT to_regclass('{SCHEMA}.{RECORDS}')").fetchone() != (None,)


@dataclass
class IcebergActs(Acts):
    place: IcebergRows

    def _with_catalog(self, act: Callable[[Any], Any]) -> Any:
        tables = IcebergTables(read_catalog_address(CATALOG, self.place.variables))
        try:
            return act(tables._open())
        finally:
            tables.close()

    def rename(self) -> None:
        self._with_catalog(lambda catalog: catalog.rename_table((SCHEMA, RECORDS), (SCHEMA, AWAY)))

    def rename_back(self) -> None:
        self._with_catalog(lambda catalog: catalog.rename_table((SCHEMA, AWAY), (SCHEMA, RECORDS)))

    def drop(self) -> None:
        self._with_catalog(lambda catalog: catalog.drop_table((SCHEMA, RECORDS)))

    def make_anew(self) -> None:
        self.drop()
        self._with_catalog(lambda catalog: catalog.create_table((SCHEMA, RECORDS), Schema()))

    def drop_marks(self) -> None:
        raise AssertionError("marks of Iceberg are in the table itself")

    def is_there(self) -> bool:
        return bool(self._with_catalog(lambda catalog: catalog.table_exists((SCHEMA, RECORDS))))


@dataclass
class TopicActs(Acts):
    place: KafkaRows

    @property
    def topic(self) -> str:
        return self.place.topic_of(RECORDS)

    def drop(self) -> None:
        delete_topics(self.place.bootstrap, self.topic)

    def make_anew(self) -> None:
        self.drop()
        make_topic(self.place.bootstrap, self.topic, PARTITIONS)

    def drop_marks(self) -> None:
        delete_topics(self.place.bootstrap, self.place.marks_topic)

    def is_there(self) -> bool:
        return self.topic in open_admin(self.place.bootstrap).list_topics(timeout=30).topics


lake, world = loaded_sink.lake, loaded_sink.world


@pytest.fixture
def acts(lake: LoadedSinkLake) -> Acts:
    match lake.place:
        case PostgresRows():
            return TableActs(lake.place)
        case IcebergRows():
            return IcebergActs(lake.place)
        case KafkaRows():
            return TopicActs(lake.place)
        case _:
            raise AssertionError(lake.place)


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


POINTS = (Failpoint.SEALED_BEFORE_EXECUTE, Failpoint.STAGED_BEFORE_SEAL)


@pytest.mark.parametrize(
    ("lake", "point"), [(place, point) for place in TABLES for point in POINTS], indirect=["lake"], ids=str
)
def test_a_table_that_was_renamed_is_not_made_again_and_goes_on_once_it_is_back(
    world: LoadedSinkWorld, acts: Acts, point: Failpoint
) -> None:
    work_until_it_stops(world, Stranger(world, point, acts.rename))
    assert not acts.is_there()

    acts.rename_back()
    resume_all(world)
    world.work()

    world.check_exactly_once()


@pytest.mark.parametrize(
    ("lake", "point", "act"),
    [
        *((place, Failpoint.SEALED_BEFORE_EXECUTE, act) for place in TABLES for act in ACTS),
        *(
            often(KAFKA, point, act)
            for point in (Failpoint.SEALED_BEFORE_EXECUTE, Failpoint.LOAD_COPIED)
            for act in ACTS
        ),
    ],
    indirect=["lake"],
    ids=str,
)
def test_what_is_there_instead_is_adopted_and_has_each_further_record_once(
    world: LoadedSinkWorld, acts: Acts, point: Failpoint, act: str
) -> None:
    stranger = Stranger(world, point, getattr(acts, act))
    work_until_it_stops(world, stranger)
    assert acts.is_there() == (act == "make_anew")
    assert stranger.lost

    adopt(world, missing=sequences_of(world))
    resume_all(world)
    world.work()

    assert world.published() == world.expected() - stranger.lost
    assert world.published().total() == world.expected().total() - stranger.lost.total()


@pytest.mark.parametrize("lake", [*TABLES, rotating(KAFKA)], indirect=True)
def test_a_sink_that_takes_absence_for_a_beginning_is_noticed(
    world: LoadedSinkWorld, acts: Acts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (load_rows, postgres_tables, iceberg_tables):
        monkeypatch.setattr(
            module, "decide_batch", lambda mark, batch: decide_load(mark, batch.version, batch.sequence_id)
        )
    monkeypatch.setattr(postgres_tables, "_find_gone", lambda *_asked: None)
    monkeypatch.setattr(kafka_topics, "find_gone", lambda *_asked: None)
    monkeypatch.setattr(IcebergTables, "_find_of", lambda self, batch: self._find(batch.table))
    # Topics have no other names.
    act = acts.make_anew if isinstance(acts, TopicActs) else acts.rename
    stranger = Stranger(world, Failpoint.SEALED_BEFORE_EXECUTE, act)

    with install(stranger):
        world.work()

    assert stranger.lost
    assert world.published() == world.expected() - stranger.lost, "the rows are all there"


# Marks of Iceberg are in the table itself.
@pytest.mark.parametrize("lake", [POSTGRES, often(KAFKA)], indirect=True)
def test_marks_that_are_gone_stop_the_lane_and_are_adopted_with_what_a_person_has_seen(
    world: LoadedSinkWorld, acts: Acts
) -> None:
    work_until_it_stops(world, Stranger(world, Failpoint.SEALED_BEFORE_EXECUTE, acts.drop_marks))
    assert acts.is_there()
    assert not world.marks()
    assert world.open_sequences()

    with pytest.raises(RejectedError, match="no mark says whether their rows are there") as refused:
        adopt(world)
    assert refused.value.field == "--there"
    assert adopt(world, missing=sequences_of(world))
    assert adopt(world) == []
    resume_all(world)
    world.work()

    world.check_exactly_once()


@pytest.mark.parametrize("lake", [POSTGRES], indirect=True)
def test_rows_that_are_there_are_not_loaded_again_after_their_mark_was_lost(world: LoadedSinkWorld, acts: Acts) -> None:
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


@pytest.mark.parametrize("lake", [POSTGRES, often(KAFKA)], indirect=True)
def test_marks_of_an_earlier_release_are_taken_over(world: LoadedSinkWorld, acts: Acts) -> None:
    """They don't say into which table or topic rows were loaded."""
    world.work(some_published(world))
    forget_targets(world, acts)

    world.work()

    world.check_exactly_once()
    assert has_targets(world, acts)


def forget_targets(world: LoadedSinkWorld, acts: Acts) -> None:
    if isinstance(acts, TableActs):
        acts.execute("ALTER TABLE marks.gobblin_lane DROP COLUMN table_oid")
        return
    assert isinstance(acts, TopicActs)
    marks = world.marks()
    older = {key: {name: mark[name] for name in mark if not name.startswith("topic")} for key, mark in marks.items()}
    assert older != marks
    written = [Record(json.dumps(mark).encode(), key) for key, mark in older.items()]
    produce(acts.place.bootstrap, acts.place.marks_topic, written)


def has_targets(world: LoadedSinkWorld, acts: Acts) -> bool:
    if isinstance(acts, TopicActs):
        return any(mark["topic"] == acts.topic and mark["topic_id"] for mark in world.marks().values())
    assert isinstance(acts, TableActs)
    query = f"SELECT DISTINCT table_oid = '{SCHEMA}.{RECORDS}'::regclass FROM marks.gobblin_lane"
    with acts.place.database.connect() as session:
        return (True,) in session.execute(query).fetchall()
