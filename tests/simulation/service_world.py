"""A simulated world of the service: the real scheduler, launcher, orchestrator, watch, monitor and manager of flows.

Their stores, the logs and the executors are fakes over one clock. Any call of a store may be lost, have its answer
lost, be made twice, be the last one of its node, or come after a long pause in which others go on.
"""

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeVar

from gobblin_assets.errors import GobblinError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.model.executor_heartbeat import ExecutorPhase
from gobblin_assets.model.job_ticket import LogId, TicketShape
from gobblin_assets.service.away_logs import AwayLogs
from gobblin_assets.service.executor_health import ExecutorHealths
from gobblin_assets.service.executor_watch import SentJobWatch
from gobblin_assets.service.flow_catalog import FlowCatalog
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_manager import FlowManager
from gobblin_assets.service.job_plan import Explanation, FlowPlan, JobNames, PendingFlow
from gobblin_assets.service.launcher import Launcher
from gobblin_assets.service.monitor import Monitor
from gobblin_assets.service.orchestrator import Orchestrator
from gobblin_assets.service.placement import JobPlacement
from gobblin_assets.service.scheduler import Scheduler
from gobblin_assets.service.spec_executors.wired_executor import WayCalls
from gobblin_assets.service.specs import FlowKey, FlowSpec
from gobblin_assets.service.topology import Topology
from gobblin_assets.tickets.kafka_wire import KafkaWire
from tests.simulation.service_executor import WINDOW_S, FakeExecutor, Mishaps
from tests.simulation.service_flows import FakeFlowStore
from tests.simulation.service_log import FakeLog
from tests.simulation.service_stores import FakeExecutionStore, FakeScheduleStore
from tests.simulation.service_tables import ServiceTables
from tests.simulation.service_wire import (
    FakeTopics,
    FakeWireBook,
    FakeWireStore,
    WireFaults,
    carry_reports,
    carry_tickets,
    open_executor_end,
    open_service_end,
)
from tests.support.flow_world import LineCompiler, Person, make_config, make_topology

T = TypeVar("T")

BEGUN_AT: Final = dt.datetime(2026, 3, 1, 12, 3, tzinfo=dt.UTC)
LOGS: Final[Mapping[str, str]] = {"a": "", "b": "", "c": "second", "d": "second"}
"""The logs of the executors, by their names."""

WIRED: Final = "d"
"""The executor that is reached by topics, and not by its log."""

WIRE: Final = f"kafka:{WIRED}"

_PAUSE_S: Final = 40.0
_PAUSED_TURNS: Final = 3
PERSON: Final = Person()


class Fault(StrEnum):
    """What befalls a call of a node or an executor."""

    LOST_CALL = "the call is lost"
    LOST_ANSWER = "the answer is lost"
    DOUBLED = "the call is made twice"
    DIES_BEFORE = "who calls dies before"
    DIES_AFTER = "who calls dies behind"
    PAUSE = "who calls is paused before"


class DiedError(BaseException):
    """Raised amid a call of a process that ends there."""


class DirectCalls(WayCalls):
    """Calls over ways without threads."""

    def submit(self, way: str, call: Callable[[], T]) -> Future[T]:
        made: Future[T] = Future()
        try:
            made.set_result(call())
        except Exception as error:  # noqa: BLE001  whoever waits gets it
            made.set_exception(error)
        return made


class DirectAway(AwayLogs):
    """Asks logs that are away without threads."""

    def ask(self) -> None:
        now_s = self._monotonic()
        for log in [each for each, at_s in self._ask_at_s.items() if at_s <= now_s]:
            self._ask(log)


class WorldCompiler(LineCompiler):
    """A flow is a line of jobs, each on the first executor whose log its name allows. Workers by a parameter."""

    def compile_flow(self, spec: FlowSpec, names: JobNames, groups: frozenset[str]) -> Explanation:
        config = spec.config
        if config.source is None or not config.destinations:
            raise RejectedError("expected a source and a destination", field="source", hint="Write both.")
        line = [config.source.node, *(each.node for each in config.destinations)]
        bound = names.list_bound_hops()
        jobs = []
        for number, (source, target) in enumerate(pairwise(line)):
            ways = {name: each.executor.way for name, each in self.topology.executors.items()}
            allowed = [n for n, way in ways.items() if target not in bound or bound[target].allows_log(way)]
            # A job behind another one reads that one's ledger.
            usable = [n for n in allowed if not jobs or ways[n] == ways[jobs[0].executor]]
            if not usable:
                return Explanation(PendingFlow((f"no executor reaches {target} by the log of its data",)))
            job = self._plan(number, source, target, names.offer_name(target), spec)
            shape = TicketShape.WORKER if "worker" in config.parameters else TicketShape.RUN
            reads = {} if not jobs else {"reads": jobs[-1].job_name}
            written = {**job.ticket.job, **reads}
            jobs.append(replace(job, executor=usable[0], ticket=replace(job.ticket, job=written, shape=shape)))
        return Explanation(FlowPlan(tuple(jobs), float(len(jobs))))


class Called:
    """An object whose methods are called through the world."""

    def __init__(self, world: "ServiceWorld", who: str, name: str, target: object) -> None:
        self._world, self._who, self._name, self._target = world, who, name, target

    def __getattr__(self, method: str) -> Callable[..., Any]:
        function = getattr(self._target, method)

        def call(*given: Any, **named: Any) -> Any:
            return self._world.call(self._who, f"{self._name}.{method}", lambda: function(*given, **named))

        return call


class CalledLogs:
    """``TicketLogs`` of one node."""

    def __init__(self, world: "ServiceWorld", who: str) -> None:
        self._world = world
        self._stores: dict[str, Any] = {name: Called(world, who, "log", log) for name, log in world.logs.items()}
        self.wire = open_service_end(WIRED, Called(world, who, "book", world.book), world.topics)
        self._stores[WIRE] = Called(world, who, "wire", self.wire)

    def get_store(self, way: str) -> Any:
        if way in self._world.away:
            raise RetryableError(f"the log {way!r} is away", passes=True)
        return self._stores[way]

    def get_log_id(self, way: str) -> LogId:
        found: LogId = self.get_store(way).find_log_id()
        return found


class Node:
    """A node of the service, which has the real code. Its memory is lost when it dies."""

    def __init__(self, world: "ServiceWorld", number: int) -> None:
        self.number = number
        who = f"node {number}"
        flows: Any = Called(world, who, "flows", FakeFlowStore(world.tables))
        schedules: Any = Called(world, who, "schedules", FakeScheduleStore(world.tables))
        executions: Any = Called(world, who, "executions", FakeExecutionStore(world.tables))
        logs: Any = CalledLogs(world, who)
        catalog = FlowCatalog(flows, monotonic=world.monotonic, now=world.now)
        self.flows = FlowManager(catalog, flows, world.compiler, world.find_topology, logs)
        healths = ExecutorHealths(world.find_topology, logs, world.monotonic)
        placement = JobPlacement(world.find_topology, healths.get)
        orchestrator = Orchestrator(executions, logs, placement)
        watch = SentJobWatch(executions, logs, placement)
        monitor = Monitor(executions, logs)
        healths._calls = orchestrator._calls = DirectCalls()
        for part in (self.flows.compiling, healths, orchestrator, watch, monitor):
            part._away = DirectAway(logs, world.monotonic)
        scheduler = Scheduler(schedules)
        launcher = Launcher(schedules, flows, self.flows.compiling, self.flows.writes, placement.find_given_max)
        # A node hears executors before it sends anything, as a service that begins does.
        with world.undisturbed(), suppress(RetryableError, OutcomeUnknownError):
            carry_reports(logs.wire)
        with world.undisturbed():
            healths.look()
        self.loops: Mapping[str, Callable[[], object]] = {
            "executors": healths.look,
            "scheduler": scheduler.look,
            "launcher": launcher.look,
            "orchestrator": orchestrator.look,
            "monitor": monitor.look,
            "watch": watch.look,
            "restarts": self.flows.restart_drained,
            "pending flows": self.flows.compile_pending,
            "catalog": catalog.refresh,
            "wire": partial(carry_reports, logs.wire),
        }


@dataclass
class ServiceWorld:
    """``fault_at``: by the number of a call, what befalls it. ``fault_share``: of all calls, at random."""

    seed: int = 0
    nodes_count: int = 2
    fault_at: Mapping[int, Fault] = field(default_factory=dict)
    fault_share: float = 0.0
    slots: int = 2

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.at = BEGUN_AT
        self.tables = ServiceTables(self.now, random.Random(self.seed + 1))
        self.logs = {name: FakeLog(name, self.now) for name in sorted(set(LOGS.values()))}
        self.away: set[str] = set()
        self.compiler = WorldCompiler(self._make_topology(tuple(LOGS)))
        self.mishaps = Mishaps(random.Random(self.seed + 2))
        self.calls: Counter[str] = Counter()
        self.number = 0
        self.done: list[str] = []
        self._is_quiet = 0
        self.deaths: set[str] = set()
        self.book = FakeWireBook(self.now)
        self.topics = FakeTopics(WireFaults(random.Random(self.seed + 3)))
        self._wired = FakeWireStore(self.logs[LOGS[WIRED]])
        self.executors = {name: self._make_executor(name) for name in LOGS}
        self._wire = self._open_wire()
        with self.undisturbed():
            for executor in self.executors.values():
                executor.step()
            carry_tickets(self._wire)
        self.nodes = [Node(self, number) for number in range(self.nodes_count)]

    def now(self) -> dt.datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def find_topology(self) -> Topology:
        return self.compiler.topology

    def _make_topology(self, names: tuple[str, ...]) -> Topology:
        made = [make_topology("shop", "lake", "mirror", executors=(name,), log=LOGS[name]) for name in names]
        executors = {name: spec for each in made for name, spec in each.executors.items()}
        if WIRED in executors:
            wired = replace(executors[WIRED].executor, communication="kafka", location="main")
            executors[WIRED] = replace(executors[WIRED], executor=wired)
        return replace(made[0], executors=executors)

    def change_topology(self, *names: str) -> None:
        self.compiler.on_topology(self._make_topology(names))

    def _make_executor(self, name: str) -> FakeExecutor:
        raw = self.logs[LOGS[name]]
        return FakeExecutor(name, Called(self, name, "executor", raw), raw, self.mishaps, self.slots)

    def _open_wire(self) -> KafkaWire:
        """Its process is the executor's, and knows nothing of those before it."""
        log = self.logs[LOGS[WIRED]]
        wired, tickets = Called(self, WIRED, "wired", self._wired), Called(self, WIRED, "executor", log)
        return open_executor_end(WIRED, log, wired, tickets, self.topics)

    def undisturbed(self) -> "_Undisturbed":
        return _Undisturbed(self)

    def call(self, who: str, name: str, function: Callable[[], Any]) -> Any:
        if self._is_quiet:
            return function()
        self.number += 1
        self.calls[name] += 1
        fault = self.fault_at.get(self.number)
        if fault is None and self.fault_share and self.chance.random() < self.fault_share:
            fault = self.chance.choice(list(Fault))
        if fault is None:
            return function()
        self.done.append(f"{who}, {name}: {fault}")
        return self._befall(who, fault, function)

    def _befall(self, who: str, fault: Fault, function: Callable[[], Any]) -> Any:
        match fault:
            case Fault.LOST_CALL:
                raise RetryableError("the call is lost", passes=True)
            case Fault.LOST_ANSWER:
                function()
                raise OutcomeUnknownError("the answer is lost")
            case Fault.DOUBLED if who.startswith("node"):
                # Of executors, a repetition finds its own claim (``claim_id``), which these logs do not know.
                function()
                return function()
            case Fault.DIES_BEFORE:
                raise DiedError(who)
            case Fault.DIES_AFTER:
                function()
                raise DiedError(who)
            case Fault.PAUSE:
                self._let_others_go_on(who)
                return function()
        return function()

    def _let_others_go_on(self, who: str) -> None:
        with self.undisturbed():
            for _turn in range(_PAUSED_TURNS):
                self.at += dt.timedelta(seconds=_PAUSE_S / _PAUSED_TURNS)
                for node in self.nodes:
                    if f"node {node.number}" != who:
                        for name in node.loops:
                            self.look(node, name)
                for executor in self.executors.values():
                    if executor.name != who:
                        self.step(executor)

    def look(self, node: Node, name: str) -> None:
        """One look of a loop. What ends it that is no loss is a fault of ours."""
        try:
            with suppress(RetryableError, OutcomeUnknownError):
                node.loops[name]()
        except DiedError:
            self.replace(node)

    def replace(self, node: Node) -> None:
        self.done.append(f"node {node.number} dies")
        self.nodes[node.number] = Node(self, node.number)

    def step(self, executor: FakeExecutor) -> None:
        if self.monotonic() < executor.paused_until_s:
            return
        try:
            executor.step()
            if executor.name == WIRED:
                carry_tickets(self._wire)
        except DiedError:
            self.kill(executor)

    def kill(self, executor: FakeExecutor) -> None:
        executor.die()
        if executor.name == WIRED:
            self._wire = self._open_wire()

    def ask(self, act: Callable[[FlowManager], object]) -> str:
        """A user's request to any node. Returns what came of it: a user hears of refusals, and asks no more."""
        node = self.chance.choice(self.nodes)
        try:
            act(node.flows)
        except DiedError:
            self.replace(node)
            return "died"
        except GobblinError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def create(self, name: str, *destinations: str, **options: Any) -> str:
        first = int(self.at.timestamp()) // WINDOW_S - 1
        parameters = {"first": first, **options.pop("parameters", {})}
        config = make_config(*(destinations or ("lake",)), name=name, parameters=parameters, **options)
        return self.ask(lambda flows: flows.create(PERSON, config, request_key=name))

    def change(self, key: FlowKey, **options: Any) -> str:
        flow = self.tables.find_flow(key)
        if flow is None:
            return "gone"
        config = FlowConfig.model_validate({**flow.config.model_dump(), **options})
        return self.ask(lambda flows: flows.update(PERSON, config))

    def go_on(self, turns: int, *, seconds: float = 5.0) -> None:
        """All processes, one after the other."""
        for _turn in range(turns):
            self.at += dt.timedelta(seconds=seconds)
            for number in range(len(self.nodes)):
                for name in self.nodes[number].loops:
                    self.look(self.nodes[number], name)
            for executor in self.executors.values():
                self.step(executor)

    def calm_down(self) -> None:
        """No further fault; whoever drained or was paused is there again."""
        self.fault_share, self.fault_at, self.away = 0.0, {}, set()
        self.topics.faults.lost = self.topics.faults.unanswered = self.topics.faults.doubled = 0.0
        self.mishaps.passing = self.mishaps.staying = self.mishaps.dying = 0.0
        self.change_topology(*LOGS)
        for executor in self.executors.values():
            executor.paused_until_s = 0.0
            if executor.phase is not ExecutorPhase.WORKING:
                self.kill(executor)


class _Undisturbed:
    """A time in which no call has a fault, nor a number."""

    def __init__(self, world: ServiceWorld) -> None:
        self._world = world

    def __enter__(self) -> None:
        self._world._is_quiet += 1

    def __exit__(self, *_raised: object) -> None:
        self._world._is_quiet -= 1
