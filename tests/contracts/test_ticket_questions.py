"""Questions to executors, as tickets of a log: one attempt, whose end is the answer, or somebody gives them up."""

import uuid
from typing import Any

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.errors import RetryableError
from gobblin_assets.failpoints import Failpoint, install
from gobblin_assets.model.job_ticket import ProbeKind, ProbeQuestion, SentTicket, TicketId, TicketShape, TicketVerb
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.state.postgres.tickets import PostgresTicketStore
from gobblin_assets.state.tickets import PROBE_LIFE_S, PROBES_OPEN_MAX, AttemptEnd, TicketReportKind
from tests.contracts.test_ticket_store import (
    JOB,
    NAME,
    TTL_S,
    claim,
    claimable,
    expire,
    log,
    lose_first,
    make,
    reports_of,
    send,
    tickets,
)
from tests.support.commit_log import LogWorld

__all__ = ["log", "tickets"]


def probe(tickets: PostgresTicketStore, executor: str = NAME, job: str | None = None) -> TicketId:
    ticket = None if job is None else make(job=job).ticket
    question = ProbeQuestion(ProbeKind.TABLES, "ann", source={"type": "jdbc", "connection": "shop"})
    if ticket is not None:
        question = ProbeQuestion(ProbeKind.DRY_RUN, "ann")
    sent = SentTicket(TicketId(uuid.uuid4()), TicketVerb.PROBE, executor, ticket, question=question)
    tickets.send(sent)
    assert tickets.find_probe(sent.ticket_id).sent == sent  # type: ignore[union-attr]  # it was sent
    return sent.ticket_id


def make_late(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE gobblin.job_ticket SET sent_at = sent_at - interval '{PROBE_LIFE_S} s'"))


def test_a_question_is_answered_by_the_end_of_its_one_attempt(tickets: PostgresTicketStore) -> None:
    added, asked = send(tickets), probe(tickets)
    assert claimable(tickets) == [asked, added], "it waits for no slot"
    mine = claim(tickets, asked)
    found = tickets.find_probe(asked)
    assert found is not None
    assert (found.is_claimed, found.end) == (True, None)
    tickets.end(mine, AttemptEnd.COMPLETE, {"answer": {"tables": []}})
    found = tickets.find_probe(asked)
    assert found is not None
    assert found.end == {"state": "COMPLETE", "answer": {"tables": []}}
    assert tickets.find_probe(added) is None, "what asks nothing is no probe"
    assert tickets.find_probe(TicketId(uuid.uuid4())) is None


@pytest.mark.parametrize("end", [AttemptEnd.DIED, AttemptEnd.DRAINED, None])
def test_no_question_has_a_second_attempt(tickets: PostgresTicketStore, emptied_engine: Engine, end: Any) -> None:
    asked = probe(tickets)
    first = claim(tickets, asked)
    assert not tickets.give_up(asked, {}), "it is being answered"
    if end is None:
        expire(emptied_engine)
    else:
        tickets.end(first, end, {})
    (left,) = tickets.list_claimable(NAME, limit=9)
    assert (left.ticket_id, left.is_used_up) == (asked, True)
    assert tickets.claim(asked, "b", ttl_s=TTL_S) is None
    assert tickets.give_up(asked, {"message": "gone"})
    assert tickets.find_probe(asked).end == {"state": "FAILED", "message": "gone"}  # type: ignore[union-attr]  # it was sent
    assert not tickets.end(first, AttemptEnd.COMPLETE, {"answer": {}}), "a late answer changes nothing"


def test_a_question_that_nobody_took_in_time_is_given_up(tickets: PostgresTicketStore, emptied_engine: Engine) -> None:
    asked = probe(tickets)
    assert not tickets.give_up(asked, {}), "it may still be taken"
    make_late(emptied_engine)
    (left,) = tickets.list_claimable(NAME, limit=9)
    assert (left.attempts, left.is_used_up) == (1, True)
    assert tickets.claim(asked, "a", ttl_s=TTL_S) is None
    with install(lose_first(Failpoint.TICKET_ENDED)):
        assert tickets.give_up(asked, {})
    assert claimable(tickets) == []
    assert [(each.attempt, each.kind) for each in reports_of(tickets, asked)] == [(0, TicketReportKind.ENDED)]


def test_an_executor_is_asked_so_many_questions_at_once(tickets: PostgresTicketStore, emptied_engine: Engine) -> None:
    for _number in range(PROBES_OPEN_MAX):
        probe(tickets)
    with pytest.raises(RetryableError, match="questions wait"):
        probe(tickets)
    probe(tickets, "other")
    assert len(claimable(tickets)) == PROBES_OPEN_MAX, "what is refused was not sent"
    make_late(emptied_engine)
    probe(tickets)


def test_answers_are_forgotten_by_the_next_question(tickets: PostgresTicketStore, emptied_engine: Engine) -> None:
    kept, old, added = probe(tickets), probe(tickets), send(tickets)
    for each in (kept, old, added):
        tickets.end(claim(tickets, each), AttemptEnd.COMPLETE, {"answer": {}})
    with emptied_engine.begin() as connection:
        aged = text("UPDATE gobblin.job_ticket SET ended_at = ended_at - interval '2 days' WHERE ticket_id <> :kept")
        connection.execute(aged, {"kept": kept})
    asked = probe(tickets)
    assert tickets.find_probe(old) is None
    assert (reports_of(tickets, old), len(reports_of(tickets, added))) == ([], 2)
    assert tickets.find_probe(kept) is not None
    assert claimable(tickets) == [asked]


def test_a_question_of_a_job_is_told_nothing_of_the_job(tickets: PostgresTicketStore, log: LogWorld) -> None:
    """The job's publications are not its own, and it is none of the tickets that a worker takes the place of."""
    lease = log.take(log.register(DatasetUrn("orders")))
    asked = probe(tickets, job=JOB)
    claim(tickets, asked)
    log.publish(lease)
    assert tickets.list_unreported(asked) == []
    assert tickets.supersede(send(tickets, job=JOB, shape=TicketShape.WORKER, verb=TicketVerb.UPDATE)) == 0
