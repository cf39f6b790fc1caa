"""Calls that took effect, although their caller got an error."""

from dataclasses import replace

import pytest

from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.extract import Mode
from tests.crash.test_kills import kill_at, open_sequence
from tests.support.lake import Lake, World, start_worker
from tests.support.shares import cross
from tests.support.table_lake import with_stores

pytestmark = pytest.mark.turns(of=4)

COMMITS = (
    Failpoint.LEASE_TAKEN,
    Failpoint.SEQUENCE_BEGUN,
    Failpoint.ATTEMPT_REGISTERED,
    Failpoint.STAGE_COMMITTED,
    Failpoint.SEAL_COMMITTED,
    Failpoint.FINISH_COMMITTED,
    Failpoint.CLEANUP_MARKED,
)


@with_stores
@pytest.mark.parametrize(("mode", "point"), cross((Mode.APPEND, Mode.REFRESH), COMMITS), ids=str)
def test_an_acknowledgement_lost_after_commit_is_resolved_by_the_log(
    lake: Lake, world: World, point: Failpoint, mode: Mode
) -> None:
    world.run()
    for urn in lake.urns:
        lake.add_rows(urn, 5)
    worker = start_worker(lake, failpoint=f"{point}=lose,{point}=lose@3", mode=mode)

    assert worker.wait() == 0
    assert len(worker.reached()) >= 1, "the failpoint was never reached"
    world.check_exactly_once()


@with_stores
@pytest.mark.parametrize("point", [Failpoint.ABANDON_RECORDED, Failpoint.ABANDON_COMMITTED], ids=str)
def test_an_abandonment_survives_a_lost_acknowledgement(lake: Lake, world: World, point: Failpoint) -> None:
    kill_at(lake, f"{Failpoint.STEP_AFTER}=kill")
    world.expire_leases()
    sequence_id = open_sequence(world)
    worker = start_worker(lake, failpoint=f"{point}=lose", action="abandon", argument=str(sequence_id))

    assert worker.wait() == 0
    assert worker.reached()
    assert world.stores.commits.get(sequence_id).state == "ABORTED"
    world.run()
    world.check_exactly_once()


@with_stores
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_rename_that_took_effect_and_reported_an_error_is_found_done(lake: Lake, world: World, count: int) -> None:
    worker = start_worker(lake, failpoint=f"{Failpoint.STEP_AFTER}=error@{count}")
    assert worker.wait() == 1
    assert worker.reached()

    assert not world.run().failed

    world.check_exactly_once()


@with_stores
def test_an_attempt_that_fails_after_writing_is_tried_again_elsewhere(lake: Lake, world: World) -> None:
    worker = start_worker(lake, failpoint=f"{Failpoint.ATTEMPT_WRITTEN}=error,{Failpoint.ATTEMPT_DURABLE}=error@2")

    assert worker.wait() == 0
    assert len(worker.reached()) == 2
    world.check_exactly_once()


@with_stores
def test_under_full_a_failed_unit_publishes_nothing_of_its_dataset(lake: Lake, world: World) -> None:
    broken = World(replace(lake, bad_units=(1,)))

    report = broken.run()

    assert {r.outcome for r in report.datasets} == {"FAILED"}
    assert [world.watermark(urn) for urn in lake.urns] == [None, None]
    assert world.stored_files() == []
    world.run()
    world.check_exactly_once()
    broken.close()


@with_stores
def test_under_successful_the_good_prefix_is_published_and_the_rest_read_again(lake: Lake, world: World) -> None:
    broken = World(replace(lake, bad_units=(1,), policy="successful"))

    report = broken.run()

    assert {r.outcome for r in report.datasets} == {"PARTIAL"}
    assert [world.watermark(urn) for urn in lake.urns] == [6, 6]
    world.run()
    world.check_exactly_once()
    broken.close()


def test_a_bad_first_unit_discards_the_good_ones_behind_it(lake: Lake, world: World) -> None:
    broken = World(replace(lake, bad_units=(0,), policy="successful"))

    report = broken.run()

    assert {r.outcome for r in report.datasets} == {"FAILED"}
    assert world.stored_files() == []
    world.run()
    world.check_exactly_once()
    broken.close()


def test_a_refresh_is_published_only_when_complete_whatever_the_policy(lake: Lake, world: World) -> None:
    world.run()
    broken = World(replace(lake, bad_units=(1,), policy="successful"))

    report = broken.run(mode=Mode.REFRESH)

    assert {r.outcome for r in report.datasets} == {"FAILED"}
    world.check_exactly_once()
    broken.close()
