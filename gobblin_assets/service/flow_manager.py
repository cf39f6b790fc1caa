"""Manages flows: every request of a user that reads, changes, runs or ends one.

A write compiles first and stores then: the flow's version, the execution, the names of its jobs and the ids of their
tickets in one transaction. The orchestrator sends what is stored. Access is checked by the caller.
"""

import dataclasses
import datetime as dt
import hashlib
import json
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from gobblin_assets.errors import ConflictError, GobblinError, RejectedError
from gobblin_assets.model.job_ticket import TicketSelection, selection_from_json, selection_to_json
from gobblin_assets.service.access import EVERY_FLOW, FlowScope
from gobblin_assets.service.backfills import check_backfill
from gobblin_assets.service.flow_catalog import FlowCatalog, FlowsRead
from gobblin_assets.service.flow_compiling import FIRST_VERSION, CompiledFlow, FlowCompiling, make_spec, next_version
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_jobs import FlowJobNames, check_continuity
from gobblin_assets.service.flow_store import (
    PAUSED_MESSAGE,
    FlowState,
    FlowStore,
    FlowVersion,
    FlowWrite,
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
from gobblin_assets.service.slots import FlowSlot
from gobblin_assets.service.specs import FlowKey, FlowSpec, parse_flow_key
from gobblin_assets.service.statuses import ENDED, FlowStatus
from gobblin_assets.service.ticket_logs import TicketLogs
from gobblin_assets.service.topology import Topology

_log = logging.getLogger(__name__)

_PENDING_AT_ONCE_MAX: Final = 100
"""PENDING flows in memory at once."""

_NOT_STORED: Final = uuid.UUID(int=0)
"""The id of a flow that is only explained: each explanation shows the same names of jobs."""


class Requester(Protocol):
    """The user who asks, as far as flows are concerned."""

    @property
    def name(self) -> str: ...

    @property
    def groups(self) -> frozenset[str]: ...


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
        self.compiling = FlowCompiling(store, compiler, topology, logs)
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
            compiled = self.compiling.compile_new(flow_id, config, user.groups)
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
            compiled = self.compiling.compile_next(flow, config, user.groups)
            write = self._plan_write(user, config, compiled, runs=bool(config.run_immediately))
            write = replace(write, planned=self.compiling.plan_jobs_of(compiled))
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
        spec = make_spec(config, FIRST_VERSION if flow is None else next_version(flow))
        if flow is None:
            names = self.compiling.name_jobs(_NOT_STORED, key, (), 0)
            return self._explain(_NOT_STORED, spec, names, user)
        return self._explain_as(user, flow, spec)

    def explain_stored(self, user: Requester, key: FlowKey) -> Explanation:
        """Compile the flow as its next launch does, and look for newer versions of its packs; store nothing."""
        flow = self._get_stored(key)
        return self._explain_as(user, flow, flow.spec)

    def _explain_as(self, user: Requester, flow: StoredFlow, spec: FlowSpec) -> Explanation:
        jobs = self._store.list_jobs(flow.flow_id)
        names = self.compiling.name_jobs(flow.flow_id, flow.spec.key, jobs, flow.generation)
        return self._explain(flow.flow_id, spec, names, user)

    def _explain(self, flow_id: uuid.UUID, spec: FlowSpec, names: FlowJobNames, user: Requester) -> Explanation:
        explanation = self._compiler.explain_flow(spec, names, user.groups)
        if isinstance(explanation.compiled, FlowPlan):
            check_continuity(spec.config, explanation.compiled)
            self.compiling.check_workers(flow_id, explanation.compiled)
        # For people: what starts flows asks the database for the time.
        return replace(explanation, fires=spec.config.list_next_fires(flow_id, dt.datetime.now(dt.UTC)))

    def list_templates(self, user: Requester, config: FlowConfig) -> Sequence[JobTemplate]:
        """The templates whose parameters the flow needs, whatever it gives; none for a flow that is pending."""
        return self._compiler.list_templates(make_spec(config, FIRST_VERSION), user.groups)

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
            RejectedError: a text of the selection is none that a ticket may have, or it has too many partitions.
            ConflictError: one is open, the flow is paused or pending, or a job has published other data.

        """
        # What no ticket may have is refused here: behind it, nobody would be told.
        asked = selection_from_json(selection_to_json(selection or TicketSelection()))
        with self.writes.open():
            flow = self._get_stored(key)
            if flow.state is FlowState.PAUSED:
                raise ConflictError(f"the flow {key.name!a} is paused", hint="Resume it first.")
            compiled = self.compiling.compile_stored(flow, user.groups)
            launch = self.compiling.plan_launch(user.name, compiled, asked)
            if launch is not None and request_key is not None:
                launch = replace(launch, request_id=_make_request_id(request_key, flow.flow_id, asked))
            if launch is None:
                raise _cant_run(key, compiled)
            check_backfill(launch.jobs, asked)
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
            compiled = self.compiling.compile_stored(flow, user.groups)
            launch = self.compiling.plan_launch(user.name, compiled, TicketSelection())
            if launch is None:
                raise _cant_run(key, compiled)
            return self._store.resume_execution(key, execution_id, launch, if_version=flow.spec.version)

    def replan(self, user: Requester, key: FlowKey) -> StoredFlow:
        """Give the flow's jobs new names at their next launch. What was published stays, under the old names."""
        with self.writes.open():
            flow = self._get_stored(key)
            self._store.replan(flow.flow_id, generation=flow.generation + 1)
            flow = self._get_stored(key)
            return _with_plan(flow, self.compiling.compile_stored(flow, user.groups))

    def list_versions(self, key: FlowKey) -> Sequence[FlowVersion]:
        return self._store.list_versions(key)

    def list_slots(self, key: FlowKey, limit: int) -> Sequence[FlowSlot]:
        """What became of the starts of its schedule, the latest first."""
        return self._store.list_slots(self._get_stored(key).flow_id, limit=limit)

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
        compiled = self.compiling.compile_stored(flow, flow.owner.groups)
        launch = self.compiling.plan_launch(flow.owner.name, compiled, TicketSelection())
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
            compiled = self.compiling.compile_stored(flow, flow.owner.groups)
            if compiled.plan is None:
                if compiled.reasons != flow.reasons:
                    self._store.set_reasons(flow.flow_id, compiled.reasons, if_version=version)
                return False
            launch = None
            if flow.runs_when_able or flow.restarts:
                launch = self.compiling.plan_launch(flow.owner.name, compiled, TicketSelection())
            else:
                # Its workers of an earlier version end when it is ACTIVE, and have to start again.
                self.compiling.plan_jobs_of(compiled)
        except (RejectedError, ConflictError) as error:
            # The topology could run it; what is left is for whoever wrote the flow, who reads the reasons.
            reasons = (f"{error} Change the flow." if isinstance(error, RejectedError) else str(error),)
            if reasons != flow.reasons:
                self._store.set_reasons(flow.flow_id, reasons, if_version=version)
            return False
        return self._store.activate(flow.flow_id, if_version=version, launch=launch, pins=compiled.pins)

    def _plan_write(self, user: Requester, config: FlowConfig, compiled: CompiledFlow, *, runs: bool) -> FlowWrite:
        return FlowWrite(
            request_id=uuid.uuid4(),
            config=forget_wish(config),
            owner=Owner(user.name, user.groups),
            reasons=compiled.reasons,
            runs_when_able=runs and compiled.plan is None,
            launch=self.compiling.plan_launch(user.name, compiled, TicketSelection()) if runs else None,
            pins=compiled.pins,
        )

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


def _with_plan(flow: StoredFlow, compiled: CompiledFlow) -> StoredFlow:
    plan = compiled.plan
    if plan is None:
        return flow
    spec = dataclasses.replace(flow.spec, child_specs=tuple(job.ticket for job in plan.jobs))
    return replace(flow, spec=spec, plan=plan)


def _cant_run(key: FlowKey, compiled: CompiledFlow) -> ConflictError:
    return ConflictError(
        f"the flow {key.name!a} can't run on this topology: {'; '.join(compiled.reasons)}",
        hint="It runs when the topology has what is missing.",
    )


def forget_wish(config: FlowConfig) -> FlowConfig:
    """The config without the wish for a run, which is of one request: who sends the config again wishes for none."""
    return config.model_copy(update={"run_immediately": None}) if config.run_immediately else config


def _make_request_id(request_key: str, flow_id: uuid.UUID, selection: TicketSelection) -> uuid.UUID:
    """The id of a launch that a request with a key asks for: the same for the same request."""
    return uuid.uuid5(flow_id, json.dumps([request_key, selection_to_json(selection)], sort_keys=True))


def _digest(config: FlowConfig) -> str:
    return hashlib.sha256(config.model_dump_json().encode()).hexdigest()
