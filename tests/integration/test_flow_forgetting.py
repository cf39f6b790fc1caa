"""Tickets of old executions are forgotten in the logs of their executors; statuses of executions stay."""

import pytest
from sqlalchemy import Engine, text

from gobblin_assets import failpoints
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.service import forgetting
from gobblin_assets.service.forgetting import Forgetting
from gobblin_assets.service.statuses import ExecutionStatus
from gobblin_assets.state.tickets import AttemptEnd
from tests.support.flow_world import KEY, FlowWorld, make_config, play_worker

pytestmark = pytest.mark.service_schema


@pytest.fixture
def world(engine: Engine) -> FlowWorld:
    return FlowWorld(engine)


def count_reports(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(text("SELECT count(*) FROM gobblin.ticket_report")).scalar_one()


def age(engine: Engine, days: int) -> None:
    with engine.begin() as connection:
        aged = "UPDATE gobblin_service.job_execution SET ended_at = ended_at - make_interval(days => :days)"
        connection.execute(text(f"{aged} WHERE ended_at IS NOT NULL"), {"days": days})


def test_tickets_of_executions_that_ended_long_ago_are_forgotten_and_their_statuses_stay(
    world: FlowWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "JOBS_AT_ONCE_MAX", 2)
    for number in range(5):
        world.flows.create(world.person, make_config(name=f"old{number}"))
    assert world.play(rows=3) == 5
    old = Forgetting(world.executions, world.logs, kept_days=30)
    assert old.look() == 0
    age(world.engine, 31)
    world.flows.create(world.person, make_config())
    assert world.play(rows=3) == 1

    class DeathError(BaseException):
        pass

    def die(point: Failpoint) -> None:
        if point is Failpoint.TICKETS_FORGOTTEN:
            raise DeathError

    with failpoints.install(die), pytest.raises(DeathError):
        old.look()
    assert Forgetting(world.executions, world.logs, kept_days=30).look() == 5, "what died is repeated"
    assert old.look() == 0
    assert count_reports(world.engine) == 4, "those of the execution of today"
    for number in range(5):
        (job,) = world.flows.get_status(KEY._replace(name=f"old{number}")).jobs
        assert (job.status, job.processed_count) == (ExecutionStatus.COMPLETE, 3)
    assert world.play() == 0


def test_what_is_open_or_whose_reports_are_not_read_is_kept(world: FlowWorld) -> None:
    world.compiler.workers = frozenset({0})
    for name in ("runs", "deleted"):
        world.flows.create(world.person, make_config(name=name))
    claims = [play_worker(world), play_worker(world)]
    world.executor.tickets.end(claims[0], AttemptEnd.FAILED, {"message": "it broke"})
    age(world.engine, 31)
    old = Forgetting(world.executions, world.logs, kept_days=30)
    assert old.look() == 0, "nobody has read that it failed"
    world.monitor.look()
    assert world.flows.get_status(KEY._replace(name="runs")).status is ExecutionStatus.FAILED
    world.flows.delete(KEY._replace(name="runs"))
    age(world.engine, 31)
    assert old.look() == 0, "what it left at its source is to be deleted"
    world.orchestrator.look()
    assert old.look() == 0, "nobody has deleted it yet"
    assert world.executor.run_all() == 1
    assert old.look() == 0, "nobody has read that it was done"
    world.monitor.look()
    assert old.look() == 1


def test_a_worker_that_ended_before_its_cancel_was_marked_is_forgotten(world: FlowWorld) -> None:
    """Its CANCEL is not sent again: it has ended."""
    world.compiler.workers = frozenset({0})
    world.flows.create(world.person, make_config())
    claim = play_worker(world)
    world.flows.pause(KEY)
    world.orchestrator.look()
    world.executor.tickets.end(claim, AttemptEnd.CANCELLED, {"message": "drained"})
    assert world.executor.claim() is None, "what cancels it has no more to do"
    world.monitor.look()
    assert world.flows.get_status(KEY).status is ExecutionStatus.CANCELLED
    age(world.engine, 31)
    assert Forgetting(world.executions, world.logs, kept_days=30).look() == 1

    # What a deletion asks for is forgotten as well, once it is read that it was done.
    world.flows.delete(KEY)
    world.orchestrator.look()
    old = Forgetting(world.executions, world.logs, kept_days=30)
    assert old.look() == 0
    deleting, _sent = world.executor.claim()  # type: ignore[misc]  # it was sent
    world.executor.tickets.end(deleting, AttemptEnd.COMPLETE, {"message": ""})
    assert old.look() == 0, "nobody has read it"
    world.monitor.look()
    assert old.look() == 1
    assert count_reports(world.engine) == 0
