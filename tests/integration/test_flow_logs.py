"""Flows whose logs are away or are others, and whose executors are gone."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import ProgrammingError

from gobblin_assets.errors import RetryableError
from gobblin_assets.model.executor_heartbeat import SILENT_AFTER_S, ExecutorPhase
from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.service import executor_health, launcher, orchestrator
from gobblin_assets.service.executor_health import ExecutorHealths, HealthState
from gobblin_assets.service.executor_watch import SentJobWatch
from gobblin_assets.service.flow_manager import FlowManager
from gobblin_assets.service.job_plan import Explanation, JobNames, PlannedJob
from gobblin_assets.service.launcher import Launcher
from gobblin_assets.service.monitor import Monitor
from gobblin_assets.service.orchestrator import Orchestrator
from gobblin_assets.service.placement import JobPlacement
from gobblin_assets.service.postgres.logs import LogWire, PostgresTicketLogs
from gobblin_assets.service.specs import FlowSpec
from gobblin_assets.service.statuses import ExecutionStatus
from gobblin_assets.service.topology import Topology
from gobblin_assets.state.tickets import AttemptEnd
from tests.support.flow_world import (
    EXECUTOR,
    KEY,
    OTHER_EXECUTOR,
    FlowWorld,
    LineCompiler,
    PlayedExecutor,
    list_verbs,
    make_config,
    make_topology,
)

pytestmark = pytest.mark.service_schema

WAIT_S_MAX = 150.0


@pytest.fixture
def world(engine: Engine) -> FlowWorld:
    return FlowWorld(engine)


class EdgeLogs:
    """The log "edge", which may be away, beside the service's own: both in one database. ``asked``: their names.

    ``answers``: not before it is set.
    """

    def __init__(self, engine: Engine) -> None:
        self.is_away = False
        self.answers = threading.Event()
        self.answers.set()
        self.asked: list[str] = []
        self.error: Exception = RetryableError("the log is away", passes=True)
        self._store = LogWire(engine)

    def get_store(self, log: str) -> LogWire:
        self.asked.append(log)
        if log == "edge":
            assert self.answers.wait(WAIT_S_MAX)
        if log == "edge" and self.is_away:
            raise self.error
        return self._store

    def get_log_id(self, log: str) -> LogId:
        return self.get_store(log).find_log_id()


class WireNobodyReads:
    """Ways that all lead to the service's own log. That of messages withdraws nothing before it ``is_read``."""

    def __init__(self, engine: Engine) -> None:
        self.is_read = False
        self._store = LogWire(engine)

    def get_store(self, way: str) -> Any:
        return self._store if way == "" or self.is_read else UnreadWire(self._store)

    def get_log_id(self, way: str) -> LogId:
        found: LogId = self.get_store(way).find_log_id()
        return found


@dataclass
class UnreadWire:
    """A way whose tickets arrive, and whose wishes nobody hears any more."""

    store: LogWire

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def end_unclaimed(self, _ticket_id: object, _message: str, **_more: object) -> bool:
        return False


@dataclass
class EdgeWorld:
    """A node with an executor of its own log, ``here``, and one with an executor of the log "edge"."""

    here: FlowWorld
    edge: FlowWorld
    logs: EdgeLogs
    orchestrator: Orchestrator
    monitor: Monitor

    def list_statuses(self, *names: str) -> list[ExecutionStatus]:
        return [self.here.flows.get_status(KEY._replace(name=name)).status for name in names]


@pytest.fixture
def edge_world(world: FlowWorld) -> EdgeWorld:
    logs = EdgeLogs(world.engine)
    edge = FlowWorld(world.engine, LineCompiler(make_topology("shop", "lake", log="edge")))
    edge.flows = FlowManager(edge.catalog, edge.store, edge.compiler, lambda: edge.compiler.topology, logs)
    healths = ExecutorHealths(lambda: world.compiler.topology, logs)
    healths.look()
    placement = JobPlacement(lambda: world.compiler.topology, healths.get)
    orchestrator = Orchestrator(world.executions, logs, placement)
    return EdgeWorld(world, edge, logs, orchestrator, Monitor(world.executions, logs))


def test_a_log_that_is_away_is_asked_once_a_look_and_holds_up_no_other(
    edge_world: EdgeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orchestrator, "TICKETS_AT_ONCE_MAX", 2)
    names = [f"edge{number}" for number in range(5)]
    for name in names:
        edge_world.edge.flows.create(edge_world.edge.person, make_config(name=name))
    edge_world.here.flows.create(edge_world.here.person, make_config(name="own"))
    edge_world.logs.is_away = True
    edge_world.logs.asked.clear()
    assert edge_world.orchestrator.look() == 1
    assert edge_world.list_statuses("own") == [ExecutionStatus.ORCHESTRATED]
    assert edge_world.logs.asked.count("edge") == 1

    edge_world.here.flows.create(edge_world.here.person, make_config(name="next"))
    edge_world.logs.asked.clear()
    assert edge_world.orchestrator.look() == 1
    assert "edge" not in edge_world.logs.asked, "what is known to be away delays nothing"
    edge_world.logs.is_away = False

    def is_sent() -> bool:
        edge_world.orchestrator.look()
        return edge_world.list_statuses(*names) == [ExecutionStatus.ORCHESTRATED] * 5

    await_so(is_sent)


def test_a_log_that_does_not_answer_for_long_delays_no_look(edge_world: EdgeWorld) -> None:
    edge_world.edge.flows.create(edge_world.edge.person, make_config(name="edge"))
    edge_world.logs.is_away = True
    assert edge_world.orchestrator.look() == 0
    edge_world.logs.answers.clear()
    edge_world.logs.asked.clear()
    # Somebody asks whether it answers again, and waits for that.
    await_so(lambda: edge_world.orchestrator.look() == 0 and "edge" in edge_world.logs.asked)
    edge_world.here.flows.create(edge_world.here.person, make_config(name="own"))
    assert edge_world.orchestrator.look() == 1
    edge_world.logs.is_away = False
    edge_world.logs.answers.set()
    await_so(lambda: edge_world.orchestrator.look() == 1)


def test_a_log_that_refuses_the_service_s_role_holds_up_no_other(edge_world: EdgeWorld) -> None:
    here, edge = edge_world.here, edge_world.edge
    for world, name in ((edge, "edge"), (here, "own")):
        world.flows.create(world.person, make_config(name=name))
    healths = ExecutorHealths(make_both, edge_world.logs)
    here.beat()
    edge_world.logs.error = ProgrammingError("SELECT", None, psycopg.errors.InsufficientPrivilege("permission denied"))
    edge_world.logs.is_away = True
    healths.look()
    assert healths.get(EXECUTOR).state is HealthState.HEALTHY
    assert edge_world.orchestrator.look() == 1
    edge_world.logs.is_away = False
    await_so(lambda: edge_world.orchestrator.look() == 1)
    edge_world.logs.is_away = True
    assert here.executor.run_all() == 2
    assert edge_world.monitor.look() == 1
    assert edge_world.list_statuses("edge", "own") == [ExecutionStatus.ORCHESTRATED, ExecutionStatus.COMPLETE]


def await_so(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S_MAX
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_an_end_that_another_log_refuses_holds_up_no_other_and_is_told_once(
    world: FlowWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(orchestrator, "TICKETS_AT_ONCE_MAX", 1)
    world.compiler.workers = frozenset({0})
    for name in ("lost", "good"):
        world.flows.create(world.person, make_config(name=name))
        world.orchestrator.look()
    with world.engine.begin() as connection:
        connection.execute(
            text("""
                UPDATE gobblin_service.flow_job SET log_id = gen_random_uuid()
                 WHERE flow_id = (SELECT flow_id FROM gobblin_service.flow WHERE flow_name = 'lost')
            """)
        )
    for name in ("lost", "good"):
        world.flows.delete(KEY._replace(name=name))
    for _number in range(3):
        world.orchestrator.look()
    assert list_verbs(world.engine) == ["ADD", "ADD", "DELETE"]
    assert [each.levelname for each in caplog.records if "waits" in each.getMessage()] == ["WARNING"]


def test_reports_of_a_log_that_is_away_are_asked_for_once_it_answers(edge_world: EdgeWorld) -> None:
    for each, name in ((edge_world.edge, "edge"), (edge_world.here, "own")):
        each.flows.create(each.person, make_config(name=name))
    edge_world.orchestrator.look()
    edge_world.logs.is_away = True
    edge_world.logs.asked.clear()
    for _number in range(2):
        edge_world.monitor.look()
    assert edge_world.logs.asked[:2] == ["edge", ""]
    assert edge_world.logs.asked.count("") == 2
    edge_world.logs.is_away = False
    assert edge_world.here.executor.run_all() == 2
    moved: list[int] = []

    def is_read() -> bool:
        moved.append(edge_world.monitor.look())
        return sum(moved) == 2

    await_so(is_read)


def test_a_log_elsewhere_that_is_away_is_given_up_after_two_tries(world: FlowWorld) -> None:
    elsewhere = create_engine(world.engine.url)
    tries: list[object] = []

    def refuse(*connecting: object) -> None:
        tries.append(connecting)
        raise psycopg.OperationalError("connection refused")

    event.listen(elsewhere, "do_connect", refuse)
    logs = PostgresTicketLogs(world.engine, {"GOBBLIN_LOG_EDGE_URL": "postgresql://edge/log"}, lambda _url: elsewhere)
    with pytest.raises(RetryableError):
        logs.get_log_id("edge")
    assert len(tries) == 2
    assert logs.get_log_id("") == world.logs.get_log_id("")
    logs.close()


@pytest.mark.parametrize("is_claimed", [False, True], ids=["before it was claimed", "with a claim that expires"])
def test_an_execution_of_an_executor_that_is_gone_can_be_ended(world: FlowWorld, is_claimed: bool) -> None:
    world.flows.create(world.person, make_config())
    world.orchestrator.look()
    claimed = world.executor.claim() if is_claimed else None
    assert is_claimed == (claimed is not None)
    execution_id = world.flows.get_status(KEY).execution_id
    world.flows.cancel(KEY, execution_id)
    world.step()
    if is_claimed:
        assert world.flows.get_execution(execution_id).status is ExecutionStatus.ORCHESTRATED
        with world.engine.begin() as connection:
            connection.execute(text("UPDATE gobblin.ticket_claim SET expires_at = clock_timestamp()"))
        world.step()
    assert world.flows.get_execution(execution_id).status is ExecutionStatus.CANCELLED
    world.flows.run(world.person, KEY)
    assert world.play() == 1


@dataclass
class SearchingCompiler(LineCompiler):
    """Asks of each bound hop whether the log "edge" is allowed, as a search does. ``found``: the answers."""

    found: list[bool] = field(default_factory=list)

    def compile_flow(self, spec: FlowSpec, names: JobNames, groups: frozenset[str]) -> Explanation:
        self.found += [hop.allows_log("edge") for hop in names.list_bound_hops().values()]
        return super().compile_flow(spec, names, groups)


def test_a_search_takes_a_log_that_is_away_for_what_it_was_and_a_plan_without_it_runs(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config())
    assert world.play() == 1
    logs, compiler = EdgeLogs(world.engine), SearchingCompiler(world.compiler.topology)
    flows = FlowManager(world.catalog, world.store, compiler, lambda: compiler.topology, logs)
    logs.is_away = True
    with pytest.raises(RetryableError):
        flows.run(world.person, KEY)
    logs.is_away = False

    def is_run() -> bool:
        with suppress(RetryableError):
            return flows.run(world.person, KEY).ended_at is None
        return False

    await_so(is_run)
    assert world.play() == 1
    logs.is_away = True
    flows.run(world.person, KEY)
    assert world.play() == 1
    assert compiler.found == [True, True]


@dataclass
class CompilerByName(LineCompiler):
    """Flows go to the executor that their names begin with."""

    def _plan(self, number: int, source: str, target: str, name: str, spec: FlowSpec) -> PlannedJob:
        planned = super()._plan(number, source, target, name, spec)
        return replace(planned, executor="edge" if spec.config.flow_name.startswith("edge") else EXECUTOR)


def make_both() -> Topology:
    """An executor of the log "edge", and behind it one of the service's own."""
    here = make_topology("shop", "lake")
    edge = make_topology("shop", "lake", executors=("edge",), log="edge")
    return replace(here, executors={**edge.executors, **here.executors})


def fire(world: FlowWorld, *names: str) -> None:
    """Each flow has an execution that nobody has launched, the first the oldest one."""
    for name in names:
        world.flows.create(world.person, make_config(name=name, schedule="0 0 1 1 *"))
        with world.engine.begin() as connection:
            due = "UPDATE gobblin_service.flow SET next_fire_at = now(), due_at = now() WHERE flow_name = :name"
            connection.execute(text(due), {"name": name})
        assert world.scheduler.look() == 1


def test_executions_for_a_log_that_is_away_hold_up_no_launch_of_others(
    world: FlowWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "EXECUTIONS_AT_ONCE_MAX", 2)
    compiler = CompilerByName(make_both())
    logs = EdgeLogs(world.engine)
    flows = FlowManager(world.catalog, world.store, compiler, lambda: compiler.topology, logs)
    launching = Launcher(world.schedules, world.store, flows.compiling, flows.writes, lambda _name: 50)
    fire(world, "edge1", "edge2", "edge3", "own1")
    logs.is_away = True
    assert launching.look() == 1
    assert logs.asked.count("edge") == 1, "each of them waits for the log"
    fire(world, "own2")
    world.schedules.wake_pending()
    [first] = world.schedules.take_pending(limit=1, full=(), hold_s=9.0)
    assert first.flow.spec.key.name == "own2", "one that failed is tried before one that was not"


def test_of_executions_that_wait_for_an_executor_the_oldest_stays_the_first(world: FlowWorld) -> None:
    fire(world, "one", "two")
    held = world.schedules.take_pending(limit=2, full=(), hold_s=9.0)
    for pending in reversed(held):
        world.schedules.hold_pending(pending.execution_id, "it is full", wait_s=0.0, waits_for=EXECUTOR)
    [first] = world.schedules.take_pending(limit=1, full=(), hold_s=9.0)
    assert first.flow.spec.key.name == "one"


def test_a_change_of_the_topology_lets_what_waits_for_an_executor_be_tried_again(world: FlowWorld) -> None:
    take = partial(world.schedules.take_pending, limit=9, full=[EXECUTOR], hold_s=9.0)
    world.flows.create(world.person, make_config(name="busy"))
    fire(world, "one")
    [pending] = take()
    world.schedules.hold_pending(pending.execution_id, "it is full", wait_s=0.0, waits_for=EXECUTOR)
    assert not take()
    world.schedules.wake_pending()
    assert len(take()) == 1


def spoil(world: FlowWorld, name: str) -> None:
    """The flow's config is one that this release can't read."""
    query = """
        UPDATE gobblin_service.flow_version SET config = config || '{"retries": "s3cret"}'
         WHERE flow_id = (SELECT flow_id FROM gobblin_service.flow WHERE flow_name = :name)
    """
    with world.engine.begin() as connection:
        connection.execute(text(query), {"name": name})


def test_an_execution_of_a_flow_that_can_t_be_read_holds_up_no_launch_and_is_told_once(
    world: FlowWorld, caplog: pytest.LogCaptureFixture
) -> None:
    fire(world, "broken", "good")
    spoil(world, "broken")
    assert world.launcher.look() == 1
    world.launcher.wake()
    assert world.launcher.look() == 0
    assert [each.levelname for each in caplog.records if "is not launched here" in each.getMessage()] == ["WARNING"]
    assert "s3cret" not in caplog.text


def test_reports_of_a_flow_that_can_t_be_read_hold_up_no_other(
    world: FlowWorld, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("complete", "failed", "good")
    for name in names:
        world.flows.create(world.person, make_config(name=name))
    world.orchestrator.look()
    for end in (AttemptEnd.COMPLETE, AttemptEnd.FAILED, AttemptEnd.FAILED):
        claimed = world.executor.claim()
        assert claimed is not None
        world.executor.run(claimed[0], end=end)
    for name in names[:2]:
        spoil(world, name)
    for _number in range(2):
        world.monitor.look()
    found = [world.flows.get_status(KEY._replace(name=name)).status for name in names]
    # What has failed is left to whoever can read what follows.
    assert found == [ExecutionStatus.COMPLETE, ExecutionStatus.ORCHESTRATED, ExecutionStatus.FAILED]
    assert sum("are not taken" in each.getMessage() for each in caplog.records) == 1


def test_a_log_that_hangs_keeps_nobody_from_hearing_the_executors_of_others(
    world: FlowWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_health, "LOOK_WAIT_S_MAX", 1.0)
    topology, logs = make_both(), EdgeLogs(world.engine)
    healths = ExecutorHealths(lambda: topology, logs)
    world.beat()
    logs.answers.clear()
    for _number in range(2):
        healths.look()
        assert healths.get(EXECUTOR).state is HealthState.HEALTHY
    world.beat(phase=ExecutorPhase.DRAINING)
    healths.look()
    assert healths.get(EXECUTOR).state is HealthState.DRAINING
    world.beat("edge")
    logs.answers.set()
    await_so(lambda: healths.get("edge").state is HealthState.HEALTHY)


def test_jobs_that_can_t_be_withdrawn_over_a_way_that_is_away_do_not_each_wait_for_it(edge_world: EdgeWorld) -> None:
    here, names = edge_world.here, ["edge1", "edge2", "edge3"]
    here.compiler.on_topology(make_topology("shop", "lake", executors=(EXECUTOR, OTHER_EXECUTOR)))
    for name in names:
        edge_world.edge.flows.create(edge_world.edge.person, make_config(name=name))
    assert edge_world.orchestrator.look() == 3
    here.beat(OTHER_EXECUTOR)
    here.beat(phase=ExecutorPhase.ENDED)
    watch = SentJobWatch(
        here.executions, edge_world.logs, JobPlacement(lambda: here.compiler.topology, here.healths.get)
    )
    edge_world.logs.is_away = True
    edge_world.logs.asked.clear()
    assert watch.look() == 0
    assert edge_world.logs.asked == ["edge"]
    edge_world.logs.is_away = False
    withdrawn: list[int] = []

    def is_withdrawn() -> bool:
        withdrawn.append(watch.look())
        return sum(withdrawn) == 3

    await_so(is_withdrawn)


def test_a_job_whose_ticket_only_a_wire_can_withdraw_says_which_one_it_waits_for(world: FlowWorld) -> None:
    """A way whose executor is gone answers nothing, or takes the wish and is not read by anybody."""
    made = make_topology("shop", "lake", executors=(EXECUTOR, OTHER_EXECUTOR))
    wired = replace(made.executors[EXECUTOR].executor, communication="kafka", location="main")
    specs = {**made.executors, EXECUTOR: replace(made.executors[EXECUTOR], executor=wired)}
    world.compiler.on_topology(replace(made, executors=specs))
    logs: Any = WireNobodyReads(world.engine)
    world.logs = logs
    flows = FlowManager(world.catalog, world.store, world.compiler, lambda: world.compiler.topology, logs)
    world.healths = ExecutorHealths(lambda: world.compiler.topology, logs)
    placement = JobPlacement(lambda: world.compiler.topology, world.healths.get)
    watch, sender = SentJobWatch(world.executions, logs, placement), Orchestrator(world.executions, logs, placement)
    world.beat()
    world.beat(OTHER_EXECUTOR)
    flows.create(world.person, make_config())
    assert sender.look() == 1
    world.beat(phase=ExecutorPhase.ENDED)
    for is_read in (False, True):
        logs.is_read = is_read
        assert watch.look() == is_read
        (job,) = world.flows.get_status(KEY).jobs
        assert f"start `executor wire --name {EXECUTOR}` on its log" in job.message
    Monitor(world.executions, logs).look()
    assert sender.look() == 1
    assert PlayedExecutor(world.engine, OTHER_EXECUTOR).claim() is not None
    assert world.flows.get_status(KEY).jobs[0].job_group == OTHER_EXECUTOR


def test_a_node_that_has_just_begun_sends_nothing_before_it_has_asked_for_heartbeats(world: FlowWorld) -> None:
    world.flows.create(world.person, make_config(name="begun"))
    world.orchestrator.look()
    logs, now_s = EdgeLogs(world.engine), [0.0]
    healths = ExecutorHealths(lambda: world.compiler.topology, logs, lambda: now_s[0])
    placement = JobPlacement(lambda: world.compiler.topology, healths.get)
    sender = Orchestrator(world.executions, logs, placement)
    with world.engine.begin() as connection:
        # As left by a node that died before it marked its ticket as sent.
        unmarked = "UPDATE gobblin_service.job_execution SET status = 'COMPILED', sent_at = NULL, send_at = NULL"
        connection.execute(text(unmarked))
    world.flows.create(world.person, make_config(name="new"))
    assert (healths.get(EXECUTOR).is_read, healths.get(EXECUTOR).inbox_max) == (False, 0)
    assert sender.look() == 1, "what was begun is sent again"
    assert sender.look() == 0
    healths.look()
    assert (healths.get(EXECUTOR).is_read, healths.get(EXECUTOR).inbox_max) == (True, None)
    assert sender.look() == 1


def test_an_executor_whose_heartbeats_can_t_be_read_is_lost_once_it_would_be_silent(world: FlowWorld) -> None:
    topology, logs, now_s = make_both(), EdgeLogs(world.engine), [0.0]
    healths = ExecutorHealths(lambda: topology, logs, lambda: now_s[0])
    logs.is_away = True
    healths.look()
    unread = healths.get("edge")
    assert (unread.state, unread.inbox_max, unread.is_read) == (HealthState.UNKNOWN, 0, False)
    assert healths.get(EXECUTOR).is_read
    now_s[0] = SILENT_AFTER_S + 1
    lost = healths.get("edge")
    assert (lost.state, lost.inbox_max, lost.is_read) == (HealthState.UNHEALTHY, 0, False)
    assert "could not be read for 31 s" in lost.reason
