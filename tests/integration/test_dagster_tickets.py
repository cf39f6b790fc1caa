"""Flows of a real service that `gobblin-assets dagster --executor` runs. Dagster starts once for all tests."""

import uuid
from collections.abc import Iterator, Sequence

import dagster as dg
import pytest
from sqlalchemy import text

from demo.kafka.broker import KafkaBroker
from gobblin_assets.dagster.ticket_runs import TICKETS_JOB, TICKETS_OP
from gobblin_assets.dagster.ticket_sensors import EXECUTOR_TAG, FLOW_GROUP_TAG, FLOW_TAG, TICKET_TAG
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import SentTicket, TicketId, TicketVerb
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.state.postgres.overview import PostgresOverview
from tests.support.dagster_executor import EXECUTOR, GROUP, ROWS, DagsterExecutor, run_dagster_executor
from tests.support.dagster_process import WAIT_S_MAX
from tests.support.database_pool import DatabasePool
from tests.support.kafka import delete_topics
from tests.support.orders_to_die import WAIT, give_order

pytestmark = [pytest.mark.timeout(600), pytest.mark.turns(of=8)]

Status = dg.DagsterRunStatus
RUNNER = "gobblin_assets.dagster.runner_location"


@pytest.fixture(scope="module")
def world(server: EmbeddedServer, database_pool: DatabasePool) -> Iterator[DagsterExecutor]:
    with run_dagster_executor(server, database_pool) as running:
        yield running


def ticket_of(world: DagsterExecutor, flow: str) -> TicketId:
    (job,) = world.find_execution(flow)["jobs"]
    return TicketId(uuid.UUID(job["ticket_id"]))


def test_a_flow_runs_in_dagster_and_its_page_leads_there(world: DagsterExecutor) -> None:
    table = world.make_table("orders")
    world.create_flow("orders", table)
    execution = world.await_flow("orders", "COMPLETE", "FAILED")
    (job,) = execution["jobs"]
    assert (execution["status"], job["processed_count"]) == ("COMPLETE", ROWS), execution

    place = f"/flows/{GROUP}/orders/executions/{execution['execution_id']}"
    log = world.service.ask("GET", f"/api/v1{place}/jobs/0/log").json
    shown = log["dagster_run"]
    ui = f"http://127.0.0.1:{world.dagster.port}"
    assert shown["url"] == f"{ui}/runs/{shown['run_id']}"
    assert shown["assets"] == [{"urn": table, "url": f"{ui}/assets/{job['job_name']}/{table}"}]
    page = world.service.ask("GET", f"/ui{place}").text
    assert f'href="{shown["url"]}"' in page
    assert f'href="{shown["assets"][0]["url"]}"' in page
    assert log["outputs"][0]["lines"]
    suggested = world.service.ask("POST", "/api/v1/nodes/shop:suggest?wait_s=10", {})
    assert (suggested.status, table in suggested.text) == (200, True), suggested.text

    world.dagster.wait_for_status(shown["run_id"], Status.SUCCESS)
    run = world.dagster.instance.get_run_by_id(shown["run_id"])
    assert run is not None
    assert (run.tags[TICKET_TAG], run.tags[FLOW_GROUP_TAG], run.tags[FLOW_TAG]) == (job["ticket_id"], GROUP, "orders")
    (event,) = world.dagster.instance.fetch_materializations(dg.AssetKey([job["job_name"], table]), limit=9).records
    assert event.event_log_entry.run_id == shown["run_id"]
    (beat,) = [each.beat for each in world.stores.heartbeats.list_heartbeats() if each.beat.executor == EXECUTOR]
    assert (beat.technology, beat.slots, "SENSOR" in beat.daemons) == ("dagster", 4, True)


def test_a_run_that_is_killed_while_it_publishes_is_followed_by_another(world: DagsterExecutor) -> None:
    give_order(world.folder, Failpoint.STEP_AFTER, "SIGKILL")
    ticket_id = world.send("killed", world.make_table("killed"))
    assert world.await_end(ticket_id).details["state"] == "COMPLETE", world.list_reports(ticket_id)
    first, second = world.find_runs(ticket_id)
    assert (world.dagster.status_of(first), first != second) == (Status.FAILURE, True)
    told = [each for each in world.list_reports(ticket_id) if each.kind == "published"]
    assert (len(told), world.count_sequences("killed"), world.count_rows("public.killed")) == (1, 1, ROWS)


def test_a_run_that_is_launched_twice_works_once(world: DagsterExecutor) -> None:
    give_order(world.folder, Failpoint.TICKET_REPORTED, WAIT)
    ticket_id = world.send("twice", world.make_table("twice"))
    world.dagster.wait((world.folder / "obeyed").exists, "the ticket is begun")
    config = {"ops": {TICKETS_OP: {"config": {"tickets": [str(ticket_id)]}}}}
    second = world.dagster.launch_job("runner", TICKETS_JOB, {EXECUTOR_TAG: EXECUTOR}, config)
    world.dagster.wait_for_status(second, Status.SUCCESS)
    (world.folder / "obeyed").unlink()
    assert world.await_end(ticket_id).details["state"] == "COMPLETE"
    assert (len(world.find_runs(ticket_id)), second in world.find_runs(ticket_id)) == (1, False)
    assert (world.count_sequences("twice"), world.count_rows("public.twice")) == (1, ROWS)


def test_a_flow_that_is_cancelled_ends_its_run(world: DagsterExecutor) -> None:
    give_order(world.folder, Failpoint.TICKET_REPORTED, WAIT)
    world.create_flow("unwanted", world.make_table("unwanted"))
    world.dagster.wait((world.folder / "obeyed").exists, "the ticket is begun")
    (run_id,) = world.find_runs(ticket_of(world, "unwanted"))
    body = {"execution_id": world.find_execution("unwanted")["execution_id"]}
    assert world.service.ask("POST", f"/api/v1/flows/{GROUP}/unwanted:cancel", body).status < 300
    assert world.await_flow("unwanted", "CANCELLED", "COMPLETE", "FAILED")["status"] == "CANCELLED"
    world.dagster.wait_for_status(run_id, Status.CANCELED)
    assert world.count_rows("public.unwanted") == 0


def test_a_run_that_a_person_terminates_ends_its_ticket(world: DagsterExecutor) -> None:
    give_order(world.folder, Failpoint.TICKET_REPORTED, WAIT)
    ticket_id = world.send("stopped", world.make_table("stopped"))
    world.dagster.wait((world.folder / "obeyed").exists, "the ticket is begun")
    (run_id,) = world.find_runs(ticket_id)
    world.dagster.terminate(run_id)
    assert world.await_end(ticket_id).details["state"] == "CANCELLED"
    world.dagster.wait_for_status(run_id, Status.CANCELED)
    world.await_tick()
    assert world.find_runs(ticket_id) == [run_id]


def test_small_tickets_share_a_run_and_fail_alone(world: DagsterExecutor) -> None:
    names = [f"small{number}" for number in range(5)]
    tables = {name: world.make_table(name) for name in names}
    tables["small1"] = "public.absent"
    world.await_tick()
    give_order(world.folder, Failpoint.TICKET_REPORTED, WAIT)
    tickets = {name: world.send(name, tables[name]) for name in names}
    world.dagster.wait((world.folder / "obeyed").exists, "the first ticket is begun")
    world.stores.tickets.send(
        SentTicket(TicketId(uuid.uuid4()), TicketVerb.CANCEL, EXECUTOR, cancels=tickets["small3"])
    )
    # Nobody works on it yet: its end waits for no run.
    assert world.await_end(tickets["small3"]).details["state"] == "CANCELLED"
    (world.folder / "obeyed").unlink()
    ends = {name: world.await_end(ticket_id).details["state"] for name, ticket_id in tickets.items()}
    assert ends == {**dict.fromkeys(names, "COMPLETE"), "small1": "FAILED", "small3": "CANCELLED"}
    (run_id,) = {run_id for ticket_id in tickets.values() for run_id in world.find_runs(ticket_id)}
    world.dagster.wait_for_status(run_id, Status.FAILURE)
    assert {name: world.count_rows(f"public.{name}") for name in names} == {
        **dict.fromkeys(names, ROWS), "small1": 0, "small3": 0
    }  # fmt: skip


@pytest.mark.parametrize(
    "point", [Failpoint.SEAL_COMMITTED, pytest.param(Failpoint.TICKET_CLAIMED, marks=pytest.mark.thorough)]
)
def test_an_asset_of_flows_is_materialized_by_a_ticket_of_its_own_which_goes_on_after_a_kill(
    world: DagsterExecutor, point: Failpoint
) -> None:
    """As by the page's button. The run dies; another one of the executor publishes, and reports.

    It is one execution of its flow, whether the service heard of it before it died or not.
    """
    flow = f"shown_{point}"
    table = world.make_table(flow)
    world.create_flow(flow, table)
    (job,) = world.await_flow(flow, "COMPLETE", "FAILED")["jobs"]
    name = job["job_name"]
    world.dagster.reload("flows")
    world.dagster.wait(lambda: world.dagster.has_asset(name, table), "the asset is shown")
    give_order(world.folder, point, "SIGKILL")
    run_id = world.dagster.launch_assets("flows", [name, table])
    world.dagster.wait_for_status(run_id, Status.FAILURE)
    claimed = text("SELECT ticket_id FROM gobblin.ticket_claim WHERE owner LIKE :owner")
    with world.engine.connect() as connection:
        own = TicketId(connection.execute(claimed, {"owner": f"%{run_id}"}).scalar_one())
    assert world.await_end(own).details["state"] == "COMPLETE"
    begun = [each.sent for each in PostgresOverview(world.engine).list_own_tickets(0, limit=99)]
    assert [each.asked_by for each in begun if each is not None and each.ticket_id == own] == ["dagster"]
    runs = world.find_runs(own)
    assert runs[0] == run_id or point is Failpoint.TICKET_CLAIMED, "it told of its run"
    assert len({run_id, *runs}) == 2
    assert world.count_sequences(name) == 2
    published = world.stores.published.find(JobName(name), DatasetUrn(table), role=Role.DATA)
    assert published is not None
    assert sum(segment.row_count for segment in published.segments) == ROWS
    key = dg.AssetKey([name, table])
    world.dagster.wait(
        lambda: len(world.dagster.instance.fetch_materializations(key, limit=9).records) == 2, "Dagster knows of both"
    )
    states = ["COMPLETE", "COMPLETE"]
    world.dagster.wait(lambda: [each["status"] for each in world.list_executions(flow)] == states, "both are COMPLETE")
    executions = world.list_executions(flow)
    assert [each["asked_by"] == "dagster" for each in executions] == [True, False]
    (adopted,) = executions[0]["jobs"]
    assert (adopted["ticket_id"], adopted["processed_count"]) == (str(own), ROWS)


def begin_pack(world: DagsterExecutor, name: str) -> list[TicketId]:
    """Three tickets in one run, whose first one is begun and waits."""
    tables = [world.make_table(f"{name}{number}") for number in range(3)]
    world.await_tick()
    give_order(world.folder, Failpoint.TICKET_REPORTED, WAIT)
    tickets = [world.send(f"{name}{number}", table) for number, table in enumerate(tables)]
    world.dagster.wait((world.folder / "obeyed").exists, "the first ticket is begun")
    return tickets


def require_pack_once(world: DagsterExecutor, name: str, tickets: Sequence[TicketId]) -> None:
    """All of it ran in its one run, once, and is told of."""
    assert [world.await_end(each).details["state"] for each in tickets] == ["COMPLETE"] * len(tickets)
    (run_id,) = {run_id for each in tickets for run_id in world.find_runs(each)}
    world.dagster.wait_for_status(run_id, Status.SUCCESS)
    for number, ticket_id in enumerate(tickets):
        assert {each.attempt for each in world.list_reports(ticket_id)} == {1}
        assert world.count_rows(f"public.{name}{number}") == ROWS
        assert world.count_sequences(f"{name}{number}") == 1


@pytest.mark.parametrize(
    "words", [("grpc",), pytest.param(("code-server",), marks=pytest.mark.thorough)], ids=lambda words: words[0]
)
def test_a_pack_goes_on_when_its_code_server_dies_and_the_next_ticket_finds_another(
    world: DagsterExecutor, words: tuple[str, ...]
) -> None:
    """Either the process with the code is killed, or the one that passes questions on to it as well."""
    name = f"orphan_{words[0].replace('-', '_')}"
    tickets = begin_pack(world, name)
    killed = [each for word in {"grpc", *words} for each in world.dagster.find_processes(word, RUNNER)]
    assert len(killed) == (2 if "code-server" in words else 1)
    for process in killed:
        process.kill()
    following = world.send(f"{name}_next", world.make_table(f"{name}_next"))
    (world.folder / "obeyed").unlink()
    require_pack_once(world, name, tickets)
    assert world.await_end(following).details["state"] == "COMPLETE", "no sensor looks any more"
    assert world.count_rows(f"public.{name}_next") == ROWS


@pytest.mark.thorough
def test_a_pack_goes_on_when_the_daemon_dies(world: DagsterExecutor) -> None:
    """All of Dagster's servers end with its daemon, and whoever supervises them starts them again."""
    tickets = begin_pack(world, "undaemonic")
    (daemon,) = world.dagster.find_processes("dagster._daemon")
    daemon.kill()
    following = world.send("undaemonic_next", world.make_table("undaemonic_next"))
    (world.folder / "obeyed").unlink()
    assert world.await_end(tickets[-1]).details["state"] == "COMPLETE", "they need no daemon"
    world.dagster.await_death()
    world.dagster.start()
    require_pack_once(world, "undaemonic", tickets)
    assert world.await_end(following).details["state"] == "COMPLETE"
    assert world.count_rows("public.undaemonic_next") == ROWS


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["DRAINED", "DIED"])
def test_what_was_under_way_when_all_of_dagster_ended_goes_on_with_the_next(world: DagsterExecutor, end: str) -> None:
    """By Ctrl-C, or by a power cut: then nobody says that the attempt is over, and its claim runs out."""
    name = f"left_{end.lower()}"
    give_order(world.folder, Failpoint.TICKET_REPORTED, WAIT)
    ticket_id = world.send(name, world.make_table(name))
    world.dagster.wait((world.folder / "obeyed").exists, "the ticket is begun")
    (first,) = world.find_runs(ticket_id)
    if end == "DRAINED":
        world.dagster.interrupt()
    else:
        world.dagster.kill_all()
    ended = [each.details["state"] for each in world.list_reports(ticket_id) if each.kind == "ended"]
    assert ended == (["DRAINED"] if end == "DRAINED" else [])
    world.dagster.start()
    assert world.await_end(ticket_id).details["state"] == "COMPLETE"
    assert (len(world.find_runs(ticket_id)), world.count_rows(f"public.{name}")) == (2, ROWS)
    world.dagster.wait_for_status(first, Status.FAILURE)


@pytest.mark.thorough
def test_a_run_goes_on_when_dagster_is_asked_to_end(world: DagsterExecutor) -> None:
    give_order(world.folder, Failpoint.TICKET_REPORTED, WAIT)
    ticket_id = world.send("goes_on", world.make_table("goes_on"))
    world.dagster.wait((world.folder / "obeyed").exists, "the ticket is begun")
    ending = world.dagster.terminate_dev()
    (world.folder / "obeyed").unlink()
    assert world.await_end(ticket_id).details["state"] == "COMPLETE"
    assert (len(world.find_runs(ticket_id)), world.count_rows("public.goes_on")) == (1, ROWS)
    ending.wait(WAIT_S_MAX)
    world.dagster.start()


@pytest.mark.thorough
def test_a_flow_goes_over_a_topic_to_dagster_and_comes_back(
    server: EmbeddedServer, database_pool: DatabasePool, kafka_broker: KafkaBroker
) -> None:
    with run_dagster_executor(server, database_pool, bootstrap=kafka_broker.bootstrap) as world:
        table = world.make_table("wired")
        world.create_flow("wired", table)
        execution = world.await_flow("wired", "COMPLETE", "FAILED")
        (job,) = execution["jobs"]
        assert (execution["status"], job["processed_count"], world.count_rows(table)) == ("COMPLETE", ROWS, ROWS)
        with world.engine.connect() as connection:
            received = connection.execute(text("SELECT count(*) FROM gobblin.wire_place WHERE next_offset > 0"))
            assert received.scalar_one() == 1
        (run_id,) = world.find_runs(ticket_of(world, "wired"))
        world.dagster.wait_for_status(run_id, Status.SUCCESS)
    delete_topics(kafka_broker.bootstrap, f"gobblin-tickets-{EXECUTOR}", f"gobblin-reports-{EXECUTOR}")
