"""Notices of Postgres: heard at the commit, missed by nobody for long, and not needed."""

import queue
import uuid
from collections.abc import Iterator
from functools import partial

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.db.notices import Channel, NoticeListener, notify
from gobblin_assets.model.job_ticket import JobTicket, SentTicket, TicketId, TicketVerb
from gobblin_assets.run.own_process import StopRequest
from gobblin_assets.state.postgres.tickets import PostgresTicketStore
from gobblin_assets.state.tickets import AttemptEnd

HEARD_S_MAX = 150.0
MISSED = {(each, "") for each in Channel}

Heard = queue.SimpleQueue[tuple[Channel, str]]


def take(heard: Heard, count: int = 1) -> set[tuple[Channel, str]]:
    return {heard.get(timeout=HEARD_S_MAX) for _number in range(count)}


@pytest.fixture
def heard(engine: Engine) -> Iterator[Heard]:
    made: Heard = queue.SimpleQueue()

    def hear(channel: Channel, payload: str) -> None:
        made.put((channel, payload))

    listener = NoticeListener(engine, {each: partial(hear, each) for each in Channel})
    listener.start()
    assert take(made, len(Channel)) == MISSED
    yield made
    listener.stop()


def test_a_ticket_and_its_reports_are_heard_when_they_are_committed(engine: Engine, heard: Heard) -> None:
    tickets = PostgresTicketStore(engine)
    ticket = JobTicket("gobblin-job:/g/f/j", "1", "anything", {"job": "shop"})
    sent = SentTicket(TicketId(uuid.uuid4()), TicketVerb.ADD, "local", ticket)
    tickets.send(sent)
    assert take(heard) == {(Channel.TICKETS, "local")}
    claim = tickets.claim(sent.ticket_id, "a", ttl_s=60)
    assert claim is not None
    assert take(heard) == {(Channel.REPORTS, "")}
    tickets.end(claim, AttemptEnd.COMPLETE, {"message": ""})
    assert take(heard) == {(Channel.REPORTS, "")}

    with engine.connect() as connection:
        notify(connection, Channel.TICKETS, "rolled back")
        connection.rollback()
        notify(connection, Channel.TICKETS, "committed")
        connection.commit()
    assert take(heard) == {(Channel.TICKETS, "committed")}


def test_a_connection_that_is_lost_is_renewed_and_what_was_missed_is_looked_for(engine: Engine, heard: Heard) -> None:
    with engine.connect() as connection:
        ended = connection.execute(
            text("""
                SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE datname = current_database() AND query LIKE 'LISTEN %'
            """)
        ).scalar()
    assert ended == 1
    assert take(heard, len(Channel)) == MISSED
    with engine.begin() as connection:
        notify(connection, Channel.CATALOGS, "flows")
    assert take(heard) == {(Channel.CATALOGS, "flows")}


def test_who_waits_is_woken_once_for_many_notices() -> None:
    stop = StopRequest()
    for _number in range(3):
        stop.wake()
    assert not stop.wait(HEARD_S_MAX)
    stop.make()
    assert stop.wait(HEARD_S_MAX)
    assert stop.is_made
