"""Workers of a sink that loads rows are killed, paused, not answered and given up: each record is there once.

One suite for all places of rows: the example's SQLite, tables of Postgres and of Iceberg, and topics. What only one of
them does is in a suite of its own. Servers are real, and workers are processes.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets.commit.driver import PUBLISH_TRIES_MAX
from gobblin_assets.commit.published.published_port import RowsElsewhere
from gobblin_assets.commit.reconciliation import Way
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.failpoints import ArmedFailpoints, Failpoint, install
from gobblin_assets.model.urn import JobName, Role
from tests.crash.points import OF_A_SINK, OF_EXECUTION
from tests.crash.test_lane_adoption import reconcile
from tests.crash.test_sinks import kill_at, some_published
from tests.support import loaded_sink
from tests.support.loaded_sink import RECORDS, LoadedSinkLake, LoadedSinkWorld
from tests.support.restoring import copied
from tests.support.rows_places import ICEBERG, KAFKA, PLACES, POSTGRES, SQLITE, in_turn, others_than
from tests.support.shares import often, rare, rotating
from tests.support.sink_lake import JOB, URN, count_reached, start_sink_worker

pytestmark = pytest.mark.turns(of=4)

lake, world = loaded_sink.lake, loaded_sink.world

OF_A_LOAD = (
    Failpoint.STEP_BEFORE,
    Failpoint.LOAD_COPIED,
    Failpoint.LOAD_BEFORE_COMMIT,
    Failpoint.LOAD_COMMITTED,
    Failpoint.STEP_AFTER,
)
AROUND_A_LOAD = (
    Failpoint.SEAL_COMMITTED,
    Failpoint.MARKER_WRITTEN,
    *OF_A_LOAD,
    Failpoint.SYNCED_BEFORE_VERIFY,
    Failpoint.VERIFIED_BEFORE_FINISH,
    Failpoint.FINISH_COMMITTED,
)

OF_A_SECOND_FAULT = (Failpoint.RECOVERY_STARTED, Failpoint.LOAD_COPIED, Failpoint.LOAD_COMMITTED)


IN_A_LOAD = (Failpoint.LOAD_COPIED, Failpoint.LOAD_BEFORE_COMMIT, Failpoint.LOAD_COMMITTED)
EVERYWHERE = pytest.mark.parametrize("lake", [SQLITE, POSTGRES, ICEBERG, often(KAFKA)], indirect=True)
IN_TURNS = pytest.mark.parametrize("lake", [POSTGRES, *map(in_turn, others_than(POSTGRES))], indirect=True)


def at_points(always: tuple[Failpoint, ...], others: tuple[Failpoint, ...]) -> pytest.MarkDecorator:
    """``always``: in each run in tables of Postgres, elsewhere in turns; ``others``: everywhere in turns."""
    cases = [*((POSTGRES, point) for point in always)]
    cases += [in_turn(place, point) for place in others_than(POSTGRES) for point in always]
    cases += [in_turn(place, point) for place in PLACES for point in others]
    return pytest.mark.parametrize(("lake", "point"), cases, indirect=["lake"], ids=str)


@EVERYWHERE
def test_every_point_of_a_load_is_reached_and_the_log_knows_how_many_rows_are_where(
    lake: LoadedSinkLake, world: LoadedSinkWorld
) -> None:
    seen: set[Failpoint] = set()

    with install(seen.add):
        world.work()

    world.check_exactly_once()
    assert seen >= {*AROUND_A_LOAD, *OF_EXECUTION}
    expected = sum(count for (role, *_), count in world.expected().items() if role == Role.DATA)
    found = world.stores.published.find_rows_elsewhere(JobName(JOB), URN)
    assert found == RowsElsewhere(lake.place.uri_of(RECORDS), expected)
    assert not lake.place.list_strays(RECORDS)


@pytest.mark.parametrize(
    ("lake", "point", "count"),
    [
        *((POSTGRES, point, 1) for point in IN_A_LOAD),
        *(in_turn(place, point, 1) for place in others_than(POSTGRES) for point in OF_A_LOAD),
        *(rotating(POSTGRES, point, 1) for point in OF_A_SINK),
        *(in_turn(place, point, 2) for place in PLACES for point in OF_A_LOAD),
    ],
    indirect=["lake"],
    ids=str,
)
def test_a_worker_killed_anywhere_is_gone_on_with_by_another(
    lake: LoadedSinkLake, world: LoadedSinkWorld, point: Failpoint, count: int
) -> None:
    kill_at(lake, point, count)
    world.expire()

    world.work()

    world.check_exactly_once()


@pytest.mark.parametrize(
    ("lake", "count"),
    [(POSTGRES, 1), *(in_turn(place, count) for place in (POSTGRES, ICEBERG, KAFKA) for count in (2, 3))],
    indirect=["lake"],
)
def test_a_commit_without_an_answer_is_looked_up(lake: LoadedSinkLake, world: LoadedSinkWorld, count: int) -> None:
    log = str(Path(lake.directory, "failpoints.log"))

    with install(ArmedFailpoints(f"{Failpoint.LOAD_COMMITTED}=lose@{count}", log)):
        world.work(lambda: count_reached(log) > 0 and world.is_published())

    world.check_exactly_once()
    assert not any("backs off" in line for line in world.lines)


@pytest.mark.parametrize(
    ("lake", "point"),
    [
        (POSTGRES, Failpoint.LOAD_COPIED),
        # A process that sleeps inside of a transaction of SQLite holds the file.
        *(in_turn(place, p) for place in PLACES for p in (Failpoint.LOAD_COMMITTED, Failpoint.STEP_AFTER)),
        *(in_turn(place, Failpoint.LOAD_COPIED) for place in (ICEBERG, KAFKA)),
        *(often(place, Failpoint.LOAD_BEFORE_COMMIT) for place in (ICEBERG, KAFKA)),
    ],
    indirect=["lake"],
    ids=str,
)
def test_a_zombie_that_wakes_up_loads_nothing(lake: LoadedSinkLake, world: LoadedSinkWorld, point: Failpoint) -> None:
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
    assert not lake.place.list_strays(RECORDS), "what was surely refused is left"


@pytest.mark.parametrize(
    ("lake", "first", "second"),
    [
        (POSTGRES, Failpoint.LOAD_BEFORE_COMMIT, Failpoint.LOAD_COPIED),
        *(rare(place, first, second) for place in PLACES for first in OF_A_LOAD for second in OF_A_SECOND_FAULT),
    ],
    indirect=["lake"],
    ids=str,
)
def test_a_recovery_killed_anywhere_is_completed_by_the_next(
    lake: LoadedSinkLake, world: LoadedSinkWorld, first: Failpoint, second: Failpoint
) -> None:
    kill_at(lake, first)
    world.expire()
    kill_at(lake, second)
    world.expire()

    world.work()

    world.check_exactly_once()


@at_points((Failpoint.STEP_BEFORE,), (Failpoint.SEAL_COMMITTED,))
def test_what_is_not_loaded_can_be_abandoned(lake: LoadedSinkLake, world: LoadedSinkWorld, point: Failpoint) -> None:
    kill_at(lake, point)
    world.expire()

    for sequence_id in world.open_sequences():
        world.operations().abandon(sequence_id, reason="a test")

    world.work()
    world.check_exactly_once()


@IN_TURNS
def test_what_is_loaded_can_only_be_completed(lake: LoadedSinkLake, world: LoadedSinkWorld) -> None:
    kill_at(lake, Failpoint.LOAD_COMMITTED)
    world.expire()
    marks = str(world.marks())
    (sequence_id,) = [each for each in world.open_sequences() if str(each) in marks]

    with pytest.raises(RejectedError, match="It can only be completed"):
        world.operations().abandon(sequence_id, reason="a test")

    world.work()
    world.check_exactly_once()


@pytest.mark.parametrize(
    ("lake", "point"),
    [
        (POSTGRES, Failpoint.LOAD_COPIED),
        often(KAFKA, Failpoint.LOAD_COPIED),
        *(in_turn(place, Failpoint.LOAD_BEFORE_COMMIT) for place in (ICEBERG, KAFKA)),
        *(in_turn(place, Failpoint.STEP_BEFORE) for place in PLACES),
    ],
    indirect=["lake"],
    ids=str,
)
def test_a_zombie_loads_nothing_that_was_abandoned(
    lake: LoadedSinkLake, world: LoadedSinkWorld, point: Failpoint
) -> None:
    """It wakes up before anything else is published: only the place stands in its way."""
    zombie = start_sink_worker(lake, failpoint=f"{point}=stop")
    zombie.wait_until_stopped()
    world.expire()
    sequences = world.open_sequences()
    assert sequences
    for sequence_id in sequences:
        world.operations().abandon(sequence_id, reason="a test")

    zombie.wake_up()

    assert zombie.wait() == 0
    world.check_exactly_once()


@at_points(
    (Failpoint.GIVE_UP_BEFORE_COMMIT, Failpoint.ABANDON_RECORDED),
    (Failpoint.ABANDON_CAPTURED, Failpoint.ABANDON_RETURNED),
)
def test_an_abandonment_that_dies_is_repeated(lake: LoadedSinkLake, world: LoadedSinkWorld, point: Failpoint) -> None:
    kill_at(lake, Failpoint.STEP_BEFORE)
    world.expire()
    sequence_id, *others = world.open_sequences()
    with install(dying_at(point)), pytest.raises(DiedError):
        world.operations().abandon(sequence_id, reason="a test")
    world.expire()

    for each in {sequence_id, *others} & set(world.open_sequences()):
        world.operations().abandon(each, reason="a test")

    world.work()
    world.check_exactly_once()


@IN_TURNS
def test_a_restored_log_adopts_what_was_loaded_since_and_loads_nothing_again(
    lake: LoadedSinkLake, world: LoadedSinkWorld, server: EmbeddedServer
) -> None:
    """Setting it aside would read the rows again: that is refused."""
    world.work(some_published(world))
    world.engine.dispose()
    with copied(server, lake.database_url) as url, closing(replace(lake, database_url=url).open_world()) as restored:
        world.work()
        marks = world.marks()

        with pytest.raises(ConflictError, match="are loaded, and are not taken back"):
            reconcile(restored, Way.SET_ASIDE)
        restored.expire()
        reconcile(restored)

        restored.work()
        restored.check_exactly_once()
        assert restored.marks() == marks


@pytest.mark.parametrize("lake", [in_turn(place) for place in PLACES], indirect=True)
def test_a_place_that_lost_rows_is_not_loaded_any_more(lake: LoadedSinkLake, world: LoadedSinkWorld) -> None:
    world.work()
    lake.place.lose()
    longer = replace(lake, epoch_count=lake.epoch_count + 1)

    with closing(longer.open_world()) as again:
        again.work(lambda: any(lake.place.loss in line for line in again.lines))

        assert any("backs off" in line for line in again.lines)
        assert not again.marks()


@pytest.mark.parametrize(
    ("lake", "absence"),
    [
        rotating(POSTGRES, "database"),
        rotating(ICEBERG, "catalog"),
        rotating(ICEBERG, "warehouse"),
        in_turn(KAFKA, "brokers"),
    ],
    indirect=["lake"],
)
def test_a_place_that_is_away_for_long_blocks_nothing(
    lake: LoadedSinkLake, world: LoadedSinkWorld, absence: str
) -> None:
    """More failures than a publication has tries. Workers rest, and go on by themselves."""

    def go_away(reached: Failpoint) -> None:
        if reached is Failpoint.STAGED_BEFORE_SEAL:
            for name, value in lake.place.go_away(absence).items():
                away.setenv(name, value)

    def has_failed_often() -> bool:
        said = lake.place.absences[absence]
        return sum(said in line for line in world.lines) > lake.lanes * PUBLISH_TRIES_MAX

    with pytest.MonkeyPatch.context() as away, install(go_away):
        world.work(has_failed_often)
    lake.place.come_back()

    world.work()

    world.check_exactly_once()


class DiedError(BaseException):
    """The process is gone: no handler of the product runs."""


def dying_at(point: Failpoint) -> Callable[[Failpoint], None]:
    def die(reached: Failpoint) -> None:
        if reached is point:
            raise DiedError

    return die
