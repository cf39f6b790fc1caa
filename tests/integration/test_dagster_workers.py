"""Workers of tickets as runs of Dagster's that follow each other: a change log of a real Postgres."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import Engine

from gobblin_assets import failpoints
from gobblin_assets.dagster.dead_runs import PROCESS_TAG, read_marks
from gobblin_assets.dagster.run_config import SINK_TAG
from gobblin_assets.dagster.runner_location import EXECUTOR_VARIABLE
from gobblin_assets.dagster.ticket_runs import describe_owner
from gobblin_assets.dagster.ticket_sensors import TICKET_TAG
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import TicketVerb
from gobblin_assets.state.tickets import ATTEMPTS_MAX, AttemptEnd, TicketReportKind
from gobblin_assets.state.worker_tickets import DRAINED_KEPT, OUTPUTS_KEPT
from tests.support.changed_tables import ChangedTables
from tests.support.dagster_executor import EXECUTOR, run_dagster_executor
from tests.support.dagster_instance import open_instance
from tests.support.dagster_workers import MONITOR, WorkersInDagster, send_cancel, send_worker
from tests.support.database_pool import DatabasePool
from tests.support.postgres import Database

pytestmark = pytest.mark.turns(of=4)

DRAINING_S = 5.0
"""Behind its begin, a run of one second drains."""

SLOTS = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
ORDERS = dg.AssetKey(["shop", "public.orders"])


@pytest.fixture
def tables(tmp_path: Path, source_database: Database, engine: Engine) -> ChangedTables:
    made = ChangedTables(tmp_path, source_database, engine, ["orders"])
    made.do(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer text)",
        "CREATE PUBLICATION lake FOR TABLE orders",
        "INSERT INTO orders SELECT n, 'c' || n FROM generate_series(1, 300) n",
    )
    return made


@pytest.fixture
def world(
    tables: ChangedTables, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WorkersInDagster]:
    variables = {
        **tables.variables,
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": database_url,
        EXECUTOR_VARIABLE: EXECUTOR,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "dagster"
    with open_instance(folder) as instance:
        made = WorkersInDagster(tables, instance, folder, {**os.environ, **variables})
        yield made
        made.close()


@pytest.mark.every_run
def test_runs_follow_each_other_an_update_takes_the_place_and_the_slot_goes_with_the_flow(
    world: WorkersInDagster, tables: ChangedTables
) -> None:
    added = world.send()
    (request,) = world.tick()
    assert (request.tags[TICKET_TAG], request.tags[SINK_TAG]) == (str(added), "shop")
    (again,) = world.tick()
    assert again.run_key == request.run_key, "Dagster makes one run of both"
    working = world.start(request)
    tables.await_published()
    assert not world.tick()
    assert world.run(request).status is dg.DagsterRunStatus.SUCCESS, "a second run has nothing to claim"
    assert {each.attempt for each in world.list_reports(added)} == {1}

    updated = world.send(TicketVerb.UPDATE, worker_s=2.0, sink={"every_s": 0.3, "roll": {"age_s": 0}})
    working.join(30)
    assert world.list_ends(added) == ["COMPLETE"], "it has seen the newer ticket itself"
    (output,) = world.stores.tickets.list_outputs(added, limit=5)
    assert "public.orders: is copied first" in output.lines
    assert TicketReportKind.PROGRESS in {each.kind for each in world.list_reports(added)}
    (request,) = world.tick()
    tables.do("UPDATE orders SET customer = 'new' WHERE id < 10")
    assert world.run(request).status is dg.DagsterRunStatus.SUCCESS
    tables.require_same("orders", "id")
    assert world.list_ends(updated) == ["DRAINED"]
    (following,) = world.tick()
    assert following.run_key != request.run_key
    tables.do("DELETE FROM orders WHERE id > 290")
    world.run(following)
    tables.require_same("orders", "id")
    assert [each.attempt for each in world.list_reports(updated) if each.kind is TicketReportKind.CLAIMED] == [1, 2]
    (told,) = world.instance.fetch_materializations(ORDERS, limit=5).records
    assert told.asset_materialization is not None

    deleted = world.send(TicketVerb.DELETE)
    assert tables.ask(SLOTS) == 1
    (request,) = world.tick()
    assert world.list_ends(updated)[-1] == "CANCELLED"
    assert SINK_TAG not in request.tags, "it needs no slot of a worker's"
    world.run(request)
    assert world.list_ends(deleted) == ["COMPLETE"]
    assert tables.ask(SLOTS) == 0
    assert not world.tick()


def test_a_run_that_is_killed_amid_a_publication_is_followed_after_a_while_and_loses_nothing(
    world: WorkersInDagster, tables: ChangedTables
) -> None:
    added = world.send(worker_s=6.0)
    (request,) = world.tick()
    killed = world.start(request, f"{Failpoint.SEALED_BEFORE_EXECUTE}=kill")
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    tables.do("UPDATE orders SET customer = 'new' WHERE id < 10")
    assert not world.tick(), "its claim lives, and Dagster takes the run for alive"
    world.expire()
    assert not world.tick()
    (run,) = world.find_runs(added)
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert world.list_ends(added) == ["DIED"]
    assert "1 rest" in str(world.said)
    world.move_runs(seconds=31)
    (request,) = world.tick()
    assert world.run(request).status is dg.DagsterRunStatus.SUCCESS
    tables.require_same("orders", "id")
    assert world.list_ends(added) == ["DIED", "DRAINED"]


def test_a_worker_that_is_cancelled_ends_behind_a_cut_also_without_dagster(
    world: WorkersInDagster, tables: ChangedTables
) -> None:
    added = world.send()
    (request,) = world.tick()
    working = world.start(request)
    tables.await_published()
    cancelling = world.cancel(added)
    working.join(30)
    assert world.list_ends(added) == ["CANCELLED"]
    assert world.list_ends(cancelling) == ["COMPLETE"]
    (run,) = world.find_runs(added)
    assert run.status is dg.DagsterRunStatus.CANCELED
    tables.require_same("orders", "id")
    assert tables.ask(SLOTS) == 1, "a pause keeps the slot"
    assert not world.stores.sink_workers.list_live(tables.described["job"])


def test_a_worker_ends_behind_a_cut_when_its_log_drains_and_is_followed_once_it_is_resumed(
    world: WorkersInDagster, tables: ChangedTables
) -> None:
    added = world.send()
    (request,) = world.tick()
    working = world.start(request)
    tables.await_published()
    world.stores.drains.begin("ann")
    working.join(30)
    assert (working.exitcode, world.list_ends(added)) == (0, ["DRAINED"])
    assert not world.tick()
    assert world.run(request).status is dg.DagsterRunStatus.SUCCESS, "what is asked for twice has nothing to claim"
    tables.do("UPDATE orders SET customer = 'new' WHERE id < 10")
    world.stores.drains.end()
    (request,) = world.tick()
    world.start(request)
    tables.await_published()
    tables.require_same("orders", "id")
    assert [each.attempt for each in world.list_reports(added) if each.kind is TicketReportKind.CLAIMED] == [1, 2]


def test_a_ticket_that_is_cancelled_while_its_run_is_queued_is_not_begun(
    world: WorkersInDagster, tables: ChangedTables
) -> None:
    added = world.send()
    (request,) = world.tick()
    world.make_run(request, dg.DagsterRunStatus.NOT_STARTED)
    assert not world.tick(), "one run is asked for"
    world.cancel(added)
    world.tick(MONITOR)
    assert world.list_ends(added) == ["CANCELLED"]
    assert world.run(request).status is dg.DagsterRunStatus.SUCCESS
    assert not tables.paths_of("orders")
    assert {each.kind for each in world.list_reports(added)} == {TicketReportKind.ENDED}


def test_a_run_that_a_person_terminates_is_followed_at_once(world: WorkersInDagster, tables: ChangedTables) -> None:
    added = world.send()
    (request,) = world.tick()
    working = world.start(request)
    tables.await_published()
    (run,) = world.find_runs(added)
    world.instance.report_run_canceling(run)
    assert working.pid is not None
    os.kill(working.pid, signal.SIGINT)
    working.join(30)
    assert world.list_ends(added) == ["DRAINED"]
    assert [each.status for each in world.find_runs(added)] == [dg.DagsterRunStatus.CANCELED]
    tables.require_same("orders", "id")
    assert len(world.tick()) == 1


def test_a_run_that_a_person_terminates_while_it_drains_is_not_cut(
    world: WorkersInDagster, tables: ChangedTables
) -> None:
    """The time of the run is over amid a publication, and then its first signal comes."""
    added = world.send(worker_s=1.0)
    (request,) = world.tick()
    cuts: list[str] = []

    def terminate(point: Failpoint) -> None:
        if point is Failpoint.SEALED_BEFORE_EXECUTE and not cuts:
            cuts.append("begun")
            time.sleep(DRAINING_S)
            world.instance.report_run_canceling(world.find_runs(added)[0])
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1.0)
            cuts.append("not interrupted")

    with failpoints.install(terminate):
        assert world.run(request).status is dg.DagsterRunStatus.CANCELED
    assert cuts == ["begun", "not interrupted"]
    assert world.list_ends(added) == ["DRAINED"]
    tables.require_same("orders", "id")


def test_a_source_that_is_away_is_said_and_waited_for(
    world: WorkersInDagster, tables: ChangedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = "GOBBLIN_POSTGRES_LOG_SHOP_URL"
    monkeypatch.setenv(variable, "jdbc:postgresql://127.0.0.1:1/none")
    added = world.send(worker_s=2.0)
    (request,) = world.tick()
    assert world.run(request).status is dg.DagsterRunStatus.SUCCESS
    (told,) = [each.details for each in world.list_reports(added) if each.kind is TicketReportKind.PROGRESS]
    assert told["unanswered"]
    assert world.list_ends(added) == ["DRAINED"], "it has not died, and nothing has to be spaced"
    monkeypatch.setenv(variable, tables.variables[variable])
    (request,) = world.tick()
    world.run(request)
    tables.require_same("orders", "id")


def test_an_attempt_ends_with_the_run_that_dagster_knows_to_be_dead(world: WorkersInDagster) -> None:
    added = world.send()
    (request,) = world.tick()
    run = world.make_run(request, dg.DagsterRunStatus.STARTED)
    claim = world.stores.tickets.claim(added, describe_owner(run.run_id), ttl_s=30.0)
    assert claim is not None
    assert not world.tick()
    assert world.list_ends(added) == []
    world.instance.report_run_failed(run)
    assert not world.tick()
    assert world.list_ends(added) == ["DIED"], "its claim would have lived for half a minute more"


def test_no_more_workers_are_asked_for_than_there_are_slots(
    world: WorkersInDagster, tables: ChangedTables, tmp_path: Path
) -> None:
    limits = [{"key": SINK_TAG, "limit": 1}]
    concurrency = {"runs": {"max_concurrent_runs": 9, "tag_concurrency_limits": limits}}
    folder = tmp_path / "limited"
    folder.mkdir()
    with dg.instance_for_test(overrides={"concurrency": concurrency}, temp_dir=str(folder)) as instance:
        world.instance = instance
        first = world.send()
        second = world.send(job="another")
        (request,) = world.tick()
        assert request.tags[TICKET_TAG] == str(first)
        world.make_run(request, dg.DagsterRunStatus.STARTED)
        assert not world.tick()
        assert "1 wait: 1 may run at once" in str(world.said)
        world.cancel(first)
        world.tick(MONITOR)
        (run,) = world.find_runs(first)
        instance.report_run_failed(run)
        (request,) = world.tick()
        assert request.tags[TICKET_TAG] == str(second)


def test_attempts_of_long_ago_are_forgotten_and_a_worker_that_dies_too_often_is_given_up(
    world: WorkersInDagster,
) -> None:
    added = world.send()
    store = world.stores.tickets
    for _number in range(DRAINED_KEPT + 3):
        claim = store.claim(added, "somebody", ttl_s=30.0)
        assert claim is not None
        store.keep_output(claim, "a line")
        store.end(claim, AttemptEnd.DRAINED, {})
    world.stores.worker_tickets.forget_drained(claim)
    assert {each.attempt for each in world.list_reports(added)} == set(range(4, DRAINED_KEPT + 4))
    assert len(store.list_outputs(added, limit=1_000)) == OUTPUTS_KEPT
    for _number in range(ATTEMPTS_MAX):
        assert len(world.tick()) == 1
        claim = store.claim(added, "somebody", ttl_s=30.0)
        assert claim is not None
        store.end(claim, AttemptEnd.DIED, {})
    assert not world.tick()
    world.move_ends(seconds=31)
    world.tick(MONITOR)
    assert world.list_ends(added)[-1] == "FAILED"


@pytest.mark.thorough
@pytest.mark.timeout(500)
def test_a_real_dagster_keeps_a_worker_alive(
    tables: ChangedTables, server: EmbeddedServer, database_pool: DatabasePool
) -> None:
    with run_dagster_executor(server, database_pool, tables.variables) as world:
        tables.engine = world.engine
        added = send_worker(world.stores, tables.described)
        tables.await_published()
        (first,) = world.find_runs(added)
        run = world.dagster.instance.get_run_by_id(first)
        assert run is not None
        # The run's own process; the other one is the code server.
        os.kill(read_marks(run.tags[PROCESS_TAG])[0].pid, signal.SIGKILL)
        tables.do("UPDATE orders SET customer = 'new' WHERE id < 10")
        world.dagster.wait_for_status(first, dg.DagsterRunStatus.FAILURE)
        tables.await_published()
        (_first, second) = world.find_runs(added)
        world.dagster.terminate(second)
        world.dagster.wait_for_status(second, dg.DagsterRunStatus.CANCELED)
        tables.do("DELETE FROM orders WHERE id > 290")
        tables.await_published()
        updated = send_worker(world.stores, {**tables.described, "umask": "0027"}, TicketVerb.UPDATE)
        world.await_end(added)
        tables.do("INSERT INTO orders VALUES (1000, 'late')")
        tables.await_published()
        tables.require_same("orders", "id")
        cancelling = send_cancel(world.stores, updated)
        assert world.await_end(updated).details["state"] == "CANCELLED"
        assert world.await_end(cancelling).details["state"] == "COMPLETE"
        ends = [each.details["state"] for each in world.list_reports(added) if each.kind is TicketReportKind.ENDED]
        assert ends == ["DIED", "DRAINED", "COMPLETE"]


@pytest.mark.thorough
@pytest.mark.timeout(500)
@pytest.mark.parametrize("dies", ["the code server", "the daemon"])
def test_a_worker_goes_on_when_its_dagster_dies_and_is_looked_after_again(
    tables: ChangedTables, server: EmbeddedServer, database_pool: DatabasePool, dies: str
) -> None:
    with run_dagster_executor(server, database_pool, tables.variables) as world:
        tables.engine = world.engine
        added = send_worker(world.stores, tables.described)
        tables.await_published()
        (first,) = world.find_runs(added)
        if dies == "the daemon":
            (daemon,) = world.dagster.find_processes("dagster._daemon")
            daemon.kill()
            world.dagster.await_death()
        else:
            for process in world.dagster.find_processes("grpc", "gobblin_assets.dagster.runner_location"):
                process.kill()
        tables.do("UPDATE orders SET customer = 'new' WHERE id < 10")
        tables.await_published()
        assert world.find_runs(added) == [first]
        if dies == "the daemon":
            world.dagster.start()
        world.await_tick()
        tables.do("DELETE FROM orders WHERE id > 290")
        tables.await_published()
        assert world.find_runs(added) == [first], "it works, and no other one is begun"
        run = world.dagster.instance.get_run_by_id(first)
        assert run is not None
        os.kill(read_marks(run.tags[PROCESS_TAG])[0].pid, signal.SIGKILL)
        tables.do("INSERT INTO orders VALUES (1000, 'late')")
        world.dagster.wait_for_status(first, dg.DagsterRunStatus.FAILURE)
        tables.await_published()
        tables.require_same("orders", "id")
        assert len(world.find_runs(added)) == 2
        world.dagster.wait(
            lambda: world.dagster.instance.fetch_materializations(ORDERS, limit=1).records,
            "Dagster shows what it published",
        )
        cancelling = send_cancel(world.stores, added)
        assert world.await_end(added).details["state"] == "CANCELLED"
        assert world.await_end(cancelling).details["state"] == "COMPLETE"
        ends = [each.details["state"] for each in world.list_reports(added) if each.kind is TicketReportKind.ENDED]
        assert ends == ["DIED", "CANCELLED"]
