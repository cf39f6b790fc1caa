"""Plans of flows: jobs, hop by hop, each with its executor; what is offered instead; and why the rest is not."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gobblin_assets.model.job_ticket import JobTicket
from gobblin_assets.service.job_template import JobTemplate
from gobblin_assets.service.specs import FlowSpec
from gobblin_assets.service.topology import NodeState, Topology, TopologySpec


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One hop. ``number``: from 0, in the order of the plan; ``after``: the numbers of jobs whose output it reads.

    ``job_name``: the name that the job has in its executor's log: one for each (flow, node that it publishes to).
    ``ticket``: what the executor is sent, with the job's options. ``notes``: sentences for people, such as which ledger
    it reads.
    """

    number: int
    job_name: str
    template_uri: str
    executor: str
    source: NodeState
    target: NodeState
    ticket: JobTicket
    after: tuple[int, ...] = ()
    cost: float = 1.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """The jobs of a flow, those first that others wait for. ``cost``: of all jobs together."""

    jobs: tuple[PlannedJob, ...]
    cost: float


@dataclass(frozen=True, slots=True)
class PendingFlow:
    """A flow that this topology can't run; another one may. ``reasons``: sentences for people."""

    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UntakenEdge:
    """A hop near the source or a destination that no plan takes, and why."""

    template_uri: str
    executor: str
    source: NodeState
    target: NodeState
    reason: str


@dataclass(frozen=True, slots=True)
class NewerPack:
    """A pack of which there is a newer version than the one that a flow has pinned."""

    pack: str
    pinned: str
    newest: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a compilation found: the plan or why there is none, other plans (at most 3), hops that were not taken.

    ``newer``: versions of packs that the flow may take. Only ``explain_flow`` looks for these, other plans and hops.
    ``notes``: what else there is to say of the plan, for people. ``fires``: when the schedule next starts the flow, in
    its zone; compilers leave that to who asks them.
    """

    compiled: FlowPlan | PendingFlow
    alternatives: tuple[FlowPlan, ...] = ()
    untaken: tuple[UntakenEdge, ...] = ()
    notes: tuple[str, ...] = ()
    newer: tuple[NewerPack, ...] = ()
    fires: tuple[dt.datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundHop:
    """What the name of a job stands for since its first launch; another hop may not publish under it.

    ``template_uri``: without a version. ``allows_log``: whether the log of an executor, by its name in the topology, is
    the one that the job publishes through.
    """

    source_node: str
    template_uri: str
    allows_log: Callable[[str], bool]


class JobNames(Protocol):
    """The stored names of a flow's jobs."""

    def list_bound_hops(self) -> Mapping[str, BoundHop]:
        """What the flow's jobs are bound to, by the nodes that they publish to."""
        ...

    def find_name(self, node: str) -> str | None:
        """The name of the flow's job that publishes to the node; None for a job that was never named."""
        ...

    def offer_name(self, node: str) -> str:
        """The stored name; else a free one, ``[a-z0-9_]``, at most 48 characters, which is stored by the launch."""
        ...

    def shares_log(self, job_name: str, log: str) -> bool | None:
        """Whether a job of any flow publishes through the log of this name in the topology.

        None: no flow has launched a job of this name.
        """
        ...


class SpecCompiler(Protocol):
    """A compiler of flows. Registered by its name; ``identity`` and ``multi_hop`` are built in."""

    def compile_flow(self, spec: FlowSpec, names: JobNames, groups: frozenset[str]) -> Explanation:
        """Compile for a user of these groups. Stores nothing.

        RejectedError for what the user must correct; what the topology can mend is a PendingFlow.
        """
        ...

    def explain_flow(self, spec: FlowSpec, names: JobNames, groups: frozenset[str]) -> Explanation:
        """The same, with other plans and with hops that were not taken: it takes several times as long."""
        ...

    def list_templates(self, spec: FlowSpec, groups: frozenset[str]) -> Sequence[JobTemplate]:
        """The templates whose parameters the flow needs, whatever it gives; none for a flow that is pending."""
        ...

    def get_topology_spec_map(self) -> Mapping[str, TopologySpec]:
        """The executors that the compiler knows, by URI."""
        ...

    def on_topology(self, topology: Topology) -> None:
        """Take another topology for what is compiled from now on."""
        ...
