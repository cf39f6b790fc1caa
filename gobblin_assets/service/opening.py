"""The service as a program opens it: its database, its flows, its compiler, and the loops beside its requests."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from gobblin_assets.db.engine import connect
from gobblin_assets.db.notices import Channel, NoticeListener
from gobblin_assets.errors import ConflictError
from gobblin_assets.service.adoption import RunAdoption
from gobblin_assets.service.alert_facts import AlertStore
from gobblin_assets.service.catalogs import CATALOG_LOOK_EVERY_S
from gobblin_assets.service.compilers import build_compiler
from gobblin_assets.service.core_services import CoreServices, Loop
from gobblin_assets.service.executor_health import ExecutorHealths
from gobblin_assets.service.executor_limits import LimitedTopology
from gobblin_assets.service.executor_watch import SentJobWatch
from gobblin_assets.service.flow_catalog import FlowCatalog
from gobblin_assets.service.flow_manager import FlowManager
from gobblin_assets.service.forgetting import KEPT_DAYS_DEFAULT, Forgetting
from gobblin_assets.service.launcher import Launcher
from gobblin_assets.service.monitor import Monitor
from gobblin_assets.service.orchestrator import Orchestrator
from gobblin_assets.service.pack_catalog import PackCatalog
from gobblin_assets.service.placement import JobPlacement
from gobblin_assets.service.postgres.adoptions import PostgresAdoptionStore
from gobblin_assets.service.postgres.alerts import PostgresAlertStore
from gobblin_assets.service.postgres.executions import PostgresExecutionStore
from gobblin_assets.service.postgres.flows import PostgresFlowStore
from gobblin_assets.service.postgres.history import prepare_schema
from gobblin_assets.service.postgres.logs import PostgresTicketLogs
from gobblin_assets.service.postgres.packs import PACK_CATALOG, PostgresPackStore
from gobblin_assets.service.postgres.published_jobs import PostgresPublishingJobs
from gobblin_assets.service.postgres.schedules import PostgresScheduleStore
from gobblin_assets.service.postgres.topologies import TOPOLOGY_CATALOG, PostgresTopologyStore
from gobblin_assets.service.probes import Probes
from gobblin_assets.service.published_jobs import PublishingJobs
from gobblin_assets.service.roles import ALL_ROLES, NodeRole
from gobblin_assets.service.scheduler import Scheduler
from gobblin_assets.service.spec_executors.wire_kinds import ExecutorWires
from gobblin_assets.service.spec_executors.wired_executor import SpecExecutors
from gobblin_assets.service.template_store import TemplatePack, read_shipped_packs
from gobblin_assets.service.ticket_logs import TicketLogs
from gobblin_assets.service.topology_catalog import FileTopology, TopologyCatalog
from gobblin_assets.service.topology_manager import TopologyManager
from gobblin_assets.settings import Settings

PROBES_LOOK_EVERY_S: Final = 10.0
HEARTBEATS_LOOK_EVERY_S: Final = 3.0
EXECUTORS_LOOK_EVERY_S: Final = 1.0
ADOPTION_LOOK_EVERY_S: Final = 2.0
FORGET_EVERY_S: Final = 3600.0
_DATABASE_SILENT_S_MAX: Final = 10
"""Requests wait for it: whoever asks is told soon."""

_OF_THIS_PACKAGE: Final = "gobblin-assets"
_OF_THE_COMMAND: Final = "service serve"
"""Who published what no user has: packs that are shipped, and those that the start was given."""


@dataclass(frozen=True, slots=True)
class OpenService:
    """A service whose loops run."""

    flows: FlowManager
    jobs: PublishingJobs
    logs: TicketLogs
    catalog: FlowCatalog
    topology: TopologyManager
    topology_catalog: TopologyCatalog
    packs: PackCatalog
    probes: Probes
    executors: SpecExecutors
    alerts: AlertStore


@contextmanager
def open_service(
    settings: Settings,
    topology_file: Path | None,
    packs: Iterable[TemplatePack],
    compiler: str,
    environment: Mapping[str, str],
    say: Callable[[str], None],
    *,
    kept_days: float = KEPT_DAYS_DEFAULT,
    roles: Collection[NodeRole] = ALL_ROLES,
) -> Iterator[OpenService]:
    """The service over the log of these settings. At the end, writes under way are waited for.

    ``topology_file`` None: the topology is in the database, and is changed through the service. ``packs`` are
    published, beside those that are shipped. The schema of the embedded server is upgraded, if necessary; that of
    another one is only checked, and may be one version ahead. ``kept_days``: tickets are forgotten so long after the
    ends of their jobs. ``roles``: those of this node.

    Raises:
        RejectedError: the schema is of another version, the file has no topology, or there is no such compiler.
        ConflictError: a version of one of the packs is published, and holds something else.
        RetryableError: the server does not answer.

    """
    engine = connect(settings, say, silent_s_max=_DATABASE_SILENT_S_MAX)
    databases = PostgresTicketLogs(engine, environment)
    try:
        prepare_schema(engine, say, upgrades=settings.database_url is None)
        store, executions = PostgresFlowStore(engine), PostgresExecutionStore(engine)
        schedules = PostgresScheduleStore(engine)
        catalog = FlowCatalog(store)
        published = PackCatalog(PostgresPackStore(engine))
        _publish_all(published, packs, say)
        kept = PostgresTopologyStore(engine)
        topologies = TopologyCatalog(kept if topology_file is None else FileTopology(topology_file))
        compiling = build_compiler(published, topologies.topology, compiler)
        logs = ExecutorWires(databases, topologies.topology, engine, environment)
        executors = _reach_executors(topologies, logs, PostgresPublishingJobs(engine))
        limited = executors.limited
        limited.add_listener(compiling)
        flows = FlowManager(catalog, store, compiling, lambda: limited.topology, logs)
        probes = Probes(lambda: limited.topology, logs)
        managed = TopologyManager(topologies, kept if topology_file is None else None, flows.writes)
        placement = JobPlacement(lambda: limited.topology, executors.healths.get)
        adoption = RunAdoption(PostgresAdoptionStore(engine), logs, lambda: topologies.topology)
        core = CoreServices(
            catalog,
            flows,
            Orchestrator(executions, logs, placement),
            Monitor(executions, logs),
            Scheduler(schedules),
            Launcher(schedules, store, flows.compiling, flows.writes, placement.find_given_max),
            [
                Loop(TOPOLOGY_CATALOG, topologies.refresh, CATALOG_LOOK_EVERY_S),
                Loop(PACK_CATALOG, published.refresh, CATALOG_LOOK_EVERY_S),
                Loop("forgetting", Forgetting(executions, logs, kept_days).look, FORGET_EVERY_S),
                Loop("old slots", partial(schedules.forget_slots, kept_days=kept_days), FORGET_EVERY_S),
                Loop("probes", probes.end_late, PROBES_LOOK_EVERY_S),
                Loop("adoption", adoption.look, ADOPTION_LOOK_EVERY_S),
                Loop("heartbeats", executors.look, HEARTBEATS_LOOK_EVERY_S),
                Loop("executors", SentJobWatch(executions, logs, placement).look, EXECUTORS_LOOK_EVERY_S),
            ],
            roles,
        )
        # Behind the compiler, which has the new topology before pending flows are compiled.
        limited.add_listener(core)
        published.add_listener(core.on_packs)
        listener = NoticeListener(engine, {Channel.CATALOGS: core.wake, Channel.REPORTS: core.hear_of_reports})
        # Who sends knows how executors are: one that was never heard would get all that waits.
        executors.look()
        with closing(logs), _run(core, listener, say):
            alerts = PostgresAlertStore(engine)
            yield OpenService(
                flows, executors.jobs, logs, catalog, managed, topologies, published, probes, executors, alerts
            )
    finally:
        databases.close()
        engine.dispose()


def _reach_executors(topologies: TopologyCatalog, logs: ExecutorWires, jobs: PublishingJobs) -> SpecExecutors:
    healths = ExecutorHealths(lambda: topologies.topology, logs)
    limited = LimitedTopology(topologies.topology, healths.get)
    # In this order: who compiles for a topology has ways to its executors.
    topologies.add_listener(logs)
    topologies.add_listener(limited)
    return SpecExecutors(limited, logs, healths, jobs)


@contextmanager
def _run(core: CoreServices, listener: NoticeListener, say: Callable[[str], None]) -> Iterator[None]:
    core.start()
    listener.start()
    try:
        yield
    finally:
        listener.stop()
        if not core.stop():
            say("Some writes did not end in time; what was not stored was not answered either.")


def _publish_all(catalog: PackCatalog, packs: Iterable[TemplatePack], say: Callable[[str], None]) -> None:
    for pack in read_shipped_packs():
        try:
            catalog.publish(pack, _OF_THIS_PACKAGE)
        except ConflictError:
            # Nobody who starts the service can count up the version. Flows that have pinned it go on as they were.
            say(f"The pack {pack.name}@{pack.version} of the database differs from the shipped one, and is used.")
    for pack in packs:
        catalog.publish(pack, _OF_THE_COMMAND)
