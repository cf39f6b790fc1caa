"""Wires to executors: by their log, over Kafka and over https, each ticket once, and all that is told of it."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from demo.kafka.broker import KafkaBroker
from gobblin_assets.db import schema
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.errors import ConflictError
from gobblin_assets.model.job_ticket import (
    JobTicket,
    LogId,
    ProbeKind,
    ProbeQuestion,
    SentTicket,
    TicketId,
    TicketVerb,
)
from gobblin_assets.model.state import SequenceId
from gobblin_assets.service.postgres.history import SERVICE_HISTORY
from gobblin_assets.state.tickets import AttemptEnd, Claim, TicketReport, TicketReportKind
from tests.support import postgres
from tests.support.database_pool import DatabasePool
from tests.support.wires import KAFKA, LOG, REST, WiredEnds, await_true, open_ends

TTL_S = 60.0


@pytest.fixture(scope="module")
def service_engine(server: EmbeddedServer, database_pool: DatabasePool) -> Iterator[Engine]:
    """The service's own database, which is none of an executor."""
    with postgres.migrated_database(server, database_pool) as name:
        engine = open_external(server.url(name))
        schema.upgrade(engine, history=SERVICE_HISTORY)
        yield engine
        engine.dispose()


@pytest.fixture(params=[LOG, KAFKA, REST])
def ends(
    request: pytest.FixtureRequest,
    service_engine: Engine,
    emptied_engine: Engine,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
) -> Iterator[WiredEnds]:
    with open_ends(request.param, service_engine, emptied_engine, kafka_broker.bootstrap, tmp_path) as made:
        yield made


def make(ends: WiredEnds, verb: TicketVerb = TicketVerb.ADD, **changed: object) -> SentTicket:
    ticket = JobTicket("gobblin-job:/g/f/j", "1", "anything", {"job": "shop", "number": 1e300, "name": "ä"})
    sent = SentTicket(TicketId(uuid.uuid4()), verb, ends.name, ticket)
    return replace(sent, **changed)  # type: ignore[arg-type]  # passed on as they are


def claim(ends: WiredEnds, ticket_id: TicketId) -> Claim:
    def is_there() -> bool:
        return ticket_id in {each.ticket_id for each in ends.stores.tickets.list_claimable(ends.name, limit=100)}

    await_true(is_there, "the ticket in the inbox")
    made = ends.stores.tickets.claim(ticket_id, "a", ttl_s=TTL_S)
    assert made is not None
    return made


def await_reports(ends: WiredEnds, ticket_id: TicketId, kinds: list[str]) -> list[TicketReport]:
    def read() -> list[TicketReport]:
        return list(ends.wire.list_reports([ticket_id], {}, limit=100))

    await_true(lambda: [each.kind.value for each in read()] == kinds, f"{kinds}")
    return read()


def await_end(ends: WiredEnds, ticket_id: TicketId) -> TicketReport:
    await_true(lambda: ends.wire.find_ends([ticket_id]), "the ticket's end")
    return ends.wire.find_ends([ticket_id])[ticket_id]


def report(ends: WiredEnds, made: Claim, kind: TicketReportKind, **details: object) -> None:
    sequence_id = SequenceId(uuid.uuid4()) if kind is TicketReportKind.PUBLISHED else None
    ends.stores.tickets.report(made, uuid.uuid4(), kind, details, sequence_id)


def test_a_ticket_arrives_once_and_its_reports_come_back_in_order(ends: WiredEnds) -> None:
    sent = make(ends)
    ends.wire.send(sent)
    ends.wire.send(sent)
    made = claim(ends, sent.ticket_id)
    assert ends.stores.tickets.get_claimed(made) == sent
    report(ends, made, TicketReportKind.RUNNING, run_id=str(uuid.uuid4()))
    report(ends, made, TicketReportKind.PUBLISHED, rows=7, urn="ä")
    report(ends, made, TicketReportKind.PUBLISHED, rows=5)
    ends.stores.tickets.keep_output(made, "what it said")
    await_reports(ends, sent.ticket_id, ["claimed", "running", "published", "published"])
    assert not ends.wire.find_ends([sent.ticket_id])
    ends.stores.tickets.end(made, AttemptEnd.COMPLETE, {"message": "done"})
    found = await_reports(ends, sent.ticket_id, ["claimed", "running", "published", "published", "ended"])

    assert found == list(ends.stores.tickets.list_reports([sent.ticket_id], {}, limit=100))
    assert await_end(ends, sent.ticket_id) == found[-1]
    place = found[2].attempt, found[2].number
    assert list(ends.wire.list_reports([sent.ticket_id], {sent.ticket_id: place}, limit=100)) == found[3:]
    assert list(ends.wire.list_reports([sent.ticket_id], {}, limit=2)) == found[:2]
    await_true(lambda: ends.wire.list_outputs(sent.ticket_id, limit=1), "the last lines")
    assert [each.lines for each in ends.wire.list_outputs(sent.ticket_id, limit=5)] == ["what it said"]

    other = make(ends)
    ends.wire.send(other)
    assert ends.wire.forget([sent.ticket_id, other.ticket_id]) == {other.ticket_id}
    await_true(lambda: not ends.stores.tickets.list_reports([sent.ticket_id], {}, limit=1), "forgotten")
    # Sent again, it is the same ticket, and does not run.
    ends.wire.send(sent)
    await_true(lambda: claim(ends, other.ticket_id), "the other one")
    assert ends.stores.tickets.claim(sent.ticket_id, "a", ttl_s=TTL_S) is None


def test_what_is_refused_is_told_and_holds_up_nothing(ends: WiredEnds) -> None:
    sent = make(ends)
    ends.wire.send(sent)
    with pytest.raises(ConflictError, match="another ticket has the id"):
        ends.wire.send(replace(sent, verb=TicketVerb.ADD, selection=replace(sent.selection, missing_max=3)))
    strange = make(ends, log_id=LogId(uuid.uuid4()))
    try:
        ends.wire.send(strange)
    except ConflictError as error:
        said = error.message
    else:
        end = await_end(ends, strange.ticket_id)
        said = end.details["message"]
        assert (end.details["state"], end.details["family"]) == ("FAILED", "ConflictError")
        assert end.details["hint"]
    assert "is meant for the log" in said
    claim(ends, sent.ticket_id)
    with ends.stores.tickets._engine.connect() as connection:  # type: ignore[attr-defined]  # the log is looked at
        assert connection.execute(text("SELECT count(*) FROM gobblin.job_ticket")).scalar_one() == 1


def test_tickets_that_nobody_works_on_are_withdrawn_and_cancelled(ends: WiredEnds) -> None:
    withdrawn, cancelled, claimed = make(ends), make(ends), make(ends)
    for each in (withdrawn, cancelled, claimed):
        ends.wire.send(each)
    made = claim(ends, claimed.ticket_id)

    await_true(lambda: ends.wire.end_unclaimed(withdrawn.ticket_id, "moved"), "withdrawn")
    assert not ends.wire.end_unclaimed(claimed.ticket_id, "moved")
    cancel = make(ends, TicketVerb.CANCEL, ticket=None, cancels=cancelled.ticket_id)
    ends.wire.send(cancel)
    assert ends.wire.settle_cancel(cancel.ticket_id) is None

    assert await_end(ends, withdrawn.ticket_id).details["message"] == "moved"
    assert await_end(ends, cancelled.ticket_id).details["state"] == "CANCELLED"
    assert await_end(ends, cancel.ticket_id).details["state"] == "COMPLETE"
    assert ends.stores.tickets.renew([made], ttl_s=TTL_S), "the claimed one goes on"


def test_questions_are_answered_and_heartbeats_heard(ends: WiredEnds) -> None:
    ends.beat()
    ends.hear_log_id()
    (heard,) = [each for each in ends.wire.list_heartbeats() if each.beat.executor == ends.name]
    assert (heard.beat.owner, heard.beat.slots, heard.waiting) == ("a", 2, 0)
    assert heard.heard_ago_s < 10
    assert ends.wire.find_log_id() == ends.stores.tickets.find_log_id()

    question = ProbeQuestion(ProbeKind.PATHS, "ann", root="/data")
    probe = make(ends, TicketVerb.PROBE, ticket=None, question=question)
    ends.wire.send(probe)
    asked = ends.wire.find_probe(probe.ticket_id)
    assert asked is not None
    assert (asked.sent, asked.end) == (probe, None)
    assert not ends.wire.give_up(probe.ticket_id, {"message": "too early"})
    made = claim(ends, probe.ticket_id)
    ends.stores.tickets.end(made, AttemptEnd.COMPLETE, {"answer": {"paths": ["a"]}})
    await_end(ends, probe.ticket_id)
    answered = ends.wire.find_probe(probe.ticket_id)
    assert answered is not None
    assert answered.end is not None
    assert answered.end["answer"] == {"paths": ["a"]}
    assert ends.wire.find_probe(TicketId(uuid.uuid4())) is None
