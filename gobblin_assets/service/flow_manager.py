"""Manages flows: every request of a user that reads, changes, runs or ends one.

A write compiles first and stores then: the flow's version, the execution, the names of its jobs and the ids of their
tickets in one transaction. The orchestrator sends what is stored. Access is checked by the caller.
"""

import dataclasses
import hashlib
import json
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from gobblin_assets.errors import ConflictError, GobblinError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.model.job_ticket import LogId, TicketSelection, TicketShape, selection_from_json, selection_to_json
from gobblin_assets.model.wording import count_of
from gobblin_assets.service.access import EVERY_FLOW, FlowScope
from gobblin_assets.service.flow_catalog import FlowCatalog, FlowsRead
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_jobs import FlowJobNames, find_log, plan_jobs
from gobblin_assets.service.flow_store import (
    PAUSED_MESSAGE,
    FlowState,
    FlowStore,
    FlowVersion,
    FlowWrite,
    Launch,
    LaunchedJob,
    NamedJob,
    Owner,
    RequestKey,
    SpecNotFoundError,
    StoredFlow,
    no_flow,
)
from gobblin_assets.service.job_plan import Explanation, FlowPlan, SpecCompiler
from gobblin_assets.service.job_template import JobTemplate
from gobblin_assets.service.open_writes import OpenWrites
from gobblin_assets.service.specs import FlowKey, FlowSpec, parse_flow_key
from gobblin_assets.service.statuses import ENDED, FlowStatus
from gobblin_assets.service.template_pins import plan_pins
from gobblin_assets.service.ticket_logs import TicketLogs
from gobblin_assets.service.topology import Topology

_log = logging.getLogger(__name__)

_PENDING_AT_ONCE_MAX: Final = 100
"""PENDING flows in memory at once."""

_FIRST_VERSION: Final = "1"

_NOT_STORED: Final = uuid.UUID(int=0)
"""The id of a flow that is only explained: each explanation shows the same names of jobs."""


class Requester(Protocol):
    """The user who asks, as far as flows are concerned."""

    @property
    def name(self) -> str: ...

    @property
    def groups(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class _Compiled:
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


class FlowManager:
    """The host of a FlowCatalog: it creates, changes, explains, runs and removes flows.

    ``topology``: that of now. It is the one that the compiler was given last.
    """

    def __init__(
        self,
        catalog: FlowCatalog,
        store: FlowStore,
        compiler: SpecCompiler,
        topology: Callable[[], Topology],
        logs: TicketLogs,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._compiler = compiler
        self._topology = topology
        self._logs = logs
        self._seen_log_ids: dict[str, LogId] = {}
        self._told_restarts: dict[uuid.UUID, str] = {}
        self.writes = OpenWrites()

    def create(self, user: Requester, config: FlowConfig, *, request_key: str | None = None) -> StoredFlow:
        """Store a new flow, and launch it if it runs at its creation.

        ``request_key``: of the request, unique among all users'. A request that is sent again makes no second flow.

        Raises:
            RejectedError: the config can't be compiled on any topology, or a name is not allowed.
            ConflictError: there is such a flow, or the key belongs to another request.

        """
        parse_flow_key(config.flow_group, config.flow_name)
        with self.writes.open():
            flow_id = uuid.uuid4()
            compiled = self._compile_new(flow_id, config, user.groups)
            write = self._plan_write(user, config, compiled, runs=config.runs_at_creation)
            request = None if request_key is None else RequestKey(request_key, _digest(config))
            stored = self._catalog.put(flow_id, write, request=request)
            return _with_plan(stored, compiled)

    def update(self, user: Requester, config: FlowConfig, if_version: str | None = None) -> StoredFlow:
        """Store the flow's next version. It is run only if this config asks for it, or changes workers that run.

        Those are drained first, and ``restart_drained`` starts them anew.

        Raises:
            ConflictError: the flow is not at ``if_version``, or a job of it has published other data; see ``replan``.

        """
        key = parse_flow_key(config.flow_group, config.flow_name)
        with self.writes.open():
            flow = self._get_stored(key)
            compiled = self._compile_next(flow, config, user.groups)
            write = self._plan_write(user, config, compiled, runs=bool(config.run_immediately))
            write = replace(write, planned=self._plan_jobs(compiled))
            stored = self._catalog.put(flow.flow_id, write, if_version=if_version or flow.spec.version)
            return _with_plan(stored, compiled)

    def repin(self, user: Requester, key: FlowKey) -> StoredFlow:
        """Store the flow as its next version, which is compiled with the newest versions of its packs.

        Raises as ``update`` does.
        """
        flow = self._get_stored(key)
        return self.update(user, flow.spec.config, flow.spec.version)

    def delete(self, key: FlowKey, *, if_version: str | None = None) -> bool:
        """Remove the flow, and end what it runs. False: there is none."""
        with self.writes.open():
            return self._catalog.remove(key, if_version=if_version) is not None

    def get(self, key: FlowKey) -> StoredFlow:
        """SpecNotFoundError: there is none."""
        return self._catalog.get_flow(key).flows[0]

    def list_flows(
        self,
        group: str | None = None,
        search: str | None = None,
        after: FlowKey | None = None,
        limit: int = 50,
        *,
        scope: FlowScope = EVERY_FLOW,
        is_pending: bool = False,
    ) -> FlowsRead:
        """Flows in the order of their groups and names, with the age of what was read if the store is away."""
        return self._catalog.list_flows(
            group=group, search=search, after=after, limit=limit, scope=scope, is_pending=is_pending
        )

    def explain(self, user: Requester, config: FlowConfig) -> Explanation:
        """Compile the config as if it were the flow's next version; store nothing."""
        key = parse_flow_key(config.flow_group, config.flow_name)
        flow = self._store.find(key)
        spec = _make_spec(config, _FIRST_VERSION if flow is None else _next_version(flow))
        if flow is None:
            names = self._name_jobs(_NOT_STORED, key, (), 0)
            explained = self._compiler.explain_flow(spec, names, user.groups)
            self._check_workers(_NOT_STORED, explained, self._topology())
            return explained
        return self._explain_as(user, flow, spec)

    def explain_stored(self, user: Requester, key: FlowKey) -> Explanation:
        """Compile the flow as its next launch does, and look for newer versions of its packs; store nothing."""
        flow = self._get_stored(key)
        return self._explain_as(user, flow, flow.spec)

    def _explain_as(self, user: Requester, flow: StoredFlow, spec: FlowSpec) -> Explanation:
        jobs = self._store.list_jobs(flow.flow_id)
        names = self._name_jobs(flow.flow_id, flow.spec.key, jobs, flow.generation)
        explained = self._compiler.explain_flow(spec, names, user.groups)
        self._check_workers(flow.flow_id, explained, self._topology())
        return explained

    def list_templates(self, user: Requester, config: FlowConfig) -> Sequence[JobTemplate]:
        """The templates whose parameters the flow needs, whatever it gives; none for a flow that is pending."""
        return self._compiler.list_templates(_make_spec(config, _FIRST_VERSION), user.groups)

    def run(
        self,
        user: Requester,
        key: FlowKey,
        selection: TicketSelection | None = None,
        *,
        request_key: str | None = None,
    ) -> FlowStatus:
        """Make an execution of the flow.

        ``request_key``: of the request, as of ``create``. The same request again is answered with its execution.

        Raises:
            RejectedError: a text of the selection is none that a ticket may have.
            ConflictError: one is open, the flow is paused or pending, or a job has published other data.

        """
        # What no ticket may have is refused here: behind it, nobody would be told.
        asked = selection_from_json(selection_to_json(selection or TicketSelection()))
        with self.writes.open():
            flow = self._get_stored(key)
            if flow.state is FlowState.PAUSED:
                raise ConflictError(f"the flow {key.name!a} is paused", hint="Resume it first.")
            compiled = self._compile_stored(flow, user.groups)
            launch = self._plan_launch(user.name, compiled, asked)
            if launch is not None and request_key is not None:
                launch = replace(launch, request_id=_make_request_id(request_key, flow.flow_id, asked))
            if launch is None:
                raise _cant_run(key, compiled)
            execution_id = self._store.launch(flow.flow_id, launch, if_version=flow.spec.version)
            return self.get_execution(execution_id)

    def pause(self, key: FlowKey) -> StoredFlow:
        """No execution of the flow begins until it is resumed. Workers are drained; runs go on to their end."""
        return self._set_paused(key, is_paused=True)

    def resume(self, key: FlowKey) -> StoredFlow:
        """Allow executions again, and begin one if the pause had ended workers.

        ConflictError: the workers have not ended yet. The flow stays paused.
        """
        last = self._store.find_status(key)
        has_drained = last is not None and last.message == PAUSED_MESSAGE
        if last is not None and has_drained and last.status not in ENDED:
            raise ConflictError(
                f"the execution {last.execution_id} of the flow is open: its workers have not ended",
                hint="Resume it again once they have.",
                execution_id=last.execution_id,
            )
        stored = self._set_paused(key, is_paused=False)
        if has_drained and stored.state is FlowState.ACTIVE:
            self.run(stored.owner, key)
        return stored

    def cancel(self, key: FlowKey, execution_id: int) -> FlowStatus:
        """Ask for the end of the execution. Jobs that were not sent are over at once; executors end the others."""
        with self.writes.open():
            return self._store.cancel(key, execution_id)

    def resume_execution(self, user: Requester, key: FlowKey, execution_id: int) -> FlowStatus:
        """Run what an execution that FAILED or was CANCELLED has left: its jobs that are COMPLETE are not run again.

        Raises:
            SpecNotFoundError: the flow has no such execution.
            ConflictError: it is open or COMPLETE, it is not the flow's last one, or the flow was changed since, is
                paused, or can't run on this topology.

        """
        with self.writes.open():
            flow = self._get_stored(key)
            if flow.state is FlowState.PAUSED:
                raise ConflictError(f"the flow {key.name!a} is paused", hint="Resume it first.")
            compiled = self._compile_stored(flow, user.groups)
            launch = self._plan_launch(user.name, compiled, TicketSelection())
            if launch is None:
                raise _cant_run(key, compiled)
            return self._store.resume_execution(key, execution_id, launch, if_version=flow.spec.version)

    def replan(self, user: Requester, key: FlowKey) -> StoredFlow:
        """Give the flow's jobs new names at their next launch. What was published stays, under the old names."""
        with self.writes.open():
            flow = self._get_stored(key)
            self._store.replan(flow.flow_id, generation=flow.generation + 1)
            flow = self._get_stored(key)
            return _with_plan(flow, self._compile_stored(flow, user.groups))

    def list_versions(self, key: FlowKey) -> Sequence[FlowVersion]:
        return self._store.list_versions(key)

    def list_jobs(self, key: FlowKey) -> Sequence[NamedJob]:
        """The names of the flow's jobs, without retired ones, and what they are bound to."""
        return [job for job in self._store.list_jobs(self._get_stored(key).flow_id) if not job.is_retired]

    def get_status(self, key: FlowKey) -> FlowStatus:
        """The last execution. SpecNotFoundError: the flow was never run, or there is none."""
        found = self._store.find_status(key)
        if found is None:
            self._get_stored(key)
            raise SpecNotFoundError(f"the flow {key.name!a} was not run yet", field="flow", hint="Run it.")
        return found

    def list_last_statuses(self, flow_ids: Sequence[uuid.UUID]) -> Sequence[FlowStatus]:
        """Of the last execution of each of these flows; nothing for those that were not run."""
        return self._store.list_last_statuses(flow_ids)

    def list_executions(self, key: FlowKey, limit: int = 50, after: int | None = None) -> Sequence[FlowStatus]:
        """The latest first. ``after``: the id of the last one that the caller has."""
        return self._store.list_executions(key, after=after, limit=limit)

    def get_execution(self, execution_id: int) -> FlowStatus:
        found = self._store.find_execution(execution_id)
        if found is None:
            raise SpecNotFoundError(
                f"there is no execution {execution_id}", field="execution", hint="Look at the flow's executions."
            )
        return found

    def compile_pending(self) -> int:
        """Compile PENDING flows again, as after a change of the topology; returns how many can run now."""
        found, last = 0, None
        while page := self._store.list_pending(after=last, limit=_PENDING_AT_ONCE_MAX):
            found += sum(self._try_pending(flow) for flow in page)
            last = page[-1]
        if found:
            _log.info("the topology can run %d flows that were pending", found)
        return found

    def restart_drained(self) -> int:
        """Run flows whose workers were ended for a new version, and have ended; returns how many."""
        found, last = 0, None
        while page := self._store.list_restarting(after=last, limit=_PENDING_AT_ONCE_MAX):
            found += sum(self._try_restart(flow) for flow in page)
            last = page[-1]
        return found

    def _try_restart(self, flow: StoredFlow) -> bool:
        """What fails is tried again by the next look, and told once for each version."""
        try:
            with self.writes.open():
                return self._restart(flow)
        except Exception as error:  # noqa: BLE001  one flow's fault, or a library's, is not that of all others
            if self._told_restarts.get(flow.flow_id) != flow.spec.version:
                told = not isinstance(error, GobblinError)
                _log.warning("the flow %s does not start again: %s", flow.spec.uri, error, exc_info=told)
            self._told_restarts[flow.flow_id] = flow.spec.version
            return False

    def _restart(self, flow: StoredFlow) -> bool:
        compiled = self._compile_stored(flow, flow.owner.groups)
        launch = self._plan_launch(flow.owner.name, compiled, TicketSelection())
        if launch is None:
            self._store.set_reasons(flow.flow_id, compiled.reasons, if_version=flow.spec.version)
            return False
        self._store.launch(flow.flow_id, replace(launch, is_restart=True), if_version=flow.spec.version)
        return True

    def _try_pending(self, flow: StoredFlow) -> bool:
        """The other flows are compiled all the same; this one is tried again by the next look."""
        try:
            return self._compile_pending(flow)
        except GobblinError as error:
            _log.warning("the pending flow %s stays pending: %s", flow.spec.uri, error)
        except Exception:  # noqa: BLE001  one flow's fault is not that of all others
            _log.exception("the pending flow %s stays pending", flow.spec.uri)
        return False

    def _compile_pending(self, flow: StoredFlow) -> bool:
        version = flow.spec.version
        try:
            compiled = self._compile_stored(flow, flow.owner.groups)
            if compiled.plan is None:
                if compiled.reasons != flow.reasons:
                    self._store.set_reasons(flow.flow_id, compiled.reasons, if_version=version)
                return False
            launch = None
            if flow.runs_when_able or flow.restarts:
                launch = self._plan_launch(flow.owner.name, compiled, TicketSelection())
            return self._store.activate(flow.flow_id, if_version=version, launch=launch, pins=compiled.pins)
        except RejectedError as error:
            # The topology could run it; what is left is for whoever wrote the flow, who reads the reasons.
            reasons = (f"{error} Change the flow.",)
            if reasons != flow.reasons:
                self._store.set_reasons(flow.flow_id, reasons, if_version=version)
            return False

    def _compile_new(self, flow_id: uuid.UUID, config: FlowConfig, groups: frozenset[str]) -> _Compiled:
        return self._compile(flow_id, _make_spec(config, _FIRST_VERSION), groups, (), 0)

    def _compile_next(self, flow: StoredFlow, config: FlowConfig, groups: frozenset[str]) -> _Compiled:
        """The config as the flow's next version, with the newest versions of packs."""
        jobs = self._store.list_jobs(flow.flow_id)
        return self._compile(flow.flow_id, _make_spec(config, _next_version(flow)), groups, jobs, flow.generation)

    def _compile_stored(self, flow: StoredFlow, groups: frozenset[str]) -> _Compiled:
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
    ) -> _Compiled:
        names = self._name_jobs(flow_id, spec.key, jobs, generation)
        topology = self._topology()
        explanation = self._compiler.compile_flow(spec, names, groups)
        return _Compiled(flow_id, explanation, topology, tuple(jobs), generation, spec.template_uris)

    def _name_jobs(self, flow_id: uuid.UUID, key: FlowKey, jobs: Sequence[NamedJob], generation: int) -> FlowJobNames:
        return FlowJobNames(flow_id, key, jobs, generation, self._recall_log_id, self._store.find_job_log)

    def _plan_write(self, user: Requester, config: FlowConfig, compiled: _Compiled, *, runs: bool) -> FlowWrite:
        return FlowWrite(
            request_id=uuid.uuid4(),
            config=forget_wish(config),
            owner=Owner(user.name, user.groups),
            reasons=compiled.reasons,
            runs_when_able=runs and compiled.plan is None,
            launch=self._plan_launch(user.name, compiled, TicketSelection()) if runs else None,
            pins=compiled.pins,
        )

    def _plan_launch(self, user_name: str, compiled: _Compiled, selection: TicketSelection) -> Launch | None:
        if compiled.plan is None:
            return None
        self._check_workers(compiled.flow_id, compiled.explanation, compiled.topology)
        log_ids = self._read_log_ids(compiled)
        jobs = plan_jobs(compiled.plan, compiled.topology, compiled.stored_jobs, log_ids)
        return Launch(uuid.uuid4(), jobs, selection, user_name, compiled.generation, pins=compiled.pins)

    def _plan_jobs(self, compiled: _Compiled) -> tuple[LaunchedJob, ...]:
        """The jobs of a version of a flow that was launched before. What a launch would refuse is refused here."""
        if compiled.plan is None or not compiled.stored_jobs:
            return ()
        return plan_jobs(compiled.plan, compiled.topology, compiled.stored_jobs, self._read_log_ids(compiled))

    def _check_workers(self, flow_id: uuid.UUID, explained: Explanation, topology: Topology) -> None:
        """RejectedError: an executor has no place for the flow's workers beside those of others."""
        if not isinstance(plan := explained.compiled, FlowPlan):
            return
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

    def _read_log_ids(self, compiled: _Compiled) -> Mapping[str, LogId]:
        jobs = () if compiled.plan is None else compiled.plan.jobs
        logs = {find_log(job, compiled.topology) for job in jobs}
        return {log: self._read_log_id(log) for log in logs}

    def _read_log_id(self, log: str) -> LogId:
        found = self._seen_log_ids[log] = self._logs.get_log_id(log)
        return found

    def _recall_log_id(self, log: str) -> LogId:
        """For the search: while the log is away, the id that it had last. A plan that uses it is checked anew."""
        try:
            return self._read_log_id(log)
        except (RetryableError, OutcomeUnknownError):
            if log not in self._seen_log_ids:
                raise
            return self._seen_log_ids[log]

    def _set_paused(self, key: FlowKey, *, is_paused: bool) -> StoredFlow:
        with self.writes.open():
            stored = self._store.set_paused(key, is_paused=is_paused)
            self._catalog.note(stored)
            return stored

    def _get_stored(self, key: FlowKey) -> StoredFlow:
        found = self._store.find(key)
        if found is None:
            raise no_flow(key)
        return found


def _with_plan(flow: StoredFlow, compiled: _Compiled) -> StoredFlow:
    plan = compiled.plan
    if plan is None:
        return flow
    spec = dataclasses.replace(flow.spec, child_specs=tuple(job.ticket for job in plan.jobs))
    return replace(flow, spec=spec, plan=plan)


def _cant_run(key: FlowKey, compiled: _Compiled) -> ConflictError:
    return ConflictError(
        f"the flow {key.name!a} can't run on this topology: {'; '.join(compiled.reasons)}",
        hint="It runs when the topology has what is missing.",
    )


def forget_wish(config: FlowConfig) -> FlowConfig:
    """The config without the wish for a run, which is of one request: who sends the config again wishes for none."""
    return config.model_copy(update={"run_immediately": None}) if config.run_immediately else config


def _next_version(flow: StoredFlow) -> str:
    return str(int(flow.spec.version) + 1)


def _make_spec(config: FlowConfig, version: str) -> FlowSpec:
    key = FlowKey(config.flow_group, config.flow_name)
    return FlowSpec(key.uri, version, config.description, config, config.template_uris)


def _make_request_id(request_key: str, flow_id: uuid.UUID, selection: TicketSelection) -> uuid.UUID:
    """The id of a launch that a request with a key asks for: the same for the same request."""
    return uuid.uuid5(flow_id, json.dumps([request_key, selection_to_json(selection)], sort_keys=True))


def _digest(config: FlowConfig) -> str:
    return hashlib.sha256(config.model_dump_json().encode()).hexdigest()
