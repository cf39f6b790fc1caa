"""Executors as users read them: those that the user may use, how they are, and what they were sent.

Of nodes and flows that the user may not use or read, no name is told.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gobblin_assets.service.access import AccessRules, Action, User, may_use
from gobblin_assets.service.executor_health import ExecutorHealth
from gobblin_assets.service.flow_store import SpecNotFoundError
from gobblin_assets.service.published_jobs import PastExecution
from gobblin_assets.service.spec_executors.wired_executor import SpecExecutors
from gobblin_assets.service.topology import Topology, TopologySpec


@dataclass(frozen=True, slots=True)
class ShownExecutor:
    """An executor as the user may see it. ``config``: its options in the topology, without nodes of others.

    ``usable``: of its capabilities, those that it has; ``lacks``: why it can't do or reach the rest, as sentences.
    """

    uri: str
    version: str
    description: str
    config: Mapping[str, Any]
    usable: tuple[str, ...]
    lacks: tuple[str, ...]
    health: ExecutorHealth


class GuardedExecutors:
    """All that users read of executors. ``rules``: those of now."""

    def __init__(self, executors: SpecExecutors, rules: Callable[[], AccessRules]) -> None:
        self._executors = executors
        self._rules = rules

    def list_shown(self, user: User) -> list[ShownExecutor]:
        """Those that the user may use, by name."""
        topology = self._executors.limited.source
        hidden = _list_hidden(user, topology)
        found = [topology.executors[name] for name in sorted(topology.executors)]
        return [self._show(spec, hidden) for spec in found if may_use(spec.executor.groups, user)]

    def get_shown(self, user: User, name: str) -> ShownExecutor:
        """SpecNotFoundError: there is none that the user may use."""
        topology = self._executors.limited.source
        return self._show(_get_spec(user, topology, name), _list_hidden(user, topology))

    def get_put(self, name: str) -> ShownExecutor:
        """As whoever keeps the topology put it. SpecNotFoundError: somebody removed it meanwhile."""
        found = self._executors.limited.source.executors.get(name)
        if found is None:
            raise _no_executor(name)
        return self._show(found, frozenset())

    def list_jobs(self, user: User, name: str) -> Sequence[PastExecution]:
        """Jobs that were sent to the executor and have not ended, of flows that the user may read."""
        _get_spec(user, self._executors.limited.source, name)
        rules = self._rules()
        sent = self._executors.get(name).list_jobs().result()
        return [each for each in sent if rules.may(user, Action.READ, each.job.flow)]

    def _show(self, spec: TopologySpec, hidden: Collection[str]) -> ShownExecutor:
        name = spec.executor.name
        executor = self._executors.get(name)
        state = self._executors.limited.topology.get_state(name)
        config = executor.get_config().result()
        return ShownExecutor(
            uri=executor.get_uri(),
            version=spec.version,
            description=executor.get_description().result(),
            config={**config, "nodes": sorted(config["nodes"] - hidden)},
            usable=tuple(sorted(executor.get_capabilities().result())),
            lacks=(
                *(said for _word, said in sorted(state.no_capabilities.items())),
                *(said for node, said in sorted(state.no_nodes.items()) if node not in hidden),
            ),
            health=executor.get_health().result(),
        )


def _list_hidden(user: User, topology: Topology) -> frozenset[str]:
    return frozenset(name for name, each in topology.nodes.items() if not may_use(each.groups, user))


def _get_spec(user: User, topology: Topology, name: str) -> TopologySpec:
    spec = topology.executors.get(name)
    if spec is None or not may_use(spec.executor.groups, user):
        raise _no_executor(name)
    return spec


def _no_executor(name: str) -> SpecNotFoundError:
    return SpecNotFoundError(f"there is no executor {name[:200]!a}", field="executor", hint="Look at the list.")
