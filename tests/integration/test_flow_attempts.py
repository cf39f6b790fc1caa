"""Further tickets of a job, over Postgres: retries, moves to other executors, resumed executions, and deadlines.

The executors only report; their heartbeats are real.
"""

import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.errors import ConflictError, ErrorFamily, FencedError
from gobblin_assets.model.executor_heartbeat import ExecutorPhase
from gobblin_assets.model.job_ticket import SentTicket, TicketVerb
from gobblin_assets.service.execution_store import SendTurn
from gobblin_assets.service.executor_watch import SentJobWatch
from gobblin_assets.service.placement import JobPlacement
from gobblin_assets.service.statuses import ENDED, ExecutionStatus, FlowStatus
from gobblin_assets.state.tickets import AttemptEnd, Claim, TicketReportKind
from tests.support.flow_world import (
    EXECUTOR,
    KEY,
    OTHER_EXECUTOR,
    PUBLISHED,
    FlowWorld,
    LineCompiler,
    PlayedExecutor,
    make_config,
    make_topology,
    play_worker,
)

pytestmark = [pytest.mark.turns(of=2), pytest.mark.service_schema]


@pytest.fixture
def world(engine: Engine) -> FlowWorld:
    nodes = make_topology("shop", "lake", "mirror", "attic", executors=(EXECUTOR, OTHER_EXECUTOR))
    return FlowWorld(engine, LineCompiler(nodes))


def create(world: FlowWorld, *destinations: str, **options: Any) -> None:
    world.flows.create(world.person, make_config(*destinations, **options))


def take(world: FlowWorld, name: str = EXECUTOR) -> tuple[Claim, SentTicket]:
    world.orchestrator.look()
    claimed = PlayedExecutor(world.engine, name).claim()
    assert claimed is not None, world.flows.get_status(KEY)
    return claimed


def fail(world: FlowWorld, claim: Claim, family: ErrorFamily | None, **details: Any) -> None:
    said = {"message": "it broke", "family": None if family is None else family.value, **details}
    assert world.executor.tickets.end(claim, AttemptEnd.FAILED, said)
    world.monitor.look()


def read(world: FlowWorld) -> FlowStatus:
    world.monitor.look()
    return world.flows.get_status(KEY)


def list_jobs(world: FlowWorld) -> list[str]:
    return [job.status.value for job in read(world).jobs]


def come_due(world: FlowWorld) -> None:
    """The wait of a retry is over, as after a minute."""
    with world.engine.begin() as connection:
        sent_at = "UPDATE gobblin_service.job_execution SET send_at = clock_timestamp() WHERE send_at IS NOT NULL"
        connection.execute(text(sent_at))


def test_what_may_pass_is_sent_again_as_often_as_the_flow_says(world: FlowWorld) -> None:
    create(world, retries=1)
    claim, first = take(world)
    world.executor.publish(claim, rows=3)
    fail(world, claim, ErrorFamily.RETRYABLE)
    status = read(world)
    assert (status.status, status.jobs[0].status) == (ExecutionStatus.PENDING_RETRY,) * 2
    assert status.jobs[0].message == "retry 1 of 1: it broke"
    world.orchestrator.look()
    assert world.executor.claim() is None, "it does not wait"

    come_due(world)
    claim, second = take(world)
    assert second.ticket_id != first.ticket_id
    assert second.earlier == (first.ticket_id,)
    world.executor.publish(claim, rows=4)
    fail(world, claim, ErrorFamily.OUTCOME_UNKNOWN)
    [job] = read(world).jobs
    assert (job.status, job.attempt, job.processed_count) == (ExecutionStatus.FAILED, 2, 7)


def test_who_knows_only_the_ticket_before_changes_nothing(world: FlowWorld) -> None:
    create(world, retries=2)
    claim, first = take(world)
    [stale] = world.executions.list_watched()
    fail(world, claim, ErrorFamily.RETRYABLE)
    come_due(world)
    take(world)
    ended = replace(stale.progress, status=ExecutionStatus.FAILED, ended_at=datetime.now(UTC))
    assert not world.executions.store_progress(stale, ended)
    world.executions.fail(stale.job, first.ticket_id, "it can't be sent")
    assert world.executions.begin_send(stale.job, first.ticket_id, executor=EXECUTOR, log="") is SendTurn.OVER
    assert not world.executions.begin_move(stale.job, first.ticket_id)
    assert not world.executions.assign(stale.job, first.ticket_id, OTHER_EXECUTOR, "")
    assert not world.executions.note(stale.job, first.ticket_id, "it waits")
    assert list_jobs(world) == ["ORCHESTRATED"]


def test_what_a_person_has_to_mend_is_not_sent_again_and_a_busy_dataset_is_waited_for(world: FlowWorld) -> None:
    create(world)
    fail(world, take(world)[0], ErrorFamily.RETRYABLE, busy=True)
    status = read(world)
    assert (status.status, status.jobs[0].message) == (
        ExecutionStatus.PENDING_RETRY,
        "others work on its data: it broke",
    )
    come_due(world)
    fail(world, take(world)[0], ErrorFamily.REJECTED)
    assert read(world).status is ExecutionStatus.FAILED


def test_a_retry_that_is_cancelled_is_not_sent(world: FlowWorld) -> None:
    create(world, retries=3)
    fail(world, take(world)[0], ErrorFamily.RETRYABLE)
    world.flows.cancel(KEY, world.flows.get_status(KEY).execution_id)
    assert read(world).status is ExecutionStatus.CANCELLED
    come_due(world)
    assert world.play() == 0


def test_a_ticket_that_nobody_took_moves_to_an_executor_of_the_log_that_is_heard(world: FlowWorld) -> None:
    """One that runs is left to its owner; one whose claim has run out is nobody's."""
    create(world, "lake", "mirror")
    world.beat()
    world.beat(OTHER_EXECUTOR)
    world.orchestrator.look()
    world.beat(phase=ExecutorPhase.ENDED)
    assert world.watch.look() == 1
    assert world.executor.claim() is None, "a ticket that was withdrawn is claimed"
    read(world)
    claim, sent = take(world, OTHER_EXECUTOR)
    [first, second] = read(world).jobs
    assert (first.job_group, first.attempt, second.job_group, second.attempt) == (OTHER_EXECUTOR, 2, EXECUTOR, 1)
    assert sent.executor == OTHER_EXECUTOR

    # It comes back, and the other one drains while it is at work.
    world.beat()
    world.beat(OTHER_EXECUTOR, ExecutorPhase.DRAINING)
    assert world.watch.look() == 0
    world.executor.tickets.end(claim, AttemptEnd.DRAINED, {})
    assert world.watch.look() == 1
    read(world)
    claim, again = take(world)
    assert again.executor == EXECUTOR
    assert (again.earlier[0], len(again.earlier)) == (sent.ticket_id, 2)
    world.executor.run(claim, rows=3)
    assert list_jobs(world) == ["COMPLETE", "PENDING"]
    # The second job was not sent yet: it goes to whoever is heard.
    assert world.play(rows=4) == 1
    assert [job.processed_count for job in read(world).jobs] == [3, 4]
    assert read(world).status is ExecutionStatus.COMPLETE


def test_who_comes_back_behind_its_move_is_refused_and_its_work_is_not_lost(world: FlowWorld) -> None:
    create(world)
    world.beat()
    world.beat(OTHER_EXECUTOR)
    claim, sent = take(world)
    world.executor.publish(claim, rows=3)
    world.beat(phase=ExecutorPhase.ENDED)
    assert world.watch.look() == 0, "its claim lives"
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.ticket_claim SET expires_at = clock_timestamp()"))
    assert world.watch.look() == 1
    assert world.executor.tickets.renew([claim], ttl_s=60) == set()
    assert not world.executor.tickets.end(claim, AttemptEnd.COMPLETE, {})
    assert list_jobs(world) == ["PENDING_RETRY"]
    second, again = take(world, OTHER_EXECUTOR)
    assert again.earlier == (sent.ticket_id,)
    world.executor.run(second, rows=4)
    [job] = read(world).jobs
    assert (job.status, job.processed_count) == (ExecutionStatus.COMPLETE, 7)


def test_a_worker_whose_executor_is_lost_starts_at_once_on_another_one_with_all_that_its_lanes_have(
    world: FlowWorld,
) -> None:
    world.compiler.workers = frozenset({0})
    create(world, "lake", "mirror")
    world.beat()
    world.beat(OTHER_EXECUTOR)
    claim = play_worker(world, publishes=True)
    world.beat(phase=ExecutorPhase.DRAINING)
    assert world.watch.look() == 0, "it ends behind a cut by itself"
    world.beat(phase=ExecutorPhase.ENDED)
    # Its claim lives for a minute.
    assert world.watch.look() == 1
    read(world)
    # It comes back.
    assert world.executor.tickets.renew([claim], ttl_s=60) == set()
    assert not world.executor.tickets.end(claim, AttemptEnd.COMPLETE, {})
    assert world.executor.claim() is None
    with pytest.raises(FencedError):
        world.executor.report(claim, TicketReportKind.PROGRESS, PUBLISHED)
    world.orchestrator.look()
    other = PlayedExecutor(world.engine, OTHER_EXECUTOR)
    moved = other.claim()
    assert moved is not None
    assert (moved[1].verb, moved[1].earlier) == (TicketVerb.UPDATE, ())
    assert other.tickets.supersede(moved[0].ticket_id) == 0
    # What waits for the worker is behind what it has published, and goes on beside it.
    assert list_jobs(world) == ["ORCHESTRATED", "PENDING"]
    other.report(moved[0], TicketReportKind.RUNNING, {})
    assert list_jobs(world) == ["RUNNING", "PENDING"]
    assert take(world, OTHER_EXECUTOR)[1].verb is TicketVerb.ADD


def test_without_another_executor_a_job_says_what_it_waits_for(
    world: FlowWorld, caplog: pytest.LogCaptureFixture
) -> None:
    create(world, "lake", "mirror")
    world.beat()
    world.orchestrator.look()
    world.beat(phase=ExecutorPhase.ENDED)
    for _ in range(3):
        assert world.watch.look() == 0
    [waiting, _behind] = read(world).jobs
    assert waiting.status is ExecutionStatus.ORCHESTRATED
    assert "the executor here is not heard" in waiting.message
    assert sum("is not heard" in each.getMessage() for each in caplog.records) == 1
    # The next one is not sent to where nobody is.
    claim = PlayedExecutor(world.engine).claim()
    assert claim is not None
    world.executor.run(claim[0])
    assert list_jobs(world) == ["COMPLETE", "PENDING"]
    world.orchestrator.look()
    assert "no other one on its log" in read(world).jobs[1].message
    world.beat()
    assert world.play() == 1
    assert (read(world).status, read(world).jobs[1].message) == (ExecutionStatus.COMPLETE, "")


def test_a_ticket_that_another_node_has_given_to_another_executor_is_not_sent_to_the_first(world: FlowWorld) -> None:
    create(world)
    [seen] = world.executions.list_unsent(limit=9)
    assert world.executions.assign(seen.job, seen.ticket_id, OTHER_EXECUTOR, "")
    begin_send = partial(world.executions.begin_send, seen.job, seen.ticket_id)
    assert begin_send(executor=EXECUTOR, log="") is SendTurn.OVER
    assert begin_send(executor=OTHER_EXECUTOR, log="edge") is SendTurn.OVER
    assert begin_send(executor=OTHER_EXECUTOR, log="") is SendTurn.NOW
    assert not world.executions.assign(seen.job, seen.ticket_id, EXECUTOR, "")


def test_jobs_of_an_executor_that_has_left_the_topology_go_to_another_one(world: FlowWorld) -> None:
    create(world, "lake", "mirror")
    world.beat()
    world.beat(OTHER_EXECUTOR)
    world.orchestrator.look()
    world.compiler.on_topology(make_topology("shop", "lake", "mirror", executors=()))
    assert world.watch.look() == 0
    assert read(world).jobs[0].message.startswith(f"the executor {EXECUTOR} has left the topology, and no other one")
    world.compiler.on_topology(make_topology("shop", "lake", "mirror", executors=(OTHER_EXECUTOR,)))
    world.beat()
    assert world.watch.look() == 1
    read(world)
    for status in ("COMPLETE", "COMPLETE"):
        world.executor.run(take(world, OTHER_EXECUTOR)[0])
        assert list_jobs(world)[0] == status
    assert read(world).status is ExecutionStatus.COMPLETE


def test_no_more_tickets_wait_at_an_executor_than_it_begins_soon(world: FlowWorld) -> None:
    world.beat(slots=1)
    for number in range(4):
        create(world, name=f"flow{number}")
    world.orchestrator.look()
    found = [world.flows.get_status(KEY._replace(name=f"flow{number}")).jobs[0] for number in range(4)]
    waits = (ExecutionStatus.COMPILED, f"it waits for a slot of {EXECUTOR}")
    sent = (ExecutionStatus.ORCHESTRATED, "")
    assert [(job.status, job.message) for job in found] == [sent, sent, waits, waits]
    assert world.play() == 4


def test_a_ticket_that_an_executor_has_long_and_does_not_take_is_told_once(
    world: FlowWorld, caplog: pytest.LogCaptureFixture
) -> None:
    create(world)
    world.beat()
    world.orchestrator.look()
    placement = JobPlacement(lambda: world.compiler.topology, world.healths.get)
    watch = SentJobWatch(world.executions, world.logs, placement, untaken_after_s=0.0)
    for _ in range(3):
        watch.look()
    assert "has not begun the job" in read(world).jobs[0].message
    assert sum("has not begun" in each.getMessage() for each in caplog.records) == 1
    world.executor.run_all()
    assert (list_jobs(world), read(world).jobs[0].message) == (["COMPLETE"], "")


def test_what_failed_or_was_cancelled_is_resumed_and_what_is_complete_is_not_run_again(world: FlowWorld) -> None:
    create(world, "lake", "mirror", "attic")
    world.executor.run(take(world)[0], rows=3)
    world.monitor.look()
    fail(world, take(world)[0], ErrorFamily.REJECTED)
    failed = read(world)
    assert list_jobs(world) == ["COMPLETE", "FAILED", "CANCELLED"]

    resumed = world.flows.resume_execution(world.person, KEY, failed.execution_id)
    assert (resumed.execution_id, resumed.status) == (failed.execution_id, ExecutionStatus.PENDING_RESUME)
    assert (resumed.ended_at, resumed.message) == (None, "")
    with pytest.raises(ConflictError, match="is open"):
        world.flows.resume_execution(world.person, KEY, failed.execution_id)
    with pytest.raises(ConflictError, match="is open"):
        world.flows.run(world.person, KEY)
    assert world.play(rows=4) == 2
    done = read(world)
    assert done.status is ExecutionStatus.COMPLETE
    assert [(job.processed_count, job.attempt) for job in done.jobs] == [(3, 1), (4, 2), (4, 1)]
    with pytest.raises(ConflictError, match="COMPLETE"):
        world.flows.resume_execution(world.person, KEY, failed.execution_id)


@pytest.mark.parametrize("changes", ["runs again", "has another version", "is replanned", "is paused"])
def test_only_the_last_execution_of_the_flow_as_it_is_is_resumed(world: FlowWorld, changes: str) -> None:
    create(world)
    fail(world, take(world)[0], ErrorFamily.REJECTED)
    execution_id = read(world).execution_id
    match changes:
        case "runs again":
            world.flows.run(world.person, KEY)
            world.play()
        case "has another version":
            world.flows.update(world.person, make_config(description="another"))
        case "is replanned":
            world.flows.replan(world.person, KEY)
        case "is paused":
            world.flows.pause(KEY)
    with pytest.raises(ConflictError):
        world.flows.resume_execution(world.person, KEY, execution_id)
    assert world.flows.get_execution(execution_id).status is ExecutionStatus.FAILED


def test_behind_a_failure_only_what_runs_is_finished_where_the_flow_says_so(world: FlowWorld) -> None:
    """The two jobs do not depend on each other; the second one waits for a slot when the first one fails."""
    create(world, "lake", "mirror", failure_option="FINISH_RUNNING", retries=3)
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin_service.job_execution SET after = '[]'"))
    claims = [take(world)[0], take(world)[0]]
    fail(world, claims[0], ErrorFamily.RETRYABLE)
    fail(world, claims[1], ErrorFamily.REJECTED)
    assert list_jobs(world) == ["CANCELLED", "FAILED"]
    assert "only what runs goes on" in read(world).jobs[0].message
    assert read(world).status is ExecutionStatus.FAILED


@pytest.mark.parametrize("option", ["start_deadline", "finish_deadline"])
def test_an_execution_behind_its_deadline_is_cancelled_with_the_reason(world: FlowWorld, option: str) -> None:
    create(world, "lake", "mirror", **{option: "1s"})
    claim, _sent = take(world)
    if option == "finish_deadline":
        world.executor.report(claim, TicketReportKind.RUNNING, {})
        world.monitor.look()
    world.watch.look()
    assert read(world).status not in ENDED
    time.sleep(1.1)
    world.watch.look()
    world.orchestrator.look()
    world.executor.tickets.end(claim, AttemptEnd.CANCELLED, {"message": "interrupted"})
    found = read(world)
    assert (found.status, [job.status for job in found.jobs]) == (
        ExecutionStatus.CANCELLED,
        [ExecutionStatus.CANCELLED] * 2,
    )
    assert f"within 1s, its {option}" in found.message


def test_an_execution_that_has_begun_has_kept_its_start_deadline(world: FlowWorld) -> None:
    create(world, start_deadline="1s")
    claim, _sent = take(world)
    world.executor.report(claim, TicketReportKind.RUNNING, {})
    world.monitor.look()
    time.sleep(1.1)
    world.watch.look()
    world.executor.run(claim)
    assert read(world).status is ExecutionStatus.COMPLETE


def test_old_tickets_of_a_job_are_forgotten_with_its_last_one(world: FlowWorld) -> None:
    create(world, retries=1)
    fail(world, take(world)[0], ErrorFamily.RETRYABLE)
    come_due(world)
    world.play(rows=2)
    [old] = world.executions.list_old(ended_before_s=0.0, limit=10)
    assert len(old.ticket_ids) == 2
    assert not world.logs.get_store("").forget(old.ticket_ids)
