"""Topology files: what is read, and what is refused with the option and the fix."""

from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.topology import NodeKind
from gobblin_assets.service.topology_file import read_topology, read_topology_file
from gobblin_assets.spec.capabilities import list_known_capabilities

FILES = {"kind": "files", "root": "/data"}
ABLE = {"capabilities": ["distcp"], "nodes": ["lake"]}

TEXT = """
nodes:
  shop: {kind: database, connection: shop, zone: office, groups: [sales], description: The shop}
  lake: {kind: files, root: /data/lake/, transit: true}
executors:
  local:
    location: office
    capabilities: [ingest.jdbc, distcp]
    nodes: [shop, lake]
    cost: 2.5
    log: far
    ui_url: https://executor.example.com/
"""


def test_a_file_is_a_topology(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(TEXT, encoding="utf-8")
    topology = read_topology_file(path)
    shop, lake = topology.nodes["shop"], topology.nodes["lake"]
    assert (shop.kind, shop.connection, shop.zone) == (NodeKind.DATABASE, "shop", "office")
    assert (shop.groups, shop.transit, shop.description) == (frozenset({"sales"}), False, "The shop")
    assert (lake.root, lake.transit) == ("/data/lake", True)
    spec = topology.executors["local"]
    executor = spec.executor
    assert spec.uri == "gobblin-topology:/local"
    assert (executor.technology, executor.location, executor.communication) == ("process", "office", "log")
    assert executor.capabilities == {"ingest.jdbc", "distcp"}
    assert (executor.nodes, executor.cost, executor.log) == ({"shop", "lake"}, 2.5, "far")
    assert executor.ui_url == "https://executor.example.com/"


def test_the_version_changes_with_any_of_it() -> None:
    first = read_topology({"nodes": {"lake": FILES}, "executors": {"local": ABLE}})
    assert read_topology({"executors": {"local": ABLE}, "nodes": {"lake": FILES}}).version == first.version
    others = [
        {"nodes": {"lake": {**FILES, "transit": True}}, "executors": {"local": ABLE}},
        {"nodes": {"lake": FILES}, "executors": {"local": {**ABLE, "cost": 2}}},
        {"nodes": {"lake": FILES}, "executors": {"other": ABLE}},
        {"nodes": {"lake": FILES, "more": FILES}, "executors": {"local": ABLE}},
        {"nodes": {"lake": FILES}, "executors": {}},
    ]
    assert len({first.version, *(read_topology(each).version for each in others)}) == len(others) + 1


def test_capabilities_are_words_for_what_is_installed() -> None:
    known = list_known_capabilities()
    wanted = ("ingest.jdbc", "ingest.kafka", "ingest.postgres_log", "sink.kafka", "sink.postgres_log", "distcp")
    assert {*wanted, "sink.into.iceberg", "sink.into.postgres", "sink.into.kafka"} <= set(known)
    # Of a package that the executor alone has.
    topology = read_topology(
        {"nodes": {"lake": FILES}, "executors": {"local": {**ABLE, "capabilities": ["ingest.salesforce"]}}}
    )
    assert topology.executors["local"].executor.capabilities == {"ingest.salesforce"}


def node(**more: Any) -> dict[str, Any]:
    return {"nodes": {"lake": {**FILES, **more}}, "executors": {}}


def executor(**more: Any) -> dict[str, Any]:
    return {"nodes": {"lake": FILES}, "executors": {"local": {**ABLE, **more}}}


@pytest.mark.parametrize(
    ("data", "field", "said"),
    [
        (None, "topology", "found nothing"),
        ([], "topology", "found a value of the type list"),
        ({"nodes": {}}, "executors", "is missing"),
        ({"executors": {}}, "nodes", "is missing"),
        ({"nodes": {}, "executors": {}, "executor": {}}, "executor", "'executors'"),
        ({"nodes": [], "executors": {}}, "nodes", "a group of options"),
        ({"nodes": {"a/b": FILES}, "executors": {}}, "nodes", "a name of 1 to 100"),
        ({"nodes": {"lake": "x"}, "executors": {}}, "nodes.lake", "a group of options"),
        (node(kind="file"), "nodes.lake.kind", "'files'"),
        (node(root=None), "nodes.lake.root", "files need a root"),
        (node(root="data"), "nodes.lake.root", "absolute path or a URI"),
        (node(root="s3://key:secret@bucket/x"), "nodes.lake.root", "without a login"),
        (node(root="s3://bucket/x?token=secret"), "nodes.lake.root", "without parameters"),
        (node(root="/data/${HOME}"), "nodes.lake.root", "without controls"),
        (node(root="/data\n"), "nodes.lake.root", "without controls"),
        (node(kind="database"), "nodes.lake.connection", "needs a connection"),
        (node(kind="cluster", connection="a b"), "nodes.lake.connection", "letters, digits or underscores"),
        (node(zoen="x"), "nodes.lake.zoen", "'zone'"),
        (executor(nodes=["lkae"]), "executors.local.nodes", "'lake'"),
        (executor(nodes=[]), "executors.local.nodes", "at least 1"),
        (executor(capabilities=[]), "executors.local.capabilities", "at least 1"),
        (executor(capabilities=["distpc"]), "executors.local.capabilities", "'distcp'"),
        (executor(capabilities=["do it"]), "executors.local.capabilities", "words such as ingest.jdbc"),
        (executor(cost=-1), "executors.local.cost", "at least 0"),
        (executor(cost=float("nan")), "executors.local.cost", "number"),
        (executor(log="a-b"), "executors.local.log", "expected"),
        (executor(ui_url="javascript:alert(1)"), "executors.local.ui_url", "expected"),
        (executor(password="x"), "executors.local.password", "is not an option"),
    ],
)
def test_mistakes_are_refused_with_the_option_and_the_fix(data: object, field: str, said: str) -> None:
    with pytest.raises(RejectedError) as caught:
        read_topology(data)
    assert caught.value.field == field
    assert said in str(caught.value)
    assert caught.value.hint
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text("nodes: {", encoding="utf-8")
    with pytest.raises(RejectedError, match=r"topology\.yaml"):
        read_topology_file(path)
