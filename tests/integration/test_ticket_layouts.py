"""Layouts of the jobs that tickets brought into a log, as one process of Dagster keeps them."""

import uuid
from pathlib import Path

from sqlalchemy import Engine

from gobblin_assets.dagster.ticket_layouts import TicketLayouts
from gobblin_assets.model.job_ticket import JobTicket, SentTicket, TicketId, TicketVerb
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.state.tickets import AttemptEnd, TicketStore


def send(tickets: TicketStore, job: str, destination: Path) -> TicketId:
    options = {
        "job": job,
        "kind": "ingest",
        "destination": str(destination),
        "source": {"connection": "shop"},
        "datasets": [{"table": "public.orders"}],
    }
    ticket = JobTicket(f"gobblin-job:/sales/{job}/{job}", "1", "tables to files", options)
    sent = SentTicket(TicketId(uuid.uuid4()), TicketVerb.ADD, "lake", ticket)
    tickets.send(sent)
    return sent.ticket_id


def test_the_layout_of_a_job_is_kept_until_its_next_ticket_or_until_all_its_tickets_are_forgotten(
    engine: Engine, tmp_path: Path
) -> None:
    tickets = open_stores(engine).tickets
    layouts, orders, returns = TicketLayouts(), JobName("orders"), JobName("returns")
    for job in (orders, returns):
        send(tickets, job, tmp_path)
    layouts.look(tickets)
    first = layouts.find(tickets, [orders, returns])
    assert [each.refused for each in first.values()] == ["", ""]
    layouts.look(tickets)
    assert layouts.find(tickets, [orders])[orders] is first[orders]

    latest = send(tickets, orders, tmp_path / "elsewhere")
    gone = first[returns].ticket_id
    claim = tickets.claim(gone, "test", ttl_s=60)
    assert claim is not None
    tickets.end(claim, AttemptEnd.COMPLETE, {})
    assert not tickets.forget([gone])
    assert layouts.look(tickets)[returns] is None
    found = layouts.find(tickets, [orders, returns])
    assert {name: each.ticket_id for name, each in found.items()} == {orders: latest}
    assert layouts._made == found, "what is forgotten holds no memory"
