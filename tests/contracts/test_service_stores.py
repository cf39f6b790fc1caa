"""The service's stores and its log, in Postgres and in memory: the same acts have the same outcome.

The simulated world of the service (``tests/simulation/service_world.py``) proves what it does as far as its stores are
like those of Postgres. Random scripts of people, nodes and executors are carried out over both, and after each act both
say the same of flows, executions, jobs, slots and tickets.
"""

import datetime as dt
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.errors import ErrorFamily, GobblinError
from gobblin_assets.model.executor_heartbeat import ExecutorHeartbeat, ExecutorPhase
from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.service.executor_health import ExecutorHealths
from gobblin_assets.service.executor_watch import SentJobWatch
from gobblin_assets.service.flow_catalog import FlowCatalog
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_manager import FlowManager
from gobblin_assets.service.launcher import Launcher
from gobblin_assets.service.monitor import Monitor
from gobblin_assets.service.orchestrator import Orchestrator
from gobblin_assets.service.placement import JobPlacement
from gobblin_assets.service.scheduler import Scheduler
from gobblin_assets.state.tickets import AttemptEnd, Claim, TicketReportKind
from tests.simulation.service_flows import FakeFlowStore
from tests.simulation.service_log import FakeLog
from tests.simulation.service_stores import FakeExecutionStore, FakeScheduleStore
from tests.simulation.service_tables import ServiceTables
from tests.support.flow_world import (
    DAILY,
    EXECUTOR,
    HOUR,
    KEY,
    OTHER_EXECUTOR,
    FlowWorld,
    LineCompiler,
    PlayedExecutor,
    last_slot,
    make_config,
    make_topology,
)

pytestmark = pytest.mark.service_schema

SCRIPTS = 96
ACTS = 28
_DIGEST = re.compile(r"_[0-9a-f]{10}\b")

_PASSES = {"message": "the source is away", "hint": "", "family": ErrorFamily.RETRYABLE.value}
_BUSY = {"message": "others work on it", "hint": "", "family": ErrorFamily.CONFLICT.value, "busy": True}


@dataclass
class Told:
    """A world as the acts of a script go to it. ``held``: claims that live. ``go_back`` makes slots due."""

    world: FlowWorld
    go_back: Callable[[int], None]
    view: Callable[[], object]
    held: list[Claim] = field(default_factory=list)


class OneLog:
    """``TicketLogs`` of a log in memory."""

    def __init__(self, log: FakeLog) -> None:
        self._log = log

    def get_store(self, _way: str) -> Any:
        return self._log

    def get_log_id(self, _way: str) -> LogId:
        return self._log.log_id


class FakeFlowWorld(FlowWorld):
    """The same node of the service over stores in memory. ``at``: what the clock says."""

    at: dt.datetime = dt.datetime.now(dt.UTC)

    def __post_init__(self) -> None:
        self.tables = ServiceTables(lambda: self.at, random.Random(0))
        self.log = FakeLog("", lambda: self.at)
        logs: Any = OneLog(self.log)
        store: Any = FakeFlowStore(self.tables)
        executions: Any = FakeExecutionStore(self.tables)
        schedules: Any = FakeScheduleStore(self.tables)
        self.catalog = FlowCatalog(store)
        compiler: Any = self.compiler
        self.flows = FlowManager(self.catalog, store, compiler, lambda: self.compiler.topology, logs)
        self.healths = ExecutorHealths(lambda: self.compiler.topology, logs)
        self.healths.look()
        placement = JobPlacement(lambda: self.compiler.topology, self.healths.get)
        self.orchestrator = Orchestrator(executions, logs, placement)
        self.watch = SentJobWatch(executions, logs, placement)
        self.monitor = Monitor(executions, logs)
        self.scheduler = Scheduler(schedules)
        self.launcher = Launcher(schedules, store, self.flows.compiling, self.flows.writes, placement.find_given_max)
        self.executor = PlayedExecutor(self.engine)
        tickets: Any = self.log
        self.executor.tickets = tickets

    def beat(self, name: str = EXECUTOR, phase: ExecutorPhase = ExecutorPhase.WORKING, *, slots: int = 10) -> None:
        does = frozenset({"ingest.jdbc"})
        self.log.beat(ExecutorHeartbeat(name, f"{name}'s process", self.log.log_id, "1", slots, does, phase=phase))
        self.healths.look()


def _act(told: Told, act: str, drawn: int, config: FlowConfig) -> str:
    """What came of it: the family of a refusal, or a count."""
    try:
        return str(_carry_out(told, act, drawn, config))
    except GobblinError as error:
        return type(error).__name__


def _carry_out(told: Told, act: str, drawn: int, config: FlowConfig) -> object:
    world, flows, user = told.world, told.world.flows, told.world.person
    last = (flows.list_executions(KEY, limit=1) or [None])[0]  # type: ignore[list-item]  # none is one of them
    match act:
        case "create":
            return bool(flows.create(user, config))
        case "change":
            changed = config.model_copy(update={"parameters": {"n": drawn}, "description": str(drawn)})
            return flows.update(user, changed).spec.version
        case "reschedule" if config.schedule.endswith("*"):
            return flows.update(
                user, config.model_copy(update={"schedule": f"0 {HOUR} */{drawn % 5 + 1} * *"})
            ).spec.version
        case "pause":
            return flows.pause(KEY).state
        case "resume":
            return flows.resume(KEY).state
        case "run":
            return flows.run(user, KEY).status
        case "delete" if drawn % 3 == 0:
            return flows.delete(KEY)
        case "cancel" if last is not None:
            return flows.cancel(KEY, last.execution_id).status
        case "resume execution" if last is not None:
            return flows.resume_execution(user, KEY, last.execution_id).status
        case "fire":
            told.go_back(drawn % 4)
            return world.scheduler.look()
        case "look":
            return world.scheduler.look(), flows.restart_drained()
        case "launch":
            world.launcher.wake()
            return world.launcher.look()
        case "send":
            return world.orchestrator.look()
        case "read":
            return world.monitor.look()
        case "move":
            world.beat(OTHER_EXECUTOR)
            world.beat(phase=ExecutorPhase.ENDED)
            return world.watch.look()
        case "hear":
            world.beat()
            world.beat(OTHER_EXECUTOR)
            return world.watch.look()
        case _:
            return _work(told, act, drawn)


def _work(told: Told, act: str, drawn: int) -> object:
    """What an executor does."""
    executor = told.world.executor
    if act == "claim":
        executor.name = (EXECUTOR, OTHER_EXECUTOR)[drawn % 2]
        claimed = executor.claim()
        if claimed is None:
            return None
        told.held.append(claimed[0])
        executor.report(claimed[0], TicketReportKind.RUNNING, {})
        return (
            claimed[0].attempt,
            claimed[1].verb,
            len(claimed[1].earlier),
            executor.tickets.supersede(claimed[0].ticket_id),
        )
    if not told.held:
        return None
    claim = told.held[-1]
    if act == "publish":
        executor.publish(claim, rows=1 + drawn % 5, watermarks={"id": ("0", str(drawn))})
        return None
    told.held.pop()
    ends: list[tuple[AttemptEnd, dict[str, Any]]] = [
        (AttemptEnd.COMPLETE, {}),
        (AttemptEnd.COMPLETE, {}),
        (AttemptEnd.FAILED, _PASSES),
        (AttemptEnd.FAILED, _BUSY),
        (AttemptEnd.FAILED, {"message": "refused", "family": ErrorFamily.REJECTED.value}),
        (AttemptEnd.DRAINED, {"message": "drained"}),
        (AttemptEnd.CANCELLED, {"message": "cancelled"}),
    ]
    end, details = ends[drawn % len(ends)]
    return executor.tickets.end(claim, end, details)


def _unname(message: str) -> str:
    """Without the digest in a job's name, which is of the flow's id."""
    return _DIGEST.sub("", message)


def _show_flow(world: FlowWorld) -> object:
    flow = world.flows.list_executions(KEY)
    return [
        (
            status.status.value,
            _unname(status.message),
            status.flow_version,
            [(j.status.value, j.attempt, _unname(j.message), j.job_group, j.processed_count) for j in status.jobs],
        )
        for status in flow
    ]


def _tell_postgres(engine: Engine, compiler: LineCompiler) -> Told:
    world = FlowWorld(engine, compiler)

    def go_back(days: int) -> None:
        at = last_slot(dt.datetime.now(dt.UTC)) - dt.timedelta(days=days)
        with engine.begin() as connection:
            query = "UPDATE gobblin_service.flow SET next_fire_at = :at, due_at = :at WHERE next_fire_at IS NOT NULL"
            connection.execute(text(query), {"at": at})

    def view() -> object:
        with engine.connect() as connection:
            slots = (
                "SELECT state, count, reason, execution_id IS NOT NULL FROM gobblin_service.flow_slot ORDER BY slot_at"
            )
            tickets = "SELECT verb, executor, ended_as FROM gobblin.job_ticket ORDER BY sent_at"
            flows = "SELECT state, version, restarts FROM gobblin_service.flow ORDER BY created_at"
            found = [[tuple(row) for row in connection.execute(text(each))] for each in (flows, slots, tickets)]
        return found, _show_flow(world)

    return Told(world, go_back, view)


def _tell_memory(compiler: LineCompiler) -> tuple[Told, FakeFlowWorld]:
    nowhere: Any = None
    world = FakeFlowWorld(nowhere, compiler)

    def go_back(days: int) -> None:
        for flow in world.tables.flows.values():
            if flow.next_fire_at is not None:
                flow.next_fire_at = last_slot(world.at) - dt.timedelta(days=days)
                flow.due_at = flow.next_fire_at

    def view() -> object:
        slots = sorted(world.tables.slots.values(), key=lambda slot: slot.at)
        flows = [(flow.state.value, flow.version, flow.restarts) for flow in world.tables.flows.values()]
        told = [(slot.state.value, slot.count, slot.reason, slot.execution_id is not None) for slot in slots]
        rows = world.log.tickets.values()
        tickets = [(row.sent.verb.value, row.sent.executor, row.ended_as and row.ended_as.value) for row in rows]
        return [flows, told, tickets], _show_flow(world)

    return Told(world, go_back, view), world


_WORK = ("claim", "publish", "end", "send", "read", "launch", "send", "claim", "read", "end")
_OTHERS = ("change", "reschedule", "pause", "resume", "run", "delete", "create", "cancel", "resume execution")
_TIME = ("fire", "look", "move", "hear", "fire")


def _draw_config(chance: random.Random, *, is_worker: bool) -> FlowConfig:
    options: dict[str, Any] = {
        "overlap": chance.choice(("skip", "queue", "allow")),
        "catch_up": chance.choice(("latest", "all", "none")),
        "catch_up_max": chance.choice((2, 100)),
        "retries": chance.choice((0, 2)),
        "retry_wait": "0s",
        "failure_option": chance.choice(("FINISH_RUNNING", "FINISH_ALL_POSSIBLE")),
    }
    schedule = "@continuous" if is_worker else chance.choice((DAILY, DAILY, ""))
    return make_config(*chance.choice((("lake",), ("lake", "mirror"))), schedule=schedule, **options)


def _compare(engine: Engine, seed: int) -> None:
    chance = random.Random(seed)
    is_worker = chance.random() < 0.3
    workers = frozenset({0}) if is_worker else frozenset[int]()
    topology = make_topology("shop", "lake", "mirror", executors=(EXECUTOR, OTHER_EXECUTOR))
    config = _draw_config(chance, is_worker=is_worker)
    real = _tell_postgres(engine, LineCompiler(topology, workers=workers))
    fake, world = _tell_memory(LineCompiler(topology, workers=workers))
    done = []
    for number in range(ACTS):
        act = "create" if number == 0 else chance.choice(chance.choice((_WORK, _WORK, _WORK, _TIME, _OTHERS)))
        drawn = chance.randrange(1_000)
        with engine.connect() as connection:
            world.at = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        done.append(f"{act} {drawn}")
        outcomes = _act(real, act, drawn, config), _act(fake, act, drawn, config)
        assert outcomes[0] == outcomes[1], f"script {seed}: {done}"
        assert real.view() == fake.view(), f"script {seed}: {done}"


@pytest.mark.parametrize("seed", range(2))
def test_a_few_scripts_have_one_outcome_in_postgres_and_in_memory(engine: Engine, seed: int) -> None:
    _compare(engine, seed)


@pytest.mark.rare
@pytest.mark.parametrize("seed", range(2, SCRIPTS))
def test_scripts_have_one_outcome_in_postgres_and_in_memory(engine: Engine, seed: int) -> None:
    _compare(engine, seed)
