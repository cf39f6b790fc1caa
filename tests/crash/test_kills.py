"""SIGKILL of a real process at every failpoint of a run, of recovery, of abandonment and of cleanup."""

import signal
from pathlib import Path

import pytest

from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.errors import ConflictError, GobblinError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.state import SequenceId
from gobblin_assets.run.job_kind import PlanRequest, SessionLostError, UnitPlan
from tests.crash.points import (
    OF_A_CAPTURE,
    OF_A_CONVERSION,
    OF_A_FIRE,
    OF_A_FLOW,
    OF_A_LOAD,
    OF_A_MOVE,
    OF_A_PUBLICATION,
    OF_A_REPORT,
    OF_A_RESCALE,
    OF_A_REUSE,
    OF_A_SLOT,
    OF_A_TICKET,
    OF_A_WIRE,
    OF_AN_OWN_RUN,
    OF_CLEANUP,
    OF_EXECUTION,
)
from tests.crash.test_folding import OF_A_FOLD
from tests.crash.test_moves import OF_MOVING
from tests.crash.test_reconciliation import OF_ADOPTION, OF_SETTING_ASIDE
from tests.support.lake import Lake, World, start_worker
from tests.support.numbered_rows import NumberedRows
from tests.support.shares import cross, often, rotating
from tests.support.table_lake import with_objects, with_tables

KILLED = -signal.SIGKILL

# In the order in which a run reaches them. What it does for all its datasets in one transaction it reaches once; the
# second time through another point is another dataset, or another attempt.
FOR_ALL_DATASETS = (Failpoint.LEASE_TAKEN, Failpoint.SEQUENCE_BEGUN)
OF_A_RUN = (Failpoint.LEASE_TAKEN, *OF_A_PUBLICATION, Failpoint.FINISHED_BEFORE_EVENTS, *OF_CLEANUP)
ONCE_IN_A_RUN = (Failpoint.DESTINATION_MARKED, Failpoint.DESTINATION_BOUND, Failpoint.EVENTS_BEFORE_CLEANUP)
OF_A_REFRESH = (Failpoint.RETIRE_MARKED, Failpoint.RETIRE_REMOVED)
OF_RECOVERY = (Failpoint.RECOVERY_STARTED, *OF_EXECUTION, Failpoint.FINISHED_BEFORE_EVENTS)
OF_ABANDONMENT = (
    Failpoint.ABANDON_RECORDED,
    Failpoint.ABANDON_CAPTURED,
    Failpoint.ABANDON_RETURNED,
    Failpoint.ABANDON_COMMITTED,
)
SEALED = (Failpoint.SEAL_COMMITTED, Failpoint.STEP_AFTER, Failpoint.VERIFIED_BEFORE_FINISH)
RUN_KILLS = [
    *(often(point, 1) for point in (*OF_A_RUN, *ONCE_IN_A_RUN)),
    *(rotating(point, 2) for point in OF_A_RUN if point not in FOR_ALL_DATASETS),
]


@pytest.mark.every_run
def test_every_failpoint_is_killed_somewhere() -> None:
    elsewhere = {
        *(*OF_ADOPTION, *OF_SETTING_ASIDE, *OF_MOVING, *OF_A_CAPTURE, *OF_A_REUSE, *OF_A_CONVERSION),
        *(*OF_A_RESCALE, *OF_A_SLOT, *OF_A_LOAD, *OF_A_REPORT, *OF_A_TICKET, *OF_A_FLOW, *OF_A_MOVE),
        *OF_A_FIRE,
        *OF_A_WIRE,
        *OF_AN_OWN_RUN,
        *(Failpoint.TOPOLOGY_STORED, Failpoint.PACK_STORED),
        *(Failpoint.EVENTS_SENT, Failpoint.CLAIM_INTENDED, Failpoint.OPEN_SEQUENCE_ENDED),
    }
    here = {*OF_A_RUN, *ONCE_IN_A_RUN, *OF_A_REFRESH, *OF_RECOVERY, *OF_ABANDONMENT}
    assert {*here, *OF_A_FOLD, *elsewhere} == set(Failpoint)


def kill_at(lake: Lake, failpoint: str, **how: object) -> None:
    worker = start_worker(lake, failpoint=f"{failpoint}", **how)  # type: ignore[arg-type]  # passed on as they are
    assert worker.wait() == KILLED
    assert worker.reached(), "the failpoint was never reached"


@with_tables
@pytest.mark.every_run
@pytest.mark.parametrize(("point", "count"), RUN_KILLS, ids=str)
def test_a_run_killed_anywhere_is_completed_by_the_next(lake: Lake, world: World, point: Failpoint, count: int) -> None:
    kill_at(lake, f"{point}=kill@{count}")
    world.expire_leases()
    for urn in lake.urns:
        lake.add_rows(urn, 5)

    report = world.run()

    assert not report.failed
    world.check_exactly_once()
    check_every_sequence_was_announced(world)


@with_tables
@pytest.mark.rotating
@pytest.mark.parametrize("point", OF_A_RUN, ids=str)
def test_a_killed_second_run_leaves_the_first_ones_rows_alone(lake: Lake, world: World, point: Failpoint) -> None:
    world.run()
    for urn in lake.urns:
        lake.add_rows(urn, 7)
    kill_at(lake, f"{point}=kill")
    world.expire_leases()

    world.run()

    world.check_exactly_once()


@with_tables
@pytest.mark.parametrize("point", [*map(rotating, OF_A_RUN), *OF_A_REFRESH], ids=str)
def test_a_killed_refresh_ends_with_one_generation(lake: Lake, world: World, point: Failpoint) -> None:
    world.run()
    kill_at(lake, f"{point}=kill", mode=Mode.REFRESH)
    world.expire_leases()

    world.run(mode=Mode.REFRESH)

    world.check_exactly_once()


@with_objects
@pytest.mark.rotating
@pytest.mark.parametrize(("first", "second"), cross(SEALED, OF_RECOVERY), ids=str)
def test_recovery_killed_anywhere_is_completed_by_the_next(
    lake: Lake, world: World, first: Failpoint, second: Failpoint
) -> None:
    kill_at(lake, f"{first}=kill")
    world.expire_leases()
    kill_at(lake, f"{second}=kill")
    world.expire_leases()

    world.run()

    world.check_exactly_once()
    check_every_sequence_was_announced(world)


@with_objects
@pytest.mark.rotating
@pytest.mark.parametrize("point", [p for p in OF_RECOVERY if p is not Failpoint.FINISHED_BEFORE_EVENTS], ids=str)
def test_a_recovery_without_a_run_can_be_killed_too(lake: Lake, world: World, point: Failpoint) -> None:
    kill_at(lake, f"{Failpoint.SEALED_BEFORE_EXECUTE}=kill")
    world.expire_leases()
    kill_at(lake, f"{point}=kill", action="recover")
    world.expire_leases()

    world.operations().recover_due(None, on_publication=lambda _publication: None)

    assert world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'DONE'") == 1
    world.run()
    world.check_exactly_once()


@with_objects
@pytest.mark.rotating
@pytest.mark.parametrize(("sealed", "point"), cross(SEALED, OF_ABANDONMENT), ids=str)
def test_an_abandonment_killed_anywhere_leaves_nothing_visible(
    lake: Lake, world: World, sealed: Failpoint, point: Failpoint
) -> None:
    kill_at(lake, f"{sealed}=kill")
    world.expire_leases()
    sequence_id = open_sequence(world)
    kill_at(lake, f"{point}=kill", action="abandon", argument=str(sequence_id))
    world.expire_leases()

    world.operations().recover_due(None, on_publication=lambda _publication: None)

    assert world.stores.commits.get(sequence_id).state == "ABORTED"
    assert not [path for path in world.stored_files() if sequence_id.hex in path], "files of the abandoned stay visible"
    world.run()
    world.check_exactly_once()


def test_a_sequence_that_keeps_failing_is_blocked_and_its_siblings_go_on(lake: Lake, world: World) -> None:
    kill_at(lake, f"{Failpoint.SEAL_COMMITTED}=kill")
    world.expire_leases()
    sequence_id = open_sequence(world)
    sequence = world.stores.commits.get(sequence_id)
    attempt = world.stores.commits.list_attempts(sequence_id)[0]
    hidden = Path(attempt.staging_path).rename(Path(lake.directory, "hidden"))

    report = world.run()

    assert [r.urn for r in report.failed] == [sequence.urn]
    assert world.stores.commits.get(sequence_id).state == "BLOCKED"
    sibling = next(urn for urn in lake.urns if urn != sequence.urn)
    assert world.watermark(sibling) == 13
    assert [r.outcome for r in world.run().failed] == ["BLOCKED"]

    hidden.rename(attempt.staging_path)
    recovered = world.operations().resume(sequence_id)

    assert [p.sequence_id for p in recovered.published] == [sequence_id]
    world.run()
    world.check_exactly_once()


def test_what_a_run_recovered_is_in_its_report_though_sparks_server_is_gone_when_it_plans(
    lake: Lake, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_at(lake, f"{Failpoint.SEAL_COMMITTED}=kill")
    world.expire_leases()
    sequence_id = open_sequence(world)

    def find_nobody(_source: NumberedRows, _request: PlanRequest) -> UnitPlan:
        raise SessionLostError("the Connect server is gone")

    with monkeypatch.context() as patch:
        patch.setattr(NumberedRows, "plan", find_nobody)
        report = world.run()

    assert [each.publication and each.publication.sequence_id for each in report.recovered] == [sequence_id]
    assert len(report.failed) == len(lake.urns)
    world.run()
    world.check_exactly_once()
    check_every_sequence_was_announced(world)


def test_a_stranger_at_the_final_name_is_never_overwritten(lake: Lake, world: World) -> None:
    kill_at(lake, f"{Failpoint.SEAL_COMMITTED}=kill")
    world.expire_leases()
    sequence_id = open_sequence(world)
    sequence = world.stores.commits.get(sequence_id)
    target = next(iter(_targets(world, sequence_id)))
    stranger = Path(target, "stranger")
    stranger.parent.mkdir(parents=True)
    stranger.write_text("mine")

    world.run()

    assert world.stores.commits.get(sequence_id).state == "BLOCKED"
    assert stranger.read_text() == "mine"
    with pytest.raises(ConflictError):
        world.operations().abandon(sequence_id, reason="give up")
    assert stranger.read_text() == "mine"
    stranger.unlink()
    stranger.parent.rmdir()
    world.operations().recover_due(None, on_publication=lambda _publication: None)
    assert world.stores.commits.get(sequence_id).state == "ABORTED"
    world.run()
    world.check_exactly_once()
    assert sequence.urn in lake.urns


def test_an_unknown_sequence_is_refused_by_name(world: World) -> None:
    with pytest.raises(GobblinError, match="there is no sequence"):
        world.operations().resume(SequenceId(world.operations().clock.new_id()))


def open_sequence(world: World) -> SequenceId:
    (sequence,) = world.stores.commits.list_open(None, limit=10)
    return sequence.sequence_id


def check_every_sequence_was_announced(world: World) -> None:
    query = "SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'DONE' AND announced_at IS NULL"
    assert world.scalar(query) == 0
    done = world.scalar("SELECT string_agg(sequence_id::text, ' ') FROM gobblin.commit_sequence WHERE state = 'DONE'")
    sent = Path(world.lake.directory, "events.log").read_text(encoding="ascii").split()
    assert set(str(done).split()) == set(sent), "an event was never sent, or one was sent for nothing"


def _targets(world: World, sequence_id: SequenceId) -> list[str]:
    return [
        step.target
        for segment in world.stores.commits.read_segments(sequence_id)
        for step in decode_segment(segment.payload, segment.digest)
    ]
