"""Processes that are paused past their lease, replaced, and then go on as if nothing had happened."""

from dataclasses import replace

import pytest

from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.state import SequenceId
from tests.crash.test_kills import OF_A_RUN, OF_ABANDONMENT, ONCE_IN_A_RUN, kill_at, open_sequence
from tests.support.lake import Lake, World, start_worker
from tests.support.table_lake import with_objects, with_tables
from tests.support.workers import Worker

pytestmark = pytest.mark.turns(of=4)

AFTER_THE_SEAL = (
    Failpoint.SEAL_COMMITTED,
    Failpoint.SEALED_BEFORE_EXECUTE,
    Failpoint.STEP_BEFORE,
    Failpoint.STEP_AFTER,
    Failpoint.EXECUTED_BEFORE_SYNC,
    Failpoint.SYNCED_BEFORE_VERIFY,
    Failpoint.VERIFIED_BEFORE_FINISH,
)


def require_harmless(world: World, zombie: Worker) -> None:
    """Wake the zombie: it ends in order, and changes no published row; then all rows are there once."""
    before = {urn: world.published_rows(urn) for urn in world.lake.urns}

    zombie.wake_up()
    assert zombie.wait() in (0, 1), "the zombie crashed instead of giving up"

    assert {urn: world.published_rows(urn) for urn in world.lake.urns} == before
    world.run()
    world.check_exactly_once()


@with_tables
@pytest.mark.rotating
@pytest.mark.parametrize("point", [*OF_A_RUN, *ONCE_IN_A_RUN], ids=str)
def test_a_zombie_that_wakes_up_changes_nothing(lake: Lake, world: World, point: Failpoint) -> None:
    zombie = start_worker(lake, failpoint=f"{point}=stop")
    zombie.wait_until_stopped()
    world.expire_leases()
    for urn in lake.urns:
        lake.add_rows(urn, 5)
    world.run()

    require_harmless(world, zombie)


@with_objects
@pytest.mark.rotating
@pytest.mark.parametrize("point", AFTER_THE_SEAL, ids=str)
def test_a_zombie_finds_nothing_to_rename_after_an_abandonment(lake: Lake, world: World, point: Failpoint) -> None:
    zombie = start_worker(lake, failpoint=f"{point}=stop")
    zombie.wait_until_stopped()
    world.expire_leases()
    sequence_id = open_sequence(world)
    world.operations().abandon(sequence_id, reason="given up by a person")
    assert visible_files_of(world, sequence_id) == []

    zombie.wake_up()
    zombie.wait()

    assert visible_files_of(world, sequence_id) == [], "the zombie published a part of what was given up"
    world.run()
    world.check_exactly_once()


@with_objects
@pytest.mark.rotating
@pytest.mark.parametrize("point", OF_ABANDONMENT, ids=str)
def test_an_abandoner_may_be_a_zombie_itself(lake: Lake, world: World, point: Failpoint) -> None:
    kill_at(lake, f"{Failpoint.STEP_AFTER}=kill")
    world.expire_leases()
    sequence_id = open_sequence(world)
    zombie = start_worker(lake, failpoint=f"{point}=stop", action="abandon", argument=str(sequence_id))
    zombie.wait_until_stopped()
    world.expire_leases()
    world.operations().recover_due(None, on_publication=lambda _publication: None)
    world.run()

    zombie.wake_up()
    zombie.wait()

    assert visible_files_of(world, sequence_id) == []
    world.run()
    world.check_exactly_once()


@pytest.mark.rotating
@pytest.mark.parametrize(
    "point",
    [Failpoint.RECOVERY_STARTED, Failpoint.STEP_BEFORE, Failpoint.STEP_AFTER, Failpoint.VERIFIED_BEFORE_FINISH],
    ids=str,
)
def test_a_recovering_zombie_changes_nothing(lake: Lake, world: World, point: Failpoint) -> None:
    kill_at(lake, f"{Failpoint.SEALED_BEFORE_EXECUTE}=kill")
    world.expire_leases()
    zombie = start_worker(lake, failpoint=f"{point}=stop", action="recover")
    zombie.wait_until_stopped()
    world.expire_leases()
    world.run()

    zombie.wake_up()
    zombie.wait()

    world.run()
    world.check_exactly_once()


@with_objects
def test_a_paused_run_really_loses_its_lease_by_time_alone(lake: Lake, world: World) -> None:
    short = replace(lake, lease_ttl_s=0.5)
    zombie = start_worker(short, failpoint=f"{Failpoint.STAGED_BEFORE_SEAL}=stop")
    zombie.wait_until_stopped()
    patient = World(replace(lake, lease_wait_s=30.0))

    report = patient.run()

    assert not report.failed
    assert {r.outcome for r in report.datasets} == {"COMMITTED"}
    zombie.wake_up()
    assert zombie.wait() == 1, "the fenced run must report its datasets as failed"
    patient.close()
    # The next process removes the files that the zombie wrote after it woke up.
    world.run()
    world.check_exactly_once()


def test_of_two_runs_at_once_one_works_and_the_other_skips(lake: Lake, world: World) -> None:
    first = start_worker(lake, failpoint=f"{Failpoint.ATTEMPT_WRITTEN}=stop")
    first.wait_until_stopped()

    report = world.run(by_hand=False)

    assert {r.outcome for r in report.datasets} == {"SKIPPED"}
    assert any("is being worked on by" in line for line in world.lines)
    first.wake_up()
    assert first.wait() == 0
    world.run()
    world.check_exactly_once()


@with_objects
def test_of_two_runs_at_once_one_waits_and_doubles_nothing(lake: Lake, world: World) -> None:
    patient = replace(lake, lease_wait_s=60.0)
    workers = [start_worker(patient) for _ in range(3)]

    assert [worker.wait() for worker in workers] == [0, 0, 0]

    world.check_exactly_once()


def visible_files_of(world: World, sequence_id: SequenceId) -> list[str]:
    return [path for path in world.stored_files() if sequence_id.hex in path]
