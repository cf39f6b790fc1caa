"""Flows from their description to their status, over Postgres, with an executor that only reports."""

import threading
import time
from dataclasses import replace

import psycopg
import pytest
from sqlalchemy import Engine, event, text

from gobblin_assets import failpoints
from gobblin_assets.db import transactions
from gobblin_assets.errors import ConflictError, RejectedError, RetryableError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import TicketId, TicketSelection
from gobblin_assets.service import flow_manager
from gobblin_assets.service.execution_store import JobOfExecution, SendTurn
from gobblin_assets.service.flow_store import FlowState, SpecNotFoundError
from gobblin_assets.service.job_plan import Explanation, FlowPlan, JobNames
from gobblin_assets.service.specs import FlowSpec
from gobblin_assets.service.statuses import ExecutionStatus
from gobblin_assets.state.tickets import AttemptEnd
from tests.support.flow_world import (
    EXECUTOR,
    KEY,
    FlowWorld,
    LineCompiler,
    list_verbs,
    make_config,
    make_topology,
    play_worker,
)

pytestmark = pytest.mark.service_schema


def count_runs(engine: Engine) -> int:
    """Tickets that ask for a run."""
    with engine.connect() as connection:
        return connection.execute(text("SELECT count(*) FROM gobblin.job_ticket WHERE verb = 'ADD'")).scalar_one()


@pytest.fixture
def world(engine: Engine) -> FlowWorld:
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
    assert f"waits for {status.jobs[0].job_name}" in status.jobs[1].message


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


def test_tickets_have_the_version_of_the_flow_that_they_are_of(world: FlowWorld) -> None:
    def send() -> str:
        world.orchestrator.look()
        claimed = world.executor.claim()
        assert claimed is not None
        world.executor.run(claimed[0])
        world.monitor.look()
        return claimed[1].get_job_ticket().version

    world.flows.create(world.person, make_config())
    assert send() == "1"
    explained = world.flows.explain(world.person, make_config()).compiled
    assert isinstance(explained, FlowPlan)
    assert [job.ticket.version for job in explained.jobs] == ["2"]
    world.flows.update(world.person, make_config(run_immediately=True, description="two"))
    assert send() == "2"
    world.flows.run(world.person, KEY)
    assert send() == "2"


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


def test_a_request_with_a_key_that_is_sent_again_makes_no_second_flow(world: FlowWorld) -> None:
    first = world.flows.create(world.person, make_config(), request_key="ann:1")
    again = FlowWorld(world.engine).flows.create(world.person, make_config(), request_key="ann:1")
    assert again.flow_id == first.flow_id
    with pytest.raises(ConflictError, match="another request"):
        world.flows.create(world.person, make_config(name="other"), request_key="ann:1")
    assert world.play() == 1
    assert len(world.flows.list_executions(KEY)) == 1


def test_requests_of_one_key_at_once_make_one_flow(world: FlowWorld) -> None:
    found, start = [], threading.Barrier(4)

    def ask() -> None:
        other = FlowWorld(world.engine)
        start.wait()
        found.append(other.flows.create(world.person, make_config(), request_key="ann:1").flow_id)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


def test_writers_of_one_flow_at_once_make_one_next_version(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config())
    world.play()
    said, start = [], threading.Barrier(4)

    def change(number: int) -> None:
        other = FlowWorld(world.engine)
        start.wait()
        try:
            other.flows.update(world.person, make_config(description=str(number)), if_version="1")
            said.append("stored")
        except ConflictError as error:
            said.append(error.fields["version"])

    threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == ["2", "2", "2", "stored"]
    assert len(world.flows.list_versions(KEY)) == 2


def test_nodes_that_orchestrate_at_once_make_one_run_of_each_job(world: FlowWorld) -> None:
    for number in range(6):
        world.flows.create(world.person, make_config(name=f"flow{number}"))
    start = threading.Barrier(4)

    def look() -> None:
        node = FlowWorld(world.engine)
        start.wait()
        for _ in range(3):
            node.step()

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count_runs(world.engine) == 6
    assert world.executor.run_all(rows=1) == 6
    readers = [threading.Thread(target=FlowWorld(world.engine).monitor.look) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    for number in range(6):
        (status,) = world.flows.list_executions(KEY._replace(name=f"flow{number}"))
        assert status.status is ExecutionStatus.COMPLETE
        assert status.jobs[0].processed_count == 1


def test_a_flow_that_is_deleted_while_it_runs_is_ended_at_its_executor(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config("lake", "mirror"))
    world.step()
    status = world.flows.get_status(KEY)
    assert world.flows.delete(KEY)
    world.step()
    assert world.executor.claim() is None, "the ticket that ends it came first"
    world.step()

    ended = world.flows.get_execution(status.execution_id)
    assert [job.status for job in ended.jobs] == [ExecutionStatus.CANCELLED] * 2
    assert (ended.status, ended.message) == (ExecutionStatus.CANCELLED, "the flow was deleted")


def test_an_execution_that_is_cancelled_before_it_was_sent_is_never_sent(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config())
    execution_id = world.flows.get_status(KEY).execution_id
    ended = world.flows.cancel(KEY, execution_id)
    assert ended.status is ExecutionStatus.CANCELLED
    world.step()
    assert count_runs(world.engine) == 0
    with pytest.raises(SpecNotFoundError, match="has no execution"):
        world.flows.cancel(KEY, execution_id + 1)


def test_a_cancel_between_the_look_and_the_send_is_heard(world: FlowWorld) -> None:
    """The end is asked for when the ticket may be in the log already: the executor is told."""
    world.flows.create(world.person, make_config())
    execution_id = world.flows.get_status(KEY).execution_id
    asked = []

    def cancel(point: Failpoint) -> None:
        if point is Failpoint.SEND_BEGUN and not asked:
            asked.append(FlowWorld(world.engine).flows.cancel(KEY, execution_id).status)

    with failpoints.install(cancel):
        world.step()
    assert asked == [ExecutionStatus.COMPILED]
    assert world.executor.claim() is None
    world.step()
    assert world.flows.get_execution(execution_id).status is ExecutionStatus.CANCELLED


def test_a_pending_flow_runs_once_when_the_topology_can(world: FlowWorld) -> None:
    stored = world.flows.create(world.person, make_config("far"))
    assert (stored.state, stored.reasons) == (FlowState.PENDING, ("there is no node far",))
    with pytest.raises(ConflictError, match="there is no node far"):
        world.flows.run(world.person, KEY)
    assert world.flows.compile_pending() == 0

    nodes = [FlowWorld(world.engine, LineCompiler(make_topology("shop", "far"))) for _ in range(2)]
    assert [node.flows.compile_pending() for node in nodes] == [1, 0]
    assert world.flows.get(KEY).state is FlowState.ACTIVE
    assert world.play() == 1
    assert len(world.flows.list_executions(KEY)) == 1


def test_pending_flows_are_compiled_in_pages_and_one_that_the_compiler_fails_at_keeps_no_other(
    world: FlowWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_manager, "_PENDING_AT_ONCE_MAX", 2)
    for number in range(5):
        world.flows.create(world.person, make_config("far", name=f"flow{number}", description=f"flow{number}"))
    first = world.store.list_pending(after=None, limit=3)
    rest = world.store.list_pending(after=first[-1], limit=3)
    assert [flow.spec.key.name for flow in (*first, *rest)] == [f"flow{number}" for number in range(5)]

    class Failing(LineCompiler):
        def compile_flow(self, spec: FlowSpec, names: JobNames, groups: frozenset[str]) -> Explanation:
            if spec.description == "flow1":
                raise ZeroDivisionError
            return super().compile_flow(spec, names, groups)

    able = FlowWorld(world.engine, Failing(make_topology("shop", "far")))
    assert able.flows.compile_pending() == 4
    assert [flow.spec.description for flow in able.store.list_pending(after=None, limit=9)] == ["flow1"]


def test_a_pending_flow_that_its_author_must_mend_says_so_once(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config("far"))

    class Refusing(LineCompiler):
        def compile_flow(self, spec: FlowSpec, names: JobNames, groups: frozenset[str]) -> Explanation:
            raise RejectedError("is missing", field="parameters.datasets", hint="Add it.")

    able = FlowWorld(world.engine, Refusing(make_topology("shop", "far")))
    assert able.flows.compile_pending() == 0
    found = able.store.find(KEY)
    assert found is not None
    assert found.reasons == ("parameters.datasets: is missing. Add it. Change the flow.",)
    assert able.flows.compile_pending() == 0
    again = able.store.find(KEY)
    assert again is not None
    assert again.change == found.change


def test_a_flow_without_a_run_at_its_creation_waits_for_one(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config("far", run_immediately=False))
    able = FlowWorld(world.engine, LineCompiler(make_topology("shop", "far")))
    assert able.flows.compile_pending() == 1
    with pytest.raises(SpecNotFoundError, match="was not run yet"):
        world.flows.get_status(KEY)
    selection = TicketSelection(partitions=("2026-01-01",))
    able.flows.run(able.person, KEY, selection)
    able.orchestrator.look()
    claimed = able.executor.claim()
    assert claimed is not None
    assert claimed[1].selection == selection


def test_a_hop_behind_another_one_is_asked_for_no_partitions_of_the_source(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config("lake", "mirror", run_immediately=False))
    selection = TicketSelection(
        datasets=("orders",), partitions=("2026-01-01",), ranges=(("2026-01-03", "2026-01-05"),)
    )
    world.flows.run(world.person, KEY, selection)
    found = []
    for _hop in range(2):
        world.orchestrator.look()
        claimed = world.executor.claim()
        assert claimed is not None
        found.append(claimed[1].selection)
        world.executor.run(claimed[0])
        world.monitor.look()
    assert found == [selection, TicketSelection(datasets=("orders",))]
    names = [job.job_name for job in world.flows.list_jobs(KEY)]
    assert {world.store.find_job_log(name) for name in names} == {world.logs.get_log_id("")}
    assert world.store.find_job_log("of_nobody") is None


def test_a_paused_flow_runs_after_its_resume(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config(run_immediately=False))
    assert world.flows.pause(KEY).state is FlowState.PAUSED
    world.flows.update(world.person, make_config(run_immediately=False, description="two"))
    assert world.flows.get(KEY).state is FlowState.PAUSED
    with pytest.raises(ConflictError, match="paused"):
        world.flows.run(world.person, KEY)
    assert world.flows.resume(KEY).state is FlowState.ACTIVE
    world.flows.run(world.person, KEY)
    assert world.play() == 1


def test_what_a_job_is_bound_to_stays_until_a_replan(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config())
    world.play()
    (before,) = world.flows.list_jobs(KEY)
    other = FlowWorld(world.engine, replace(world.compiler, template="FS:///other.template"))
    with pytest.raises(ConflictError, match=r"its template is FS:///default/line\.template, not FS:///other\.template"):
        other.flows.run(other.person, KEY)
    with pytest.raises(ConflictError, match=":replan"):
        other.flows.update(other.person, make_config(description="by another way"))
    newer = FlowWorld(world.engine, replace(world.compiler, template="FS:///default@2/line.template"))
    newer.flows.run(newer.person, KEY)
    with pytest.raises(ConflictError, match="is open"):
        other.flows.replan(other.person, KEY)
    newer.play()

    planned = other.flows.replan(other.person, KEY)
    assert planned.plan is not None
    (named,) = planned.plan.jobs
    assert named.job_name != before.job_name
    other.flows.run(other.person, KEY)
    other.play()
    (after,) = other.flows.list_jobs(KEY)
    assert (after.job_name, after.binding.template_uri) == (named.job_name, "FS:///other.template")


def test_a_look_at_what_is_to_be_sent_passes_over_workers_that_run(world: FlowWorld) -> None:
    world.compiler.workers = frozenset({0})
    world.flows.create(world.person, make_config())
    play_worker(world)
    with world.engine.begin() as connection:
        connection.execute(
            text("""
                INSERT INTO gobblin_service.job_execution
                       (execution_id, number, job_name, executor, log, ticket_id, ticket, after, status)
                SELECT execution_id, n, job_name, executor, log, gen_random_uuid(), ticket, after, status
                  FROM gobblin_service.job_execution, generate_series(1, 2000) n
            """)
        )
    seen: list[tuple[str, object]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: object, *_: object) -> None:
        if "is_update" in statement:
            seen.append((statement, parameters))

    event.listen(world.engine, "before_cursor_execute", note)
    world.orchestrator.look()
    event.remove(world.engine, "before_cursor_execute", note)
    (asked,) = seen
    with world.engine.connect() as connection:
        connection.execute(text("ANALYZE gobblin_service.job_execution"))
        plan = connection.exec_driver_sql(f"EXPLAIN {asked[0]}", asked[1]).scalars().all()  # type: ignore[arg-type]  # as it was sent
    assert any("job_execution_to_send" in line for line in plan), "\n".join(plan)


def test_a_log_that_is_another_one_gets_no_ticket(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config())
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin_service.flow_job SET log_id = gen_random_uuid()"))
    world.step()
    status = world.flows.get_status(KEY)
    assert status.status is ExecutionStatus.FAILED
    assert "BLOCKED" in status.jobs[0].message
    assert count_runs(world.engine) == 0


def test_other_nodes_hear_of_changes_at_their_next_look(world: FlowWorld) -> None:
    heard: list[str] = []

    class Listener:
        def on_put(self, spec: object) -> None:
            heard.append(f"put {spec.version}")  # type: ignore[attr-defined]  # any spec

        def on_removed(self, uri: str) -> None:
            heard.append(f"removed {uri}")

    class Broken:
        def on_put(self, spec: object) -> None:
            raise ValueError(spec)

        def on_removed(self, uri: str) -> None:
            raise ValueError(uri)

    other = FlowWorld(world.engine)
    other.catalog.refresh()
    other.catalog.listeners.add(Broken())
    other.catalog.listeners.add(Listener())
    world.flows.create(world.person, make_config(run_immediately=False))
    assert other.catalog.refresh() == 1
    world.flows.update(world.person, make_config(run_immediately=False, description="two"))
    world.flows.pause(KEY)
    other.catalog.refresh()
    world.flows.delete(KEY)
    world.flows.create(world.person, make_config(run_immediately=False))
    other.catalog.refresh()
    assert other.catalog.refresh() == 0
    world.flows.delete(KEY._replace(name="never there"))
    assert heard == ["put 1", "put 2", "put 1"], "the new flow replaced that of its name"
    metrics = other.catalog.metrics
    assert (metrics.specs, metrics.listener_failures) == (1, len(heard))
    assert metrics.changed_at is not None
    assert [spec.uri for spec in other.catalog.get_specs()] == [KEY.uri]
    assert other.catalog.get_spec(KEY.uri).version == "1"
    world.flows.delete(KEY)
    other.catalog.refresh()
    assert heard[3:] == [f"removed {KEY.uri}"]
    assert other.catalog.metrics.removals == 1


def test_while_the_store_is_away_the_copy_answers_with_its_age_and_writes_are_refused(
    world: FlowWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("orders", "returns"):
        world.flows.create(world.person, make_config(name=name, run_immediately=False))
    world.catalog.refresh()
    world.engine.dispose()
    monkeypatch.setattr(transactions, "BACKOFF_S_FIRST", 0.001)
    monkeypatch.setattr(transactions, "BACKOFF_S_MAX", 0.001)

    def refuse(*_connecting: object) -> None:
        raise psycopg.OperationalError("connection refused")

    event.listen(world.engine, "do_connect", refuse)
    try:
        read = world.flows.list_flows(search="RETUR")
        assert [flow.spec.key.name for flow in read.flows] == ["returns"]
        assert read.age_s > 0
        assert world.flows.get(KEY).spec.key == KEY
        with pytest.raises(RetryableError):
            world.flows.create(world.person, make_config(name="new"))
        with pytest.raises(RetryableError):
            FlowWorld(world.engine).flows.get(KEY)
    finally:
        event.remove(world.engine, "do_connect", refuse)
    assert world.flows.list_flows().flows


def test_a_service_that_stops_waits_for_writes_under_way(world: FlowWorld) -> None:
    entered, release = threading.Event(), threading.Event()

    def hold(point: Failpoint) -> None:
        if point is Failpoint.FLOW_STORED:
            entered.set()
            release.wait(10)

    writer = threading.Thread(target=world.flows.create, args=(world.person, make_config()))
    with failpoints.install(hold):
        writer.start()
        assert entered.wait(10)
        assert not world.flows.writes.close(0.05)
        release.set()
        assert world.flows.writes.close(10)
    writer.join()
    assert world.flows.get(KEY).spec.key == KEY
    with pytest.raises(RetryableError, match="being stopped"):
        world.flows.run(world.person, KEY)


def test_what_waits_for_a_worker_that_was_drained_by_hand_is_sent(world: FlowWorld) -> None:
    world.compiler.workers = frozenset({0})
    world.flows.create(world.person, make_config("lake", "mirror"))
    claim = play_worker(world)
    world.executor.tickets.end(claim, AttemptEnd.COMPLETE, {"message": "drained"})
    world.monitor.look()
    world.play(rows=3)
    assert world.flows.get_status(KEY).status is ExecutionStatus.COMPLETE


def test_a_job_that_was_begun_when_the_worker_before_it_failed_is_sent_and_watched(world: FlowWorld) -> None:
    """Its sender died between the log and the mark: the log may have the ticket."""
    world.compiler.workers = frozenset({0})
    world.flows.create(world.person, make_config("lake", "mirror"))
    claim = play_worker(world)
    status = world.flows.get_status(KEY)
    job, ticket_id = JobOfExecution(status.execution_id, 1), TicketId(status.jobs[1].ticket_id)
    assert world.executions.begin_send(job, ticket_id, executor=EXECUTOR, log="") is SendTurn.NOW
    world.executor.tickets.end(claim, AttemptEnd.FAILED, {"message": "it broke"})
    world.monitor.look()
    assert world.flows.get_status(KEY).jobs[1].status is ExecutionStatus.PENDING
    # Another sender takes it a quarter of a second later.
    time.sleep(0.3)
    world.play(rows=3)
    status = world.flows.get_status(KEY)
    assert [job.status for job in status.jobs] == [ExecutionStatus.FAILED, ExecutionStatus.COMPLETE]
    assert status.status is ExecutionStatus.FAILED


def test_a_pause_drains_workers_and_a_resume_begins_them_behind_older_ones(world: FlowWorld) -> None:
    world.compiler.workers = frozenset({0})
    world.flows.create(world.person, make_config())
    claim = play_worker(world)
    world.flows.pause(KEY)
    for _number in range(2):
        with pytest.raises(ConflictError, match="is open: its workers have not ended"):
            world.flows.resume(KEY)
        assert world.flows.get(KEY).state is FlowState.PAUSED
        world.step()
    assert list_verbs(world.engine) == ["ADD", "CANCEL"]
    world.executor.tickets.end(claim, AttemptEnd.CANCELLED, {"message": "drained"})
    world.monitor.look()
    assert world.flows.get_status(KEY).status is ExecutionStatus.CANCELLED

    assert world.flows.resume(KEY).state is FlowState.ACTIVE
    world.step()
    assert list_verbs(world.engine) == ["ADD", "CANCEL", "UPDATE"]
    assert len(world.flows.list_executions(KEY)) == 2


@pytest.mark.parametrize("is_ended", [False, True], ids=["while it runs", "after its end"])
def test_a_deleted_flow_of_a_worker_leaves_nothing_at_its_source(world: FlowWorld, is_ended: bool) -> None:
    world.compiler.workers = frozenset({0})
    world.flows.create(world.person, make_config())
    claim = play_worker(world)
    if is_ended:
        world.executor.tickets.end(claim, AttemptEnd.FAILED, {"message": "it broke"})
        world.monitor.look()
    world.flows.delete(KEY)
    for _ in range(2):
        world.step()
    assert list_verbs(world.engine) == ["ADD", "DELETE"]


@pytest.mark.parametrize("text_of_it", ["2026-01-01\r", "x" * 2_001, "\ud800"])
def test_a_selection_that_no_ticket_may_have_is_refused_when_it_is_asked_for(world: FlowWorld, text_of_it: str) -> None:
    world.flows.create(world.person, make_config(run_immediately=False))
    with pytest.raises(RejectedError, match=r"selection\.partitions"):
        world.flows.run(world.person, KEY, TicketSelection(partitions=(text_of_it,)))
    assert world.flows.list_executions(KEY) == []


def test_a_stored_ticket_that_can_t_be_read_ends_its_own_job_and_holds_up_no_other(world: FlowWorld) -> None:
    names = ("selection", "ticket", "good")
    for name in names:
        world.flows.create(world.person, make_config(name=name))
    statuses = {name: world.flows.get_status(KEY._replace(name=name)) for name in names}
    with world.engine.begin() as connection:
        connection.execute(
            text("""
                UPDATE gobblin_service.flow_execution SET selection = '{"partitions": ["2026-01-01\\r"]}'
                 WHERE execution_id = :id
            """),
            {"id": statuses["selection"].execution_id},
        )
        connection.execute(
            text("""
                UPDATE gobblin_service.job_execution
                   SET ticket = CAST(CAST(ticket AS jsonb) || '{"description": "\\r"}' AS json)
                 WHERE execution_id = :id
            """),
            {"id": statuses["ticket"].execution_id},
        )
    world.step()
    found = {name: world.flows.get_execution(statuses[name].execution_id) for name in names}
    assert found["good"].status is ExecutionStatus.ORCHESTRATED
    for name in ("selection", "ticket"):
        assert found[name].status is ExecutionStatus.FAILED
        assert "no control characters" in found[name].message


def test_an_end_whose_ticket_can_t_be_read_holds_up_no_other(world: FlowWorld) -> None:
    world.compiler.workers = frozenset({0})
    for name in ("bad", "good"):
        world.flows.create(world.person, make_config(name=name))
    world.orchestrator.look()
    execution_id = world.flows.get_status(KEY._replace(name="bad")).execution_id
    with world.engine.begin() as connection:
        connection.execute(
            text("""
                UPDATE gobblin_service.job_execution
                   SET ticket = CAST(CAST(ticket AS jsonb) || '{"description": "\\r"}' AS json)
                 WHERE execution_id = :id
            """),
            {"id": execution_id},
        )
    for name in ("bad", "good"):
        world.flows.delete(KEY._replace(name=name))
    world.orchestrator.look()
    assert list_verbs(world.engine) == ["ADD", "ADD", "DELETE"]


def test_a_delete_while_a_cancel_is_sent_is_sent_too(world: FlowWorld) -> None:
    world.compiler.workers = frozenset({0})
    world.flows.create(world.person, make_config())
    play_worker(world)
    world.flows.cancel(KEY, world.flows.get_status(KEY).execution_id)
    deleted = []

    def delete(point: Failpoint) -> None:
        """The flow is deleted between the send of its CANCEL and the mark that it was sent."""
        if point is Failpoint.TICKET_SENT and not deleted:
            deleted.append(FlowWorld(world.engine).flows.delete(KEY))

    with failpoints.install(delete):
        world.orchestrator.look()
    assert deleted == [True]
    world.orchestrator.look()
    assert list_verbs(world.engine) == ["ADD", "CANCEL", "DELETE"]


def test_a_replanned_flow_of_a_worker_leaves_nothing_of_the_old_name_at_its_source(world: FlowWorld) -> None:
    world.compiler.workers = frozenset({0})
    world.flows.create(world.person, make_config())
    world.executor.tickets.end(play_worker(world), AttemptEnd.FAILED, {"message": "it broke"})
    world.monitor.look()
    (before,) = world.flows.list_jobs(KEY)
    world.flows.replan(world.person, KEY)
    world.orchestrator.look()
    claimed = world.executor.claim()
    assert claimed is not None
    assert (claimed[1].verb, claimed[1].get_job_ticket().job_name) == ("DELETE", before.job_name)
    world.executor.run(claimed[0])

    world.flows.run(world.person, KEY)
    world.orchestrator.look()
    assert list_verbs(world.engine) == ["ADD", "DELETE", "ADD"]
