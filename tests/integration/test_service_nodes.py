"""Several nodes of one service: behind nginx, cut off from Postgres, stopped, killed, with wrong clocks."""

import datetime as dt
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.engine import make_url

from demo.service.balancer import find_nginx, run_balancer
from gobblin_assets.db import schema
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.errors import RejectedError
from gobblin_assets.service.core_services import CoreServices, Loop
from gobblin_assets.service.flow_catalog import FlowCatalog
from gobblin_assets.service.opening import open_service
from gobblin_assets.service.postgres.flows import PostgresFlowStore
from gobblin_assets.service.postgres.history import SERVICE_HISTORY
from gobblin_assets.service.roles import NodeRole, parse_roles
from gobblin_assets.settings import Settings
from tests.support import postgres
from tests.support.clocks import shift_clock
from tests.support.cutting_proxy import CuttingProxy, cutting_proxy
from tests.support.database_pool import DatabasePool
from tests.support.flow_world import KEY, FlowWorld, make_config
from tests.support.running_service import Answer, RunningService, prepare_database, run_service

FLOWS = "/api/v1/flows"
WAIT_S_MAX = 150.0
FIVE_MINUTES_S = 300


@dataclass
class Cluster:
    """``whole`` takes all roles, ``silent`` all but requests, ``answering`` requests alone.

    The first two reach Postgres by ``proxy``. The clock of ``whole`` is ahead, that of ``silent`` behind.
    ``balanced``: those that answer, behind nginx.
    """

    url: str
    engine: Engine
    proxy: CuttingProxy
    whole: RunningService
    silent: RunningService
    answering: RunningService
    balanced: RunningService

    def count(self, statement: str) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(text(statement)).scalar_one())

    def count_unsent(self) -> int:
        return self.count("SELECT count(*) FROM gobblin_service.job_execution WHERE status = 'COMPILED'")

    def count_sent(self) -> int:
        return self.count("SELECT count(*) FROM gobblin.job_ticket WHERE verb = 'ADD'")


@pytest.fixture(scope="module")
def cluster(
    server: EmbeddedServer, service_pool: DatabasePool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    try:
        find_nginx()
    except RejectedError as error:
        pytest.skip(str(error))
    with ExitStack() as stack:
        name = stack.enter_context(postgres.migrated_database(server, service_pool))
        direct = server.tcp_url(name)
        prepare_database(direct)
        proxy = stack.enter_context(cutting_proxy(server.port))
        proxied = make_url(direct).set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)

        def start(node: str, url: str, *options: str, clock_s: int = 0) -> RunningService:
            variables = shift_clock(clock_s) if clock_s else {}
            folder = tmp_path_factory.mktemp(node)
            return stack.enter_context(run_service(folder, url, "--no-auth", *options, variables=variables))

        whole = start("whole", proxied, clock_s=FIVE_MINUTES_S)
        silent = start(
            "silent", proxied, "--role", "scheduler,orchestrator", "--role", "monitor", clock_s=-FIVE_MINUTES_S
        )
        answering = start("answering", direct, "--role", "api")
        folder = tmp_path_factory.mktemp("nginx")
        port = stack.enter_context(run_balancer([whole.port, answering.port], folder, answer_s=3))
        engine = open_external(direct)
        stack.callback(engine.dispose)
        balanced = replace(answering, url=f"http://127.0.0.1:{port}")
        yield Cluster(direct, engine, proxy, whole, silent, answering, balanced)


def make_body(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "flow_group": "sales",
        "flow_name": name,
        "source": "shop",
        "destinations": ["lake"],
        "template_uris": ["FS:///tables.template"],
        "parameters": {"tables": [{"table": "public.orders"}]},
        **changes,
    }


def create(service: RunningService, name: str, key: str = "") -> Answer:
    answer = service.ask("POST", FLOWS, make_body(name), headers={"Idempotency-Key": key} if key else None)
    assert answer.status == 201, answer.text
    return answer


def create_due(cluster: Cluster, name: str, in_s: float) -> None:
    """By the node that answers only. The flow's schedule is due in so many seconds, and then each day."""
    with cluster.engine.connect() as connection:
        due = connection.execute(text("SELECT clock_timestamp()")).scalar_one().astimezone(dt.UTC)
    due += dt.timedelta(seconds=in_s)
    body = make_body(name, schedule=f"{due.second} {due.minute} {due.hour} * * ?", run_immediately=False)
    answer = cluster.answering.ask("POST", FLOWS, body)
    assert answer.status == 201, answer.text
    assert dt.datetime.fromisoformat(answer.json["next_fire_at"]) == due.replace(microsecond=0)


def measure_lateness_s(cluster: Cluster, name: str) -> float | None:
    """How long after its slot the flow was fired; None: it was not."""
    found = text("""
        SELECT extract(epoch FROM e.started_at - e.fire_at) FROM gobblin_service.flow_execution e
          JOIN gobblin_service.flow f USING (flow_id) WHERE f.flow_name = :name
    """)
    with cluster.engine.connect() as connection:
        lateness = connection.execute(found, {"name": name}).scalars().all()
    assert len(lateness) <= 1
    return float(lateness[0]) if lateness else None


def wait(happened: Callable[[], object], said: str) -> None:
    until = time.monotonic() + WAIT_S_MAX
    while not happened():
        assert time.monotonic() < until, f"it took too long: {said}"
        time.sleep(0.05)


def test_equal_nodes_behind_a_balancer_are_one_service(cluster: Cluster) -> None:
    for number in range(8):
        create(cluster.balanced, f"flow{number}")
    made = create(cluster.whole, "orders", "key-1")
    again = create(cluster.answering, "orders", "key-1")
    assert again.json["created_at"] == made.json["created_at"], "any node knows what another one has answered"
    assert again.headers["etag"] == made.headers["etag"]
    changed = cluster.answering.ask(
        "PATCH", f"{FLOWS}/sales/orders", {"description": "All"}, headers={"If-Match": made.headers["etag"]}
    )
    assert changed.status == 200
    late = cluster.whole.ask(
        "PATCH", f"{FLOWS}/sales/orders", {"description": "None"}, headers={"If-Match": made.headers["etag"]}
    )
    assert late.status == 412
    assert cluster.balanced.send_form("/ui/flows/sales/orders/pause", {}).status == 303, "the origin is the balancer's"
    wait(lambda: cluster.count_unsent() == 0, "tickets are sent")
    assert cluster.count_sent() == 9, "each once, by whichever node"
    pages = [cluster.balanced.ask("GET", f"{FLOWS}?limit=3").json for _ in range(2)]
    assert [each["uri"] for each in pages[0]["flows"]] == [each["uri"] for each in pages[1]["flows"]]


def test_only_the_clock_of_the_database_counts(cluster: Cluster) -> None:
    """One node is five minutes ahead, the other one behind; what they store is in the order in which it happened."""
    moments = [
        create(node, f"clock{number}").json["created_at"]
        for number, node in enumerate([cluster.whole, cluster.answering, cluster.whole])
    ]
    assert moments == sorted(moments)
    now = dt.datetime.now(dt.UTC)
    assert all(abs((now - dt.datetime.fromisoformat(each)).total_seconds()) < 60 for each in moments)
    wait(lambda: cluster.count_unsent() == 0, "tickets are sent")
    late = """
        SELECT count(*) FROM gobblin_service.flow_execution e
         WHERE abs(extract(epoch FROM e.started_at - clock_timestamp())) > 120
    """
    assert cluster.count(late) == 0
    assert cluster.count("SELECT count(*) FROM gobblin.job_ticket WHERE sent_at > clock_timestamp()") == 0


def test_a_node_without_its_postgres_only_reads_and_goes_on_when_it_is_back(cluster: Cluster) -> None:
    create(cluster.answering, "before")
    wait(lambda: cluster.count_unsent() == 0, "tickets are sent")
    flows = cluster.count("SELECT count(*) FROM gobblin_service.flow WHERE deleted_at IS NULL")
    held = f'gobblin_catalog_specs{{catalog="flows"}} {flows}\n'
    wait(lambda: held in cluster.whole.ask("GET", "/api/v1/metrics").text, "the other node hears of it")
    cluster.proxy.cut_after = 0
    try:
        read = cluster.whole.ask("GET", f"{FLOWS}/sales/before")
        assert (read.status, '"flow_name":"before"' in read.text) == (200, True), read.text
        wait(lambda: cluster.whole.ask("GET", FLOWS).json["age_s"] > 0, "a copy answers")
        assert cluster.whole.ask("GET", "/api/v1/health").json["status"] == "read_only"
        refused = cluster.whole.ask("POST", FLOWS, make_body("refused"))
        assert refused.status == 503, refused.text
        assert cluster.whole.ask("POST", f"{FLOWS}/sales/before:run").status == 503
        assert "nothing can be changed" in cluster.whole.ask("GET", "/ui/flows").text

        create(cluster.answering, "meanwhile")
        create_due(cluster, "due", 3.0)
        time.sleep(2.5)
        assert cluster.count_unsent() == 1, "those that send are cut off"
        assert measure_lateness_s(cluster, "due") is None, "nothing fires"
    finally:
        cluster.proxy.cut_after = None
    wait(lambda: cluster.count_unsent() == 0, "what was stored meanwhile is sent")
    wait(lambda: cluster.whole.ask("GET", "/api/v1/health").json["status"] == "ok", "the node is back")
    wait(lambda: measure_lateness_s(cluster, "due") is not None, "the slot is run late")
    (slot,) = cluster.answering.ask("GET", f"{FLOWS}/sales/due/slots").json
    assert (slot["state"], slot["count"]) == ("RUN", 1)
    assert cluster.whole.ask("GET", f"{FLOWS}/sales/meanwhile").status == 200
    assert cluster.whole.ask("GET", f"{FLOWS}/sales/refused").status == 404
    create(cluster.whole, "refused")


def test_a_node_that_begins_while_its_postgres_is_away_waits_for_it(cluster: Cluster, tmp_path: Path) -> None:
    said = tmp_path / "service.stderr"
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        cluster.proxy.cut_after = 0
        try:
            starting = run_service(tmp_path, cluster.whole.environment["GOBBLIN_DATABASE_URL"], "--no-auth")
            begun = pool.submit(stack.enter_context, starting)
            wait(lambda: said.exists() and "The service tries again for 60 s." in said.read_text(), "it is said")
        finally:
            cluster.proxy.cut_after = None
        assert begun.result().ask("GET", "/api/v1/health").json["status"] == "ok"


def test_a_change_that_a_network_swallows_is_answered_soon_and_is_made_once(cluster: Cluster) -> None:
    """Nothing is refused, and nothing is answered: whoever asks does not wait until TCP gives up."""
    key = {"Idempotency-Key": "swallowed"}
    cluster.proxy.hold(1 << 40)
    try:
        refused = cluster.whole.ask("POST", FLOWS, make_body("swallowed"), headers=key)
    finally:
        cluster.proxy.hold(0)
    assert (refused.status, refused.json["family"]) == (503, "OutcomeUnknownError"), refused.text
    wait(lambda: cluster.whole.ask("GET", "/api/v1/health").json["status"] == "ok", "the node is back")
    again = cluster.whole.ask("POST", FLOWS, make_body("swallowed"), headers=key)
    assert again.status in {200, 201}, again.text
    named = "SELECT count(*) FROM gobblin_service.flow WHERE flow_name = 'swallowed'"
    assert cluster.count(named) == 1


def test_a_node_that_is_stopped_or_killed_holds_nobody_up(cluster: Cluster) -> None:
    """Its outbox rows go on by the others; a balancer asks the others."""
    cluster.silent.process.send_signal(signal.SIGSTOP)
    try:
        create(cluster.answering, "stopped")
        create_due(cluster, "on_time", 4.0)
        wait(lambda: cluster.count_unsent() == 0, "the other node sends")
        wait(lambda: measure_lateness_s(cluster, "on_time") is not None, "the other node fires")
        lateness_s = measure_lateness_s(cluster, "on_time")
        assert lateness_s is not None
        assert 0 <= lateness_s < 5, "although its clock is five minutes ahead"
    finally:
        cluster.silent.process.send_signal(signal.SIGCONT)
    cluster.whole.process.kill()
    cluster.whole.process.wait()
    for number in range(4):
        assert cluster.balanced.ask("GET", FLOWS).status == 200
        create(cluster.balanced, f"killed{number}", f"killed-{number}")
    create_due(cluster, "after_a_kill", 4.0)
    wait(lambda: (measure_lateness_s(cluster, "after_a_kill") or 99) < 5, "the node that was stopped fires on time")
    wait(lambda: cluster.count_unsent() == 0, "and sends again")
    executions = cluster.count("SELECT count(*) FROM gobblin_service.job_execution")
    assert cluster.count_sent() == executions, "no ticket is sent twice, and none is lost"
    assert cluster.silent.stop() == 0, "it ends when it is asked to"
    assert cluster.answering.stop() == 0


def set_version(engine: Engine, version: str) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE gobblin_service.alembic_version SET version_num = :v"), {"v": version})


@pytest.mark.service_schema
def test_a_node_runs_on_the_schema_of_the_next_version_and_on_no_other(
    engine: Engine, database_url: str, tmp_path: Path
) -> None:
    world = FlowWorld(engine)
    world.flows.create(world.person, make_config())
    head = int(schema.list_versions(SERVICE_HISTORY)[-1])
    settings = replace(Settings(home=tmp_path), database_url=database_url)
    topology = tmp_path / "topology.yaml"
    topology.write_text("nodes: {}\nexecutors: {}\n", encoding="utf-8")
    said: list[str] = []

    def count_flows() -> int:
        with open_service(settings, topology, (), "multi_hop", {}, said.append) as opened:
            return len(opened.flows.list_flows().flows)

    for version in (head - 1, head + 2):
        set_version(engine, f"{version:04}")
        with pytest.raises(RejectedError, match=r"^schema: "):
            count_flows()
    set_version(engine, f"{head + 1:04}")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE gobblin_service.flow ADD COLUMN of_the_next TEXT DEFAULT '' NOT NULL"))
    assert count_flows() == 1
    assert any("the next one after this package's" in line for line in said)
    world.flows.create(world.person, make_config(name="later"))
    assert count_flows() == 2
    set_version(engine, f"{head:04}")
    others = set(threading.enumerate())
    with open_service(settings, topology, (), "multi_hop", {}, said.append, roles={NodeRole.API}):
        names = {thread.name for thread in threading.enumerate() if thread not in others}
    assert {"flows", "topology", "packs", "heartbeats"} <= names
    known = {"flows", "topology", "packs", "heartbeats", "notices"}
    assert {name for name in names if not name.startswith("Thread-")} <= known, "each other loop has its role"


@pytest.mark.service_schema
def test_a_node_has_the_loops_of_its_roles_and_those_of_catalogs(engine: Engine) -> None:
    world, looks = FlowWorld(engine), []
    more = [Loop(name, lambda name=name: looks.append(name), 60.0) for name in ("probes", "topology")]
    roles = parse_roles(["monitor, scheduler"])
    core = CoreServices(
        world.catalog, world.flows, world.orchestrator, world.monitor, world.scheduler, world.launcher, more, roles
    )
    core.start()
    names = {thread.name for thread in threading.enumerate()}
    assert core.stop()
    assert {"flows", "topology", "scheduler", "launcher", "restarts", "pending flows", "monitor"} <= names
    assert not {"orchestrator", "probes"} & names
    assert looks == ["topology"]
    assert not names & {thread.name for thread in threading.enumerate()} & {"flows", "monitor", "scheduler"}


def test_roles_are_named_by_words_and_are_all_by_default() -> None:
    assert parse_roles(["scheduler, monitor", "api"]) == {NodeRole.SCHEDULER, NodeRole.MONITOR, NodeRole.API}
    assert parse_roles([]) == frozenset(NodeRole)
    with pytest.raises(RejectedError, match="there is no role 'schedular'") as refused:
        parse_roles(["schedular"])
    assert "scheduler" in refused.value.hint


@pytest.mark.service_schema
def test_a_network_that_swallows_what_is_asked_keeps_nobody_from_reading(
    server: EmbeddedServer, engine: Engine, database_url: str
) -> None:
    """As when a network is split: nothing is refused, and nothing is answered."""
    world = FlowWorld(engine)
    world.flows.create(world.person, make_config())
    with cutting_proxy(server.port) as proxy, ExitStack() as stack:
        url = make_url(server.tcp_url(str(make_url(database_url).database))).set(host="127.0.0.1", port=proxy.port)
        split = open_external(url.render_as_string(hide_password=False))
        stack.callback(split.dispose)
        now, asked = [100.0], []

        def tell() -> float:
            asked.append(now[0])
            return now[0]

        catalog = FlowCatalog(PostgresFlowStore(split), monotonic=tell)
        catalog.refresh()
        proxy.hold(1 << 40)
        asked.clear()
        look = threading.Thread(target=catalog.refresh, daemon=True)
        look.start()
        wait(lambda: len(asked) == 2, "the look asks, and waits")
        now[0] += 6
        read = catalog.list_flows()
        assert ([flow.spec.key for flow in read.flows], read.age_s) == ([KEY], 6.0)
        assert catalog.measure_age_s() == 6.0
        proxy.hold(0)
        look.join(WAIT_S_MAX)

        def is_asked_again() -> bool:
            now[0] += 10
            return catalog.list_flows().age_s == 0.0

        wait(is_asked_again, "the store is asked again, also behind a connection that it has ended meanwhile")
