"""Tickets, claims and reports in Postgres: each ticket once, one attempt at a time, each report once."""

import datetime as dt
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.errors import (
    ConflictError,
    CorruptionError,
    ErrorFamily,
    FencedError,
    RejectedError,
)
from gobblin_assets.failpoints import AcknowledgementLost, Failpoint, install
from gobblin_assets.model.job_ticket import (
    JobTicket,
    LogId,
    SentTicket,
    TicketId,
    TicketShape,
    TicketVerb,
    sent_ticket_from_json,
    sent_ticket_to_json,
)
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.state.postgres.tickets import PostgresTicketStore
from gobblin_assets.state.tickets import (
    ATTEMPTS_MAX,
    AttemptEnd,
    Claim,
    TicketReport,
    TicketReportKind,
)
from tests.support.commit_log import JOB, LogWorld, open_postgres
from tests.support.interleaving import open_connections

TTL_S: Final = 60.0
NAME: Final = "local"
RUNNING: Final = TicketReportKind.RUNNING


@pytest.fixture
def tickets(emptied_engine: Engine) -> PostgresTicketStore:
    return PostgresTicketStore(emptied_engine)


@pytest.fixture
def log(emptied_engine: Engine) -> LogWorld:
    return open_postgres(emptied_engine)


def make(
    executor: str = NAME,
    job: str = "shop",
    shape: TicketShape = TicketShape.RUN,
    verb: TicketVerb = TicketVerb.ADD,
    earlier: tuple[TicketId, ...] = (),
) -> SentTicket:
    ticket = JobTicket("gobblin-job:/g/f/j", "1", "anything", {"job": job, "number": 1e300}, shape)
    return SentTicket(TicketId(uuid.uuid4()), verb, executor, ticket, earlier=earlier)


def send(tickets: PostgresTicketStore, *how: Any, **options: Any) -> TicketId:
    sent = make(*how, **options)
    tickets.send(sent)
    return sent.ticket_id


def cancel(tickets: PostgresTicketStore, other: TicketId) -> TicketId:
    sent = SentTicket(TicketId(uuid.uuid4()), TicketVerb.CANCEL, NAME, cancels=other)
    tickets.send(sent)
    return sent.ticket_id


def claim(tickets: PostgresTicketStore, ticket_id: TicketId, owner: str = "a") -> Claim:
    made = tickets.claim(ticket_id, owner, ttl_s=TTL_S)
    assert made is not None
    return made


def reports_of(tickets: PostgresTicketStore, *ticket_ids: TicketId) -> list[TicketReport]:
    return list(tickets.list_reports(ticket_ids, {}, limit=100))


def claimable(tickets: PostgresTicketStore, executor: str = NAME) -> list[TicketId]:
    return [each.ticket_id for each in tickets.list_claimable(executor, limit=100)]


def expire(engine: Engine) -> None:
    """All claims, and all pauses after an attempt."""
    past = "clock_timestamp() - interval '1 hour'"
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE gobblin.ticket_claim SET expires_at = {past}"))
        connection.execute(text(f"UPDATE gobblin.ticket_claim SET ended_at = {past} WHERE ended_at IS NOT NULL"))


def lose_first(point: Failpoint) -> Callable[[Failpoint], None]:
    """The first acknowledgement of the point's transaction is lost."""
    seen: list[Failpoint] = []

    def hook(reached: Failpoint) -> None:
        if reached is point and not seen:
            seen.append(reached)
            raise AcknowledgementLost("lost")

    return hook


def test_a_log_has_one_id(tickets: PostgresTicketStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _number: tickets.find_log_id(), range(8)))
    assert len(found) == 1


def test_a_ticket_is_sent_once_however_often_it_is_sent(tickets: PostgresTicketStore) -> None:
    sent = make()
    with install(lose_first(Failpoint.TICKET_SENT)):
        tickets.send(sent)
    tickets.send(sent)
    assert claimable(tickets) == [sent.ticket_id]
    with pytest.raises(ConflictError, match=str(sent.ticket_id)):
        tickets.send(replace(sent, executor="other"))
    assert tickets.get_claimed(claim(tickets, sent.ticket_id)) == sent


def test_a_ticket_for_another_log_is_refused(tickets: PostgresTicketStore) -> None:
    sent = replace(make(), log_id=tickets.find_log_id())
    tickets.send(sent)
    with pytest.raises(ConflictError):
        tickets.send(replace(make(), log_id=LogId(uuid.uuid4())))
    assert claimable(tickets) == [sent.ticket_id]


def test_an_executor_sees_its_own_tickets_the_oldest_first_and_those_that_cancel_before_all(
    tickets: PostgresTicketStore,
) -> None:
    first, second, _other = send(tickets), send(tickets), send(tickets, "other")
    assert claimable(tickets) == [first, second]
    cancelling = cancel(tickets, second)
    assert claimable(tickets) == [cancelling, first, second]
    assert [each.ticket_id for each in tickets.list_claimable(NAME, limit=1)] == [cancelling]


def test_what_waits_for_no_slot_comes_before_what_does(tickets: PostgresTicketStore) -> None:
    worker = TicketShape.WORKER
    added = [send(tickets) for _number in range(3)]
    replacing = [send(tickets, shape=worker, verb=verb) for verb in (TicketVerb.UPDATE, TicketVerb.DELETE)]
    assert claimable(tickets) == [*replacing, *added]
    assert [each.ticket_id for each in tickets.list_claimable(NAME, limit=2)] == replacing


def test_a_ticket_that_is_claimed_belongs_to_one(tickets: PostgresTicketStore, emptied_engine: Engine) -> None:
    ticket_id = send(tickets)
    with install(lose_first(Failpoint.TICKET_CLAIMED)):
        first = claim(tickets, ticket_id)
    assert first == Claim(ticket_id, 1)
    assert claimable(tickets) == []
    assert tickets.claim(ticket_id, "b", ttl_s=TTL_S) is None
    expire(emptied_engine)
    assert claimable(tickets) == [ticket_id]
    assert claim(tickets, ticket_id, "b") == Claim(ticket_id, 2)
    assert [(each.attempt, each.kind, each.details) for each in reports_of(tickets, ticket_id)] == [
        (1, TicketReportKind.CLAIMED, {"owner": "a"}),
        (2, TicketReportKind.CLAIMED, {"owner": "b"}),
    ]


def test_of_many_who_claim_at_once_one_gets_it(tickets: PostgresTicketStore) -> None:
    ticket_id = send(tickets)
    barrier = threading.Barrier(8)

    def race(number: int) -> Claim | None:
        barrier.wait()
        return tickets.claim(ticket_id, str(number), ttl_s=TTL_S)

    with ThreadPoolExecutor(8) as pool:
        found = [each for each in pool.map(race, range(8)) if each is not None]
    assert found == [Claim(ticket_id, 1)]
    assert len(reports_of(tickets, ticket_id)) == 1


def test_a_claim_is_renewed_until_another_attempt_comes(tickets: PostgresTicketStore, emptied_engine: Engine) -> None:
    mine, ended, lost = (claim(tickets, send(tickets)) for _number in range(3))
    tickets.end(ended, AttemptEnd.COMPLETE, {})
    expire(emptied_engine)
    claim(tickets, lost.ticket_id, "b")
    with install(lose_first(Failpoint.CLAIMS_RENEWED)):
        assert tickets.renew([mine, ended, lost], ttl_s=TTL_S) == {mine}
    assert claimable(tickets) == [], "it had expired, and nobody had taken it"
    assert tickets.renew([], ttl_s=TTL_S) == set()


def test_reports_have_rising_numbers_and_are_read_on_from_the_last_one(tickets: PostgresTicketStore) -> None:
    mine, other = claim(tickets, send(tickets)), claim(tickets, send(tickets))
    with install(lose_first(Failpoint.TICKET_REPORTED)):
        tickets.report(mine, uuid.uuid4(), RUNNING, {"a": 1})
    tickets.report(other, uuid.uuid4(), RUNNING, {})
    found = reports_of(tickets, mine.ticket_id)
    assert [(each.attempt, each.number, each.kind.value) for each in found] == [(1, 1, "claimed"), (1, 2, "running")]
    assert found[1].details == {"a": 1}
    assert found[1].at.tzinfo is not None
    after = {mine.ticket_id: (1, 1)}
    both = tickets.list_reports([mine.ticket_id, other.ticket_id], after, limit=10)
    assert Counter(each.ticket_id for each in both) == {mine.ticket_id: 1, other.ticket_id: 2}
    assert tickets.list_reports([mine.ticket_id], {mine.ticket_id: (1, 2)}, limit=10) == []
    assert len(tickets.list_reports([mine.ticket_id, other.ticket_id], {}, limit=3)) == 3


def test_a_reader_that_goes_on_behind_the_last_report_misses_none(
    tickets: PostgresTicketStore, emptied_engine: Engine
) -> None:
    """Of two that report at once, the second one's number is visible only with the first one's."""
    mine = claim(tickets, send(tickets))
    with open_connections(emptied_engine) as connections:
        held, other = PostgresTicketStore(connections.held), PostgresTicketStore(connections.other)
        with connections.pause(
            "INSERT INTO gobblin.ticket_report", lambda: held.report(mine, uuid.uuid4(), RUNNING, {"by": 1})
        ) as first:
            second = connections.start(lambda: other.report(mine, uuid.uuid4(), RUNNING, {"by": 2}))
            assert connections.has_to_wait(second)
            assert len(reports_of(tickets, mine.ticket_id)) == 1
        first.result()
        second.result()
    assert [(each.number, each.details.get("by")) for each in reports_of(tickets, mine.ticket_id)] == [
        (1, None),
        (2, 1),
        (3, 2),
    ]


def test_of_an_attempt_s_progress_the_newest_report_stays_and_readers_go_on(tickets: PostgresTicketStore) -> None:
    mine, other = claim(tickets, send(tickets)), claim(tickets, send(tickets))

    def report(by: Claim, lag: int) -> None:
        tickets.report(by, uuid.uuid4(), TicketReportKind.PROGRESS, {"lag": lag})

    report(mine, 9)
    report(other, 1)
    tickets.report(mine, uuid.uuid4(), RUNNING, {})
    for lag in (8, 7):
        with install(lose_first(Failpoint.TICKET_REPORTED)):
            report(mine, lag)
    tickets.report(mine, uuid.uuid4(), RUNNING, {})
    found = reports_of(tickets, mine.ticket_id)
    assert [(each.number, each.details.get("lag")) for each in found if each.kind is not TicketReportKind.CLAIMED] == [
        (3, None),
        (5, 7),
        (6, None),
    ]
    assert [each.number for each in tickets.list_reports([mine.ticket_id], {mine.ticket_id: (1, 4)}, limit=9)] == [5, 6]
    assert [each.details.get("lag") for each in reports_of(tickets, other.ticket_id)] == [None, 1]


def test_a_publication_is_reported_once(tickets: PostgresTicketStore, emptied_engine: Engine) -> None:
    mine = claim(tickets, send(tickets))
    sequence_id = SequenceId(uuid.uuid4())

    def report(by: Claim) -> None:
        tickets.report(by, uuid.uuid4(), TicketReportKind.PUBLISHED, {}, sequence_id)

    with install(lose_first(Failpoint.TICKET_REPORTED)):
        report(mine)
    report(mine)
    expire(emptied_engine)
    report(claim(tickets, mine.ticket_id))
    assert [each.kind.value for each in reports_of(tickets, mine.ticket_id)] == ["claimed", "published", "claimed"]


def test_late_reports_are_refused(tickets: PostgresTicketStore, emptied_engine: Engine) -> None:
    mine = claim(tickets, send(tickets))
    expire(emptied_engine)
    tickets.report(mine, uuid.uuid4(), RUNNING, {})
    other = claim(tickets, mine.ticket_id, "b")
    for late in (mine, Claim(mine.ticket_id, 3)):
        with pytest.raises(FencedError):
            tickets.report(late, uuid.uuid4(), RUNNING, {})
        with pytest.raises(FencedError):
            tickets.get_claimed(late)
        assert not tickets.end(late, AttemptEnd.COMPLETE, {})
    assert tickets.end(other, AttemptEnd.COMPLETE, {})
    assert not tickets.end(other, AttemptEnd.FAILED, {})
    with pytest.raises(FencedError):
        tickets.report(other, uuid.uuid4(), RUNNING, {})
    assert [each.details.get("state") for each in reports_of(tickets, mine.ticket_id)][-1] == "COMPLETE"


@pytest.mark.parametrize("end", [AttemptEnd.COMPLETE, AttemptEnd.FAILED, AttemptEnd.CANCELLED])
def test_such_an_end_of_an_attempt_is_the_end_of_the_ticket(
    tickets: PostgresTicketStore, emptied_engine: Engine, end: AttemptEnd
) -> None:
    mine = claim(tickets, send(tickets))
    with install(lose_first(Failpoint.TICKET_ENDED)):
        assert tickets.end(mine, end, {"message": "so"})
    expire(emptied_engine)
    assert claimable(tickets) == []
    assert tickets.claim(mine.ticket_id, "b", ttl_s=TTL_S) is None
    assert reports_of(tickets, mine.ticket_id)[-1].details == {"state": end.value, "message": "so"}


@pytest.mark.parametrize("end", [AttemptEnd.DIED, AttemptEnd.DRAINED])
def test_another_end_leaves_the_ticket_to_the_next_attempt(
    tickets: PostgresTicketStore, emptied_engine: Engine, end: AttemptEnd
) -> None:
    mine = claim(tickets, send(tickets))
    assert tickets.end(mine, end, {})
    assert claimable(tickets) == ([] if end is AttemptEnd.DIED else [mine.ticket_id]), "what dies at once waits"
    expire(emptied_engine)
    assert claimable(tickets) == [mine.ticket_id]
    assert claim(tickets, mine.ticket_id).attempt == 2


def test_attempts_that_die_are_bounded_and_drained_ones_are_not_counted(
    tickets: PostgresTicketStore, emptied_engine: Engine
) -> None:
    ticket_id = send(tickets)
    assert not tickets.give_up(ticket_id, {})
    for number in range(ATTEMPTS_MAX):
        assert tickets.end(claim(tickets, ticket_id), AttemptEnd.DRAINED, {})
        assert tickets.end(claim(tickets, ticket_id), AttemptEnd.DIED, {})
        expire(emptied_engine)
        (found,) = tickets.list_claimable(NAME, limit=9)
        assert (found.attempts, found.last_attempt) == (number + 1, 2 * number + 2)
    assert tickets.claim(ticket_id, "a", ttl_s=TTL_S) is None
    with install(lose_first(Failpoint.TICKET_ENDED)):
        assert tickets.give_up(ticket_id, {"message": "all died"})
    assert not tickets.give_up(ticket_id, {})
    last = reports_of(tickets, ticket_id)[-1]
    assert (last.attempt, last.details) == (2 * ATTEMPTS_MAX, {"state": "FAILED", "message": "all died"})
    assert claimable(tickets) == []


def test_of_workers_only_short_lives_count_and_a_delete_is_repeated_until_it_is_done(
    tickets: PostgresTicketStore, emptied_engine: Engine
) -> None:
    long_lived, short_lived = (send(tickets, job=name, shape=TicketShape.WORKER) for name in ("long", "short"))
    deleting = send(tickets, job="gone", shape=TicketShape.WORKER, verb=TicketVerb.DELETE)
    for _number in range(ATTEMPTS_MAX):
        for ticket_id in (long_lived, short_lived, deleting):
            tickets.end(claim(tickets, ticket_id), AttemptEnd.DIED, {})
        expire(emptied_engine)
        with emptied_engine.begin() as connection:
            for ticket_id, life in ((short_lived, "1 s"), (deleting, "1 s"), (long_lived, "1 day")):
                connection.execute(
                    text(
                        "UPDATE gobblin.ticket_claim SET claimed_at = ended_at - CAST(:life AS interval)"
                        " WHERE ticket_id = :id"
                    ),
                    {"life": life, "id": ticket_id},
                )
    counts = {each.ticket_id: each.attempts for each in tickets.list_claimable(NAME, limit=9)}
    assert counts == {long_lived: 0, short_lived: ATTEMPTS_MAX, deleting: 0}
    assert tickets.claim(short_lived, "a", ttl_s=TTL_S) is None
    assert claim(tickets, deleting).attempt == ATTEMPTS_MAX + 1


def test_the_pause_behind_very_many_attempts_is_the_longest_one(
    tickets: PostgresTicketStore, emptied_engine: Engine
) -> None:
    ticket_id = send(tickets, shape=TicketShape.WORKER)
    made = claim(tickets, ticket_id)
    with emptied_engine.begin() as connection:
        connection.execute(text("DELETE FROM gobblin.ticket_report"))
        connection.execute(text("UPDATE gobblin.ticket_claim SET attempt = 1024"))
    many = replace(made, attempt=1024)
    assert tickets.end(many, AttemptEnd.DIED, {})
    assert claimable(tickets) == []
    expire(emptied_engine)
    assert claimable(tickets) == [ticket_id]


@pytest.mark.parametrize(
    ("shape", "family", "counted"),
    [
        (TicketShape.WORKER, ErrorFamily.RETRYABLE, 0),
        (TicketShape.WORKER, ErrorFamily.OUTCOME_UNKNOWN, 0),
        (TicketShape.WORKER, None, 2),
        (TicketShape.RUN, ErrorFamily.RETRYABLE, 2),
    ],
)
def test_a_worker_s_attempts_that_died_of_what_passes_do_not_count(
    tickets: PostgresTicketStore, emptied_engine: Engine, shape: TicketShape, family: ErrorFamily | None, counted: int
) -> None:
    ticket_id = send(tickets, shape=shape)
    for _number in range(2):
        tickets.end(claim(tickets, ticket_id), AttemptEnd.DIED, {"family": family and family.value})
        with emptied_engine.begin() as connection:
            connection.execute(
                text(
                    "UPDATE gobblin.ticket_claim SET claimed_at = claimed_at - interval '1 minute',"
                    " ended_at = ended_at - interval '1 minute'"
                )
            )
    (found,) = tickets.list_claimable(NAME, limit=9)
    assert (found.attempts, found.last_attempt) == (counted, 2)


def test_older_workers_of_a_job_are_superseded_unless_they_live(
    tickets: PostgresTicketStore, emptied_engine: Engine
) -> None:
    worker = TicketShape.WORKER
    waiting, alive = send(tickets, shape=worker), claim(tickets, send(tickets, shape=worker))
    kept = [send(tickets, job="other", shape=worker), send(tickets, "elsewhere", shape=worker), send(tickets)]
    newer = send(tickets, shape=worker, verb=TicketVerb.UPDATE)
    newest = send(tickets, shape=worker)
    with install(lose_first(Failpoint.TICKET_ENDED)):
        assert tickets.supersede(newer) == 1
    assert [each.details["state"] for each in reports_of(tickets, waiting)] == ["CANCELLED"]
    assert str(newer) in reports_of(tickets, waiting)[0].details["message"]
    expire(emptied_engine)
    assert tickets.supersede(newer) == 0
    assert [each.details.get("state") for each in reports_of(tickets, alive.ticket_id)] == [None, "CANCELLED"]
    assert claimable(tickets) == [newer, kept[0], kept[2], newest]
    assert claimable(tickets, "elsewhere") == [kept[1]]


def test_a_ticket_that_lives_is_not_given_up(tickets: PostgresTicketStore) -> None:
    mine = claim(tickets, send(tickets))
    assert not tickets.give_up(mine.ticket_id, {})
    assert tickets.end(mine, AttemptEnd.COMPLETE, {})


def test_a_ticket_that_nobody_works_on_is_cancelled_at_once(
    tickets: PostgresTicketStore, emptied_engine: Engine
) -> None:
    fresh, died = send(tickets), send(tickets)
    claim(tickets, died)
    expire(emptied_engine)
    for other, attempt in ((fresh, 0), (died, 1)):
        cancelling = cancel(tickets, other)
        with install(lose_first(Failpoint.TICKET_ENDED)):
            assert tickets.settle_cancel(cancelling) is None
        assert tickets.settle_cancel(cancelling) is None
        last = reports_of(tickets, other)[-1]
        assert (last.attempt, last.details["state"]) == (attempt, "CANCELLED")
        assert [each.details["state"] for each in reports_of(tickets, cancelling)] == ["COMPLETE"]
    assert claimable(tickets) == []


def test_a_ticket_is_given_up_by_hand_unless_somebody_works_on_it(
    tickets: PostgresTicketStore, emptied_engine: Engine
) -> None:
    deleting = send(tickets, job="gone", shape=TicketShape.WORKER, verb=TicketVerb.DELETE)
    claim(tickets, deleting)
    assert not tickets.end_unclaimed(deleting, "by hand")
    expire(emptied_engine)
    with install(lose_first(Failpoint.TICKET_ENDED)):
        assert tickets.end_unclaimed(deleting, "by hand")
    assert tickets.end_unclaimed(deleting, "again"), "it has ended"
    last = reports_of(tickets, deleting)[-1]
    assert (last.details["state"], last.details["message"]) == ("CANCELLED", "by hand")
    assert claimable(tickets) == []
    with pytest.raises(RejectedError, match="the log has no ticket"):
        tickets.end_unclaimed(TicketId(uuid.uuid4()), "by hand")


def test_who_works_on_a_cancelled_ticket_is_named_until_it_has_ended(tickets: PostgresTicketStore) -> None:
    mine = claim(tickets, send(tickets))
    cancelling = cancel(tickets, mine.ticket_id)
    assert tickets.settle_cancel(cancelling) == mine.ticket_id
    assert claimable(tickets) == [cancelling]
    tickets.end(mine, AttemptEnd.COMPLETE, {})
    assert tickets.settle_cancel(cancelling) is None
    assert claimable(tickets) == []
    assert reports_of(tickets, mine.ticket_id)[-1].details["state"] == "COMPLETE", "it was faster"


def test_who_cancels_what_the_log_does_not_have_has_failed(tickets: PostgresTicketStore) -> None:
    cancelling = cancel(tickets, TicketId(uuid.uuid4()))
    assert tickets.settle_cancel(cancelling) is None
    (end,) = reports_of(tickets, cancelling)
    assert end.details["state"] == "FAILED"
    assert claimable(tickets) == []


def test_what_the_log_does_not_have_or_somebody_changed_is_refused(
    tickets: PostgresTicketStore, emptied_engine: Engine
) -> None:
    with pytest.raises(RejectedError):
        tickets.claim(TicketId(uuid.uuid4()), "a", ttl_s=TTL_S)
    mine = claim(tickets, send(tickets))
    with emptied_engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.job_ticket SET body = replace(body::text, 'shop', 'other')::json"))
    with pytest.raises(CorruptionError):
        tickets.get_claimed(mine)


def test_publications_since_the_first_claim_are_unreported_until_one_is_reported(
    tickets: PostgresTicketStore, log: LogWorld, emptied_engine: Engine
) -> None:
    lease = log.take(log.register(DatasetUrn("orders")))
    before = log.publish(lease).sequence_id
    ticket_id = send(tickets, job=JOB)
    assert tickets.list_unreported(ticket_id) == [], "nobody has claimed it"
    first = claim(tickets, ticket_id)
    found = [log.publish(lease).sequence_id for _number in range(2)]
    expire(emptied_engine)
    second = claim(tickets, ticket_id)
    found.append(log.publish(lease).sequence_id)
    assert tickets.list_unreported(ticket_id) == found
    assert before not in found
    assert first.attempt < second.attempt
    tickets.report(second, uuid.uuid4(), TicketReportKind.PUBLISHED, {}, found[1])
    assert tickets.list_unreported(ticket_id) == [found[0], found[2]]
    assert tickets.list_unreported(send(tickets)) == []
    worker = claim(tickets, send(tickets, job=JOB, shape=TicketShape.WORKER))
    log.publish(lease)
    assert tickets.list_unreported(worker.ticket_id) == []


def test_what_runs_of_a_ticket_s_attempts_published_is_done_and_what_others_did_is_not(
    tickets: PostgresTicketStore, log: LogWorld, emptied_engine: Engine
) -> None:
    orders, items = (log.register(DatasetUrn(urn)) for urn in ("orders", "items"))
    ticket_id = send(tickets, job=JOB)
    first = claim(tickets, ticket_id)
    assert tickets.find_run(first) is None
    told = log.start_run()
    tickets.report(first, uuid.uuid4(), RUNNING, {"owner": "a", "run_id": str(told)})
    assert tickets.find_run(first) == told
    log.publish(log.take(items, log.start_run()))
    assert tickets.list_done(ticket_id) == set()
    log.publish(log.take(orders, told))
    expire(emptied_engine)
    assert tickets.find_run(claim(tickets, ticket_id)) is None
    assert tickets.list_done(ticket_id) == {("orders", "")}
    # Another ticket of the job leaves out what that one did, if it goes on from it, and tells what it left untold.
    following, other = send(tickets, job=JOB, earlier=(ticket_id,)), send(tickets, job=JOB)
    assert (tickets.list_done(following), tickets.list_done(other)) == ({("orders", "")}, set())
    assert tickets.list_unreported(following) == tickets.list_unreported(ticket_id)
    assert (len(tickets.list_unreported(following)), tickets.list_unreported(other)) == (2, [])
    with emptied_engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.commit_sequence SET complete = false"))
    assert tickets.list_done(ticket_id) == set()


def test_of_each_partition_the_latest_publication_counts_if_it_is_complete(
    tickets: PostgresTicketStore, log: LogWorld, emptied_engine: Engine
) -> None:
    lease = log.take(log.register(DatasetUrn("orders")))
    assert tickets.list_published(JOB) == {}
    log.publish(lease)
    built = log.publish(lease)
    found: dict[str, Any] = dict(tickets.list_published(JOB)[DatasetUrn("orders")])
    (read_at,) = found.values()
    assert isinstance(read_at, dt.datetime)
    with emptied_engine.begin() as connection:
        connection.execute(
            text("UPDATE gobblin.commit_sequence SET complete = false WHERE sequence_id = :id"),
            {"id": built.sequence_id},
        )
    assert tickets.list_published(JOB) == {}


def test_an_ended_ticket_is_forgotten_but_for_its_id_and_is_not_run_again(
    tickets: PostgresTicketStore, emptied_engine: Engine
) -> None:
    sent, going_on = make(), send(tickets)
    tickets.send(sent)
    done = claim(tickets, sent.ticket_id)
    tickets.keep_output(done, "said")
    assert [each.lines for each in tickets.list_outputs(sent.ticket_id, limit=9)] == ["said"]
    tickets.end(done, AttemptEnd.COMPLETE, {"message": ""})
    tickets.report(claim(tickets, going_on), uuid.uuid4(), RUNNING, {})
    unknown = TicketId(uuid.uuid4())

    with install(lose_first(Failpoint.TICKETS_FORGOTTEN)):
        assert tickets.forget([sent.ticket_id, going_on, unknown]) == {going_on}

    assert {each.ticket_id for each in reports_of(tickets, sent.ticket_id, going_on)} == {going_on}
    tickets.keep_output(done, "said late")
    assert tickets.list_outputs(sent.ticket_id, limit=9) == []
    tickets.send(sent)
    with pytest.raises(ConflictError, match="another ticket has the id"):
        tickets.send(replace(sent, executor="other"))
    assert claimable(tickets) == []
    assert tickets.claim(sent.ticket_id, "a", ttl_s=TTL_S) is None
    with pytest.raises(FencedError):
        tickets.get_claimed(done)
    cancelling = cancel(tickets, sent.ticket_id)
    assert tickets.settle_cancel(cancelling) is None
    with emptied_engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM gobblin.ticket_claim")).scalar() == 1


def test_a_ticket_with_a_nul_from_an_earlier_release_holds_up_no_look_at_the_others(
    tickets: PostgresTicketStore,
) -> None:
    job = {"job": "shop", "destination": "local:/\0\\", "source": {"query": "\0", "type": "jdbc"}}
    sent = replace(make(), ticket=JobTicket("gobblin-job:/g/f/j", "1", "anything", job))
    with pytest.raises(RejectedError, match=r"ticket\.job: expected no NUL"):
        sent_ticket_from_json(sent_ticket_to_json(sent))
    tickets.send(sent)
    other = send(tickets)
    described = tickets.describe_waiting([sent.ticket_id, other])
    assert set(described) == {sent.ticket_id, other}
    assert {each.uri for each in described.values()} == {"gobblin-job:/g/f/j"}
    assert tickets.list_unreported(claim(tickets, sent.ticket_id).ticket_id) == []


def test_jobs_that_need_the_same_of_spark_are_described_so_wherever_their_roots_are(
    tickets: PostgresTicketStore,
) -> None:
    source = {"connection": "shop", "type": "jdbc"}

    def send_to(destination: str, source: object = source) -> TicketId:
        job = {"job": "shop", "destination": destination, "source": source}
        sent = replace(make(), ticket=JobTicket("gobblin-job:/g/f/j", "1", "anything", job))
        tickets.send(sent)
        return sent.ticket_id

    here, there = send_to("/lake/one"), send_to("/lake/two: the second")
    bucket, other_bucket = send_to("s3://one/lake"), send_to("s3://two")
    from_another = send_to("/lake/one", {**source, "connection": "bank"})
    needs = {name: each.needs for name, each in tickets.describe_waiting([here, there, bucket, other_bucket]).items()}
    assert (needs[here], needs[bucket]) == (needs[there], needs[other_bucket])
    others = tickets.describe_waiting([from_another])
    assert len({needs[here], needs[bucket], others[from_another].needs}) == 3
