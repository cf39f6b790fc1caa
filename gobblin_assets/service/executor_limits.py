"""What executors do and reach: what the administrator allows, as far as their heartbeats say that they can.

The compiler works with a topology that is limited so. An executor that was never heard counts as the administrator
wrote it. One that is silent or drains stays in: a flow without an executor would wait for nothing else. Of executors
of equal cost the compiler takes one that is well.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from gobblin_assets.fs.registry import scheme_of
from gobblin_assets.service.executor_health import ExecutorHealth, HealthState
from gobblin_assets.service.topology import (
    BY_LOG,
    DataNode,
    ExecutorSpec,
    ExecutorState,
    NodeKind,
    Topology,
    TopologySpec,
)
from gobblin_assets.service.topology_catalog import TopologyListener
from gobblin_assets.spec.capabilities import list_known_capabilities

_CONNECTED_BY: Final[Mapping[NodeKind, str]] = {
    NodeKind.DATABASE: "jdbc",
    NodeKind.CHANGE_LOG: "postgres_log",
    NodeKind.CLUSTER: "kafka",
    NodeKind.TABLES: "jdbc",
    NodeKind.ICEBERG: "iceberg",
}
"""The kind of connection by which our own job kinds reach a node."""

_OWN_KINDS: Final = frozenset(_CONNECTED_BY.values())
_PACKAGED: Final = ("ingest.", "sink.")
"""Such words say what packages do. Others may be an administrator's own."""


@dataclass(slots=True)
class LimitedTopology:
    """The topology as the compiler has it. Its listeners hear of the limited one.

    ``find_health``: of an executor by its name, as it is now.
    """

    source: Topology
    find_health: Callable[[str], ExecutorHealth]
    _listeners: tuple[TopologyListener, ...] = ()
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _made: dict[str, tuple[TopologySpec, ExecutorHealth, TopologySpec, ExecutorState]] = field(default_factory=dict)
    _limited: Topology | None = None

    @property
    def topology(self) -> Topology:
        return self.source if self._limited is None else self._limited

    def add_listener(self, listener: TopologyListener) -> None:
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def on_topology(self, topology: Topology) -> None:
        with self._lock:
            self.source = topology
            self._made = {}
            self._take(self._limit())

    def apply_health(self) -> bool:
        """Tell the listeners if what executors can do has changed, or which are well."""
        with self._lock:
            limited = self._limit()
            if limited.states == self.topology.states:
                return False
            self._take(limited)
            return True

    def _take(self, limited: Topology) -> None:
        self._limited = limited
        for listener in self._listeners:
            listener.on_topology(limited)

    def _limit(self) -> Topology:
        specs, states = {}, {}
        for name, spec in self.source.executors.items():
            health = _keep_lasting(self.find_health(name))
            made = self._made.get(name)
            if made is None or made[0] is not spec or made[1] != health:
                made = self._made[name] = spec, health, *limit_executor(spec, self.source.nodes, health)
            specs[name] = made[2]
            states[name] = made[3]
        return replace(self.source, executors=MappingProxyType(specs), states=MappingProxyType(states))


def _keep_lasting(health: ExecutorHealth) -> ExecutorHealth:
    """The health without what changes at each heartbeat."""
    return replace(health, heard_ago_s=None, inbox=0, working=0, slots=0, reason="", release="", log_id=None)


def limit_executor(
    spec: TopologySpec, nodes: Mapping[str, DataNode], health: ExecutorHealth
) -> tuple[TopologySpec, ExecutorState]:
    """The executor with what it can do and reach, and why it can't do or reach the rest."""
    executor = spec.executor
    no_capabilities = dict(_list_lacking_capabilities(executor, health))
    no_nodes = dict(_list_unreached(executor, nodes, health))
    state = ExecutorState(
        is_well=health.state in (HealthState.HEALTHY, HealthState.UNKNOWN),
        workers_max=health.workers_max,
        no_capabilities=no_capabilities,
        no_nodes=no_nodes,
    )
    if not no_capabilities and not no_nodes:
        return spec, state
    limited = replace(
        executor,
        capabilities=executor.capabilities - no_capabilities.keys(),
        nodes=executor.nodes - no_nodes.keys(),
    )
    return replace(spec, executor=limited), state


def _list_lacking_capabilities(executor: ExecutorSpec, health: ExecutorHealth) -> Iterator[tuple[str, str]]:
    if health.capabilities is None:
        return
    known = frozenset(list_known_capabilities())
    for word in executor.capabilities - health.capabilities:
        if word in known or word.startswith(_PACKAGED):
            yield word, f"the executor {executor.name} can't do {word}: none of its packages offers it"


def _list_unreached(
    executor: ExecutorSpec, nodes: Mapping[str, DataNode], health: ExecutorHealth
) -> Iterator[tuple[str, str]]:
    for name in executor.nodes:
        if said := _say_unreached(executor, nodes[name], health):
            yield name, said


def _say_unreached(executor: ExecutorSpec, node: DataNode, health: ExecutorHealth) -> str:
    """Empty: it reaches the node, as far as is known."""
    if health.state is HealthState.UNKNOWN:
        if executor.communication == BY_LOG:
            return ""
        return f"the executor {executor.name} was never heard, and only it knows the log that it works with"
    if node.connection is not None and health.connections is not None and node.kind in _CONNECTED_BY:
        kinds = {
            kind
            for kind, _, name in (each.partition(".") for each in health.connections)
            if name == node.connection.lower()
        }
        # A package may reach the node by a kind of its own.
        if _CONNECTED_BY[node.kind] not in kinds and kinds <= _OWN_KINDS:
            return f"the executor {executor.name} has no connection {node.connection} in its environment"
    if node.root is not None and health.file_systems is not None and scheme_of(node.root) not in health.file_systems:
        return f"the executor {executor.name} has no package for the file system {scheme_of(node.root)} of {node.name}"
    return ""
