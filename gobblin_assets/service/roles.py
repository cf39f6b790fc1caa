"""Roles of a node of the service: which loops it runs, and whether it answers requests.

Nodes are equal. Any number may have the same role, and whatever one of them leaves undone another one does.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.spec_errors import suggest


class NodeRole(StrEnum):
    """A part of the service that a node takes, in the order in which parts begin; they end the other way round."""

    SCHEDULER = "scheduler"  # starts flows on time, compiles what waits, starts changed workers anew
    ORCHESTRATOR = "orchestrator"  # sends tickets, moves those of executors that are lost, forgets old ones
    MONITOR = "monitor"  # reads reports, and what executors begin by themselves
    API = "api"  # answers requests, with the pages


ALL_ROLES: Final = frozenset(NodeRole)

_ROLES: Final[Mapping[str, NodeRole]] = MappingProxyType(
    {
        "scheduler": NodeRole.SCHEDULER,
        "launcher": NodeRole.SCHEDULER,
        "restarts": NodeRole.SCHEDULER,
        "pending flows": NodeRole.SCHEDULER,
        "orchestrator": NodeRole.ORCHESTRATOR,
        "forgetting": NodeRole.ORCHESTRATOR,
        "old slots": NodeRole.ORCHESTRATOR,
        "probes": NodeRole.ORCHESTRATOR,
        "executors": NodeRole.ORCHESTRATOR,
        "monitor": NodeRole.MONITOR,
        "adoption": NodeRole.MONITOR,
    }
)
"""Of loops, by their names. The others keep up to date what each node knows: catalogs, and how executors are."""


def find_place(loop: str) -> int:
    """The place of a loop in the order of begins: catalogs, then the roles."""
    role = _ROLES.get(loop)
    return -1 if role is None else list(NodeRole).index(role)


def takes_loop(loop: str, roles: Collection[NodeRole]) -> bool:
    """Whether a node of these roles runs the loop of this name."""
    return loop not in _ROLES or _ROLES[loop] in roles


def parse_roles(texts: Iterable[str]) -> frozenset[NodeRole]:
    """The roles that texts such as ``scheduler,monitor`` name; without texts all. RejectedError: a word is none."""
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    known = [role.value for role in NodeRole]
    if wrong := [word for word in words if word not in known]:
        raise RejectedError(f"there is no role {wrong[0][:40]!a}", field="--role", hint=suggest(wrong[0], known))
    return frozenset(map(NodeRole, words)) or ALL_ROLES
