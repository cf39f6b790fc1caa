"""Executors of technology ``process``, as commands, over a real Postgres and a lake on disk."""

from gobblin_assets.state.tickets import TicketReportKind
from tests.support.ticket_shop import TicketShop, ticket_shop

__all__ = ["ticket_shop"]


def test_a_ticket_becomes_rows_and_reports(ticket_shop: TicketShop) -> None:
    ticket_id = ticket_shop.send()
    ticket_shop.serve()

    end = ticket_shop.await_end(ticket_id)

    assert end.details["state"] == "COMPLETE", ticket_shop.say()
    assert ticket_shop.lake_rows() == ticket_shop.source_rows()
    assert ticket_shop.kinds(ticket_id) == ["claimed", "running", *["published"] * 4, "ended"]
    published = [
        each.details for each in ticket_shop.list_reports(ticket_id) if each.kind is TicketReportKind.PUBLISHED
    ]
    assert sorted((each["urn"], each["partition"], each["rows"]) for each in published if each["partition"]) == [
        ("public.orders", "2024-01-01", 62),
        ("public.orders", "2024-02-01", 58),
        ("public.orders", "2024-03-01", 60),
    ]
