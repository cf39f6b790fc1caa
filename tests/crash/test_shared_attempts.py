"""Attempts of several datasets at one read: killed, taken over and failing, each dataset is published by itself."""

from dataclasses import replace

import pytest
from sqlalchemy import text

from gobblin_assets.errors import RetryableError
from gobblin_assets.failpoints import Failpoint, install
from tests.crash.test_kills import kill_at
from tests.crash.test_zombies import require_harmless
from tests.support.lake import Lake, World, start_worker

# All datasets of a shared attempt pass these together, the points after them each for itself.
TOGETHER = (
    Failpoint.ATTEMPT_REGISTERED,
    Failpoint.ATTEMPT_WRITTEN,
    Failpoint.ATTEMPT_DURABLE,
    Failpoint.STAGE_COMMITTED,
    Failpoint.SEAL_COMMITTED,
    Failpoint.FINISH_COMMITTED,
)
ONE_BY_ONE = (Failpoint.STEP_AFTER, Failpoint.CLEANUP_CAPTURED)
PASSED = [*((point, 1) for point in TOGETHER), *((point, count) for point in ONE_BY_ONE for count in (1, 2))]


@pytest.fixture
def lake(lake: Lake) -> Lake:
    return replace(lake, shares=True)


def count_tags(world: World) -> object:
    return world.scalar("SELECT count(DISTINCT spark_tag) FROM gobblin.attempt")


def expire_lease_of(world: World, urn: str) -> None:
    query = """
        UPDATE gobblin.lease SET expires_at = clock_timestamp() - interval '1 second'
         WHERE dataset_id = (SELECT dataset_id FROM gobblin.dataset WHERE urn = :urn)
    """
    with world.engine.begin() as connection:
        connection.execute(text(query), {"urn": urn})


def test_all_datasets_are_one_read(world: World) -> None:
    assert not world.run().failed

    assert count_tags(world) == 1
    assert world.scalar("SELECT count(*) FROM gobblin.attempt") == len(world.lake.urns)
    world.check_exactly_once()


@pytest.mark.parametrize(("point", "count"), PASSED, ids=str)
def test_a_run_killed_anywhere_is_completed_by_the_next(lake: Lake, world: World, point: Failpoint, count: int) -> None:
    kill_at(lake, f"{point}=kill@{count}")
    world.expire_leases()
    for urn in lake.urns:
        lake.add_rows(urn, 5)

    assert not world.run().failed

    world.check_exactly_once()


@pytest.mark.parametrize(("point", "count"), PASSED, ids=str)
def test_a_zombie_that_wakes_up_changes_nothing(lake: Lake, world: World, point: Failpoint, count: int) -> None:
    zombie = start_worker(lake, failpoint=f"{point}=stop@{count}")
    zombie.wait_until_stopped()
    world.expire_leases()
    world.run()

    require_harmless(world, zombie)


@pytest.mark.parametrize("stolen", [0, 1])
@pytest.mark.parametrize("point", TOGETHER[:5], ids=str)
def test_one_dataset_that_is_taken_over_leaves_the_others_alone(
    lake: Lake, world: World, point: Failpoint, stolen: int
) -> None:
    urn = sorted(lake.urns)[stolen]
    sleeper = start_worker(lake, failpoint=f"{point}=stop")
    sleeper.wait_until_stopped()
    expire_lease_of(world, urn)
    assert not world.run(urns=[urn]).failed

    sleeper.wake_up()
    assert sleeper.wait() in (0, 1)

    world.expire_leases()
    assert not world.run().failed
    world.check_exactly_once()


@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("point", TOGETHER[:3], ids=str)
def test_what_fails_together_is_tried_in_halves(world: World, point: Failpoint, failures: int) -> None:
    left = [failures]

    def hook(found: Failpoint) -> None:
        if found is point and left[0]:
            left[0] -= 1
            raise RetryableError("the disk was full for a moment")

    with install(hook):
        assert not world.run().failed

    assert left == [0]
    world.check_exactly_once()
