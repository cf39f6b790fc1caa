"""Packs in Postgres: versions that never change, and the pins by which flows keep theirs."""

import logging
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text

from gobblin_assets import failpoints
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.failpoints import AcknowledgementLost, Failpoint
from gobblin_assets.service.compilers import build_compiler
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_manager import FlowManager
from gobblin_assets.service.flow_store import FlowState
from gobblin_assets.service.job_plan import FlowPlan, NewerPack
from gobblin_assets.service.pack_catalog import PackCatalog
from gobblin_assets.service.postgres import packs as stored_packs
from gobblin_assets.service.postgres.packs import PostgresPackStore
from gobblin_assets.service.template_store import TemplatePack
from tests.support import postgres
from tests.support.database_pool import DatabasePool
from tests.support.flow_templates import make_pack
from tests.support.flow_world import KEY, FlowWorld, LineCompiler, make_config, make_topology

TREE = {"kind": "files", "format": "tree"}


def make_copy_pack(version: str, name: str = "copies", **changes: Any) -> TemplatePack:
    """A pack of one template, which copies a tree. Its versions differ in the description of its jobs."""
    job = {
        "kind": "distcp",
        "source": "${from.root}",
        "destination": "${to.root}",
        "description": f"By version {version}",
        "datasets": [{"urn": "all", "path": "all"}],
    }
    made = {"capability": "distcp", "shape": "run", "from": TREE, "to": TREE, "job": job, **changes}
    return make_pack({"copy": made}, name, version)


@pytest.fixture(scope="module")
def shared(server: EmbeddedServer, service_pool: DatabasePool) -> Iterator[Engine]:
    with postgres.migrated_database(server, service_pool) as name:
        engine = open_external(server.url(name))
        yield engine
        engine.dispose()


@pytest.fixture
def packs(shared: Engine) -> Iterator[PackCatalog]:
    yield PackCatalog(PostgresPackStore(shared))
    with shared.begin() as connection:
        connection.execute(text("TRUNCATE gobblin_service.template_pack, gobblin_service.flow CASCADE"))
        connection.execute(text("TRUNCATE gobblin.job_ticket CASCADE"))


def test_a_version_is_published_once_and_other_processes_see_it(shared: Engine, packs: PackCatalog) -> None:
    other, heard = PackCatalog(PostgresPackStore(shared)), []
    other.add_listener(lambda: heard.append("news"))
    published, is_new = packs.publish(make_copy_pack("9"), "ann")
    assert (published.name, published.version, published.published_by, is_new) == ("copies", "9", "ann", True)
    assert packs.publish(make_copy_pack("9"), "bob") == (published, False), "the same again changes nothing"
    with pytest.raises(ConflictError, match="Count up the version") as caught:
        packs.publish(make_copy_pack("9", cost=7), "bob")
    assert "holds something else" in caught.value.message
    packs.publish(make_copy_pack("10"), "bob")

    assert other.find_pack("copies") is None
    assert other.refresh()
    assert not other.refresh(), "nothing was published since"
    assert heard == ["news"]
    assert [pack.version for pack in other.list_packs()] == ["10"]
    old = other.find_pack("copies", "9")
    assert old is not None
    assert (old.digest, old.files) == (published.digest, make_copy_pack("9").files)
    assert [each.version for each in other.list_published("copies")] == ["10", "9"]
    assert (other.metrics.specs, other.metrics.puts) == (2, 2)


def test_of_two_processes_that_publish_one_version_one_wins(shared: Engine, packs: PackCatalog) -> None:
    engines = [open_external(shared.url.render_as_string(hide_password=False)) for _process in range(2)]
    together = threading.Barrier(2)

    def publish(number: int) -> str:
        store = PostgresPackStore(engines[number])
        together.wait(10)
        try:
            return store.publish(make_copy_pack("1", cost=number), f"user{number}")[0].published_by
        except ConflictError:
            return "refused"

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(publish, range(2)))
    for engine in engines:
        engine.dispose()
    assert found.count("refused") == 1
    packs.refresh()
    (kept,) = packs.list_published()
    assert kept.published_by in found


def test_who_dies_at_a_publication_leaves_it_whole_or_not_at_all(shared: Engine, packs: PackCatalog) -> None:
    class DeadError(BaseException):
        """The end of the process."""

    def die(point: Failpoint) -> None:
        if point is Failpoint.PACK_STORED:
            raise DeadError

    def die_before_it(connection: Connection) -> None:
        connection.invalidate()
        raise DeadError

    event.listen(shared, "commit", die_before_it)
    try:
        with pytest.raises(DeadError):
            packs.publish(make_copy_pack("1"), "ann")
    finally:
        event.remove(shared, "commit", die_before_it)
    assert PackCatalog(PostgresPackStore(shared)).list_published() == []
    with failpoints.install(die), pytest.raises(DeadError):
        packs.publish(make_copy_pack("1"), "ann")
    after = PackCatalog(PostgresPackStore(shared))
    (kept,) = after.list_published()
    assert after.publish(make_copy_pack("1"), "bob") == (kept, False)


def test_a_lost_acknowledgement_of_a_publication_is_asked_for_again(packs: PackCatalog) -> None:
    lost = []

    def lose(point: Failpoint) -> None:
        if point is Failpoint.PACK_STORED and not lost:
            lost.append(point)
            raise AcknowledgementLost

    with failpoints.install(lose):
        published, is_new = packs.publish(make_copy_pack("1"), "ann")
    assert lost
    assert (published.published_by, is_new) == ("ann", True)


def test_a_pack_has_a_bound_of_versions(packs: PackCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_packs, "VERSIONS_MAX", 1)
    packs.publish(make_copy_pack("1"), "ann")
    with pytest.raises(RejectedError, match="under another name"):
        packs.publish(make_copy_pack("2"), "ann")
    packs.publish(make_copy_pack("1", name="others"), "ann")
    assert [(each.name, each.version) for each in packs.list_published()] == [("copies", "1"), ("others", "1")]


def test_a_version_that_this_release_can_not_read_is_left_out(
    shared: Engine, packs: PackCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer release published it, whose templates have options that this one does not know."""
    packs.publish(make_copy_pack("1"), "ann")
    packs.publish(make_copy_pack("2"), "ann")
    with shared.begin() as connection:
        connection.execute(text("UPDATE gobblin_service.template_pack SET content = 'x' WHERE version = '2'"))
    with caplog.at_level(logging.WARNING):
        other = PackCatalog(PostgresPackStore(shared))
    assert "the version 2 of the pack copies is left out" in caplog.text
    assert [pack.version for pack in other.list_packs()] == ["1"]
    assert other.find_pack("copies", "2") is None


@dataclass
class CopyingService:
    """A service whose flows copy from shop to lake by the packs that are published."""

    engine: Engine
    packs: PackCatalog

    def __post_init__(self) -> None:
        topology = make_topology("shop", "lake")
        self.world = FlowWorld(self.engine, LineCompiler(topology))
        compiler = build_compiler(self.packs, topology)
        logs = self.world.logs
        self.flows = FlowManager(self.world.catalog, self.world.store, compiler, lambda: topology, logs)

    def create(self, **more: Any) -> None:
        self.flows.create(self.world.person, self.config(**more))

    def config(self, **more: Any) -> FlowConfig:
        ends = {"source": {"node": "shop", "format": "tree"}, "run_immediately": False}
        return make_config(**{**ends, **more})

    def run(self) -> str:
        """Run the flow to its end; returns what its job was made by."""
        status = self.flows.run(self.world.person, KEY)
        self.world.play(rows=1)
        (job,) = self.flows.get_execution(status.execution_id).jobs
        return str(job.template_uri)

    @property
    def pins(self) -> Mapping[str, str]:
        return self.flows.get(KEY).spec.pins

    def list_newer(self) -> tuple[NewerPack, ...]:
        return self.flows.explain_stored(self.world.person, KEY).newer


@pytest.fixture
def service(shared: Engine, packs: PackCatalog) -> CopyingService:
    packs.publish(make_copy_pack("1"), "ann")
    return CopyingService(shared, packs)


FIRST, SECOND = "FS:///copies@1/copy.template", "FS:///copies@2/copy.template"


@pytest.mark.parametrize("named", [(), ("FS:///copies/copy.template",)], ids=["found", "named"])
def test_a_flow_keeps_the_version_that_it_was_made_with_until_it_is_changed(
    service: CopyingService, named: tuple[str, ...]
) -> None:
    service.create(template_uris=named)
    assert service.pins == {"copies": "1"}
    assert service.list_newer() == ()
    service.packs.publish(make_copy_pack("2"), "ann")
    assert service.list_newer() == (NewerPack("copies", "1", "2"),), "it is offered, and not taken"
    assert service.run() == FIRST
    (job,) = service.flows.list_jobs(KEY)

    explained = service.flows.explain(service.world.person, service.config(template_uris=named)).compiled
    assert isinstance(explained, FlowPlan)
    assert explained.jobs[0].template_uri == SECOND, "what a change of the flow would take"
    assert service.run() == FIRST

    repinned = service.flows.repin(service.world.person, KEY)
    assert (repinned.spec.version, repinned.spec.pins) == ("2", {"copies": "2"})
    assert [version.pins for version in service.flows.list_versions(KEY)] == [{"copies": "2"}, {"copies": "1"}]
    assert service.list_newer() == ()
    assert service.run() == SECOND
    assert service.flows.list_jobs(KEY) == [job], "its name, and what it is bound to, stay"


def test_a_replan_takes_the_newest_version(service: CopyingService) -> None:
    service.create()
    assert service.run() == FIRST
    service.packs.publish(make_copy_pack("2"), "ann")
    replanned = service.flows.replan(service.world.person, KEY)
    assert replanned.plan is not None
    assert replanned.plan.jobs[0].template_uri == SECOND
    assert service.run() == SECOND
    assert service.pins == {"copies": "2"}


def test_a_version_that_a_flow_names_is_no_pin(service: CopyingService) -> None:
    service.create(template_uris=[FIRST])
    service.packs.publish(make_copy_pack("2"), "ann")
    assert (service.pins, service.list_newer()) == ({}, ())
    assert service.run() == FIRST
    service.flows.repin(service.world.person, KEY)
    assert service.run() == FIRST


def test_a_flow_of_an_older_release_is_pinned_by_its_next_launch(service: CopyingService, shared: Engine) -> None:
    service.create()
    with shared.begin() as connection:
        connection.execute(text("UPDATE gobblin_service.flow_version SET pins = '{}'"))
    service.packs.publish(make_copy_pack("2"), "ann")
    assert service.run() == SECOND
    service.packs.publish(make_copy_pack("3"), "ann")
    assert service.run() == SECOND
    assert service.pins == {"copies": "2"}


def test_a_pinned_version_that_is_lost_is_said(service: CopyingService, shared: Engine) -> None:
    service.create()
    service.packs.publish(make_copy_pack("2"), "ann")
    with shared.begin() as connection:
        connection.execute(text("UPDATE gobblin_service.template_pack SET content = 'x' WHERE version = '1'"))
    lost = CopyingService(shared, PackCatalog(PostgresPackStore(shared)))
    with pytest.raises(RejectedError, match="has pinned the version 1 of the pack copies") as caught:
        lost.flows.run(lost.world.person, KEY)
    assert ":repin" in caught.value.hint
    lost.flows.repin(lost.world.person, KEY)
    assert lost.run() == SECOND


def test_a_pending_flow_runs_by_a_pack_that_comes_later(shared: Engine, packs: PackCatalog) -> None:
    packs.publish(make_copy_pack("1", capability="distcp.fast"), "ann")
    service = CopyingService(shared, packs)
    service.create(run_immediately=True)
    assert service.flows.get(KEY).state is FlowState.PENDING
    assert service.pins == {}
    packs.publish(make_copy_pack("1", name="plain"), "ann")
    assert service.flows.compile_pending() == 1
    assert service.flows.get(KEY).state is FlowState.ACTIVE
    assert service.pins == {"plain": "1"}
    assert service.world.play(rows=1) == 1
