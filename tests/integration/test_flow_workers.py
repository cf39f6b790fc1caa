"""What waits for a worker of the same flow, over Postgres, with an executor that only reports."""

from typing import Any

import pytest
from sqlalchemy import Engine

from gobblin_assets.service.statuses import ExecutionStatus
from gobblin_assets.state.tickets import AttemptEnd, Claim, TicketReportKind
from tests.support.flow_world import KEY, FlowWorld, make_config, play_worker

pytestmark = pytest.mark.service_schema


@pytest.fixture
def world(engine: Engine) -> FlowWorld:
    return FlowWorld(engine)


def report_progress(world: FlowWorld, claim: Claim, **dataset: Any) -> None:
    details = {"datasets": {"orders": {"lag": 1200, "blocked": [], "rests": ["no room"], **dataset}}}
    world.executor.report(claim, TicketReportKind.PROGRESS, details)


def list_jobs(world: FlowWorld) -> list[ExecutionStatus]:
    world.step()
    return [job.status for job in world.flows.get_status(KEY).jobs]


@pytest.mark.parametrize(
    ("dataset", "high"), [({"position": "0/16B"}, "0/16B"), ({"position": None, "watermarks": {"0": "7"}}, "7")]
)
def test_what_waits_for_a_worker_begins_when_it_has_published_and_the_flow_goes_on(
    world: FlowWorld, dataset: dict[str, Any], high: str
) -> None:
    world.compiler.workers = frozenset({0})
    world.flows.create(world.person, make_config("lake", "mirror"))
    claim = play_worker(world)
    report_progress(world, claim, position=None, watermarks={})
    assert list_jobs(world) == [ExecutionStatus.RUNNING, ExecutionStatus.PENDING]
    report_progress(world, claim, **dataset)
    world.monitor.look()
    world.play(rows=3)
    assert list_jobs(world) == [ExecutionStatus.RUNNING, ExecutionStatus.COMPLETE]
    status = world.flows.get_status(KEY)
    assert status.status is ExecutionStatus.RUNNING
    assert status.jobs[0].message == "lag 1,200; orders backs off: no room"
    assert status.jobs[0].high_watermark == high


@pytest.mark.parametrize("has_published", [False, True])
def test_who_waits_for_a_worker_that_died_waits_no_longer_than_until_it_has_published(
    world: FlowWorld, has_published: bool
) -> None:
    world.compiler.workers = frozenset({0, 1})
    world.flows.create(world.person, make_config("lake", "mirror"))
    claim = play_worker(world)
    if has_published:
        report_progress(world, claim, watermarks={"0": "7"})
    world.executor.tickets.end(claim, AttemptEnd.DIED, {"message": "died of signal 9"})
    world.monitor.look()
    waits = ExecutionStatus.ORCHESTRATED if has_published else ExecutionStatus.PENDING
    assert list_jobs(world) == [ExecutionStatus.RUNNING, waits]

    again = world.executor.tickets.claim(claim.ticket_id, "me", ttl_s=60)
    assert again is not None
    world.executor.report(again, TicketReportKind.RUNNING, {})
    assert list_jobs(world) == [ExecutionStatus.RUNNING, waits]
    report_progress(world, again, watermarks={"0": "9"})
    world.monitor.look()
    assert list_jobs(world) == [ExecutionStatus.RUNNING, ExecutionStatus.ORCHESTRATED]


def test_what_waits_for_a_worker_that_failed_before_it_published_is_cancelled(world: FlowWorld) -> None:
    world.compiler.workers = frozenset({0, 1})
    world.flows.create(world.person, make_config("lake", "mirror"))
    world.executor.tickets.end(play_worker(world), AttemptEnd.FAILED, {"message": "it broke"})
    world.monitor.look()
    assert list_jobs(world) == [ExecutionStatus.FAILED, ExecutionStatus.CANCELLED]
    assert world.flows.get_status(KEY).status is ExecutionStatus.FAILED
