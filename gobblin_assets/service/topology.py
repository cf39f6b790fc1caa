"""The topology: places of data, and executors that move data between them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple
from urllib.parse import quote

NODE_SCHEME: Final = "gobblin-node"
TOPOLOGY_SCHEME: Final = "gobblin-topology"

PROCESS: Final = "process"
DAGSTER: Final = "dagster"
"""Technologies of executors. Both answer questions."""

BY_LOG: Final = "log"
"""The communication with executors whose log the service reaches."""

NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class NodeKind(StrEnum):
    """The technology of a place."""

    DATABASE = "database"  # tables that are read by queries
    CHANGE_LOG = "change_log"  # of a database of Postgres
    CLUSTER = "cluster"  # topics of Kafka
    TABLES = "tables"  # tables of Postgres that rows are loaded into
    ICEBERG = "iceberg"  # tables of a catalog
    FILES = "files"  # a directory, or a prefix of a bucket


class Format(StrEnum):
    """The form of data at a node. A hop of a flow leads from one (node, format) to another."""

    TABLE = "table"
    CHANGES = "changes"
    TOPIC = "topic"
    ICEBERG = "iceberg"
    DATASET = "dataset"  # files that a ledger lists
    TREE = "tree"  # files as they lie in their directories


FORMAT_OF: Final[Mapping[NodeKind, Format]] = {
    NodeKind.DATABASE: Format.TABLE,
    NodeKind.CHANGE_LOG: Format.CHANGES,
    NodeKind.CLUSTER: Format.TOPIC,
    NodeKind.TABLES: Format.TABLE,
    NodeKind.ICEBERG: Format.ICEBERG,
    NodeKind.FILES: Format.TREE,
}
"""The format that is meant at a flow's begin where none is written."""


class NodeState(NamedTuple):
    """A node by its name, and a format of data there."""

    node: str
    format: Format


@dataclass(frozen=True, slots=True)
class DataNode:
    """A place of data. ``connection`` names a connection of the executors; ``root`` is a URI or an absolute path.

    Both never change: what was published stays where it is. ``zone``: a network. ``transit``: flows of others may pass
    through. ``groups``: the groups of users who may use it; empty: all.
    """

    name: str
    kind: NodeKind
    connection: str | None = None
    root: str | None = None
    zone: str = ""
    transit: bool = False
    groups: frozenset[str] = frozenset()
    description: str = ""

    @property
    def uri(self) -> str:
        return f"{NODE_SCHEME}:/{quote(self.name, safe='')}"


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """An executor: the triplet <technology, location, communication>, with what it can do.

    ``capabilities``: such as ingest.jdbc, distcp; ``nodes``: those that it reaches. ``cost``: added to that of each
    job. ``log``: the commit log that it works with; "": the service's own database, else a name for the variable
    GOBBLIN_LOG_<NAME>_URL. ``groups``: the groups of users who may use it; empty: all. ``ui_url``: its pages.
    """

    name: str
    technology: str
    location: str
    communication: str
    capabilities: frozenset[str]
    nodes: frozenset[str]
    groups: frozenset[str] = frozenset()
    cost: float = 1.0
    log: str = ""
    ui_url: str | None = None

    @property
    def way(self) -> str:
        """The name of the way to it: of executors that are reached by their log, that log; of others, their own."""
        return self.log if self.communication == BY_LOG else f"{self.communication}:{self.name}"


def is_way_of_log(way: str) -> bool:
    """Whether the way is a log, whose tickets the service ends itself. Over others, only an executor's end does so."""
    return ":" not in way


@dataclass(frozen=True, slots=True)
class TopologySpec:
    """A spec executor as the topology catalog holds it."""

    uri: str
    version: str
    description: str
    executor: ExecutorSpec
    config: Mapping[str, Any] = field(default_factory=dict)


def topology_uri(executor_name: str) -> str:
    return f"{TOPOLOGY_SCHEME}:/{quote(executor_name, safe='')}"


@dataclass(frozen=True, slots=True)
class ExecutorState:
    """An executor as its heartbeats say. ``is_well``: it is not silent, and does not drain.

    ``workers_max``: so many workers at once; None: no other bound than its slots. ``no_capabilities`` and ``no_nodes``:
    what the administrator allows it and it can't do or reach, each with a sentence that says why.
    """

    is_well: bool = True
    workers_max: int | None = None
    no_capabilities: Mapping[str, str] = field(default_factory=dict)
    no_nodes: Mapping[str, str] = field(default_factory=dict)


_AS_WRITTEN: Final = ExecutorState()


@dataclass(frozen=True, slots=True)
class Topology:
    """All nodes and executors at one time. ``version`` changes with any of them.

    ``states``: of executors by their names, where the topology is limited by what they can do.
    """

    version: str
    nodes: Mapping[str, DataNode]
    executors: Mapping[str, TopologySpec]
    states: Mapping[str, ExecutorState] = field(default_factory=dict)

    def get_state(self, executor: str) -> ExecutorState:
        return self.states.get(executor, _AS_WRITTEN)
