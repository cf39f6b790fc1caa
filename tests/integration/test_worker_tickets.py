"""Tickets of workers: a change log of Postgres that is followed, paused, changed and deleted by tickets."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import Engine, text

from gobblin_assets.db import schema
from gobblin_assets.jobs.sink.running import read_sink_datasets
from gobblin_assets.model.executor_heartbeat import SILENT_AFTER_S
from gobblin_assets.model.job_ticket import TicketId, TicketShape, TicketVerb
from gobblin_assets.service import opening
from gobblin_assets.service.access import User
from gobblin_assets.service.flow_config import read_flow_config
from gobblin_assets.service.postgres.history import SERVICE_HISTORY
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import JobStatus
from gobblin_assets.settings import read_settings
from gobblin_assets.spec.job_options import LeaseSpec
from gobblin_assets.state.tickets import TicketReportKind
from gobblin_assets.tickets.ticket_worker import describe_progress
from tests.support.changed_tables import ChangedTables
from tests.support.postgres import Database
from tests.support.spark import wait_until
from tests.support.ticket_shop import Executor, TicketShop

pytestmark = pytest.mark.turns(of=2)

SLOTS = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"


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
def shop(tables: ChangedTables, database_url: str, engine: Engine, tmp_path: Path) -> Iterator[TicketShop]:
    environment = {
        **os.environ,
        **tables.variables,
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": database_url,
    }
    made = TicketShop(tmp_path, tables.database, engine, environment)
    yield made
    made.close()


def send(shop: TicketShop, tables: ChangedTables, verb: TicketVerb = TicketVerb.ADD, **options: Any) -> TicketId:
    return shop.send({**tables.described, **options}, verb=verb, shape=TicketShape.WORKER)


def state_of(shop: TicketShop, ticket_id: TicketId) -> str:
    return str(shop.await_end(ticket_id).details["state"])


@pytest.mark.every_run
def test_a_worker_follows_a_log_survives_a_kill_and_its_slot_goes_with_its_flow(
    shop: TicketShop, tables: ChangedTables
) -> None:
    with Executor(shop, slots=1) as executor:
        added = send(shop, tables)
        tables.await_published()
        tables.require_same("orders", "id")
        executor.attempts[0].kill()
        tables.do("UPDATE orders SET customer = 'new' WHERE id < 10", "DELETE FROM orders WHERE id > 290")
        tables.await_published()
        tables.require_same("orders", "id")
        assert tables.ask(SLOTS) == 1
        deleted = send(shop, tables, TicketVerb.DELETE)
        assert state_of(shop, deleted) == "COMPLETE", shop.say()
        assert state_of(shop, added) == "COMPLETE", shop.say()
        assert tables.ask(SLOTS) == 0
    ends = [each.details for each in shop.list_reports(added) if each.kind is TicketReportKind.ENDED]
    assert [(each["state"], each["message"]) for each in ends] == [
        ("DIED", "died of signal 9"),
        ("COMPLETE", "drained"),
    ]
    assert TicketReportKind.PUBLISHED not in {each.kind for each in shop.list_reports(added)}


def test_an_update_drains_the_old_workers_and_goes_on_with_the_new_options(
    shop: TicketShop, tables: ChangedTables
) -> None:
    with Executor(shop, slots=1):
        added = send(shop, tables)
        tables.await_published()
        tables.do("INSERT INTO orders VALUES (1000, 'between')")
        updated = send(shop, tables, TicketVerb.UPDATE, sink={"every_s": 0.3, "roll": {"age_s": 0}})
        assert state_of(shop, added) == "COMPLETE", shop.say()
        tables.do("INSERT INTO orders VALUES (1001, 'after')")
        tables.await_published()
        tables.require_same("orders", "id")
        cancelling = shop.cancel(updated)
        assert state_of(shop, updated) == "CANCELLED"
        assert state_of(shop, cancelling) == "COMPLETE"
        assert shop.stores.sink_workers.list_live(tables.described["job"]) == []
        assert tables.ask(SLOTS) == 1, "a pause keeps the slot"


def test_a_run_whose_lanes_workers_hold_is_refused(shop: TicketShop, tables: ChangedTables) -> None:
    with Executor(shop):
        added = send(shop, tables)
        tables.await_published()
        end = shop.await_end(shop.send(tables.described))
        assert (end.details["state"], end.details["family"]) == ("FAILED", "RejectedError")
        assert "Cancel their tickets first" in end.details["hint"]
    (drained,) = [each.details for each in shop.list_reports(added) if each.kind is TicketReportKind.ENDED]
    assert drained["state"] == "DRAINED", "its executor was asked to end"


def has_slot(details: Mapping[str, Any]) -> bool:
    return details["stream"] is not None and details["stream"]["retained_bytes"] is not None


def test_how_far_a_worker_is_is_reported(
    shop: TicketShop, tables: ChangedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in tables.variables.items():
        monkeypatch.setenv(name, value)
    shop.environment["GOBBLIN_TEST_PROGRESS_S"] = "0.3"
    with Executor(shop):
        added = send(shop, tables)
        tables.await_published()
        told = shop.await_report(
            added, lambda report: report.kind is TicketReportKind.PROGRESS and has_slot(report.details)
        ).details
        now = describe_progress(tables.job, read_sink_datasets(tables.job), shop.stores)
    for details in (told, now):
        orders: Mapping[str, Any] = details["datasets"]["public.orders"]
        assert (orders["lanes"], orders["lanes_held"], orders["blocked"], orders["rests"]) == (1, 1, [], [])
        assert details["stream"]["slot"]
        assert details["stream"]["retained_bytes"] >= 0
        assert details["unanswered"] is None
        assert len(details["workers"]) == 1
    assert isinstance(now["datasets"]["public.orders"]["lag"], int)


def test_who_kills_a_worker_s_executor_loses_nothing(shop: TicketShop, tables: ChangedTables) -> None:
    added = send(shop, tables)
    first = shop.serve("--claim-ttl", "2")
    tables.await_published()
    first.kill()
    assert first.wait() == -signal.SIGKILL
    tables.do("DELETE FROM orders WHERE id < 100")
    with Executor(shop):
        shop.await_report(added, lambda report: report.attempt == 2 and report.kind is TicketReportKind.RUNNING)
        tables.await_published()
        tables.require_same("orders", "id")


def test_a_log_that_drains_ends_its_workers_behind_a_cut_and_they_go_on_when_it_is_resumed(
    shop: TicketShop, tables: ChangedTables
) -> None:
    drains = shop.stores.drains
    added = send(shop, tables)
    first = shop.serve()
    tables.await_published()
    tables.do("DELETE FROM orders WHERE id < 50")
    drains.begin("ann")
    drained = shop.await_report(added, lambda report: report.kind is TicketReportKind.ENDED)
    wait_until(lambda: not drains.read().working, "that nobody works")
    first.send_signal(signal.SIGTERM)
    assert first.wait() == 0, shop.say()
    tables.do("INSERT INTO orders VALUES (1000, 'meanwhile')")
    shop.serve()
    wait_until(lambda: shop.say().count("the log drains") == 2, shop.say)
    time.sleep(1.5)
    assert (drained.attempt, drained.details["state"]) == (1, "DRAINED")
    assert shop.list_reports(added)[-1] == drained, "it was claimed while the log drained"
    assert shop.stores.sink_workers.list_live(tables.described["job"]) == []
    assert tables.ask(SLOTS) == 1, "a drain keeps the slot"

    drains.end()
    tables.await_published()
    tables.require_same("orders", "id")
    assert shop.list_reports(added)[-1].attempt == 2
    pause = drains.read()
    assert pause.last_begun_at is not None
    assert pause.last_ended_at is not None
    assert 1.5 < (pause.last_ended_at - pause.last_begun_at).total_seconds() < 30


def write_topology(folder: Path) -> Path:
    nodes = {
        "shop": {"kind": "change_log", "connection": "shop"},
        "lake": {"kind": "files", "root": str(folder / "lake")},
    }
    can_do = {"capabilities": ["sink.postgres_log"], "nodes": [*nodes]}
    file = folder / "topology.yaml"
    file.write_text(yaml.safe_dump({"nodes": nodes, "executors": {"first": can_do, "second": {**can_do, "cost": 5}}}))
    return file


def find_holder(shop: TicketShop) -> str | None:
    """Who holds the lane of ``orders`` now."""
    with shop.engine.connect() as connection:
        found = connection.execute(text("SELECT owner FROM gobblin.lease WHERE expires_at > clock_timestamp()"))
        return found.scalars().one_or_none()


def list_processes(executor: "subprocess.Popen[bytes]") -> list[int]:
    """The executor, and whatever it has started."""
    children = Path(f"/proc/{executor.pid}/task/{executor.pid}/children").read_text(encoding="ascii").split()
    return [executor.pid, *map(int, children)]


def send_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


@pytest.mark.thorough
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "paused"])
def test_the_worker_of_a_lost_executor_goes_on_at_another_one_with_the_end_of_its_leases(
    shop: TicketShop, tables: ChangedTables, how: signal.Signals
) -> None:
    """Whatever its claim says. One that comes back later is refused, and publishes nothing again."""
    schema.upgrade(shop.engine, history=SERVICE_HISTORY)
    topology, settings, key = write_topology(shop.folder), read_settings(shop.environment), FlowKey("sales", "orders")
    options = {"flow_group": key.group, "flow_name": key.name, "source": "shop", "destinations": ["lake"]}
    parameters = {"publication": "lake", "datasets": [{"table": "public.orders"}]}
    with opening.open_service(settings, topology, [], "multi_hop", {}, lambda _line: None) as opened:
        executors = [shop.serve("--claim-ttl", "900", name=name) for name in ("first", "second")]
        wait_until(lambda: shop.say().count("slots") == 2, shop.say)
        opened.flows.create(User("ann", frozenset()), read_flow_config({**options, "parameters": parameters}))

        def get_job() -> JobStatus:
            return opened.flows.get_status(key).jobs[0]

        tables.options = {"job": get_job().job_name}
        tables.await_published()
        before = find_holder(shop)
        assert (get_job().job_group, before is not None) == ("first", True)
        tables.do("DELETE FROM orders WHERE id < 50", "INSERT INTO orders VALUES (1000, 'at the kill')")
        pids = list_processes(executors[0])
        send_all(pids, how)
        killed_at = time.monotonic()
        tables.do("UPDATE orders SET customer = 'behind it' WHERE id > 250")
        wait_until(
            lambda: get_job().job_group == "second", lambda: str(get_job()), progress=lambda: time.monotonic() // 60
        )
        moved_s = time.monotonic() - killed_at
        wait_until(lambda: find_holder(shop) not in (None, before), shop.say, progress=lambda: time.monotonic() // 60)
        held_s = time.monotonic() - killed_at
        tables.await_published()
        tables.require_same("orders", "id")
        if how is signal.SIGSTOP:
            send_all(pids, signal.SIGCONT)
            wait_until(lambda: "the claim is lost" in shop.say(), shop.say)
            tables.do("DELETE FROM orders WHERE id < 60", "INSERT INTO orders VALUES (2000, 'behind its return')")
            tables.await_published()
            tables.require_same("orders", "id")
            assert find_holder(shop) not in (None, before)
        assert get_job().attempt == 2
    assert moved_s < SILENT_AFTER_S + 10
    assert held_s < LeaseSpec().ttl_s + 15, f"moved after {moved_s:.0f} s, held after {held_s:.0f} s"
