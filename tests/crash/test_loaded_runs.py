"""Runs whose rows are loaded into tables, killed, paused, not answered and given up: each row is there once.

One suite for all places of rows: the example's SQLite, tables of Postgres and of Iceberg, and topics. Each dataset has
two tasks, so that a load that only knows one of them is seen.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.loaded_destination import LoadedDestination
from gobblin_assets.failpoints import ArmedFailpoints, Failpoint, install
from gobblin_assets.model.extract import Mode
from gobblin_assets.run.destination import Target
from gobblin_assets.run.job_kind import Output
from tests.crash.points import OF_EXECUTION
from tests.crash.test_kills import FOR_ALL_DATASETS, OF_A_RUN, OF_RECOVERY, SEALED, kill_at
from tests.support.lake import start_worker
from tests.support.loaded_lake import LoadedLake, LoadedWorld, make_loaded_lake
from tests.support.rows_places import (
    CAN_REPLACE,
    ICEBERG,
    KAFKA,
    PLACES,
    POSTGRES,
    SQLITE,
    in_turn,
    make_place,
    others_than,
)
from tests.support.shares import often, rotating

pytestmark = pytest.mark.turns(of=6)

OF_A_LOADING_RUN = (*OF_A_RUN, Failpoint.LOAD_COPIED, Failpoint.LOAD_BEFORE_COMMIT, Failpoint.LOAD_COMMITTED)
IN_A_LOAD = (Failpoint.LOAD_COPIED, Failpoint.LOAD_BEFORE_COMMIT, Failpoint.LOAD_COMMITTED)
OF_A_STEP = (Failpoint.STEP_BEFORE, *IN_A_LOAD, Failpoint.STEP_AFTER)
"""Of rows that are not loaded yet."""

# A recovery that no run does tells nobody of events.
OF_RECOVERY_ALONE = tuple(point for point in OF_RECOVERY if point is not Failpoint.FINISHED_BEFORE_EVENTS)

EVERYWHERE = pytest.mark.parametrize("lake", [SQLITE, POSTGRES, ICEBERG, often(KAFKA)], indirect=True)
IN_TURNS = pytest.mark.parametrize("lake", [POSTGRES, *map(in_turn, others_than(POSTGRES))], indirect=True)


@pytest.fixture
def lake(
    request: pytest.FixtureRequest, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LoadedLake:
    made = make_loaded_lake(database_url, tmp_path, make_place(request, request.param, tmp_path))
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def world(lake: LoadedLake) -> Iterator[LoadedWorld]:
    opened = lake.open_world()
    yield opened
    opened.close()


def add_rows(lake: LoadedLake, count: int) -> None:
    for urn in lake.urns:
        lake.add_rows(urn, count)


@pytest.mark.every_run
@EVERYWHERE
def test_every_point_of_a_load_is_reached_and_later_rows_are_added(lake: LoadedLake, world: LoadedWorld) -> None:
    seen: set[Failpoint] = set()
    with install(seen.add):
        assert not world.run().failed
    world.check_exactly_once()
    assert seen >= {*OF_EXECUTION, *IN_A_LOAD}

    add_rows(lake, 7)
    assert not world.run().failed
    world.check_exactly_once()


@pytest.mark.every_run
@pytest.mark.parametrize(
    ("lake", "point", "count"),
    [
        *((POSTGRES, point, 1) for point in IN_A_LOAD),
        *(rotating(POSTGRES, point, 1) for point in OF_A_RUN),
        *(in_turn(place, point, 1) for place in others_than(POSTGRES) for point in OF_A_LOADING_RUN),
        *(in_turn(place, point, 2) for place in PLACES for point in OF_A_LOADING_RUN if point not in FOR_ALL_DATASETS),
    ],
    indirect=["lake"],
    ids=str,
)
def test_a_run_killed_anywhere_is_completed_by_the_next(
    lake: LoadedLake, world: LoadedWorld, point: Failpoint, count: int
) -> None:
    kill_at(lake, f"{point}=kill@{count}")
    world.expire_leases()
    add_rows(lake, 5)

    assert not world.run().failed

    world.check_exactly_once()


@pytest.mark.parametrize(
    ("lake", "point"),
    [
        (POSTGRES, Failpoint.LOAD_BEFORE_COMMIT),
        *(in_turn(place, point) for place in CAN_REPLACE for point in OF_A_LOADING_RUN),
    ],
    indirect=["lake"],
    ids=str,
)
def test_a_killed_refresh_ends_with_one_generation(lake: LoadedLake, world: LoadedWorld, point: Failpoint) -> None:
    world.run()
    kill_at(lake, f"{point}=kill", mode=Mode.REFRESH)
    world.expire_leases()

    assert not world.run(mode=Mode.REFRESH).failed

    world.check_exactly_once()


@pytest.mark.parametrize(
    ("lake", "first", "second"),
    [
        (POSTGRES, Failpoint.SEAL_COMMITTED, Failpoint.LOAD_COMMITTED),
        *(
            in_turn(place, first, second)
            for place in PLACES
            for first in SEALED
            for second in (*OF_RECOVERY_ALONE, *IN_A_LOAD)
            # What is loaded is not loaded again.
            if first is Failpoint.SEAL_COMMITTED
            or second not in (*IN_A_LOAD, Failpoint.STEP_BEFORE, Failpoint.STEP_AFTER)
        ),
    ],
    indirect=["lake"],
    ids=str,
)
def test_a_recovery_killed_anywhere_is_completed_by_the_next(
    lake: LoadedLake, world: LoadedWorld, first: Failpoint, second: Failpoint
) -> None:
    kill_at(lake, f"{first}=kill")
    world.expire_leases()
    kill_at(lake, f"{second}=kill", action="recover")
    world.expire_leases()
    world.make_due()

    assert not world.run().failed

    world.check_exactly_once()


@pytest.mark.parametrize(
    ("lake", "point"),
    [
        (POSTGRES, Failpoint.STAGED_BEFORE_SEAL),
        *(in_turn(place, point) for place in PLACES for point in (Failpoint.STAGE_COMMITTED, *SEALED)),
    ],
    indirect=["lake"],
    ids=str,
)
def test_a_zombie_that_wakes_up_loads_nothing(lake: LoadedLake, world: LoadedWorld, point: Failpoint) -> None:
    zombie = start_worker(lake, failpoint=f"{point}=stop")
    zombie.wait_until_stopped()
    world.expire_leases()
    assert not world.run().failed
    world.check_exactly_once()

    zombie.wake_up()

    zombie.wait()
    world.run()
    world.check_exactly_once()


@pytest.mark.parametrize(
    ("lake", "point", "count"),
    [
        (POSTGRES, Failpoint.LOAD_COMMITTED, 1),
        *(
            in_turn(place, point, count)
            for place in PLACES
            for point in (Failpoint.ATTEMPT_REGISTERED, Failpoint.STAGE_COMMITTED, Failpoint.SEAL_COMMITTED)
            for count in (1, 2, 3)
        ),
        rotating(SQLITE, Failpoint.LOAD_COMMITTED, 1),
        *(in_turn(place, Failpoint.LOAD_COMMITTED, 2) for place in (ICEBERG, KAFKA)),
    ],
    indirect=["lake"],
    ids=str,
)
def test_an_answer_that_is_lost_is_looked_up(
    lake: LoadedLake, world: LoadedWorld, point: Failpoint, count: int
) -> None:
    with install(ArmedFailpoints(f"{point}=lose@{count}", str(Path(lake.directory, "failpoints.log")))):
        world.run()
    world.expire_leases()
    world.make_due()

    assert not world.run().failed

    world.check_exactly_once()


@pytest.mark.parametrize(
    ("lake", "point"),
    [(POSTGRES, Failpoint.LOAD_COMMITTED), *(rotating(SQLITE, point) for point in (*IN_A_LOAD, Failpoint.STEP_AFTER))],
    indirect=["lake"],
    ids=str,
)
def test_a_killed_refresh_of_fewer_rows_is_no_sign_of_lost_ones(
    lake: LoadedLake, world: LoadedWorld, point: Failpoint
) -> None:
    world.run()
    for urn in lake.urns:
        source = lake.source_of(urn)
        source.write_text("".join(source.read_text(encoding="utf-8").splitlines(keepends=True)[:4]), encoding="utf-8")
    kill_at(lake, f"{point}=kill", mode=Mode.REFRESH)
    world.expire_leases()

    assert not world.run(mode=Mode.REFRESH).failed

    for urn in lake.urns:
        assert world.published_rows(urn) == Counter(lake.source_rows(urn))


@IN_TURNS
def test_what_is_not_loaded_can_be_abandoned_and_is_read_again(lake: LoadedLake, world: LoadedWorld) -> None:
    kill_at(lake, f"{Failpoint.SEAL_COMMITTED}=kill")
    world.expire_leases()
    for sequence in world.stores.commits.list_open(None, limit=10):
        world.operations().abandon(sequence.sequence_id, reason="a test")

    assert not world.run().failed

    world.check_exactly_once()


@IN_TURNS
def test_a_step_for_each_task_would_lose_rows_and_is_noticed(
    lake: LoadedLake, world: LoadedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: a task gives the version that its sequence will have, and so gets a step of its own."""
    steps_for = LoadedDestination.steps_for

    def of_each_task(self: LoadedDestination, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        return steps_for(self, outputs, target if target.version is not None else replace(target, version=1))

    monkeypatch.setattr(LoadedDestination, "steps_for", of_each_task)
    monkeypatch.setattr(LoadedDestination, "loads_rows", property(lambda _self: False))
    world.run()
    assert any(world.published_rows(urn).total() < 13 for urn in lake.urns)
    with pytest.raises(AssertionError):
        world.check_exactly_once()


@pytest.mark.parametrize("lake", [ICEBERG, in_turn(KAFKA)], indirect=True)
def test_a_place_that_only_adds_refuses_a_second_generation(lake: LoadedLake, world: LoadedWorld) -> None:
    world.run()
    report = world.run(mode=Mode.REFRESH)
    assert all("are only added" in str(each.error) for each in report.failed)
    assert len(report.failed) == len(lake.urns)
    world.check_exactly_once()
