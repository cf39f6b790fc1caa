"""Topologies in YAML: nodes and executors as an administrator writes them, checked together.

nodes:
  shop: {kind: database, connection: shop, zone: office}
  lake: {kind: files, root: /data/lake}
executors:
  local: {capabilities: [ingest.jdbc, distcp], nodes: [shop, lake]}
"""

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.topology import (
    NODE_NAME,
    PROCESS,
    DataNode,
    ExecutorSpec,
    NodeKind,
    Topology,
    TopologySpec,
    topology_uri,
)
from gobblin_assets.spec.capabilities import list_known_capabilities
from gobblin_assets.spec.spec_errors import refuse, suggest
from gobblin_assets.spec.spec_model import SpecModel, refused
from gobblin_assets.spec.yaml_files import read_yaml_file

NODES_MAX: Final = 20_000
EXECUTORS_MAX: Final = 2_000
ROOT_LENGTH_MAX: Final = 1_000

_CAPABILITY: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
_ROOT: Final = re.compile(r"/|[a-z][a-z0-9+.-]*://[^/]")
_ALIKE: Final = 0.8
_VERSION_LENGTH: Final = 16

_Name = Annotated[str, Field(min_length=1, max_length=100)]
_Group = Annotated[str, Field(min_length=1, max_length=200)]
_Model = TypeVar("_Model", bound=SpecModel)


class NodeDescription(SpecModel):
    """A node as a file or a request describes it."""

    kind: NodeKind
    connection: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,100}$")] | None = Field(
        None, description="The name by which executors know how to reach it."
    )
    root: str | None = Field(
        None,
        description="Of files: their directory, an absolute path or a URI. Of others: the directory of what is staged.",
    )
    zone: str = Field("", max_length=100, description="Its network.")
    transit: bool = Field(False, description="Whether flows from and to other nodes may pass through.")
    groups: tuple[_Group, ...] = Field((), description="The groups of users who may use it. Empty: all.")
    description: str = Field("", max_length=1_000)

    @field_validator("root")
    @classmethod
    def _is_a_place(cls, root: str | None) -> str | None:
        if root is None:
            return None
        # What was found is not shown: it may hold a login.
        if not root.isprintable() or "${" in root or len(root) > ROOT_LENGTH_MAX:
            raise refused(
                f"expected up to {ROOT_LENGTH_MAX:,} characters without controls and ${{, found others",
                hint="Write the place as it is.",
            )
        if not _ROOT.match(root):
            raise refused(
                "expected an absolute path or a URI", hint="Write it from / on, or as s3://<bucket>/<prefix>."
            )
        if "@" in root.partition("://")[2].partition("/")[0] or "?" in root:
            raise refused(
                "expected a place without a login and without parameters",
                hint="Executors have logins in variables of their environment.",
            )
        return root.rstrip("/") or "/"

    @model_validator(mode="after")
    def _can_be_reached(self) -> "NodeDescription":
        if self.kind is NodeKind.FILES and self.root is None:
            raise refused(
                "files need a root, found none", option="root", hint="Write the directory, such as /data/lake."
            )
        if self.kind is not NodeKind.FILES and self.connection is None:
            raise refused(
                f"a node of the kind {self.kind} needs a connection, found none",
                option="connection",
                hint="Name the connection by which executors reach it.",
            )
        return self


class ExecutorDescription(SpecModel):
    """An executor as a file or a request describes it."""

    technology: str = Field(PROCESS, min_length=1, max_length=100)
    location: str = Field("", max_length=200)
    communication: str = Field("log", min_length=1, max_length=100)
    capabilities: tuple[str, ...] = Field(min_length=1, description="What it can do, such as ingest.jdbc or distcp.")
    nodes: tuple[_Name, ...] = Field(min_length=1, description="The names of the nodes that it reaches.")
    groups: tuple[_Group, ...] = Field((), description="The groups of users who may use it. Empty: all.")
    cost: float = Field(1.0, ge=0, le=1_000_000, allow_inf_nan=False, description="Added to that of each job.")
    log: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{0,100}$")] = Field(
        "", description="Its commit log: empty for the service's own, else the name in GOBBLIN_LOG_<NAME>_URL."
    )
    ui_url: Annotated[str, Field(pattern=r"^https?://[^@\s]+$", max_length=1_000)] | None = None
    description: str = Field("", max_length=1_000)

    @field_validator("capabilities")
    @classmethod
    def _are_words(cls, capabilities: tuple[str, ...]) -> tuple[str, ...]:
        known = list_known_capabilities()
        for word in capabilities:
            if not _CAPABILITY.fullmatch(word):
                raise refused(
                    f"expected words such as ingest.jdbc, found {word[:80]!a}",
                    hint=f"Known: {', '.join(known)}.",
                )
            close = difflib.get_close_matches(word, known, n=1, cutoff=_ALIKE)
            # A package of the executor may offer more than this process knows.
            if close and word not in known:
                raise refused(f"nothing is called {word!r}", hint=f"Did you mean {close[0]!r}?")
        return capabilities


def read_topology_file(path: Path) -> Topology:
    """RejectedError names the file, or the option in it, what was expected and the fix."""
    return read_topology(read_yaml_file(path))


def read_topology(data: object) -> Topology:
    """A topology from plain values with ``nodes`` and ``executors``. RejectedError as in ``read_topology_file``."""
    parts = _require_group(data, "topology", ("nodes", "executors"))
    if unknown := [name for name in parts if name not in {"nodes", "executors"}]:
        raise RejectedError(
            "is not an option.", field=str(unknown[0]), hint=suggest(str(unknown[0]), ["nodes", "executors"])
        )
    nodes = {name: read_node(name, options) for name, options in _list_named(parts.get("nodes"), "nodes", NODES_MAX)}
    executors = {
        name: read_executor(name, options)
        for name, options in _list_named(parts.get("executors"), "executors", EXECUTORS_MAX)
    }
    return make_topology(nodes.values(), executors.values())


def read_node(name: str, options: object) -> DataNode:
    """A node from plain values. RejectedError names the option, such as ``nodes.lake.root``."""
    _require_name(name, "nodes")
    read = _read(NodeDescription, options, f"nodes.{name}")
    return DataNode(
        name=name,
        kind=read.kind,
        connection=read.connection,
        root=read.root,
        zone=read.zone,
        transit=read.transit,
        groups=frozenset(read.groups),
        description=read.description,
    )


def read_executor(name: str, options: object) -> TopologySpec:
    """An executor from plain values. RejectedError names the option, such as the nodes of one executor."""
    _require_name(name, "executors")
    read = _read(ExecutorDescription, options, f"executors.{name}")
    executor = ExecutorSpec(
        name=name,
        technology=read.technology,
        location=read.location,
        communication=read.communication,
        capabilities=frozenset(read.capabilities),
        nodes=frozenset(read.nodes),
        groups=frozenset(read.groups),
        cost=read.cost,
        log=read.log,
        ui_url=read.ui_url,
    )
    version = _digest([_show_executor(executor), read.description])
    return TopologySpec(topology_uri(name), version, read.description, executor)


def make_topology(nodes: Iterable[DataNode], executors: Iterable[TopologySpec]) -> Topology:
    """One value of both. RejectedError if an executor reaches a node that there is none of."""
    by_name = {node.name: node for node in sorted(nodes, key=lambda each: each.name)}
    specs = {spec.executor.name: spec for spec in sorted(executors, key=lambda each: each.executor.name)}
    for name, spec in specs.items():
        for node in sorted(spec.executor.nodes - by_name.keys()):
            raise RejectedError(
                f"no node is called {node!r}",
                field=f"executors.{name}.nodes",
                hint=suggest(node, sorted(by_name)) if by_name else "Write the node below nodes.",
            )
    shown = [[_show_node(node) for node in by_name.values()], [[each.version, each.uri] for each in specs.values()]]
    return Topology(_digest(shown), MappingProxyType(by_name), MappingProxyType(specs))


def _require_group(data: object, field: str, known: tuple[str, ...]) -> Mapping[Any, Any]:
    if not isinstance(data, Mapping):
        found = "nothing" if data is None else f"a value of the type {type(data).__name__}"
        raise RejectedError(
            f"expected a group of options, found {found}",
            field=field,
            hint=f"Write {' and '.join(f'{name}:' for name in known)}.",
        )
    return data


def _list_named(data: object, field: str, count_max: int) -> list[tuple[str, object]]:
    if data is None:
        raise RejectedError("is missing.", field=field, hint=f"Write {field}: {{NAME: {{…}}}}.")
    group = _require_group(data, field, ("NAME",))
    if len(group) > count_max:
        raise RejectedError(
            f"expected at most {count_max:,}, found {len(group):,}", field=field, hint="Divide the topology."
        )
    return [(str(name), options) for name, options in group.items()]


def _require_name(name: str, field: str) -> None:
    if not NODE_NAME.fullmatch(name):
        raise RejectedError(
            f"expected a name of 1 to 100 letters, digits, dots, dashes or underscores; found {name[:120]!a}",
            field=field,
            hint="Begin it with a letter or a digit, and take the other characters out.",
        )


def _read(model: type[_Model], options: object, where: str) -> _Model:
    try:
        return model.model_validate(options)
    except ValidationError as error:
        found = refuse(error, model)
        said = found.message.removeprefix(f"{found.field}: ")
        field = where if found.field == "job" else f"{where}.{found.field}"
        raise RejectedError(said, field=field, hint=found.hint) from None


def _show_node(node: DataNode) -> list[object]:
    return [node.name, node.kind, node.connection, node.root, node.zone, node.transit, sorted(node.groups)]


def _show_executor(executor: ExecutorSpec) -> list[object]:
    return [
        executor.name, executor.technology, executor.location, executor.communication,
        sorted(executor.capabilities), sorted(executor.nodes), sorted(executor.groups),
        executor.cost, executor.log, executor.ui_url,
    ]  # fmt: skip


def _digest(shown: object) -> str:
    return hashlib.sha256(json.dumps(shown, ensure_ascii=False).encode()).hexdigest()[:_VERSION_LENGTH]
