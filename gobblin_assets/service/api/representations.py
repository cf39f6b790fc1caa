"""The JSON of ``/api/v1``: models that the answers are made of, and that OpenAPI shows."""

import datetime as dt
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field

from gobblin_assets.model.extract import Mode
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_store import FlowVersion, NamedJob, StoredFlow
from gobblin_assets.service.guarded_alerts import Alert, AlertKind
from gobblin_assets.service.guarded_executors import ShownExecutor
from gobblin_assets.service.guarded_logs import ShownLog
from gobblin_assets.service.guarded_packs import VisiblePack
from gobblin_assets.service.guarded_probes import DryRun
from gobblin_assets.service.job_plan import Explanation, FlowPlan, PendingFlow, PlannedJob
from gobblin_assets.service.job_template import JobTemplate
from gobblin_assets.service.pack_catalog import PublishedPack
from gobblin_assets.service.probes import TABLES_ASKED_MAX, Probe
from gobblin_assets.service.published_jobs import PastExecution
from gobblin_assets.service.slots import FlowSlot, FlowSlotState
from gobblin_assets.service.statuses import FlowStatus, JobStatus
from gobblin_assets.service.topology import DataNode, NodeState
from gobblin_assets.spec.spec_model import SpecModel


class ProblemBody(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = Field(None, description="What is wrong: an option, a parameter, a part of the request.")
    hint: str | None = Field(None, description="What helps.")
    family: str | None = None


class FlowBody(BaseModel):
    """A flow as it is stored."""

    uri: str
    version: str
    state: str
    reasons: list[str] = Field(description="Why a pending flow can't run.")
    owner: str
    created_at: dt.datetime
    updated_at: dt.datetime
    next_fire_at: dt.datetime | None = Field(description="When the schedule starts the flow next; null: it does not.")
    config: FlowConfig
    pins: dict[str, str] = Field(description="The versions of packs that its launches use, by packs.")


class FlowsBody(BaseModel):
    """A page of flows. ``next``: the cursor of the next page; null: this is the last."""

    flows: list[FlowBody]
    next: str | None
    age_s: float = Field(description="0, or the age of the copy that answers while the database is away.")


class VersionBody(BaseModel):
    """A version of a flow's config."""

    version: str
    made_by: str
    made_at: dt.datetime
    config: FlowConfig
    pins: dict[str, str]


class SlotBody(BaseModel):
    """A start by the schedule, or `count` of them up to `until`, and what became of it; `reason`: why it does not run.

    `execution_id`: the execution that is run for it.
    """

    at: dt.datetime
    until: dt.datetime
    count: int
    state: FlowSlotState
    reason: str
    execution_id: int | None


class StateBody(BaseModel):
    """A node, and a format of data there."""

    node: str
    format: str


class PlannedJobBody(BaseModel):
    """A job of a plan."""

    number: int
    job_name: str
    template_uri: str
    executor: str
    source: StateBody
    target: StateBody
    after: list[int]
    cost: float
    notes: list[str] = Field(description="Such as which ledger says what is copied.")
    job: dict[str, Any] = Field(description="The job's options, as its executor gets them.")


class PlanBody(BaseModel):
    """Jobs, those first that others wait for."""

    cost: float
    jobs: list[PlannedJobBody]


class UntakenBody(BaseModel):
    """A hop that no plan takes, and why."""

    template_uri: str
    executor: str
    source: StateBody
    target: StateBody
    reason: str


class NewerPackBody(BaseModel):
    """A pack of which there is a newer version than the one that the flow has pinned; `:repin` takes it."""

    pack: str
    pinned: str
    newest: str


class ExplanationBody(BaseModel):
    """A plan, or why there is none; others; and the hops near source and destinations that are not taken."""

    plan: PlanBody | None
    reasons: list[str]
    alternatives: list[PlanBody]
    untaken: list[UntakenBody]
    newer: list[NewerPackBody]
    notes: list[str]
    next_fires: list[dt.datetime] = Field(description="When the schedule next starts the flow, in the flow's zone.")


class ProbeBody(BaseModel):
    """A question to an executor. ``state``: WAITING, ANSWERED or FAILED."""

    id: str
    kind: str = Field(description="tables, columns, topics, paths, dry_run.")
    executor: str
    state: str
    age_s: float
    answer: dict[str, Any] | None = Field(description="By kind. `cut`: lists that lost their ends, and their lengths.")
    message: str = Field(description="Why there is no answer.")
    field: str | None = Field(description="What is wrong: a variable of the executor, a table, a directory.")
    hint: str | None
    family: str | None


class DryRunJobBody(BaseModel):
    """A job of a plan, and what its run would read or copy now."""

    number: int
    job_name: str
    executor: str
    note: str
    probe: ProbeBody | None


class DryRunBody(BaseModel):
    """The jobs of a plan; or why there is none."""

    jobs: list[DryRunJobBody]
    reasons: list[str]


class SuggestBody(SpecModel):
    """What is asked of a node. Without either: its tables, topics or directories."""

    tables: list[Annotated[str, Field(min_length=1, max_length=500)]] = Field(
        default_factory=list, max_length=TABLES_ASKED_MAX, description="Of a database: the columns of these tables."
    )
    below: str = Field("", max_length=1_000, description="Of files: the directories below this one.")


class JobAttemptBody(BaseModel):
    """A ticket of a job before its last one: where it was sent, and how it ended."""

    attempt: int
    executor: str
    status: str
    message: str
    ended_at: dt.datetime
    ticket_id: str


class JobStatusBody(BaseModel):
    """A job of an execution."""

    number: int
    job_name: str
    executor: str
    status: str
    started_at: dt.datetime | None
    ended_at: dt.datetime | None
    message: str
    processed_count: int
    low_watermark: str | None
    high_watermark: str | None
    ticket_id: str
    template_uri: str | None = Field(description="With the version of the pack that the job was made by.")
    attempt: int = Field(description="Tickets of the job are counted from 1: retries, moves and resumed executions.")
    attempts: list[JobAttemptBody] = Field(
        description="Of one execution that was asked for: the job's earlier tickets, the latest first."
    )


class PastExecutionBody(BaseModel):
    """An execution of a job."""

    execution_id: int
    flow_version: str
    job: JobStatusBody


class NamedJobBody(BaseModel):
    """A job of a flow by the name that decides its paths, its ledger and its watermarks."""

    node: str
    job_name: str
    is_launched: bool
    executions: list[PastExecutionBody] = Field(description="The last ones, the latest first.")


class StatusBody(BaseModel):
    """An execution of a flow.

    ``asked_by``: a user; of a run that an executor began by itself, what began it, such as dagster.
    """

    flow_group: str
    flow_name: str
    execution_id: int
    flow_version: str
    status: str
    started_at: dt.datetime
    ended_at: dt.datetime | None
    message: str
    asked_by: str
    jobs: list[JobStatusBody]


class ExecutionsBody(BaseModel):
    """Executions, the latest first. ``next``: the cursor of the next page."""

    executions: list[StatusBody]
    next: str | None


class RunBody(SpecModel):
    """Datasets and partitions to run. Without any, all datasets, and the partitions that are due."""

    datasets: list[str] = Field(default_factory=list, max_length=1000)
    partitions: list[str] = Field(default_factory=list, max_length=1000)
    ranges: list[tuple[str, str]] = Field(default_factory=list, max_length=100, description="First and last, included.")
    mode: Mode = Field(Mode.AUTO, description="append what came since, or refresh: read whole partitions again.")


class CancelBody(SpecModel):
    """The execution to cancel."""

    execution_id: int


class NodeBody(BaseModel):
    """A place of data."""

    name: str
    uri: str
    kind: str
    connection: str | None
    root: str | None
    zone: str
    transit: bool
    groups: list[str]
    description: str


class ExecutorHealthBody(BaseModel):
    """An executor by the heartbeats of its processes."""

    state: str = Field(description="HEALTHY, UNHEALTHY, DRAINING; UNKNOWN: it was never heard.")
    reason: str
    heard_ago_s: float | None
    release: str
    slots: int
    workers_max: int | None = Field(description="Workers at once; null: a worker is a ticket like others.")
    working: int = Field(description="Tickets in slots.")
    inbox: int = Field(description="Tickets that wait for a slot.")
    inbox_max: int | None = Field(description="So many may wait at it; null: nobody knows.")
    log_id: str | None


class ExecutorBody(BaseModel):
    """An executor: <technology, location, communication>, what it may do, and how it is."""

    name: str
    uri: str
    version: str
    description: str
    technology: str
    location: str
    communication: str
    capabilities: list[str]
    nodes: list[str]
    groups: list[str]
    cost: float
    ui_url: str | None
    usable: list[str] = Field(description="Of the capabilities, those that its packages have.")
    lacks: list[str] = Field(description="Why it can't do or reach the rest of what the topology allows it.")
    health: ExecutorHealthBody


class LogBody(BaseModel):
    """A log of executors, and whether it drains."""

    name: str
    executors: list[str] = Field(description="Those that the user may use.")
    state: str = Field(description="WORKING; DRAINING: nobody claims tickets; AWAY: it can't be asked.")
    reason: str = Field(description="Why it is away.")
    draining_since: dt.datetime | None
    drained_by: str = Field(description="Who asked for the drain.")
    working: int | None = Field(description="Attempts that live. Without any, a log that drains can be upgraded.")
    last_pause_s: float | None = Field(description="From the begin to the end of the last drain.")


class TemplateBody(BaseModel):
    """A job template: what it needs, between which kinds of nodes."""

    uri: str
    version: str
    description: str
    capability: str
    shape: str
    parameters: dict[str, Any] = Field(description="The JSON Schema of its parameters.")


class PublishedBody(BaseModel):
    """A version of a pack, which never changes. ``digest``: of its files."""

    pack: str
    version: str
    description: str
    digest: str
    published_by: str
    published_at: dt.datetime


class PackBody(PublishedBody):
    """A version of a pack with its templates."""

    templates: list[TemplateBody]


class TokenBody(BaseModel):
    """A token, which only its user has. ``digest``: the begin of its SHA-256, which tells it from others."""

    user: str
    digest: str
    expires_at: dt.datetime


class UserBody(BaseModel):
    """The user that the service takes the asker for."""

    name: str
    groups: list[str]


class AlertBody(BaseModel):
    """What waits for a person. `since`: by the database's clock; null: not known."""

    kind: AlertKind
    since: dt.datetime | None
    what: str
    fix: str = Field(description="What helps.")
    flow_group: str | None
    flow_name: str | None
    execution_id: int | None
    executor: str | None


class HealthBody(BaseModel):
    """``ok``, or ``read_only`` while the database is away and a copy answers."""

    status: str
    snapshot_age_s: float
    topology_version: str


def show_alert(alert: Alert) -> AlertBody:
    return AlertBody(
        kind=alert.kind,
        since=alert.since,
        what=alert.what,
        fix=alert.fix,
        flow_group=None if alert.flow is None else alert.flow.group,
        flow_name=None if alert.flow is None else alert.flow.name,
        execution_id=alert.execution_id,
        executor=alert.executor,
    )


def show_flow(flow: StoredFlow) -> FlowBody:
    return FlowBody(
        uri=flow.spec.uri,
        version=flow.spec.version,
        state=flow.state.value,
        reasons=list(flow.reasons),
        owner=flow.owner.name,
        created_at=flow.created_at,
        updated_at=flow.updated_at,
        next_fire_at=flow.next_fire_at,
        config=flow.spec.config,
        pins=dict(flow.spec.pins),
    )


def show_slot(slot: FlowSlot) -> SlotBody:
    return SlotBody(
        at=slot.at,
        until=slot.until,
        count=slot.count,
        state=slot.state,
        reason=slot.reason,
        execution_id=slot.execution_id,
    )


def show_version(version: FlowVersion) -> VersionBody:
    return VersionBody(
        version=version.version,
        made_by=version.made_by,
        made_at=version.made_at,
        config=version.config,
        pins=dict(version.pins),
    )


def show_named_job(job: NamedJob, past: Sequence[PastExecution]) -> NamedJobBody:
    return NamedJobBody(
        node=job.node,
        job_name=job.job_name,
        is_launched=job.binding is not None,
        executions=[show_past_execution(each) for each in past],
    )


def show_past_execution(past: PastExecution) -> PastExecutionBody:
    return PastExecutionBody(
        execution_id=past.execution_id, flow_version=past.flow_version, job=show_job_status(past.job)
    )


def show_plan(plan: FlowPlan) -> PlanBody:
    return PlanBody(cost=plan.cost, jobs=[_show_planned(each) for each in plan.jobs])


def _show_planned(job: PlannedJob) -> PlannedJobBody:
    return PlannedJobBody(
        number=job.number,
        job_name=job.job_name,
        template_uri=job.template_uri,
        executor=job.executor,
        source=_show_state(job.source),
        target=_show_state(job.target),
        after=list(job.after),
        cost=job.cost,
        notes=list(job.notes),
        job=dict(job.ticket.job),
    )


def _show_state(state: NodeState) -> StateBody:
    return StateBody(node=state.node, format=state.format.value)


def show_explanation(explanation: Explanation) -> ExplanationBody:
    compiled = explanation.compiled
    return ExplanationBody(
        plan=None if isinstance(compiled, PendingFlow) else show_plan(compiled),
        reasons=list(compiled.reasons) if isinstance(compiled, PendingFlow) else [],
        alternatives=[show_plan(each) for each in explanation.alternatives],
        untaken=[
            UntakenBody(
                template_uri=each.template_uri,
                executor=each.executor,
                source=_show_state(each.source),
                target=_show_state(each.target),
                reason=each.reason,
            )
            for each in explanation.untaken
        ],
        newer=[NewerPackBody(pack=each.pack, pinned=each.pinned, newest=each.newest) for each in explanation.newer],
        notes=list(explanation.notes),
        next_fires=list(explanation.fires),
    )


def show_probe(probe: Probe) -> ProbeBody:
    return ProbeBody(
        id=str(probe.probe_id),
        kind=probe.kind.value,
        executor=probe.executor,
        state=probe.state.value,
        age_s=round(probe.age_s, 1),
        answer=None if probe.answer is None else dict(probe.answer),
        message=probe.message,
        field=probe.field or None,
        hint=probe.hint or None,
        family=probe.family,
    )


def show_dry_run(dry_run: DryRun) -> DryRunBody:
    compiled = dry_run.explanation.compiled
    return DryRunBody(
        jobs=[
            DryRunJobBody(
                number=each.job.number,
                job_name=each.job.job_name,
                executor=each.job.executor,
                note=each.note,
                probe=None if each.probe is None else show_probe(each.probe),
            )
            for each in dry_run.jobs
        ],
        reasons=list(compiled.reasons) if isinstance(compiled, PendingFlow) else [],
    )


def show_status(status: FlowStatus) -> StatusBody:
    return StatusBody(
        flow_group=status.flow.group,
        flow_name=status.flow.name,
        execution_id=status.execution_id,
        flow_version=status.flow_version,
        status=status.status.value,
        started_at=status.started_at,
        ended_at=status.ended_at,
        message=status.message,
        asked_by=status.asked_by,
        jobs=[show_job_status(each) for each in status.jobs],
    )


def show_job_status(job: JobStatus) -> JobStatusBody:
    return JobStatusBody(
        number=job.number,
        job_name=job.job_name,
        executor=job.job_group,
        status=job.status.value,
        started_at=job.started_at,
        ended_at=job.ended_at,
        message=job.message,
        processed_count=job.processed_count,
        low_watermark=job.low_watermark,
        high_watermark=job.high_watermark,
        ticket_id=str(job.ticket_id),
        template_uri=job.template_uri,
        attempt=job.attempt,
        attempts=[
            JobAttemptBody(
                attempt=each.attempt,
                executor=each.executor,
                status=each.status.value,
                message=each.message,
                ended_at=each.ended_at,
                ticket_id=str(each.ticket_id),
            )
            for each in job.earlier
        ],
    )


def show_template(template: JobTemplate) -> TemplateBody:
    return TemplateBody(
        uri=template.uri,
        version=template.version,
        description=template.description,
        capability=template.capability,
        shape=template.shape,
        parameters=dict(template.parameters),
    )


def show_published(published: PublishedPack) -> PublishedBody:
    return PublishedBody(**_list_published_fields(published))


def show_pack(pack: VisiblePack) -> PackBody:
    templates = [show_template(each) for each in pack.templates]
    return PackBody(**_list_published_fields(pack.published), templates=templates)


def _list_published_fields(published: PublishedPack) -> dict[str, Any]:
    return {
        "pack": published.name,
        "version": published.version,
        "description": published.description,
        "digest": published.digest,
        "published_by": published.published_by,
        "published_at": published.published_at,
    }


def show_node(node: DataNode) -> NodeBody:
    return NodeBody(
        name=node.name,
        uri=node.uri,
        kind=node.kind.value,
        connection=node.connection,
        root=node.root,
        zone=node.zone,
        transit=node.transit,
        groups=sorted(node.groups),
        description=node.description,
    )


def show_log(shown: ShownLog) -> LogBody:
    drain = shown.drain
    return LogBody(
        name=shown.name,
        executors=list(shown.executors),
        state="AWAY" if drain is None else "WORKING" if drain.since is None else "DRAINING",
        reason=shown.away,
        draining_since=shown.since,
        drained_by="" if drain is None else drain.asked_by,
        working=None if drain is None else drain.working,
        last_pause_s=None if shown.pause_s is None else round(shown.pause_s, 1),
    )


def show_executor(shown: ShownExecutor) -> ExecutorBody:
    config, health = shown.config, shown.health
    return ExecutorBody(
        name=config["name"],
        uri=shown.uri,
        version=shown.version,
        description=shown.description,
        technology=config["technology"],
        location=config["location"],
        communication=config["communication"],
        capabilities=sorted(config["capabilities"]),
        nodes=config["nodes"],
        groups=sorted(config["groups"]),
        cost=config["cost"],
        ui_url=config["ui_url"],
        usable=list(shown.usable),
        lacks=list(shown.lacks),
        health=ExecutorHealthBody(
            state=health.state.value,
            reason=health.reason,
            heard_ago_s=None if health.heard_ago_s is None else round(health.heard_ago_s, 1),
            release=health.release,
            slots=health.slots,
            workers_max=health.workers_max,
            working=health.working,
            inbox=health.inbox,
            inbox_max=health.inbox_max,
            log_id=None if health.log_id is None else str(health.log_id),
        ),
    )
