"""Compiles flows into launches: the plan, the jobs with their names, logs and ids of tickets.

A flow that is created or changed, a run that is asked for, a restart and a launch of what was fired all go this way.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.model.job_ticket import LogId, TicketSelection, TicketShape
from gobblin_assets.model.wording import count_of
from gobblin_assets.service.away_logs import AwayLogs
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_jobs import FlowJobNames, check_continuity, find_log, plan_jobs
from gobblin_assets.service.flow_store import FlowStore, Launch, LaunchedJob, NamedJob, StoredFlow
from gobblin_assets.service.job_plan import Explanation, FlowPlan, SpecCompiler
from gobblin_assets.service.specs import FlowKey, FlowSpec
from gobblin_assets.service.template_pins import plan_pins
from gobblin_assets.service.ticket_logs import TicketLogs
from gobblin_assets.service.topology import Topology

FIRST_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class CompiledFlow:
    """A flow as the compiler found it: one of a plan with its jobs' launch, or reasons."""

    flow_id: uuid.UUID
    explanation: Explanation
    topology: Topology
    stored_jobs: tuple[NamedJob, ...]
    generation: int
    named: tuple[str, ...]
    """The URIs of templates that the flow names."""

    @property
    def plan(self) -> FlowPlan | None:
        compiled = self.explanation.compiled
        return compiled if isinstance(compiled, FlowPlan) else None

    @property
    def pins(self) -> Mapping[str, str]:
        return {} if self.plan is None else plan_pins(self.plan, self.named)

    @property
    def reasons(self) -> tuple[str, ...]:
        compiled = self.explanation.compiled
        return () if isinstance(compiled, FlowPlan) else compiled.reasons


class FlowCompiling:
    """The compiler of one node, with what the names of jobs are bound to. ``topology``: that of now."""

    def __init__(
        self, store: FlowStore, compiler: SpecCompiler, topology: Callable[[], Topology], logs: TicketLogs
    ) -> None:
        self._store = store
        self._compiler = compiler
        self._topology = topology
        self._logs = logs
        self._away = AwayLogs(logs)
        self._seen_log_ids: dict[str, LogId] = {}

    def compile_new(self, flow_id: uuid.UUID, config: FlowConfig, groups: frozenset[str]) -> CompiledFlow:
        return self._compile(flow_id, make_spec(config, FIRST_VERSION), groups, (), 0)

    def compile_next(self, flow: StoredFlow, config: FlowConfig, groups: frozenset[str]) -> CompiledFlow:
        """The config as the flow's next version, with the newest versions of packs."""
        jobs = self._store.list_jobs(flow.flow_id)
        return self._compile(flow.flow_id, make_spec(config, next_version(flow)), groups, jobs, flow.generation)

    def compile_stored(self, flow: StoredFlow, groups: frozenset[str]) -> CompiledFlow:
        """The flow as it is, with the versions of packs that it has pinned."""
        jobs = self._store.list_jobs(flow.flow_id)
        return self._compile(flow.flow_id, flow.spec, groups, jobs, flow.generation)

    def _compile(
        self,
        flow_id: uuid.UUID,
        spec: FlowSpec,
        groups: frozenset[str],
        jobs: Sequence[NamedJob],
        generation: int,
    ) -> CompiledFlow:
        names = self.name_jobs(flow_id, spec.key, jobs, generation)
        topology = self._topology()
        explanation = self._compiler.compile_flow(spec, names, groups)
        if isinstance(explanation.compiled, FlowPlan):
            check_continuity(spec.config, explanation.compiled)
        return CompiledFlow(flow_id, explanation, topology, tuple(jobs), generation, spec.template_uris)

    def name_jobs(self, flow_id: uuid.UUID, key: FlowKey, jobs: Sequence[NamedJob], generation: int) -> FlowJobNames:
        return FlowJobNames(flow_id, key, jobs, generation, self._recall_log_id, self._store.find_job_log)

    def plan_launch(self, user_name: str, compiled: CompiledFlow, selection: TicketSelection) -> Launch | None:
        if compiled.plan is None:
            return None
        self.check_workers(compiled.flow_id, compiled.plan)
        log_ids = self._read_log_ids(compiled)
        jobs = plan_jobs(compiled.plan, compiled.topology, compiled.stored_jobs, log_ids)
        return Launch(uuid.uuid4(), jobs, selection, user_name, compiled.generation, pins=compiled.pins)

    def plan_jobs_of(self, compiled: CompiledFlow) -> tuple[LaunchedJob, ...]:
        """The jobs of a version of a flow that was launched before. What a launch would refuse is refused here."""
        if compiled.plan is None or not compiled.stored_jobs:
            return ()
        self.check_workers(compiled.flow_id, compiled.plan)
        return plan_jobs(compiled.plan, compiled.topology, compiled.stored_jobs, self._read_log_ids(compiled))

    def check_workers(self, flow_id: uuid.UUID, plan: FlowPlan) -> None:
        """RejectedError: an executor has no place for the flow's workers beside those of others."""
        topology = self._topology()
        asked = Counter(job.executor for job in plan.jobs if job.ticket.shape is TicketShape.WORKER)
        for executor, count in asked.items():
            workers_max = topology.get_state(executor).workers_max
            if workers_max is None:
                continue
            taken = self._store.count_workers(executor, without=flow_id)
            if taken + count > workers_max:
                places = count_of(workers_max, "worker", "workers")
                raise RejectedError(
                    f"the executor {executor} runs {places} at once, and has {taken} of other flows",
                    field="destinations",
                    hint="Raise the limit of the tag gobblin/sink in its dagster.yaml (docs/DAGSTER.md), end another "
                    "flow, or add an executor to the topology.",
                )

    def _read_log_ids(self, compiled: CompiledFlow) -> Mapping[str, LogId]:
        jobs = () if compiled.plan is None else compiled.plan.jobs
        logs = {find_log(job, compiled.topology) for job in jobs}
        return {log: self._read_log_id(log) for log in logs}

    def _read_log_id(self, log: str) -> LogId:
        """One flow waits for a log that does not answer. Those behind it are refused at once, until it answers.

        The service's own database is asked anyway: while it is away, nothing is launched.
        """
        self._away.ask()
        if log and log in self._away.names:
            raise RetryableError(
                f"the log {log!r} did not answer a moment ago",
                passes=True,
                hint="It is asked again each second. Send the request again.",
            )
        try:
            found = self._seen_log_ids[log] = self._logs.get_log_id(log)
        except (RetryableError, OutcomeUnknownError):
            self._away.add(log)
            raise
        return found

    def _recall_log_id(self, log: str) -> LogId:
        """For the search: while the log is away, the id that it had last. A plan that uses it is checked anew."""
        try:
            return self._read_log_id(log)
        except (RetryableError, OutcomeUnknownError):
            if log not in self._seen_log_ids:
                raise
            return self._seen_log_ids[log]


def next_version(flow: StoredFlow) -> str:
    return str(int(flow.spec.version) + 1)


def make_spec(config: FlowConfig, version: str) -> FlowSpec:
    key = FlowKey(config.flow_group, config.flow_name)
    return FlowSpec(key.uri, version, config.description, config, config.template_uris)
