"""What processes of attempts say stands in the log, also when they were killed; and it never shows a secret."""

import json
import os
import signal
import time
from collections.abc import Callable

import pytest

from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.state.tickets import TicketReportKind
from gobblin_assets.tickets.attempt_output import KEEP_EVERY_S
from tests.support.ticket_shop import WAIT_S_MAX, TicketShop, ticket_shop

__all__ = ["ticket_shop"]

# Each process of an attempt says this when it begins, and then that it lives.
SAYING = """
import atexit, os, sys, threading, time
def live():
    while True:
        time.sleep(0.2)
        print("lives", file=sys.stderr)
if "GOBBLIN_ATTEMPT_OUTPUT" in os.environ:
    print("begins with", os.environ["GOBBLIN_JDBC_SHOP_PASSWORD"], flush=True)
    print("on the way", file=sys.stderr)
    threading.Thread(target=live, daemon=True).start()
    atexit.register(time.sleep, 3)
"""


def await_value(find: Callable[[], object], shop: TicketShop) -> None:
    until = time.monotonic() + WAIT_S_MAX
    while not find():
        assert time.monotonic() < until, shop.say()
        time.sleep(0.05)


@pytest.mark.every_run
def test_the_lines_of_a_killed_process_are_kept(ticket_shop: TicketShop) -> None:
    secret = ticket_shop.environment["GOBBLIN_JDBC_SHOP_PASSWORD"]
    (ticket_shop.folder / "sitecustomize.py").write_text(SAYING, encoding="utf-8")
    ticket_id = ticket_shop.send()
    reached = ticket_shop.folder / "reached"
    executor = ticket_shop.serve(
        "--claim-ttl",
        "3",
        PYTHONPATH=os.pathsep.join([str(ticket_shop.folder), os.environ.get("PYTHONPATH", "")]),
        GOBBLIN_FAILPOINT=f"{Failpoint.STAGE_COMMITTED}=stop",
        GOBBLIN_FAILPOINT_LOG=str(reached),
    )
    await_value(reached.exists, ticket_shop)
    os.kill(find_process(ticket_shop, ticket_id), signal.SIGKILL)
    ticket_shop.await_kind(ticket_id, TicketReportKind.ENDED)
    tickets = ticket_shop.stores.tickets
    await_value(lambda: tickets.list_outputs(ticket_id, limit=1), ticket_shop)
    (first,) = tickets.list_outputs(ticket_id, limit=5)
    assert first.attempt == 1
    assert first.lines.splitlines()[:2] == ["begins with ***", "on the way"]
    shown = json.loads(ticket_shop.ask("executor", "reports", str(ticket_id), "--json"))
    assert shown["outputs"][0]["lines"] == first.lines
    assert "on the way" in ticket_shop.ask("executor", "reports", str(ticket_id))
    assert f"begins with {secret}\n" in ticket_shop.say(), "the executor's own output is as the process wrote it"

    await_value(lambda: reached.read_text().count("stop") == 2, ticket_shop)
    child = find_process(ticket_shop, ticket_id)
    await_value(lambda: tickets.list_outputs(ticket_id, limit=1)[0].attempt == 2, ticket_shop)
    # In this order: a stopped process that becomes an orphan gets a SIGHUP.
    os.kill(child, signal.SIGCONT)
    executor.kill()
    executor.wait()
    before = ticket_shop.say().count("lives")
    await_value(lambda: ticket_shop.say().count("lives") > before, ticket_shop)


def test_a_log_that_keeps_no_lines_stops_no_job(ticket_shop: TicketShop) -> None:
    with ticket_shop.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE gobblin.ticket_output RENAME TO elsewhere")
    ticket_id = ticket_shop.send()
    ticket_shop.serve()
    assert ticket_shop.await_end(ticket_id).details["state"] == "COMPLETE"
    await_value(lambda: "what processes say is not kept" in ticket_shop.say(), ticket_shop)
    with ticket_shop.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE gobblin.elsewhere RENAME TO ticket_output")
    time.sleep(KEEP_EVERY_S)
    await_value(lambda: ticket_shop.stores.tickets.list_outputs(ticket_id, limit=1), ticket_shop)


def find_process(shop: TicketShop, ticket_id: TicketId) -> int:
    """That of the last attempt."""
    running = [each for each in shop.list_reports(ticket_id) if each.kind is TicketReportKind.RUNNING]
    return int(running[-1].details["owner"].rpartition(":")[2])
