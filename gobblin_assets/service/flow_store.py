"""Flows as they are stored, with their versions, the names of their jobs and their launches; and the port of the store.

A flow is stored with its version, or not at all. What a launch decides (the execution, its jobs, the names of the jobs
and the ids of their tickets) is stored in one transaction, with the flow if the flow is new.
"""

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, Protocol, Self

from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.model.job_ticket import JobTicket, LogId, TicketSelection
from gobblin_assets.service.access import EVERY_FLOW, FlowScope
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.job_plan import FlowPlan
from gobblin_assets.service.slots import FlowSlot
from gobblin_assets.service.specs import FlowKey, FlowSpec
from gobblin_assets.service.statuses import FlowStatus

PAUSED_MESSAGE: Final = "the flow was paused"
"""Of an execution of workers, which a pause ends and a resume begins again."""


class FlowState(StrEnum):
    """Whether a flow can be run."""

    ACTIVE = "ACTIVE"
    PENDING = "PENDING"  # this topology can't run it: -> ACTIVE, when a topology can
    PAUSED = "PAUSED"  # -> ACTIVE or PENDING, by resume


class SpecNotFoundError(RejectedError):
    """The error for a spec that a catalog does not have."""


class StaleVersionError(ConflictError):
    """The error for a change of a version of a flow that is no longer the last one."""


def no_flow(key: FlowKey) -> SpecNotFoundError:
    return SpecNotFoundError(
        f"there is no flow {key.name!a} in the group {key.group!a}",
        field="flow",
        hint="Look for it in the list of flows, or create it.",
    )


@dataclass(frozen=True, slots=True)
class Owner:
    """The user who wrote a flow's latest version, with the groups by which it is compiled later."""

    name: str
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRecord:
    """What a store has of a flow, but for its version. ``flow_id``: one of the same name made later has another.

    ``reasons``: why a PENDING flow can't run, for people. ``change``: the number of the catalog's last change of it.
    ``runs_when_able``: a PENDING flow runs as soon as it can. ``restarts``: it runs once its workers, whose end was
    asked for by a new version, have ended. ``generation``: how many times it was replanned. ``next_fire_at``: the next
    slot of its schedule.
    """

    flow_id: uuid.UUID
    state: FlowState
    reasons: tuple[str, ...]
    owner: Owner
    created_at: dt.datetime
    updated_at: dt.datetime
    change: int
    generation: int = 0
    runs_when_able: bool = False
    restarts: bool = False
    next_fire_at: dt.datetime | None = None


_RECORDED: Final = tuple(each.name for each in fields(FlowRecord))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFlow(FlowRecord):
    """A flow of the catalog. ``plan``: of a flow that this call compiled, else None."""

    spec: FlowSpec
    plan: FlowPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowCopy(FlowRecord):
    """A flow as the copy of a catalog keeps it: ``config`` is JSON, which takes a tenth of what its objects take."""

    key: FlowKey
    version: str
    config: str
    pins: Mapping[str, str]

    @classmethod
    def of(cls, flow: StoredFlow) -> Self:
        spec = flow.spec
        written = spec.config.model_dump_json()
        return cls(key=spec.key, version=spec.version, config=written, pins=spec.pins, **_get_record(flow))

    def load(self) -> StoredFlow:
        """Read by pydantic itself: lists have many flows."""
        config = FlowConfig.model_validate_json(self.config)
        described = config.description, config, config.template_uris
        return StoredFlow(spec=FlowSpec(self.key.uri, self.version, *described, pins=self.pins), **_get_record(self))


def _get_record(flow: FlowRecord) -> dict[str, Any]:
    return {name: getattr(flow, name) for name in _RECORDED}


@dataclass(frozen=True, slots=True)
class FlowPage:
    """Flows in the order of their groups and names. ``after``: where the next page begins; None: this is the last."""

    flows: tuple[StoredFlow, ...]
    after: FlowKey | None


@dataclass(frozen=True, slots=True)
class FlowVersion:
    """A version of a flow: what its config was, who wrote it, and the versions of packs that it has pinned."""

    version: str
    config: FlowConfig
    pins: Mapping[str, str]
    made_by: str
    made_at: dt.datetime


@dataclass(frozen=True, slots=True)
class JobBinding:
    """What a job's name stands for from its first launch on. Its paths, ledger and watermarks are these facts' alone.

    ``template_uri``: without a version. ``source_place``: the connection and the root of the source node; ``root``:
    those of the node that the job publishes to. A node of the same name with another connection is another place.
    """

    log_id: LogId
    template_uri: str
    source_node: str
    source_place: str
    root: str


@dataclass(frozen=True, slots=True)
class NamedJob:
    """A job of a flow: (flow, node it publishes to), its stored name, and what its first launch bound the name to.

    ``is_retired``: a worker's that a later version dropped. Whatever publishes to the node then has another name.
    """

    node: str
    job_name: str
    binding: JobBinding
    is_retired: bool = False


@dataclass(frozen=True, slots=True)
class LaunchedJob:
    """A job of a launch. The ids of its tickets follow from the launch's: a repeated send is the same ticket."""

    number: int
    node: str
    job_name: str
    binding: JobBinding
    executor: str
    log: str
    ticket: JobTicket
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """An execution that is to be made. ``request_id``: a repetition of the same launch finds its execution by it.

    ``pins``: the versions of packs that its jobs were made by. The flow keeps those of packs that it has not pinned.
    ``is_restart``: only for a flow that restarts.
    """

    request_id: uuid.UUID
    jobs: tuple[LaunchedJob, ...]
    selection: TicketSelection
    asked_by: str
    generation: int
    is_restart: bool = False
    pins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FlowWrite:
    """A version of a flow that is to be stored, and how the compiler found it.

    ``request_id``: a repetition of the same write finds its version by it. ``runs_when_able``: a PENDING flow that is
    to run when a topology can run it. ``planned``: the jobs of its plan; workers that run otherwise are ended, and
    started anew. ``pins``: the versions of packs that it was compiled with.
    """

    request_id: uuid.UUID
    config: FlowConfig
    owner: Owner
    reasons: tuple[str, ...] = ()
    runs_when_able: bool = False
    launch: Launch | None = None
    planned: tuple[LaunchedJob, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The key that a client gave a request, to send it again safely. ``digest``: of what the request asks for."""

    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class CatalogChanges:
    """What changed in a catalog since a number: flows as they are now, and those that are gone.

    ``number``: all changes up to it were read. ``is_all``: there were no more.
    """

    number: int
    flows: tuple[FlowCopy, ...]
    gone: tuple[tuple[FlowKey, uuid.UUID], ...]
    is_all: bool


class FlowStore(Protocol):
    """The store of flows. Every write is durable when the call returns.

    Its writes raise ConflictError for what another writer did first, SpecNotFoundError for a flow that is not there,
    and RetryableError if the store is away.
    """

    def create(self, flow_id: uuid.UUID, write: FlowWrite, request: RequestKey | None) -> StoredFlow:
        """ConflictError: a flow of this name is there, or the request's key belongs to another request.

        A request that was answered is answered again, with the flow as it is now.
        """
        ...

    def change(self, flow_id: uuid.UUID, write: FlowWrite, *, if_version: str) -> StoredFlow:
        """Store the next version. Workers that it has run otherwise are ended, and the flow restarts.

        StaleVersionError: the flow is not at ``if_version``.
        """
        ...

    def delete(self, key: FlowKey, *, if_version: str | None = None) -> StoredFlow | None:
        """Remove the flow, and cancel what it runs. None: there is none. The names of its jobs stay for ever.

        StaleVersionError: the flow is not at ``if_version``.
        """
        ...

    def find(self, key: FlowKey) -> StoredFlow | None: ...

    def list_flows(
        self,
        *,
        group: str | None,
        search: str | None,
        after: FlowKey | None,
        limit: int,
        scope: FlowScope = EVERY_FLOW,
        is_pending: bool = False,
    ) -> FlowPage:
        """Flows of the scope. ``search``: a part of the group, the name or the description, in any case of letters."""
        ...

    def list_pending(self, *, after: StoredFlow | None, limit: int) -> Sequence[StoredFlow]:
        """PENDING flows, the oldest first. ``after``: the last one that the caller has."""
        ...

    def activate(self, flow_id: uuid.UUID, *, if_version: str, launch: Launch | None, pins: Mapping[str, str]) -> bool:
        """Make a PENDING flow ACTIVE, with these pins. False: it is no longer PENDING at this version."""
        ...

    def set_reasons(self, flow_id: uuid.UUID, reasons: Sequence[str], *, if_version: str) -> None:
        """Make an ACTIVE flow PENDING, or say anew why it is."""
        ...

    def set_paused(self, key: FlowKey, *, is_paused: bool) -> StoredFlow:
        """A pause ends an execution that has workers, which would never end by themselves."""
        ...

    def list_versions(self, key: FlowKey) -> Sequence[FlowVersion]:
        """The latest first."""
        ...

    def list_slots(self, flow_id: uuid.UUID, *, limit: int) -> Sequence[FlowSlot]:
        """Of the flow's schedule, the latest first."""
        ...

    def list_jobs(self, flow_id: uuid.UUID) -> Sequence[NamedJob]:
        """Not those before a replan."""
        ...

    def count_workers(self, executor: str, *, without: uuid.UUID) -> int:
        """The workers of open executions at the executor. ``without``: none of this flow."""
        ...

    def find_job_log(self, job_name: str) -> LogId | None:
        """The log that a job of any flow publishes through, also before a replan; None: no flow launched such a job."""
        ...

    def replan(self, flow_id: uuid.UUID, *, generation: int) -> None:
        """Retire the names of jobs of earlier generations, and the pins. ConflictError: an execution is open."""
        ...

    def launch(self, flow_id: uuid.UUID, launch: Launch, *, if_version: str) -> int:
        """Make the execution; returns its id. Workers' jobs that it does not have are retired: sources forget them.

        ConflictError: an execution is open, a job is bound otherwise, or it is a restart and the flow does not restart.
        """
        ...

    def list_restarting(self, *, after: StoredFlow | None, limit: int) -> Sequence[StoredFlow]:
        """ACTIVE flows whose workers were ended for a new version, and have ended; in pages, as ``list_pending``."""
        ...

    def resume_execution(self, key: FlowKey, execution_id: int, launch: Launch, *, if_version: str) -> FlowStatus:
        """The jobs of the execution that did not complete get new tickets, by the launch's plan.

        SpecNotFoundError: the flow has no such execution. ConflictError: it is open or COMPLETE, the flow was run or
        changed after it, or the plan has other jobs.
        """
        ...

    def cancel(self, key: FlowKey, execution_id: int) -> FlowStatus:
        """End what was not sent, and ask the executors to end the rest."""
        ...

    def find_status(self, key: FlowKey) -> FlowStatus | None:
        """Of the last execution."""
        ...

    def list_last_statuses(self, flow_ids: Sequence[uuid.UUID]) -> Sequence[FlowStatus]:
        """Of the last execution of each of these flows; nothing for those that were not run."""
        ...

    def list_executions(self, key: FlowKey, *, after: int | None, limit: int) -> Sequence[FlowStatus]:
        """The latest first. ``after``: the id of the last one that the caller has."""
        ...

    def find_execution(self, execution_id: int) -> FlowStatus | None: ...

    def read_changes(self, after: int, *, limit: int) -> CatalogChanges:
        """Flows that changed since this number, in the order of their changes; from 0, all flows."""
        ...

    def find_change_number(self) -> int: ...
