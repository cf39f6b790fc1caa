"""The catalog of the topology, over a file and over Postgres."""

import logging
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import Engine

from gobblin_assets import failpoints
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.failpoints import AcknowledgementLost, Failpoint
from gobblin_assets.service.core_services import CoreServices
from gobblin_assets.service.flow_store import FlowState, SpecNotFoundError
from gobblin_assets.service.job_plan import Explanation, JobNames
from gobblin_assets.service.open_writes import OpenWrites
from gobblin_assets.service.postgres.topologies import PostgresTopologyStore
from gobblin_assets.service.specs import FlowSpec
from gobblin_assets.service.topology import Topology, topology_uri
from gobblin_assets.service.topology_catalog import FileTopology, TopologyCatalog
from gobblin_assets.service.topology_manager import TopologyManager
from tests.support.flow_world import KEY, FlowWorld, LineCompiler, make_config

pytestmark = pytest.mark.service_schema

WAIT_S_MAX = 150.0
SHOP = {"kind": "files", "root": "/data/shop"}
LAKE = {"kind": "files", "root": "/data/lake"}
HERE = {"capabilities": ["distcp"], "nodes": ["shop", "lake"]}


@pytest.fixture
def stored(engine: Engine) -> PostgresTopologyStore:
    return PostgresTopologyStore(engine)


def manage(store: PostgresTopologyStore) -> tuple[TopologyManager, TopologyCatalog]:
    catalog = TopologyCatalog(store)
    return TopologyManager(catalog, store, OpenWrites()), catalog


class Hearing:
    def __init__(self) -> None:
        self.versions: list[str] = []

    def on_topology(self, topology: Topology) -> None:
        self.versions.append(topology.version)


class Broken:
    def on_topology(self, topology: Topology) -> None:
        raise ValueError(topology.version)


def test_who_dies_behind_a_change_of_the_topology_leaves_it_whole(stored: PostgresTopologyStore) -> None:
    class DeadError(BaseException):
        """The end of the process."""

    def die(point: Failpoint) -> None:
        if point is Failpoint.TOPOLOGY_STORED:
            raise DeadError

    manager, _ = manage(stored)
    with failpoints.install(die), pytest.raises(DeadError):
        manager.put_node("shop", SHOP)
    after, catalog = manage(stored)
    assert list(after.topology.nodes) == ["shop"]
    # Whoever asks again changes nothing, and nobody is told of a change.
    before = catalog.topology.version
    after.put_node("shop", SHOP)
    assert catalog.topology.version == before


def test_nodes_and_executors_come_and_go_and_other_processes_hear(stored: PostgresTopologyStore) -> None:
    manager, catalog = manage(stored)
    _, other = manage(stored)
    hearing = Hearing()
    other.add_listener(Broken())
    other.add_listener(hearing)
    assert not other.refresh()
    manager.put_node("shop", SHOP)
    manager.put_node("lake", LAKE)
    manager.put_executor("here", HERE)
    assert other.refresh()
    assert other.topology == manager.topology == catalog.topology
    assert [spec.uri for spec in other.get_specs()] == [topology_uri("here")]
    assert hearing.versions == [catalog.topology.version]
    assert (other.metrics.specs, other.metrics.puts, other.metrics.listener_failures) == (1, 1, 1)
    with pytest.raises(RejectedError, match="no node is called 'lake'"):
        manager.remove_node("lake")
    assert manager.remove_executor("here")
    assert not manager.remove_executor("here")
    assert manager.remove_node("lake")
    assert other.refresh()
    assert set(other.topology.nodes) == {"shop"}
    with pytest.raises(SpecNotFoundError):
        other.get_spec(topology_uri("here"))


def test_a_place_never_changes_and_a_node_in_use_stays(stored: PostgresTopologyStore, engine: Engine) -> None:
    manager, catalog = manage(stored)
    manager.put_node("shop", SHOP)
    manager.put_node("lake", LAKE)
    manager.put_executor("here", HERE)
    with pytest.raises(RejectedError, match=r"nodes\.lake\.root: it is /data/lake for ever"):
        manager.put_node("lake", {**LAKE, "root": "/elsewhere"})
    manager.put_node("lake", {**LAKE, "description": "the lake"})
    assert catalog.topology.nodes["lake"].root == "/data/lake"

    world = FlowWorld(engine, LineCompiler(catalog.topology))
    world.flows.create(world.person, make_config())
    manager.remove_executor("here")
    with pytest.raises(RejectedError, match="flows publish from it or to it: sales/orders"):
        manager.remove_node("lake")
    world.play()
    world.flows.delete(KEY)
    assert manager.remove_node("lake")


def test_a_change_that_could_not_be_read_is_read_by_the_next_look(
    stored: PostgresTopologyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, catalog = manage(stored)
    stored.put("nodes", "shop", SHOP)

    def refuse() -> Topology:
        raise RetryableError("the server went away")

    with monkeypatch.context() as patched:
        patched.setattr(stored, "read_topology", refuse)
        with pytest.raises(RetryableError):
            catalog.refresh()
    assert catalog.refresh()
    assert set(catalog.topology.nodes) == {"shop"}


@dataclass
class WaitingCompiler(LineCompiler):
    """Compiles pending flows only once it may."""

    may: threading.Event = field(default_factory=threading.Event)

    def compile_flow(self, spec: FlowSpec, names: JobNames, groups: frozenset[str]) -> Explanation:
        if "lake" in self.topology.nodes:
            assert self.may.wait(WAIT_S_MAX)
        return super().compile_flow(spec, names, groups)


def test_who_changes_the_topology_does_not_wait_for_pending_flows_which_are_compiled_at_once(
    stored: PostgresTopologyStore, engine: Engine
) -> None:
    manager, catalog = manage(stored)
    manager.put_node("shop", SHOP)
    manager.put_executor("here", {**HERE, "nodes": ["shop"]})
    compiler = WaitingCompiler(catalog.topology)
    world = FlowWorld(engine, compiler)
    world.flows.create(world.person, make_config())
    core = CoreServices(world.catalog, world.flows, world.orchestrator, world.monitor, world.scheduler, world.launcher)
    catalog.add_listener(compiler)
    catalog.add_listener(core)
    core.start()
    try:
        manager.put_node("lake", LAKE)
        assert world.flows.get(KEY).state is FlowState.PENDING
        compiler.may.set()
        until = time.monotonic() + WAIT_S_MAX
        while world.store.list_pending(after=None, limit=1):
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        compiler.may.set()
        assert core.stop()


def test_a_lost_acknowledgement_of_a_change_is_asked_for_again(stored: PostgresTopologyStore) -> None:
    manager, _ = manage(stored)
    lost = []

    def lose(point: Failpoint) -> None:
        if point is Failpoint.TOPOLOGY_STORED and len(lost) % 2 == 0:
            lost.append(point)
            raise AcknowledgementLost
        lost.append(point)

    with failpoints.install(lose):
        manager.put_node("shop", SHOP)
        assert manager.remove_node("shop")
    assert len(lost) == 4


def test_a_file_is_read_again_when_it_changed_and_a_broken_one_changes_nothing(
    tmp_path: Path, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "topology.yaml"
    written = (
        "nodes: {shop: {kind: files, root: /data/shop}}\nexecutors: {here: {capabilities: [distcp], nodes: [shop]}}\n"
    )
    file.write_text(written, encoding="utf-8")
    catalog = TopologyCatalog(FileTopology(file))
    compiler = LineCompiler(catalog.topology)
    world = FlowWorld(engine, compiler)
    catalog.add_listener(compiler)
    world.flows.create(world.person, make_config())
    assert world.flows.get(KEY).state is FlowState.PENDING

    file.write_text("nodes: [", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert not catalog.refresh()
    assert "the topology stays as it is" in caplog.text
    file.unlink()
    with pytest.raises(RejectedError, match="topology"):
        catalog.refresh()
    new = tmp_path / "new.yaml"
    new.write_text(written.replace("nodes: {", "nodes: {lake: {kind: files, root: /data/lake}, "), encoding="utf-8")
    new.write_text(new.read_text(encoding="utf-8").replace("nodes: [shop]", "nodes: [shop, lake]"), encoding="utf-8")
    new.replace(file)
    assert catalog.refresh()
    assert world.flows.compile_pending() == 1
    assert world.flows.get(KEY).state is FlowState.ACTIVE
    assert world.play() == 1

    with pytest.raises(RejectedError, match="is in a file"):
        TopologyManager(catalog, None, OpenWrites()).put_node("other", SHOP)
