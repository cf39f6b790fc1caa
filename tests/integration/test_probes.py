"""Questions to executors, over a real Postgres: what a place has, what a job would read; and what becomes of them."""

import json
import os
import signal
import time
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import text

from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import JobTicket, ProbeKind, ProbeQuestion, SentTicket, TicketId, TicketVerb
from gobblin_assets.state.tickets import PROBE_LIFE_S
from tests.support.ticket_shop import NAME, WAIT_S_MAX, Executor, TicketShop, ticket_shop

__all__ = ["ticket_shop"]

pytestmark = pytest.mark.turns(of=4)

SHOP: Mapping[str, Any] = {"type": "jdbc", "connection": "shop"}
SECRET = "s3cr3t-w0rd"


def ask(shop: TicketShop, kind: ProbeKind, job: Mapping[str, Any] | None = None, **about: Any) -> TicketId:
    ticket = None if job is None else JobTicket("gobblin-job:/tests/shop/shop", "1", "tables to files", job)
    question = ProbeQuestion(kind, "ann", **about)
    sent = SentTicket(TicketId(uuid.uuid4()), TicketVerb.PROBE, NAME, ticket, question=question)
    shop.stores.tickets.send(sent)
    return sent.ticket_id


def await_answer(shop: TicketShop, ticket_id: TicketId) -> Mapping[str, Any]:
    until = time.monotonic() + WAIT_S_MAX
    while True:
        found = shop.stores.tickets.find_probe(ticket_id)
        assert found is not None
        if found.end is not None:
            return found.end
        assert time.monotonic() < until, shop.say()
        time.sleep(0.05)


@pytest.mark.every_run
def test_a_place_and_a_job_are_asked(ticket_shop: TicketShop) -> None:
    """All at once, of an executor whose only slot is taken by a run that stands still."""
    with ticket_shop.source.connect() as connection:
        connection.execute(
            "CREATE TABLE changes (id bigint PRIMARY KEY, updated_at timestamptz, size numeric(50,10), name text)"
        )
        connection.execute("CREATE PUBLICATION lake FOR TABLE orders, customers")
    ticket_shop.environment |= {
        key.replace("JDBC", "POSTGRES_LOG"): value
        for key, value in ticket_shop.environment.items()
        if key.startswith("GOBBLIN_JDBC_SHOP_")
    }
    (ticket_shop.folder / "tree" / "photos" / "2026").mkdir(parents=True)
    (ticket_shop.folder / "tree" / ".trash").mkdir()
    (ticket_shop.folder / "tree" / "readme.txt").write_text("x")
    running = ticket_shop.send()
    stop = {running: f"{Failpoint.STAGE_COMMITTED}=stop"}
    with Executor(ticket_shop, lambda claim: stop.get(claim.ticket_id, ""), slots=1) as executor:
        tables = ask(ticket_shop, ProbeKind.TABLES, source=SHOP)
        columns = ask(
            ticket_shop, ProbeKind.COLUMNS, source=SHOP, names=("public.orders", "public.changes", "public.gone")
        )
        gone = ask(ticket_shop, ProbeKind.COLUMNS, source=SHOP, names=("public.gone",))
        published = ask(ticket_shop, ProbeKind.TABLES, source={"type": "postgres_log", "connection": "shop"})
        tree = str(ticket_shop.folder / "tree")
        paths = ask(ticket_shop, ProbeKind.PATHS, root=tree)
        inner = ask(ticket_shop, ProbeKind.PATHS, root=tree, names=("photos",))
        planned = ask(ticket_shop, ProbeKind.DRY_RUN, ticket_shop.make_job("other"))
        ends = {
            name: await_answer(ticket_shop, each)
            for name, each in {
                "tables": tables,
                "columns": columns,
                "gone": gone,
                "published": published,
                "paths": paths,
                "inner": inner,
                "planned": planned,
            }.items()
        }
        assert executor.attempts
        os.kill(next(each for each in executor.attempts if each.reached()).pid, signal.SIGCONT)
    answers = {name: end.get("answer") for name, end in ends.items()}
    assert answers["tables"] == {"tables": ["public.changes", "public.customers", "public.orders"], "cut": {}}
    orders, odd, missing = answers["columns"]["tables"]
    assert orders["primary_key"] == ["id"]
    assert orders["watermark_columns"] == ["id", "at", "amount"]
    assert (orders["partition_columns"], orders["first"]) == (["at"], {"at": "2024-01-01T00:00:00.000000Z"})
    assert [(each["name"], each["type"], each["orders_as"]) for each in orders["columns"]] == [
        ("id", "integer", "long"),
        ("at", "timestamp with time zone", "timestamp"),
        ("amount", "integer", "long"),
    ]
    assert odd["watermark_columns"] == ["updated_at", "id"]
    assert odd["readable"] == ["id", "updated_at", "name"], "Spark holds no such number"
    assert "no such table" in missing["error"]
    assert (ends["gone"]["state"], ends["gone"]["family"], ends["gone"]["field"]) == (
        "FAILED",
        "RejectedError",
        "table",
    )
    assert answers["published"]["publications"] == [
        {"publication": "lake", "tables": ["public.customers", "public.orders"]}
    ]
    assert answers["paths"]["paths"] == ["photos"]
    assert answers["inner"]["paths"] == ["photos/2026"]
    partitions = {(each["dataset"], each["partition"]): each["rows"] for each in answers["planned"]["partitions"]}
    assert partitions.keys() == {("public.customers", None), *(("public.orders", f"2024-0{n}-01") for n in (1, 2, 3))}
    assert answers["planned"]["rows"] == sum(partitions.values())
    assert answers["planned"]["work_unit_count"] == 4
    assert not (ticket_shop.folder / "other").exists(), "nothing is published"
    with ticket_shop.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM gobblin.dataset WHERE job = 'other'")).scalar_one() == 0


def test_what_is_wrong_is_the_answer_and_tells_no_secret(ticket_shop: TicketShop) -> None:
    ticket_shop.environment["GOBBLIN_JDBC_SHOP_PASSWORD"] = SECRET
    ticket_shop.environment["GOBBLIN_JDBC_SHOP_USER"] = "nobody"
    refused = ask(ticket_shop, ProbeKind.TABLES, source=SHOP)
    unknown = ask(ticket_shop, ProbeKind.TABLES, source={"type": "jdbc", "connection": "nowhere"})
    outside = ask(ticket_shop, ProbeKind.PATHS, root=str(ticket_shop.folder), names=("../x",))
    with Executor(ticket_shop):
        ends = [await_answer(ticket_shop, each) for each in (refused, unknown, outside)]
    assert [(end["state"], end["family"]) for end in ends] == [("FAILED", "RejectedError")] * 3
    assert ends[0]["field"] == "connections[shop].password"
    assert ends[1]["field"] == "GOBBLIN_JDBC_NOWHERE_URL"
    assert all(end["hint"] for end in ends)
    assert SECRET not in json.dumps([dict(each.details) for each in ticket_shop.list_reports(refused)])
    assert SECRET not in ticket_shop.say()


def test_a_process_that_is_killed_while_it_answers_is_followed_by_none(ticket_shop: TicketShop) -> None:
    ticket_id = ask(ticket_shop, ProbeKind.TABLES, source=SHOP)
    with Executor(ticket_shop, lambda _claim: f"{Failpoint.TICKET_REPORTED}=kill") as executor:
        end = await_answer(ticket_shop, ticket_id)
        assert (end["state"], end["message"]) == ("FAILED", "the executor's process ended before it answered")
        assert len(executor.attempts) == 1


def test_what_nobody_answers_in_time_is_ended(ticket_shop: TicketShop) -> None:
    tickets = ticket_shop.stores.tickets
    ticket_id = ask(ticket_shop, ProbeKind.TABLES, source=SHOP)
    assert not tickets.give_up(ticket_id, {}), "it may still be answered"
    with ticket_shop.engine.begin() as connection:
        connection.execute(
            text("UPDATE gobblin.job_ticket SET sent_at = sent_at - make_interval(secs => :s)"), {"s": PROBE_LIFE_S}
        )
    with Executor(ticket_shop) as executor:
        end = await_answer(ticket_shop, ticket_id)
        assert executor.attempts == []
    assert (end["state"], end["message"]) == ("FAILED", "no executor took the question within 120 s")
