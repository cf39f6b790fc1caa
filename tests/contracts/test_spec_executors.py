"""Ways to executors: whatever carries tickets and reports, each arrives once, and ends are the same on both sides."""

import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.errors import ConflictError, FencedError, RetryableError
from gobblin_assets.model.executor_heartbeat import ExecutorHeartbeat, ExecutorPhase
from gobblin_assets.model.job_ticket import (
    JobTicket,
    LogId,
    ProbeKind,
    ProbeQuestion,
    SentTicket,
    TicketId,
    TicketSelection,
    TicketShape,
    TicketVerb,
)
from gobblin_assets.service.spec_executors.wired_executor import WiredJobs
from gobblin_assets.service.way_calls import WayCalls
from gobblin_assets.state.tickets import AttemptEnd, Claim, TicketReport, TicketReportKind
from tests.support.wire_worlds import NAME, WORLDS, WireWorld

TTL_S: Final = 60.0
RUNNING, ENDED = TicketReportKind.RUNNING, TicketReportKind.ENDED


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, emptied_engine: Engine) -> Iterator[WireWorld]:
    with WORLDS[request.param](emptied_engine, request) as opened:
        opened.heartbeats.beat(make_beat(opened))
        opened.pass_on()
        yield opened


def make_beat(world: WireWorld, owner: str = "here:1", **more: Any) -> ExecutorHeartbeat:
    log_id = world.tickets.find_log_id()
    return ExecutorHeartbeat(NAME, owner, log_id, "1", 2, frozenset({"distcp"}), **more)


def make(verb: TicketVerb = TicketVerb.ADD, *, shape: TicketShape = TicketShape.RUN, **more: Any) -> SentTicket:
    ticket = JobTicket("gobblin-job:/g/f/j", "1", "anything", {"job": "shop", "number": 1e300}, shape=shape)
    return SentTicket(TicketId(uuid.uuid4()), verb, NAME, ticket, **more)


def send(world: WireWorld, sent: SentTicket | None = None) -> SentTicket:
    sent = sent or make()
    world.wire.send(sent)
    world.pass_on()
    return sent


def claim(world: WireWorld, sent: SentTicket) -> Claim:
    made = world.tickets.claim(sent.ticket_id, "here:1", ttl_s=TTL_S)
    assert made is not None
    return made


def report(world: WireWorld, made: Claim, kind: TicketReportKind = RUNNING, **details: Any) -> None:
    world.tickets.report(made, uuid.uuid4(), kind, details)


def read(world: WireWorld, *sent: SentTicket, after: dict[TicketId, tuple[int, int]] | None = None) -> list[str]:
    """The kinds of what the service can read."""
    return [each.kind.value for each in read_reports(world, *sent, after=after)]


def read_reports(
    world: WireWorld, *sent: SentTicket, after: dict[TicketId, tuple[int, int]] | None = None
) -> list[TicketReport]:
    world.pass_on()
    return list(world.wire.list_reports([each.ticket_id for each in sent], after or {}, limit=100))


def test_a_ticket_arrives_as_it_was_sent_however_often_it_is_sent(world: WireWorld) -> None:
    sent = send(world, make(log_id=world.wire.find_log_id()))
    send(world, sent)
    assert [each.ticket_id for each in world.tickets.list_claimable(NAME, limit=9)] == [sent.ticket_id]
    assert world.tickets.get_claimed(claim(world, sent)) == sent
    with pytest.raises(ConflictError, match=str(sent.ticket_id)):
        world.wire.send(replace(sent, selection=TicketSelection(missing_max=3)))


def test_a_ticket_for_another_log_is_refused_and_nothing_begins(world: WireWorld) -> None:
    other = make(log_id=LogId(uuid.uuid4()))
    with pytest.raises(ConflictError, match=str(other.log_id)):
        world.wire.send(other)
    world.pass_on()
    assert world.tickets.list_claimable(NAME, limit=9) == []


def test_a_ticket_that_has_expired_is_not_begun_and_one_that_was_begun_goes_on(world: WireWorld) -> None:
    expired, begun = make(expires_after_s=0), make(expires_after_s=3600.0)
    for each in (expired, begun):
        send(world, each)
    made = claim(world, begun)
    assert world.tickets.get_claimed(made) == begun
    assert world.tickets.claim(expired.ticket_id, "here:1", ttl_s=TTL_S) is None
    (end,) = read_reports(world, expired)
    assert (end.attempt, end.details["state"]) == (0, "CANCELLED")
    assert end.details["message"] == "it has expired: nobody began it within 0 s"
    world.tickets.end(made, AttemptEnd.DRAINED, {"message": "", "hint": ""})
    assert claim(world, begun).attempt == 2


def test_reports_come_once_in_their_order_behind_the_place_that_is_known(world: WireWorld) -> None:
    first, second = send(world), send(world)
    for each in (first, second):
        report(world, claim(world, each))
    assert read(world, first, second) == ["claimed", "running"] * 2
    world.tickets.end(Claim(first.ticket_id, 1), AttemptEnd.COMPLETE, {"message": "done", "hint": ""})
    known = {each.ticket_id: (1, 2) for each in (first, second)}
    (end,) = read_reports(world, first, second, after=known)
    assert (end.ticket_id, end.attempt, end.kind, end.details["message"]) == (first.ticket_id, 1, ENDED, "done")
    assert read(world, first, after={first.ticket_id: (1, end.number)}) == []
    assert dict(world.wire.find_ends([first.ticket_id, second.ticket_id])) == {first.ticket_id: end}


def test_an_attempt_that_died_is_followed_by_the_next_one_in_reports_too(world: WireWorld) -> None:
    sent = send(world)
    world.tickets.end(claim(world, sent), AttemptEnd.DRAINED, {"message": "", "hint": ""})
    report(world, claim(world, sent))
    assert [(each.attempt, each.kind.value) for each in read_reports(world, sent)] == [
        *((1, "claimed"), (1, "ended")),
        *((2, "claimed"), (2, "running")),
    ]


def test_what_nobody_works_on_is_cancelled_and_what_somebody_works_on_is_told(world: WireWorld) -> None:
    idle, busy = send(world), send(world)
    made = claim(world, busy)
    cancels = [make(TicketVerb.CANCEL, cancels=each.ticket_id) for each in (idle, busy)]
    for each in cancels:
        send(world, replace(each, ticket=None))
    for _ in range(2):
        # Over a way of messages the executor settles it.
        for each in cancels:
            world.wire.settle_cancel(each.ticket_id)
            world.tickets.settle_cancel(each.ticket_id)
        world.pass_on()
    assert [each.details["state"] for each in read_reports(world, idle)] == ["CANCELLED"]
    assert read(world, busy) == ["claimed"]
    world.tickets.end(made, AttemptEnd.CANCELLED, {"message": "cancelled", "hint": ""})
    assert read(world, busy) == ["claimed", "ended"]


def test_a_ticket_is_withdrawn_unless_somebody_works_on_it(world: WireWorld) -> None:
    idle, busy = send(world), send(world)
    claim(world, busy)
    for each in (idle, busy):
        world.wire.end_unclaimed(each.ticket_id, "it goes elsewhere")
        world.pass_on()
    assert world.wire.end_unclaimed(idle.ticket_id, "it goes elsewhere")
    assert not world.wire.end_unclaimed(busy.ticket_id, "it goes elsewhere")
    world.pass_on()
    assert world.tickets.claim(idle.ticket_id, "late", ttl_s=TTL_S) is None
    assert [each.details["message"] for each in read_reports(world, idle)] == ["it goes elsewhere"]
    assert set(world.wire.find_ends([idle.ticket_id, busy.ticket_id])) == {idle.ticket_id}


def test_a_worker_s_ticket_is_withdrawn_from_a_lost_executor_although_its_claim_lives(world: WireWorld) -> None:
    worker, run = send(world, make(shape=TicketShape.WORKER)), send(world)
    working, running = claim(world, worker), claim(world, run)
    for each in (worker, run):
        world.wire.end_unclaimed(each.ticket_id, "it goes elsewhere", is_lost=True)
        world.pass_on()
    assert set(world.wire.find_ends([worker.ticket_id, run.ticket_id])) == {worker.ticket_id}
    # Whoever comes back neither goes on nor begins again.
    assert world.tickets.renew([working, running], ttl_s=TTL_S) == {running}
    assert world.tickets.claim(worker.ticket_id, "late", ttl_s=TTL_S) is None
    assert not world.tickets.end(working, AttemptEnd.DRAINED, {"message": "drained", "hint": ""})
    with pytest.raises(FencedError):
        report(world, working, TicketReportKind.PROGRESS)
    assert [each.details["state"] for each in read_reports(world, worker) if "state" in each.details] == ["CANCELLED"]


def test_what_has_ended_is_forgotten_and_is_not_run_again(world: WireWorld) -> None:
    ended, open_one = send(world), send(world)
    world.tickets.end(claim(world, ended), AttemptEnd.COMPLETE, {"message": "", "hint": ""})
    assert read(world, ended) == ["claimed", "ended"]
    assert world.wire.forget([ended.ticket_id, open_one.ticket_id]) == {open_one.ticket_id}
    assert read(world, ended) == []
    send(world, ended)
    assert [each.ticket_id for each in world.tickets.list_claimable(NAME, limit=9)] == [open_one.ticket_id]


def test_a_question_is_answered_and_one_that_nobody_takes_is_given_up(world: WireWorld, emptied_engine: Engine) -> None:
    asked = ProbeQuestion(ProbeKind.TOPICS, "ann", source={"type": "kafka", "connection": "c"})
    questions = [replace(make(TicketVerb.PROBE, question=asked), ticket=None) for _ in range(2)]
    for each in questions:
        send(world, each)
    assert world.wire.find_probe(TicketId(uuid.uuid4())) is None
    world.tickets.end(claim(world, questions[0]), AttemptEnd.COMPLETE, {"answer": {"topics": ["a"]}})
    world.pass_on()
    found = [world.wire.find_probe(each.ticket_id) for each in questions]
    assert [each and (each.sent, each.is_claimed, each.end is not None) for each in found] == [
        (questions[0], True, True),
        (questions[1], False, False),
    ]
    assert found[0] is not None
    assert found[0].end is not None
    assert found[0].end["answer"] == {"topics": ["a"]}
    late = "UPDATE gobblin.job_ticket SET sent_at = clock_timestamp() - interval '1 hour' WHERE ended_at IS NULL"
    with emptied_engine.begin() as connection:
        connection.execute(text(late))
    world.wire.give_up(questions[1].ticket_id, {"message": "nobody took it", "hint": ""})
    world.pass_on()
    given_up = world.wire.find_probe(questions[1].ticket_id)
    assert given_up is not None
    assert given_up.end is not None
    assert given_up.end["message"] == "nobody took it"


def test_what_processes_said_is_read(world: WireWorld) -> None:
    sent = send(world)
    world.tickets.keep_output(claim(world, sent), "line 1\nline 2")
    world.pass_on()
    assert [(each.attempt, each.lines) for each in world.wire.list_outputs(sent.ticket_id, limit=5)] == [
        (1, "line 1\nline 2")
    ]


def test_executors_are_heard_with_their_inboxes(world: WireWorld) -> None:
    send(world)
    claim(world, send(world))
    world.heartbeats.beat(make_beat(world, connections=frozenset({"jdbc.shop"}), workers_max=3))
    world.heartbeats.beat(make_beat(world, "here:2", phase=ExecutorPhase.DRAINING))
    world.pass_on()
    heard = {each.beat.owner: each for each in world.wire.list_heartbeats() if each.beat.executor == NAME}
    assert set(heard) == {"here:1", "here:2"}
    first = heard["here:1"]
    assert first.beat == make_beat(world, connections=frozenset({"jdbc.shop"}), workers_max=3)
    assert (first.waiting, first.working) == (1, 1)
    assert 0 <= first.heard_ago_s < TTL_S
    assert heard["here:2"].beat.phase is ExecutorPhase.DRAINING
    assert world.wire.find_log_id() == world.tickets.find_log_id()


class OneWay:
    """``TicketLogs`` of one wire, which hangs until ``answers`` is set."""

    def __init__(self, world: WireWorld) -> None:
        self._world = world
        self.answers = threading.Event()
        self.answers.set()

    def get_store(self, _way: str) -> Any:
        assert self.answers.wait(TTL_S)
        return self._world.wire

    def get_log_id(self, _way: str) -> LogId:
        return self._world.wire.find_log_id()

    def get_overview(self, _way: str) -> Any:
        raise AssertionError("nobody asks")

    def get_drains(self, _log: str) -> Any:
        raise AssertionError("nobody asks")


def test_a_way_that_hangs_holds_up_its_own_jobs_and_no_others(world: WireWorld) -> None:
    hanging, good = OneWay(world), OneWay(world)
    calls = WayCalls()
    there, here = WiredJobs(NAME, "kafka:there", hanging, calls), WiredJobs(NAME, "", good, calls)
    hanging.answers.clear()
    late, next_one, other = make(), make(), make()
    with pytest.raises(RetryableError, match="kafka:there"):
        calls.wait_for("kafka:there", there.add_job(late), wait_s=0.05)
    with pytest.raises(RetryableError, match="kafka:there"):
        there.update_job(next_one).result(TTL_S)
    calls.wait_for("", here.add_job(other))
    world.pass_on()
    assert [each.ticket_id for each in world.tickets.list_claimable(NAME, limit=9)] == [other.ticket_id]
    hanging.answers.set()
    while there.add_job(next_one).exception(TTL_S) is not None:
        pass
    cancel = replace(make(TicketVerb.CANCEL, cancels=late.ticket_id), ticket=None)
    there.delete_job(cancel).result(TTL_S)
    world.pass_on()
    # Over a way of messages the executor settles it; else it is settled by now.
    world.tickets.settle_cancel(cancel.ticket_id)
    world.pass_on()
    # What hung was sent late, and once.
    open_ones = {each.ticket_id for each in world.tickets.list_claimable(NAME, limit=9)}
    assert open_ones == {next_one.ticket_id, other.ticket_id}
