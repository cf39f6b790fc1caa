"""A service over Postgres: a topology, a compiler of lines of nodes, an executor that does as the test says."""

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from sqlalchemy import Engine, text

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.executor_heartbeat import ExecutorHeartbeat, ExecutorPhase
from gobblin_assets.model.job_ticket import JobTicket, SentTicket, TicketShape
from gobblin_assets.model.state import SequenceId
from gobblin_assets.service.executor_health import ExecutorHealths
from gobblin_assets.service.executor_watch import SentJobWatch
from gobblin_assets.service.flow_catalog import FlowCatalog
from gobblin_assets.service.flow_config import FlowConfig, read_flow_config
from gobblin_assets.service.flow_manager import FlowManager
from gobblin_assets.service.job_plan import Explanation, FlowPlan, JobNames, PendingFlow, PlannedJob
from gobblin_assets.service.launcher import Launcher
from gobblin_assets.service.monitor import Monitor
from gobblin_assets.service.orchestrator import Orchestrator
from gobblin_assets.service.placement import JobPlacement
from gobblin_assets.service.postgres.executions import PostgresExecutionStore
from gobblin_assets.service.postgres.flows import PostgresFlowStore
from gobblin_assets.service.postgres.logs import PostgresTicketLogs
from gobblin_assets.service.postgres.schedules import PostgresScheduleStore
from gobblin_assets.service.scheduler import Scheduler
from gobblin_assets.service.specs import FlowKey, FlowSpec
from gobblin_assets.service.statuses import ENDED, ExecutionStatus, FlowStatus
from gobblin_assets.service.topology import (
    DataNode,
    ExecutorSpec,
    Format,
    NodeKind,
    NodeState,
    Topology,
    TopologySpec,
    topology_uri,
)
from gobblin_assets.state.postgres.heartbeats import PostgresHeartbeatStore
from gobblin_assets.state.postgres.tickets import PostgresTicketStore
from gobblin_assets.state.tickets import AttemptEnd, Claim, TicketReportKind

KEY = FlowKey("sales", "orders")
EXECUTOR = "here"
OTHER_EXECUTOR = "there"
ROWS = 7
HOUR = (dt.datetime.now(dt.UTC).hour + 12) % 24
DAILY = f"0 {HOUR} * * *"
"""A schedule whose slots are half a day away: none becomes due within a test."""


def last_slot(now: dt.datetime) -> dt.datetime:
    """The last one of ``DAILY``."""
    day = (now.astimezone(dt.UTC) - dt.timedelta(hours=HOUR)).replace(hour=0, minute=0, second=0, microsecond=0)
    return day + dt.timedelta(hours=HOUR)


@dataclass(frozen=True)
class Person:
    name: str = "ann"
    groups: frozenset[str] = frozenset({"sales"})


def make_topology(*nodes: str, executors: Sequence[str] = (EXECUTOR,), log: str = "") -> Topology:
    """Nodes with roots of their own, and executors that can do everything."""
    return Topology(
        version="1",
        nodes={name: DataNode(name, NodeKind.FILES, root=f"/data/{name}") for name in nodes},
        executors={
            name: TopologySpec(
                topology_uri(name),
                "1",
                "",
                ExecutorSpec(
                    name, "process", "here", "log", frozenset({"distcp", "ingest.jdbc"}), frozenset(nodes), log=log
                ),
            )
            for name in executors
        },
    )


@dataclass
class LineCompiler:
    """Goes from the source through each destination in their order. ``template``: of each job.

    ``workers``: the numbers of jobs that are workers.
    """

    topology: Topology
    template: str = "FS:///default/line.template"
    capability: str = "ingest.jdbc"
    workers: frozenset[int] = frozenset()

    def compile_flow(self, spec: FlowSpec, names: JobNames, groups: frozenset[str]) -> Explanation:
        config = spec.config
        if config.source is None or not config.destinations:
            raise RejectedError("expected a source and a destination", field="source", hint="Write both.")
        line = [config.source.node, *(each.node for each in config.destinations)]
        missing = [node for node in line if node not in self.topology.nodes]
        if missing:
            return Explanation(PendingFlow(tuple(f"there is no node {node}" for node in missing)))
        jobs = tuple(
            self._plan(number, source, target, names.offer_name(target), spec)
            for number, (source, target) in enumerate(pairwise(line))
        )
        return Explanation(FlowPlan(jobs, float(len(jobs))))

    def explain_flow(self, spec: FlowSpec, names: JobNames, groups: frozenset[str]) -> Explanation:
        return self.compile_flow(spec, names, groups)

    def get_topology_spec_map(self) -> Mapping[str, TopologySpec]:
        return {spec.uri: spec for spec in self.topology.executors.values()}

    def on_topology(self, topology: Topology) -> None:
        self.topology = topology

    def _plan(self, number: int, source: str, target: str, name: str, spec: FlowSpec) -> PlannedJob:
        ticket = JobTicket(
            uri=f"gobblin-job:/{spec.config.flow_group}/{spec.config.flow_name}/{name}",
            version=spec.version,
            capability=self.capability,
            job={"job": name, "from": source, "to": target, **spec.config.parameters},
            template_uri=self.template,
            shape=TicketShape.WORKER if number in self.workers else TicketShape.RUN,
        )
        return PlannedJob(
            number=number,
            job_name=name,
            template_uri=self.template,
            executor=next(iter(self.topology.executors)),
            source=NodeState(source, Format.TREE),
            target=NodeState(target, Format.TREE),
            ticket=ticket,
            after=(number - 1,) if number else (),
        )


def make_config(*destinations: str, name: str = KEY.name, **more: Any) -> FlowConfig:
    return read_flow_config(
        {
            "flow_group": KEY.group,
            "flow_name": name,
            "source": "shop",
            "destinations": list(destinations or ("lake",)),
            **more,
        }
    )


@dataclass
class FlowWorld:
    """One node of the service. Several on one engine are several nodes."""

    engine: Engine
    compiler: LineCompiler = field(default_factory=lambda: LineCompiler(make_topology("shop", "lake", "mirror")))
    person: Person = field(default_factory=Person)

    def __post_init__(self) -> None:
        self.store = PostgresFlowStore(self.engine)
        self.executions = PostgresExecutionStore(self.engine)
        self.logs = PostgresTicketLogs(self.engine, {})
        self.catalog = FlowCatalog(self.store)
        self.flows = FlowManager(self.catalog, self.store, self.compiler, lambda: self.compiler.topology, self.logs)
        self.healths = ExecutorHealths(lambda: self.compiler.topology, self.logs)
        self.healths.look()
        placement = JobPlacement(lambda: self.compiler.topology, self.healths.get)
        self.orchestrator = Orchestrator(self.executions, self.logs, placement)
        self.watch = SentJobWatch(self.executions, self.logs, placement)
        self.monitor = Monitor(self.executions, self.logs)
        self.schedules = PostgresScheduleStore(self.engine)
        self.scheduler = Scheduler(self.schedules)
        self.launcher = Launcher(
            self.schedules, self.store, self.flows.compiling, self.flows.writes, placement.find_given_max
        )
        self.executor = PlayedExecutor(self.engine)

    def beat(self, name: str = EXECUTOR, phase: ExecutorPhase = ExecutorPhase.WORKING, *, slots: int = 10) -> None:
        """The executor of this name is heard."""
        beats = PostgresHeartbeatStore(self.engine)
        log_id = self.logs.get_log_id("")
        beats.beat(
            ExecutorHeartbeat(name, f"{name}'s process", log_id, "1", slots, frozenset({"ingest.jdbc"}), phase=phase)
        )
        self.healths.look()

    def step(self) -> None:
        self.orchestrator.look()
        self.monitor.look()

    def play(self, **publication: Any) -> int:
        """Send, run all that was sent, read, until nothing is left to run; returns how many runs there were."""
        runs = 0
        while True:
            self.orchestrator.look()
            done = self.executor.run_all(**publication)
            self.monitor.look()
            if not done:
                return runs
            runs += done


class PlayedExecutor:
    """Claims tickets and reports as an executor does, without running anything."""

    def __init__(self, engine: Engine, name: str = EXECUTOR) -> None:
        self.tickets = PostgresTicketStore(engine)
        self.name = name

    def claim(self) -> tuple[Claim, SentTicket] | None:
        """The next ticket that is no CANCEL; cancels are settled on the way."""
        for each in self.tickets.list_claimable(self.name, limit=100):
            if each.verb == "CANCEL":
                self.tickets.settle_cancel(each.ticket_id)
            elif (claim := self.tickets.claim(each.ticket_id, "me", ttl_s=60)) is not None:
                return claim, self.tickets.get_claimed(claim)
        return None

    def run(self, claim: Claim, *, end: AttemptEnd = AttemptEnd.COMPLETE, **publication: Any) -> None:
        self.report(claim, TicketReportKind.RUNNING, {})
        if publication:
            self.publish(claim, **publication)
        self.tickets.end(claim, end, {} if end is AttemptEnd.COMPLETE else {"message": "it broke", "hint": "Mend it."})

    def run_all(self, **publication: Any) -> int:
        runs = 0
        while (claimed := self.claim()) is not None:
            self.run(claimed[0], **publication)
            runs += 1
        return runs

    def publish(
        self,
        claim: Claim,
        *,
        rows: int = 0,
        files: int = 0,
        watermarks: Mapping[str, Sequence[str]] | None = None,
        sequence_id: uuid.UUID | None = None,
    ) -> None:
        details = {"urn": "orders", "rows": rows, "files": files, "watermarks": dict(watermarks or {})}
        made = SequenceId(sequence_id or uuid.uuid4())
        self.tickets.report(claim, uuid.uuid4(), TicketReportKind.PUBLISHED, details, sequence_id=made)

    def report(self, claim: Claim, kind: TicketReportKind, details: Mapping[str, Any]) -> None:
        self.tickets.report(claim, uuid.uuid4(), kind, details)


def run_to_the_end(world: FlowWorld, name: str, config: FlowConfig | None = None) -> FlowStatus:
    """One process' life: ask for the flow, as a client does that got no answer, and go on until it has ended."""
    world.flows.create(world.person, config or make_config("lake", "mirror", name=name), request_key=name)
    key = FlowKey(KEY.group, name)
    while (status := world.flows.get_status(key)).status not in ENDED:
        world.orchestrator.look()
        while (claimed := world.executor.claim()) is not None:
            claim, sent = claimed
            made = uuid.uuid5(uuid.NAMESPACE_URL, sent.get_job_ticket().job_name)
            world.executor.run(claim, rows=ROWS, sequence_id=made, watermarks={"id": ("0", "7")})
        world.monitor.look()
    return status


def fire_to_the_end(world: FlowWorld, name: str) -> FlowStatus:
    """The same for a flow whose slot of some seconds ago nobody has fired."""
    config = make_config("lake", "mirror", name=name, schedule="0 0 1 1 *")
    flow = world.flows.create(world.person, config, request_key=name)
    with world.engine.begin() as connection:
        query = "UPDATE gobblin_service.flow f SET next_fire_at = now() - interval '9 s', due_at = now()"
        not_fired = "NOT EXISTS (SELECT FROM gobblin_service.flow_slot s WHERE s.flow_id = f.flow_id)"
        connection.execute(text(f"{query} WHERE f.flow_id = :flow_id AND {not_fired}"), {"flow_id": flow.flow_id})
    world.scheduler.look()
    while world.flows.get_status(FlowKey(KEY.group, name)).status is ExecutionStatus.PENDING:
        # Else what a process died with would be taken after seconds.
        world.launcher.wake()
        world.launcher.look()
    return run_to_the_end(world, name, config)


def delete_while_it_runs(world: FlowWorld, name: str) -> FlowStatus:
    """The same for a flow that is deleted as soon as its first ticket was sent."""
    key = FlowKey(KEY.group, name)
    world.flows.create(world.person, make_config("lake", "mirror", name=name), request_key=name)
    world.orchestrator.look()
    world.flows.delete(key)
    with world.engine.connect() as connection:
        found = "SELECT max(execution_id) FROM gobblin_service.flow_execution JOIN gobblin_service.flow USING (flow_id)"
        execution_id = connection.execute(text(f"{found} WHERE flow_name = :name"), {"name": name}).scalar_one()
    while (status := world.flows.get_execution(execution_id)).status not in ENDED:
        with world.engine.begin() as connection:
            # What a process died with would be sent again, and its CANCEL behind it, only some time later.
            connection.execute(text("UPDATE gobblin_service.job_execution SET send_at = now() WHERE send_at > now()"))
        world.orchestrator.look()
        assert world.executor.claim() is None, "a cancelled ticket is claimed"
        world.monitor.look()
    return status


def move_to_the_end(world: FlowWorld, name: str) -> FlowStatus:
    """The same for a flow whose executor is lost before it takes the ticket: another one on its log does the jobs."""
    world.compiler.on_topology(make_topology("shop", "lake", "mirror", executors=(EXECUTOR, OTHER_EXECUTOR)))
    world.flows.create(world.person, make_config("lake", "mirror", name=name), request_key=name)
    world.orchestrator.look()
    world.beat(OTHER_EXECUTOR)
    world.beat(phase=ExecutorPhase.ENDED)
    other = PlayedExecutor(world.engine, OTHER_EXECUTOR)
    key = FlowKey(KEY.group, name)
    while (status := world.flows.get_status(key)).status not in ENDED:
        world.watch.look()
        world.orchestrator.look()
        assert world.executor.claim() is None, "a lost executor has a ticket"
        other.run_all(rows=ROWS, watermarks={"id": ("0", "7")})
        world.monitor.look()
    return status


PUBLISHED: Final = {"datasets": {"orders": {"position": None, "watermarks": {"0": "7"}}}}
"""A report of progress by a worker that has published something."""


def play_worker(world: FlowWorld, *, publishes: bool = False) -> Claim:
    """The worker that was sent runs, and has published something if it ``publishes``."""
    world.orchestrator.look()
    claimed = world.executor.claim()
    assert claimed is not None
    world.executor.report(claimed[0], TicketReportKind.RUNNING, {})
    if publishes:
        world.executor.report(claimed[0], TicketReportKind.PROGRESS, PUBLISHED)
    world.monitor.look()
    return claimed[0]


def list_verbs(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT verb FROM gobblin.job_ticket ORDER BY sent_at")).scalars())
