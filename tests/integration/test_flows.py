"""Flows from their description to their status, over Postgres, with an executor that only reports."""

import pytest
from sqlalchemy import Engine

from gobblin_assets.db import schema
from gobblin_assets.errors import ConflictError
from gobblin_assets.service.flow_store import FlowState, SpecNotFoundError
from gobblin_assets.service.postgres.history import SERVICE_HISTORY
from gobblin_assets.service.statuses import ExecutionStatus
from tests.support.flow_world import KEY, FlowWorld, make_config


@pytest.fixture
def world(engine: Engine) -> FlowWorld:
    schema.upgrade(engine, history=SERVICE_HISTORY)
    return FlowWorld(engine)


def test_a_flow_goes_from_its_description_to_complete(world: FlowWorld) -> None:
    stored = world.flows.create(world.person, make_config())
    assert (stored.state, stored.spec.version) == (FlowState.ACTIVE, "1")
    status = world.flows.get_status(KEY)
    assert [job.status for job in status.jobs] == [ExecutionStatus.COMPILED]

    world.orchestrator.look()
    assert world.flows.get_status(KEY).status is ExecutionStatus.ORCHESTRATED
    claimed = world.executor.claim()
    assert claimed is not None
    claim, sent = claimed
    assert sent.get_job_ticket().job_name == status.jobs[0].job_name
    world.executor.publish(claim, rows=7, watermarks={"id": ("1", "8")})
    world.monitor.look()
    assert world.flows.get_status(KEY).status is ExecutionStatus.RUNNING
    world.executor.run(claim, rows=5, watermarks={"id": ("8", "13")})
    world.monitor.look()

    ended = world.flows.get_status(KEY)
    (job,) = ended.jobs
    assert (ended.status, job.status) == (ExecutionStatus.COMPLETE, ExecutionStatus.COMPLETE)
    assert (job.processed_count, job.low_watermark, job.high_watermark) == (12, "1", "13")
    assert ended.ended_at is not None


def test_jobs_wait_for_those_before_them_and_a_failure_cancels_the_rest(world: FlowWorld) -> None:
    from gobblin_assets.state.tickets import AttemptEnd  # noqa: PLC0415

    world.flows.create(world.person, make_config("lake", "mirror"))
    world.step()
    claimed = world.executor.claim()
    assert claimed is not None
    assert world.executor.claim() is None, "the second job waits"
    world.executor.run(claimed[0], end=AttemptEnd.FAILED)
    world.step()

    status = world.flows.get_status(KEY)
    assert [job.status for job in status.jobs] == [ExecutionStatus.FAILED, ExecutionStatus.CANCELLED]
    assert status.status is ExecutionStatus.FAILED
    assert "it broke Mend it." in status.message
    assert "waits for job 0" in status.jobs[1].message


def test_a_second_run_while_one_is_open_is_refused(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config())
    with pytest.raises(ConflictError, match="is open"):
        world.flows.run(world.person, KEY)
    assert world.play() == 1
    world.flows.run(world.person, KEY)
    assert world.play() == 1
    assert len(world.flows.list_executions(KEY)) == 2


def test_versions_and_two_writers(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config(description="one"))
    world.play()
    world.flows.update(world.person, make_config(description="two"), if_version="1")
    with pytest.raises(ConflictError, match="at version 2, not 1"):
        world.flows.update(world.person, make_config(description="three"), if_version="1")
    assert [each.config.description for each in world.flows.list_versions(KEY)] == ["two", "one"]


def test_a_deleted_flow_is_gone_and_its_names_stay(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config())
    world.play()
    before = world.flows.list_jobs(KEY)
    assert world.flows.delete(KEY)
    assert not world.flows.delete(KEY)
    with pytest.raises(SpecNotFoundError):
        world.flows.get(KEY)
    world.flows.create(world.person, make_config())
    assert {job.job_name for job in before}.isdisjoint(job.job_name for job in world.flows.list_jobs(KEY))
