"""Changes of flows whose workers run: they end, start as the new version says, and what it drops is retired."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from gobblin_assets import failpoints
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.failpoints import AcknowledgementLost, Failpoint
from gobblin_assets.model.job_ticket import SentTicket
from gobblin_assets.service import flow_manager
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_store import FlowState
from gobblin_assets.service.specs import FlowSpec
from gobblin_assets.service.statuses import ExecutionStatus
from gobblin_assets.service.topology import ExecutorState, Topology
from gobblin_assets.state.tickets import AttemptEnd, Claim, TicketReportKind
from tests.support.flow_world import (
    EXECUTOR,
    KEY,
    PUBLISHED,
    FlowWorld,
    LineCompiler,
    list_verbs,
    make_config,
    make_topology,
    play_worker,
)

pytestmark = pytest.mark.service_schema


@pytest.fixture
def world(engine: Engine) -> FlowWorld:
    made = FlowWorld(engine)
    made.compiler.workers = frozenset({0, 1})
    return made


def change(world: FlowWorld, config: FlowConfig) -> None:
    world.flows.update(world.person, config)


def drain(world: FlowWorld, *claims: Claim) -> None:
    for claim in claims:
        world.executor.tickets.end(claim, AttemptEnd.CANCELLED, {"message": "drained"})
    world.monitor.look()


def take(world: FlowWorld) -> list[tuple[Claim, SentTicket]]:
    """What is sent now, as far as somebody works on it; each of them runs, and has published something."""
    found = []
    world.orchestrator.look()
    while (claimed := world.executor.claim()) is not None:
        world.executor.report(claimed[0], TicketReportKind.RUNNING, {})
        world.executor.report(claimed[0], TicketReportKind.PROGRESS, PUBLISHED)
        found.append(claimed)
    world.monitor.look()
    return found


def test_a_change_of_a_worker_that_runs_drains_it_and_then_starts_it_as_the_new_version_says(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config())
    first = play_worker(world)
    change(world, make_config(parameters={"colour": "red"}, run_immediately=True))
    assert world.flows.restart_drained() == 0, "it has not ended"
    world.step()
    assert list_verbs(world.engine) == ["ADD", "CANCEL"]
    change(world, make_config(parameters={"colour": "blue"}))
    drain(world, first)

    found, start = [], threading.Barrier(3)

    def restart() -> None:
        node = FlowWorld(world.engine, world.compiler)
        start.wait()
        found.append(node.flows.restart_drained())

    nodes = [threading.Thread(target=restart) for _number in range(3)]
    for node in nodes:
        node.start()
    for node in nodes:
        node.join()
    assert sorted(found) == [0, 0, 1]
    ((_claim, sent),) = take(world)
    assert (sent.verb, sent.get_job_ticket().job["colour"]) == ("UPDATE", "blue")
    said = [(each.flow_version, each.status, each.message) for each in world.flows.list_executions(KEY)]
    assert said == [
        ("3", ExecutionStatus.RUNNING, ""),
        ("1", ExecutionStatus.CANCELLED, "version 2 takes its place"),
    ]
    assert world.flows.restart_drained() == 0


def test_a_change_that_leaves_workers_as_they_are_leaves_them_at_work(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config())
    play_worker(world)
    change(world, make_config(description="in other words"))
    world.step()
    assert list_verbs(world.engine) == ["ADD"]
    assert world.flows.get_status(KEY).status is ExecutionStatus.RUNNING


def test_a_version_that_no_executor_can_run_leaves_workers_at_work_until_one_can(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config())
    first = play_worker(world)
    change(world, make_config("far"))
    world.step()
    assert world.flows.get(KEY).state is FlowState.PENDING
    assert world.flows.get_status(KEY).status is ExecutionStatus.RUNNING

    able = FlowWorld(world.engine, LineCompiler(make_topology("shop", "lake", "far"), workers=frozenset({0})))
    assert able.flows.compile_pending() == 1
    drain(able, first)
    assert able.flows.restart_drained() == 1
    assert [each.verb for _claim, each in take(able)] == ["DELETE", "ADD"]


def test_a_version_that_could_not_start_beside_others_leaves_workers_at_work(world: FlowWorld) -> None:
    def with_places(*nodes: str, workers_max: int) -> Topology:
        return replace(make_topology(*nodes), states={EXECUTOR: ExecutorState(workers_max=workers_max)})

    world.flows.create(world.person, make_config(name="other"))
    world.flows.create(world.person, make_config())
    take(world)
    world.compiler.on_topology(with_places("shop", "lake", "mirror", workers_max=2))
    with pytest.raises(RejectedError, match="has 1 of other flows"):
        change(world, make_config("lake", "mirror"))

    # A version that no executor can run may be stored; when one can, it has to have a place.
    change(world, make_config("far"))
    world.compiler.on_topology(with_places("shop", "far", workers_max=1))
    for _number in range(2):
        assert world.flows.compile_pending() == 0
    flow = world.flows.get(KEY)
    assert flow.state is FlowState.PENDING
    assert "has 1 of other flows" in flow.reasons[0]
    world.step()
    assert list_verbs(world.engine) == ["ADD", "ADD"]
    assert world.flows.get_status(KEY).status is ExecutionStatus.RUNNING
    world.compiler.on_topology(with_places("shop", "far", workers_max=2))
    assert world.flows.compile_pending() == 1


@pytest.mark.parametrize("end", ["cancel", "pause"])
def test_who_asks_for_an_end_meanwhile_is_heard(world: FlowWorld, end: str) -> None:
    world.flows.create(world.person, make_config())
    first = play_worker(world)
    change(world, make_config(parameters={"colour": "red"}))
    if end == "cancel":
        world.flows.cancel(KEY, world.flows.get_status(KEY).execution_id)
    else:
        world.flows.pause(KEY)
    drain(world, first)
    assert world.flows.restart_drained() == 0
    if end == "pause":
        world.flows.resume(KEY)
        assert world.flows.restart_drained() == 1


def test_a_worker_whose_destination_a_version_drops_is_forgotten_by_its_source_and_its_name_is_gone(
    world: FlowWorld,
) -> None:
    world.flows.create(world.person, make_config("lake", "mirror"))
    old = [play_worker(world, publishes=True), play_worker(world)]
    before = {job.node: job.job_name for job in world.flows.list_jobs(KEY)}
    change(world, make_config("lake"))
    world.step()
    drain(world, *old)
    assert world.flows.restart_drained() == 1
    taken = {(sent.verb, sent.get_job_ticket().job_name): claim for claim, sent in take(world)}
    assert taken.keys() == {("DELETE", before["mirror"]), ("UPDATE", before["lake"])}
    assert [job.node for job in world.flows.list_jobs(KEY)] == ["lake"]
    world.executor.tickets.end(taken["DELETE", before["mirror"]], AttemptEnd.COMPLETE, {"message": ""})

    change(world, make_config("lake", "mirror"))
    drain(world, taken["UPDATE", before["lake"]])
    assert world.flows.restart_drained() == 1
    after = {job.node: job.job_name for job in world.flows.list_jobs(KEY)}
    assert after["lake"] == before["lake"]
    assert after["mirror"] != before["mirror"]
    assert [sent.verb for _claim, sent in (*take(world), *take(world))] == ["UPDATE", "ADD"]


@pytest.mark.parametrize("end", [AttemptEnd.COMPLETE, AttemptEnd.FAILED])
def test_whose_deletion_the_source_waits_for_is_said_until_it_has_ended(world: FlowWorld, end: AttemptEnd) -> None:
    world.flows.create(world.person, make_config())
    first = play_worker(world)
    execution_id = world.flows.get_status(KEY).execution_id
    world.flows.delete(KEY)
    world.orchestrator.look()
    ((deleting, sent),) = take(world)
    assert sent.verb == "DELETE"
    drain(world, first)

    def said() -> str:
        world.monitor.look()
        (job,) = world.flows.get_execution(execution_id).jobs
        return job.message

    waits = "drained The source keeps what it has for the job until the executor here deletes it:"
    assert said() == f"{waits} `gobblin-assets executor reports {sent.ticket_id}` says how far that is."
    world.executor.run(deleting, end=end)
    if end is AttemptEnd.COMPLETE:
        assert said() == "drained"
    else:
        assert said() == "drained What the source keeps for the job was not deleted: it broke Mend it."


@pytest.mark.parametrize("restart", [False, True], ids=["of the change", "of the start"])
def test_lost_answers_and_deaths_make_one_start(world: FlowWorld, restart: bool) -> None:
    world.flows.create(world.person, make_config())
    first = play_worker(world)

    def lose(act: Callable[[], object]) -> None:
        lost: list[Failpoint] = []

        def hook(point: Failpoint) -> None:
            if point is Failpoint.FLOW_STORED and not lost:
                lost.append(point)
                raise AcknowledgementLost("lost")

        with failpoints.install(hook):
            act()
        assert lost

    if restart:
        change(world, make_config(parameters={"colour": "red"}))
    else:
        lose(lambda: change(world, make_config(parameters={"colour": "red"})))
    drain(world, first)
    # The process that had asked for the change is gone: any other one goes on.
    node = FlowWorld(world.engine, world.compiler)
    if restart:
        lose(node.flows.restart_drained)
    else:
        assert node.flows.restart_drained() == 1
    assert node.flows.restart_drained() == 0
    assert len(node.flows.list_executions(KEY)) == 2
    with pytest.raises(ConflictError, match="is open"):
        node.flows.run(node.person, KEY)


def test_a_change_starts_nothing_that_somebody_has_cancelled(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config())
    first = play_worker(world)
    world.flows.cancel(KEY, world.flows.get_status(KEY).execution_id)
    change(world, make_config(parameters={"colour": "red"}))
    world.step()
    drain(world, first)
    assert world.flows.restart_drained() == 0


def test_the_end_of_an_older_execution_keeps_no_start_away(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config())
    first, old = play_worker(world), world.flows.get_status(KEY).execution_id
    change(world, make_config(parameters={"colour": "red"}))
    world.step()
    drain(world, first)
    assert world.flows.restart_drained() == 1
    ((second, _sent),) = take(world)
    change(world, make_config(parameters={"colour": "blue"}))
    world.flows.cancel(KEY, old)
    world.step()
    drain(world, second)
    assert world.flows.restart_drained() == 1


def test_one_flow_that_does_not_start_keeps_no_other_from_it(world: FlowWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_manager, "_PENDING_AT_ONCE_MAX", 1)
    keys = [KEY, KEY._replace(name="second"), KEY._replace(name="third")]
    claims = []
    for key in keys:
        world.flows.create(world.person, make_config(name=key.name))
        claims.append(play_worker(world))
    for key in keys:
        change(world, make_config(name=key.name, parameters={"colour": "red"}))
    world.step()
    drain(world, *claims)
    compile_flow = world.compiler.compile_flow

    def fail(spec: FlowSpec, *rest: Any) -> Any:
        if spec.key == keys[0]:
            raise KeyError("of a library")
        return compile_flow(spec, *rest)

    monkeypatch.setattr(world.compiler, "compile_flow", fail)
    assert world.flows.restart_drained() == 2
    monkeypatch.undo()
    assert world.flows.restart_drained() == 1
