"""What an executor begins by itself becomes an execution of its flow, over Postgres. The executors only report."""

from typing import Any

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.errors import ConflictError, ErrorFamily
from gobblin_assets.model.job_ticket import JobTicket, SentTicket
from gobblin_assets.service.statuses import ExecutionStatus, FlowStatus
from gobblin_assets.state.tickets import AttemptEnd, Claim, TicketReportKind
from tests.support.flow_world import EXECUTOR, KEY, FlowWorld, make_config
from tests.support.own_runs import DAGSTER, begin_own, make_adoption

pytestmark = pytest.mark.service_schema


@pytest.fixture
def world(engine: Engine) -> FlowWorld:
    return FlowWorld(engine)


def begin(world: FlowWorld, ticket: JobTicket, asked_by: str = DAGSTER) -> tuple[Claim, SentTicket]:
    claim, sent = begin_own(world, ticket, asked_by)
    assert claim is not None
    return claim, sent


def run_flow(world: FlowWorld, **options: Any) -> JobTicket:
    """The flow has run once; returns the ticket of its job."""
    world.flows.create(world.person, make_config(**options))
    world.orchestrator.look()
    claimed = world.executor.claim()
    assert claimed is not None
    world.executor.run(claimed[0], rows=1)
    world.monitor.look()
    return claimed[1].get_job_ticket()


def list_executions(world: FlowWorld) -> list[FlowStatus]:
    return list(world.store.list_executions(KEY, after=None, limit=99))


def test_a_run_that_dagster_begins_is_an_execution_of_its_flow_once(world: FlowWorld) -> None:
    """By whichever nodes look, and whenever one of them dies between an execution and the note of it."""
    ticket = run_flow(world)
    adoption, other = make_adoption(world), make_adoption(world)
    claim, sent = begin(world, ticket)
    assert (adoption.look(), adoption.look(), other.look()) == (1, 0, 0)
    with world.engine.begin() as connection:
        connection.execute(text("DELETE FROM gobblin_service.adopted_log"))
    assert other.look() == 0

    world.executor.report(claim, TicketReportKind.RUNNING, {"dagster_run_id": "run"})
    world.monitor.look()
    adopted, first = list_executions(world)
    assert (adopted.asked_by, adopted.status) == (DAGSTER, ExecutionStatus.RUNNING)
    assert first.asked_by == world.person.name
    world.executor.publish(claim, rows=3, watermarks={"id": ("1", "4")})
    world.executor.tickets.end(claim, AttemptEnd.COMPLETE, {})
    world.monitor.look()
    adopted = world.flows.get_status(KEY)
    [job] = adopted.jobs
    assert (adopted.status, job.processed_count, job.high_watermark) == (ExecutionStatus.COMPLETE, 3, "4")
    assert (job.ticket_id, job.job_group, job.job_name) == (sent.ticket_id, EXECUTOR, ticket.job_name)
    # It is forgotten as others are.
    old = world.executions.list_old(ended_before_s=0, limit=9)
    assert sent.ticket_id in {each for job in old for each in job.ticket_ids}


def test_an_adopted_run_and_what_the_service_starts_keep_each_other_out_of_nothing(world: FlowWorld) -> None:
    ticket = run_flow(world, retries=3)
    world.flows.run(world.person, KEY)
    claim, _sent = begin(world, ticket)
    assert make_adoption(world).look() == 1, "beside one that is open"
    assert world.play(rows=1) == 1
    world.flows.run(world.person, KEY)
    assert world.play(rows=1) == 1, "one that Dagster began keeps the flow from its own"

    said = {"message": "it broke", "family": ErrorFamily.RETRYABLE.value, "busy": True}
    world.executor.tickets.end(claim, AttemptEnd.FAILED, said)
    world.monitor.look()
    [adopted] = [each for each in list_executions(world) if each.asked_by == DAGSTER]
    assert adopted.status is ExecutionStatus.FAILED, "what Dagster began is begun again there, and not by the service"
    with pytest.raises(ConflictError, match="begun in dagster"):
        world.flows.resume_execution(world.person, KEY, adopted.execution_id)


def test_an_adopted_run_can_be_cancelled_and_ends_with_its_flow(world: FlowWorld) -> None:
    ticket = run_flow(world)
    claim, _sent = begin(world, ticket)
    make_adoption(world).look()
    execution_id = world.flows.get_status(KEY).execution_id
    world.flows.cancel(KEY, execution_id)
    world.orchestrator.look()
    assert world.executor.tickets.list_cancels(claim.ticket_id), "who runs it is not told"
    world.executor.tickets.end(claim, AttemptEnd.CANCELLED, {})
    world.monitor.look()
    assert world.flows.get_status(KEY).status is ExecutionStatus.CANCELLED


def test_what_is_no_flow_s_or_was_sent_by_a_service_is_left_alone(world: FlowWorld) -> None:
    """A ticket of a flow that was deleted, of another service's flow, and one without a mark. None holds up others."""
    ticket = run_flow(world)
    stranger = JobTicket("gobblin-job:/other/flow/job", "1", "ingest.jdbc", {"job": "job_of_others"})
    begin(world, stranger)
    begin(world, ticket, asked_by="")
    begin(world, ticket)
    assert make_adoption(world).look() == 1
    world.flows.delete(KEY)
    begin(world, ticket)
    assert make_adoption(world).look() == 0


def test_a_ticket_that_a_later_release_wrote_waits_for_a_node_that_can_read_it(world: FlowWorld) -> None:
    ticket = run_flow(world)
    begin(world, ticket)
    _claim, later = begin(world, ticket)
    begin(world, ticket)
    change = "UPDATE gobblin.job_ticket SET body = CAST(:body AS json) WHERE ticket_id = :id RETURNING own_number"
    with world.engine.begin() as connection:
        body = connection.execute(
            text("SELECT CAST(body AS text) FROM gobblin.job_ticket WHERE ticket_id = :id"), {"id": later.ticket_id}
        ).scalar_one()
        connection.execute(text(change), {"id": later.ticket_id, "body": '{"later": 1}'})
    adoption = make_adoption(world)
    for _again in range(2):
        adoption.look()
        assert len(list_executions(world)) == 2
    with world.engine.begin() as connection:
        connection.execute(text(change), {"id": later.ticket_id, "body": body})
    assert adoption.look() == 2, "what was behind it is lost"
