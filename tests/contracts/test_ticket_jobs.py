"""Tickets of jobs: the last one of each, and those that are claimed as they are sent."""

import threading
import uuid
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.failpoints import AcknowledgementLost, Failpoint, install
from gobblin_assets.model.job_ticket import JobTicket, SentTicket, TicketId, TicketShape, TicketVerb
from gobblin_assets.state.postgres.overview import PostgresOverview
from gobblin_assets.state.postgres.ticket_jobs import LAST_OF_ALL
from gobblin_assets.state.postgres.tickets import PostgresTicketStore, put_ticket
from gobblin_assets.state.tickets import AttemptEnd, Claim, LastTicket, TicketReportKind

TTL_S = 60.0
NAME = "local"


@pytest.fixture
def tickets(emptied_engine: Engine) -> PostgresTicketStore:
    return PostgresTicketStore(emptied_engine)


def make(job: str = "shop", shape: TicketShape = TicketShape.RUN, verb: TicketVerb = TicketVerb.ADD) -> SentTicket:
    ticket = JobTicket("gobblin-job:/g/f/j", "1", "anything", {"job": job, "number": 1e300}, shape)
    return SentTicket(TicketId(uuid.uuid4()), verb, NAME, ticket)


def send(tickets: PostgresTicketStore, **options: Any) -> TicketId:
    sent = make(**options)
    tickets.send(sent)
    return sent.ticket_id


def test_a_ticket_that_is_claimed_as_it_is_sent_is_nobody_else_s(tickets: PostgresTicketStore) -> None:
    """Also if the answer is lost: the repetition finds its own claim."""
    sent = make()
    seen: list[Failpoint] = []

    def lose_first(reached: Failpoint) -> None:
        if reached is Failpoint.TICKET_CLAIMED and not seen:
            seen.append(reached)
            raise AcknowledgementLost("lost")

    with install(lose_first):
        mine = tickets.send_claimed(sent, "dagster", ttl_s=TTL_S)
    assert mine == Claim(sent.ticket_id, 1)
    assert tickets.list_claimable(NAME, limit=9) == []
    assert tickets.claim(sent.ticket_id, "a", ttl_s=TTL_S) is None
    assert tickets.send_claimed(sent, "dagster", ttl_s=TTL_S) is None, "another one has its own"
    assert [each.kind for each in tickets.list_reports([sent.ticket_id], {}, limit=9)] == [TicketReportKind.CLAIMED]
    tickets.end(mine, AttemptEnd.DIED, {})
    assert tickets.send_claimed(sent, "dagster", ttl_s=TTL_S) == Claim(sent.ticket_id, 2)


def test_the_last_ticket_of_each_job_says_what_the_job_is(tickets: PostgresTicketStore, emptied_engine: Engine) -> None:
    """Of several: forgotten ones do not hide the one before, and a job that was removed is known for it."""
    send(tickets, job="a")
    last_a = make(job="a")
    tickets.send(last_a)
    first_b, last_b = send(tickets, job="b"), send(tickets, job="b")
    gone = send(tickets, job="c")
    send(tickets, job="d", shape=TicketShape.WORKER)
    deleted = send(tickets, job="d", shape=TicketShape.WORKER, verb=TicketVerb.DELETE)
    tickets.send(SentTicket(TicketId(uuid.uuid4()), TicketVerb.CANCEL, NAME, cancels=first_b))
    for each in (last_b, gone):
        assert tickets.end_unclaimed(each, "over")
    assert not tickets.forget([last_b, gone])

    assert tickets.list_last_tickets() == {
        "a": LastTicket(last_a.ticket_id, is_delete=False),
        "b": LastTicket(first_b, is_delete=False),
        "c": None,
        "d": LastTicket(deleted, is_delete=True),
    }
    assert tickets.load_jobs([last_a.ticket_id, gone]) == {last_a.ticket_id: last_a.ticket}
    with emptied_engine.begin() as connection:
        connection.execute(
            text("UPDATE gobblin.job_ticket SET body = '{\"later\": 1}' WHERE ticket_id = :id"),
            {"id": last_a.ticket_id},
        )
    assert tickets.load_jobs([last_a.ticket_id, first_b]).keys() == {first_b}


def test_own_tickets_are_listed_in_the_order_of_commits(tickets: PostgresTicketStore, emptied_engine: Engine) -> None:
    """One that is not committed yet holds back those behind it, so that a reader who goes on misses none."""
    overview = PostgresOverview(emptied_engine)
    tickets.send(make())
    late, next_one = replace(make(), asked_by="dagster"), replace(make(), asked_by="dagster")
    sending = threading.Thread(target=tickets.send, args=[next_one])
    with emptied_engine.begin() as connection:
        put_ticket(connection, late)
        sending.start()
        sending.join(0.3)
        assert sending.is_alive()
        assert overview.list_own_tickets(0, limit=9) == []
    sending.join()
    tickets.send(late)
    first, second = overview.list_own_tickets(0, limit=9)
    assert (first.sent, second.sent) == (late, next_one)
    assert overview.list_own_tickets(first.number, limit=9) == [second]
    assert overview.list_own_tickets(0, limit=1) == [first]
    assert tickets.end_unclaimed(late.ticket_id, "over")
    assert not tickets.forget([late.ticket_id])
    assert [each.sent for each in overview.list_own_tickets(0, limit=9)] == [None, next_one]


def test_the_last_tickets_are_found_without_reading_the_others(emptied_engine: Engine) -> None:
    """A job may have run each minute for a year, and its flow be gone."""
    fill = """
        INSERT INTO gobblin.job_ticket (ticket_id, executor, verb, job, shape, digest, body)
        SELECT gen_random_uuid(), 'local', 'ADD', 'job' || (n % 10), 'run', '',
               CASE n % 10 WHEN 3 THEN 'null' ELSE '{}' END::json
          FROM generate_series(1, 20000) n
    """
    tickets = PostgresTicketStore(emptied_engine)
    with emptied_engine.begin() as connection:
        connection.execute(text(fill))
        connection.execute(text("ANALYZE gobblin.job_ticket"))
    with emptied_engine.connect() as connection:
        ((plan,),) = connection.execute(text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {LAST_OF_ALL}")).scalars()
        read = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    assert len(tickets.list_last_tickets()) == 10
    assert read < 150
