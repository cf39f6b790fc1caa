"""The names of a flow's jobs, and what each is bound to.

A job's name decides its paths, its ledger and its watermarks. So each (flow, node that it publishes to) has one name
for ever. At its first launch the name is bound to a log, a template, a source node and a root: a job of this name with
another of these would read on from watermarks that are not its own.
"""

import hashlib
import re
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gobblin_assets.errors import ConflictError, RejectedError, RetryableError
from gobblin_assets.model.job_ticket import LogId, TicketShape
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_store import JobBinding, LaunchedJob, NamedJob
from gobblin_assets.service.job_plan import BoundHop, FlowPlan, PlannedJob
from gobblin_assets.service.schedules import CONTINUOUS
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.topology import DataNode, Topology

JOB_NAME_LENGTH_MAX: Final = 48

_DIGEST_LENGTH: Final = 10
_REPLAN_HINT: Final = (
    "Ask for :replan: it publishes under new job names, beside the old data. Or give the flow back what it had."
)


class FlowJobNames:
    """The ``JobNames`` of one flow: stored names, and new ones that follow from the flow's id and the node alone.

    For one search for a plan: the id of each log is read once. A log that has no place here is not the bound one.
    ``find_job_log``: the log of a job of any flow, by the job's name.
    """

    def __init__(
        self,
        flow_id: uuid.UUID,
        key: FlowKey,
        stored: Sequence[NamedJob],
        generation: int,
        read_log_id: Callable[[str], LogId],
        find_job_log: Callable[[str], LogId | None],
    ) -> None:
        self._read_log_id = read_log_id
        self._find_job_log = find_job_log
        self._flow_id = flow_id
        self._key = key
        self._stored = {job.node: job for job in stored if not job.is_retired}
        self._retired = Counter(job.node for job in stored if job.is_retired)
        self._generation = generation
        self._log_ids: dict[str, LogId | None] = {}

    def list_bound_hops(self) -> Mapping[str, BoundHop]:
        return {node: self._hop_of(job) for node, job in self._stored.items()}

    def _hop_of(self, job: NamedJob) -> BoundHop:
        bound = job.binding
        return BoundHop(bound.source_node, bound.template_uri, lambda log: self._find_log_id(log) == bound.log_id)

    def _find_log_id(self, log: str) -> LogId | None:
        if log not in self._log_ids:
            try:
                self._log_ids[log] = self._read_log_id(log)
            except RejectedError:
                self._log_ids[log] = None
        return self._log_ids[log]

    def find_name(self, node: str) -> str | None:
        found = self._stored.get(node)
        return None if found is None else found.job_name

    def offer_name(self, node: str) -> str:
        return self.find_name(node) or make_job_name(
            self._flow_id, self._key, node, self._generation, self._retired[node]
        )

    def shares_log(self, job_name: str, log: str) -> bool | None:
        found = self._find_job_log(job_name)
        return None if found is None else found == self._find_log_id(log)


def make_job_name(flow_id: uuid.UUID, key: FlowKey, node: str, generation: int, retired: int = 0) -> str:
    """A name of ``[a-z0-9_]``, at most 48 characters, that no other (flow, node, generation, ``retired``) has.

    ``retired``: so many names of the node in this generation are retired.

    People read the flow and the node in it; a digest of the flow's id makes it unique.
    """
    place = f"{flow_id}\0{node}\0{generation}" + (f"\0{retired}" if retired else "")
    digest = hashlib.sha256(place.encode()).hexdigest()[:_DIGEST_LENGTH]
    readable = re.sub(r"[^a-z0-9]+", "_", f"{key.name}_to_{node}".lower()).strip("_")
    kept = readable[: JOB_NAME_LENGTH_MAX - _DIGEST_LENGTH - 1].rstrip("_")
    return f"{kept}_{digest}" if kept[:1].isalpha() else f"f_{kept[:-2]}_{digest}"


def strip_template_version(uri: str) -> str:
    """The URI of a template without the version of its pack: ``FS:///pack@3/x.template`` is ``FS:///pack/x.template``."""
    return re.sub(r"@[^/]*(?=/|$)", "", uri)


def plan_binding(job: PlannedJob, topology: Topology, log_id: LogId) -> JobBinding:
    """What a launch of the job would bind its name to."""
    return JobBinding(
        log_id=log_id,
        template_uri=strip_template_version(job.template_uri),
        source_node=job.source.node,
        source_place=_describe_place(topology.nodes[job.source.node]),
        root=_describe_place(topology.nodes[job.target.node]),
    )


def _describe_place(node: DataNode) -> str:
    return " ".join(each for each in (node.connection, node.root) if each)


def check_binding(job_name: str, bound: JobBinding, asked: JobBinding) -> None:
    """ConflictError if the job's name stands for something else."""
    if bound == asked:
        return
    words = (
        ("log", str(bound.log_id), str(asked.log_id)),
        ("template", bound.template_uri, asked.template_uri),
        ("source", bound.source_node, asked.source_node),
        ("source's place", bound.source_place, asked.source_place),
        ("root", bound.root, asked.root),
    )
    differing = [f"its {word} is {before}, not {now}" for word, before, now in words if before != now]
    raise ConflictError(
        f"the job {job_name} has published before, and {'; '.join(differing)}", hint=_REPLAN_HINT, job=job_name
    )


def check_continuity(config: FlowConfig, plan: FlowPlan) -> None:
    """RejectedError: the schedule has slots, and an execution with workers has no end; or it always runs what ends."""
    schedule = config.schedule.strip().lower()
    workers = [job.job_name for job in plan.jobs if job.ticket.shape is TicketShape.WORKER]
    if workers and schedule not in {"", CONTINUOUS}:
        raise RejectedError(
            f"{workers[0]} is a worker, which always runs: the flow has no end that another start could come behind",
            field="schedule",
            hint=f"Write {CONTINUOUS}, or leave it out.",
        )
    if schedule == CONTINUOUS and not workers:
        raise RejectedError(
            "no job of the flow is a worker, which always runs",
            field="schedule",
            hint="Write when the flow starts, such as */5 * * * * or @hourly.",
        )


def find_log(job: PlannedJob, topology: Topology) -> str:
    """The name of the way to the job's executor. RetryableError: the topology has changed since the job was planned."""
    spec = topology.executors.get(job.executor)
    if spec is None or not {job.source.node, job.target.node} <= topology.nodes.keys():
        raise RetryableError("the topology has changed meanwhile", passes=True, hint="Send the request again.")
    return spec.executor.way


def plan_jobs(
    plan: FlowPlan,
    topology: Topology,
    stored: Sequence[NamedJob],
    log_ids: Mapping[str, LogId],
) -> tuple[LaunchedJob, ...]:
    """The jobs of a launch. ``log_ids``: by the names of logs.

    ConflictError: a name is bound otherwise, or two jobs publish to one node.
    """
    by_node = {job.node: job for job in stored if not job.is_retired}
    jobs = []
    for job in plan.jobs:
        log = find_log(job, topology)
        binding = plan_binding(job, topology, log_ids[log])
        if (named := by_node.get(job.target.node)) is not None:
            check_binding(job.job_name, named.binding, binding)
        jobs.append(
            LaunchedJob(
                number=job.number,
                node=job.target.node,
                job_name=job.job_name,
                binding=binding,
                executor=job.executor,
                log=log,
                ticket=job.ticket,
                after=job.after,
            )
        )
    names = [job.job_name for job in jobs]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConflictError(
            f"several jobs of the plan have the name {', '.join(sorted(twice))}: they publish to one node",
            hint="Name another node on the way, or split the flow.",
        )
    return tuple(jobs)
