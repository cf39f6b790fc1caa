"""Wires that are killed, cut, or whose topics are lost: each ticket is there once, and each report is told."""

import json
import random
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the vendor does not mark what it exports
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from sqlalchemy import Engine, text
from urllib3 import PoolManager

from demo.kafka.broker import KafkaBroker, start_broker
from demo.server_process import find_port
from gobblin_assets import failpoints
from gobblin_assets.db.engine import open_external
from gobblin_assets.errors import ConflictError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.executor_heartbeat import ExecutorHeartbeat, HeardHeartbeat
from gobblin_assets.model.job_ticket import JobTicket, LogId, SentTicket, TicketId, TicketVerb
from gobblin_assets.model.state import SequenceId
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.service.postgres.wires import PostgresWireBook
from gobblin_assets.service.spec_executors import simple_rest
from gobblin_assets.service.spec_executors.simple_kafka import SimpleKafkaSpecExecutor
from gobblin_assets.state.tickets import AttemptEnd, Claim, TicketOutput, TicketReport, TicketReportKind
from gobblin_assets.state.worker_tickets import DRAINED_KEPT, OUTPUTS_KEPT
from gobblin_assets.tickets.wire_messages import (
    NoticeKind,
    WireNotice,
    beat_to_json,
    output_to_json,
    report_to_json,
    write_notice,
    write_order,
)
from tests.crash.points import OF_A_WIRE
from tests.support.forks import FORKS
from tests.support.kafka import delete_topics, make_topic, open_admin
from tests.support.wires import (
    Authority,
    KafkaEnds,
    await_true,
    make_kafka_wire,
    make_rest,
    name_executor,
    open_kafka,
    open_kafka_ends,
    serve_rest,
    service_database,
    service_engine,
)

__all__ = ["service_database", "service_engine"]

pytestmark = pytest.mark.turns(of=4)

WAIT_S_MAX = 150.0
TTL_S = 60.0
TICKETS = 3


@pytest.fixture
def ends(kafka_broker: KafkaBroker, service_engine: Engine, engine: Engine) -> Iterator[KafkaEnds]:
    with open_kafka_ends(kafka_broker.bootstrap, service_engine, engine, name_executor()) as made:
        yield made


def make(executor: str, log_id: LogId | None = None, **options: object) -> SentTicket:
    ticket = JobTicket("gobblin-job:/g/f/j", "1", "anything", {"job": "shop", **options})
    return SentTicket(TicketId(uuid.uuid4()), TicketVerb.ADD, executor, ticket, log_id=log_id)


def count_tickets(engine: Engine) -> int:
    with engine.connect() as connection:
        found: int = connection.execute(text("SELECT count(*) FROM gobblin.job_ticket")).scalar_one()
    return found


def work(ends: KafkaEnds, sent: SentTicket, count: int = 3, *, is_ended: bool = True) -> Claim:
    """An attempt that publishes, and ends."""
    made = ends.stores.tickets.claim(sent.ticket_id, "a", ttl_s=TTL_S)
    assert made is not None
    publish(ends, made, count)
    if is_ended:
        ends.stores.tickets.end(made, AttemptEnd.COMPLETE, {"message": "", "hint": ""})
    return made


def publish(ends: KafkaEnds, made: Claim, count: int) -> None:
    for rows in range(count):
        sequence_id = SequenceId(uuid.uuid4())
        ends.stores.tickets.report(made, uuid.uuid4(), TicketReportKind.PUBLISHED, {"rows": rows}, sequence_id)


def read(ends: KafkaEnds, sent: SentTicket, wire: SimpleKafkaSpecExecutor | None = None) -> list[TicketReport]:
    return list((wire or ends.wire).list_reports([sent.ticket_id], {}, limit=100))


def read_log(ends: KafkaEnds, sent: SentTicket) -> list[TicketReport]:
    return list(ends.stores.tickets.list_reports([sent.ticket_id], {}, limit=100))


def run_killed(act: Callable[..., None], *arguments: object, point: Failpoint, folder: Path) -> None:
    reached = folder / "reached"
    child = FORKS.Process(target=_become, args=(act, arguments, f"{point}=kill", str(reached)))
    child.start()
    child.join(WAIT_S_MAX)
    assert child.exitcode == -signal.SIGKILL
    assert reached.exists()


def _become(act: Callable[..., None], arguments: tuple[object, ...], failpoint: str, reached: str) -> None:
    failpoints.arm(failpoint, reached)
    act(*arguments)


def _serve_executor(database_url: str, bootstrap: str, name: str) -> None:
    wire = make_kafka_wire(KafkaConnection(bootstrap, name="main"), name, open_stores(open_external(database_url)))
    while True:
        wire.look()


def _serve_service(database_url: str, bootstrap: str, name: str) -> None:
    with open_kafka(KafkaConnection(bootstrap, name="main"), name, open_external(database_url)):
        time.sleep(WAIT_S_MAX)


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


@pytest.mark.parametrize("point", OF_A_WIRE)
def test_an_end_that_is_killed_anywhere_loses_and_doubles_nothing(
    kafka_broker: KafkaBroker, service_engine: Engine, engine: Engine, point: Failpoint, tmp_path: Path
) -> None:
    bootstrap, name = kafka_broker.bootstrap, name_executor()
    with open_kafka_ends(bootstrap, service_engine, engine, name) as ends:
        sent = [make(name) for _ in range(TICKETS)]
        for each in sent:
            ends.wire.send(each)
        if point is not Failpoint.TICKET_RECEIVED:
            ends.pass_on()
            for each in sent:
                work(ends, each)
        if point is Failpoint.REPORTS_TAKEN:
            ends.wire.close()
            ends.executor.look()
            run_killed(_serve_service, url_of(service_engine), bootstrap, name, point=point, folder=tmp_path)
            ends.wire = SimpleKafkaSpecExecutor(name, KafkaConnection(bootstrap, name="main"), ends.book)
        else:
            run_killed(_serve_executor, url_of(engine), bootstrap, name, point=point, folder=tmp_path)
        ends.pass_on()
        if point is Failpoint.TICKET_RECEIVED:
            for each in sent:
                work(ends, each)
            ends.pass_on()

        assert count_tickets(engine) == TICKETS
        for each in sent:
            assert [report.kind.value for report in read(ends, each)] == ["claimed", *["published"] * 3, "ended"]
            assert read(ends, each) == read_log(ends, each)
        ends.wire.close()


def test_two_ends_of_one_name_at_once_do_the_same_work_once(ends: KafkaEnds, service_engine: Engine) -> None:
    """Though only one holds the wire as a rule: the one that was paused past its time goes on."""
    connection = KafkaConnection(ends.bootstrap, name="main")
    sent = make(ends.name)
    other = make_kafka_wire(connection, ends.name, ends.stores, owner=ends.executor.options.owner)
    with open_kafka(connection, ends.name, service_engine) as second:
        ends.wire.send(sent)
        second.send(sent)
        ends.executor.look()
        other.look()
        ends.pass_on()
        work(ends, sent)
        untold = ends.stores.wires.list_untold(ends.name, limit=100)
        other.look()
        ends.executor.look()
        # The one that was paused behind the records notes what it told, too.
        ends.stores.wires.note_told(ends.name, untold)
        ends.pass_on()
        assert len(ends.stores.tickets.list_claimable(ends.name, limit=9)) == 0
        assert read(ends, sent) == read(ends, sent, second) == read_log(ends, sent)
    other.close()


def test_while_the_brokers_are_away_a_send_ends_soon_and_what_it_entered_is_sent_later(
    kafka_broker: KafkaBroker, service_engine: Engine, engine: Engine
) -> None:
    name = name_executor()
    nowhere = KafkaConnection(f"127.0.0.1:{find_port()}", name="main")
    sent = make(name)
    with open_kafka(nowhere, name, service_engine) as wire:
        began = time.monotonic()
        with pytest.raises((OutcomeUnknownError, RetryableError), match=r"127\.0\.0\.1"):
            wire.send(sent)
        assert time.monotonic() - began < WAIT_S_MAX / 2
    with open_kafka_ends(kafka_broker.bootstrap, service_engine, engine, name) as ends:
        # Nobody sends it again but the wire itself.
        def is_there() -> bool:
            ends.executor.look()
            return bool(ends.stores.tickets.list_claimable(name, limit=9))

        await_true(is_there, "the ticket in the log")
        work(ends, sent)
        ends.pass_on()
        assert read(ends, sent) == read_log(ends, sent)


def test_topics_that_are_made_anew_lose_nothing_of_open_tickets(
    kafka_broker: KafkaBroker, service_engine: Engine, engine: Engine
) -> None:
    bootstrap, name = kafka_broker.bootstrap, name_executor()
    with open_kafka_ends(bootstrap, service_engine, engine, name) as ends:
        sent, unread = make(name), make(name)
        ends.wire.send(sent)
        ends.pass_on()
        made = work(ends, sent, 1, is_ended=False)
        ends.pass_on()
        ends.wire.close()
        publish(ends, made, 2)
        ends.stores.tickets.end(made, AttemptEnd.COMPLETE, {"message": "", "hint": ""})
        ends.executor.look()
        # Told, and lost: nobody has read it. A ticket is lost, too.
        ends.wire = SimpleKafkaSpecExecutor(name, KafkaConnection("127.0.0.1:1", name="main"), ends.book)
        ends.book.enter(unread, "shop")
        ends.book.mark_produced(unread.ticket_id)
        ends.wire.close()
        topics = [f"gobblin-{of}-{name}" for of in ("tickets", "reports")]
        delete_topics(bootstrap, *topics)
        for topic in topics:
            make_topic(bootstrap, topic)
        with service_engine.begin() as connection:
            # An hour later.
            hour = "UPDATE gobblin_service.way_ticket SET produced_at = produced_at - interval '1 hour'"
            connection.execute(text(hour))
        ends.executor.close()
        ends.executor = make_kafka_wire(KafkaConnection(bootstrap, name="main"), name, ends.stores)
        ends.wire = SimpleKafkaSpecExecutor(name, KafkaConnection(bootstrap, name="main"), ends.book)

        def is_whole() -> bool:
            ends.pass_on()
            return read(ends, sent) == read_log(ends, sent) and len(read(ends, sent)) == 5

        await_true(is_whole, "all reports, though some were lost")
        await_true(lambda: ends.stores.tickets.list_claimable(name, limit=9), "the ticket that was lost")
        assert count_tickets(engine) == 2
        ends.wire.close()


@pytest.mark.every_run
def test_records_of_strangers_and_of_later_releases_are_refused_and_hold_up_nothing(
    ends: KafkaEnds, caplog: pytest.LogCaptureFixture
) -> None:
    newer, foreign, unknown, good = make(ends.name), make("somebody-else"), make(ends.name), make(ends.name)
    for each in (newer, foreign, unknown, good):
        ends.book.enter(each, "shop")
    later = {**json.loads(write_order(newer)), "schema": 2}
    strange_key = json.loads(write_order(unknown))
    strange_key["ticket"]["a\0b\ud800"] = 1
    producer = Producer({"bootstrap.servers": ends.bootstrap})
    for value in (
        b"\xff",
        b"[]",
        None,
        b'{"schema": 1, "kind": "dance"}',
        json.dumps(later).encode(),
        json.dumps(strange_key).encode(),
    ):
        producer.produce(f"gobblin-tickets-{ends.name}", value)
    for each in (foreign, good):
        producer.produce(f"gobblin-tickets-{ends.name}", write_order(each))
    log_id = ends.stores.tickets.find_log_id()
    report = TicketReport(TicketId(uuid.uuid4()), 1, 1, TicketReportKind.CLAIMED, {}, ends.executor.clock.now())
    said = {"behind": [-1, 0], **report_to_json(report)}
    for executor in (ends.name, "somebody-else"):
        notice = WireNotice(NoticeKind.REPORT, executor, log_id, said)
        producer.produce(f"gobblin-reports-{ends.name}", write_notice(notice))
    beat = WireNotice(NoticeKind.HEARTBEATS, ends.name, log_id, {"heartbeats": [{"beat": {"executor": "x"}}]})
    producer.produce(f"gobblin-reports-{ends.name}", write_notice(beat))
    producer.produce(f"gobblin-reports-{ends.name}", b"garbage")
    producer.flush()
    ends.pass_on()
    work(ends, good)
    ends.pass_on()

    (refused,) = read(ends, newer)
    assert (refused.kind, refused.details["state"]) == (TicketReportKind.ENDED, "FAILED")
    assert refused.details["field"] == "schema"
    assert "schema 2" in refused.details["message"]
    assert "Upgrade" in refused.details["hint"]
    (strange,) = read(ends, foreign)
    assert strange.details["field"] == "executor"
    (not_known,) = read(ends, unknown)
    assert not_known.details["field"] == "a\\0b\\ud800"
    assert read(ends, good) == read_log(ends, good)
    assert len(read(ends, good)) == 5
    assert "was not sent to the executor" in caplog.text
    assert "expected the executor" in caplog.text


def test_what_no_record_takes_holds_up_nothing(ends: KafkaEnds, service_engine: Engine) -> None:
    noise = random.Random(7).randbytes(1 << 20).hex()
    dull, large, late, waiting = (make(ends.name, more=each) for each in ("x" * (2 << 20), noise, noise, ""))
    for each in (late, waiting):
        ends.book.enter(each, "shop")
    with pytest.raises(ConflictError, match="is larger than the topic"):
        ends.wire.send(large)
    with service_engine.connect() as connection:
        entered = set(connection.execute(text("SELECT ticket_id FROM gobblin_service.way_ticket")).scalars())
    assert entered == {late.ticket_id, waiting.ticket_id}
    ends.wire.send(dull)

    def is_there() -> bool:
        ends.executor.look()
        return len(ends.stores.tickets.list_claimable(ends.name, limit=9)) == 2

    await_true(is_there, "the ticket that was sent again, and the one of many bytes of few kinds")
    made = work(ends, dull, 1, is_ended=False)
    said = {"message": "done", "hint": "", "datasets": {"a": noise}}
    ends.stores.tickets.end(made, AttemptEnd.COMPLETE, said)
    ends.pass_on()
    (*_, end) = read(ends, dull)
    assert end.kind is TicketReportKind.ENDED
    assert set(end.details) == {"state", "message", "hint"}
    assert end.details["state"] == "COMPLETE"
    assert str(end.details["message"]).startswith("done What it says has 2,097,")


def test_a_report_that_its_topic_does_not_take_hides_nobody_who_lives(ends: KafkaEnds) -> None:
    sent, log_id = make(ends.name), ends.stores.tickets.find_log_id()
    ends.wire.send(sent)
    ends.pass_on()
    few = ConfigEntry("max.message.bytes", "3000", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, f"gobblin-reports-{ends.name}", incremental_configs=[few])
    admin = open_admin(ends.bootstrap)  # its answers come only while it is referenced
    admin.incremental_alter_configs([topic])[topic].result()
    made = work(ends, sent, 0, is_ended=False)
    noise = {"noise": random.Random(7).randbytes(5_000).hex()}
    ends.stores.tickets.report(made, uuid.uuid4(), TicketReportKind.RUNNING, noise)
    ends.stores.heartbeats.beat(ExecutorHeartbeat(ends.name, "here:1", log_id, "1", 2, frozenset()))
    ends.executor.beat_soon()
    with pytest.raises(ConflictError, match="larger than the topic"):
        ends.executor.look()
    await_true(ends.wire.list_heartbeats, "who lives")


def test_of_a_worker_that_drains_for_years_the_book_keeps_what_the_log_keeps(service_engine: Engine) -> None:
    book, sent, log_id = PostgresWireBook(service_engine, "kafka:local"), make("local"), LogId(uuid.uuid4())
    book.enter(sent, "shop")
    said: list[dict[str, object]] = []
    behind, now = (-1, 0), SystemClock().now()
    for attempt in range(1, DRAINED_KEPT + 4):
        # One that died is told for ever: it counts.
        end = AttemptEnd.DIED if attempt == 2 else AttemptEnd.DRAINED
        for number, kind in enumerate((TicketReportKind.CLAIMED, TicketReportKind.ENDED), start=1):
            report = TicketReport(sent.ticket_id, attempt, number, kind, {"state": end.value}, now)
            said.append({"behind": list(behind), **report_to_json(report)})
            behind = attempt, number
    notices = [WireNotice(NoticeKind.REPORT, "local", log_id, each) for each in said]
    for attempt in range(1, OUTPUTS_KEPT + 4):
        lines = {"ticket_id": str(sent.ticket_id), **output_to_json(TicketOutput(attempt, "a line", now))}
        notices.append(WireNotice(NoticeKind.OUTPUT, "local", log_id, lines))
    book.take("topic", 0, list(enumerate(notices)))
    kept = book.list_reports([sent.ticket_id], {}, limit=1_000)
    assert {each.attempt for each in kept} == {2, *range(4, DRAINED_KEPT + 4)}
    assert len(kept) == 2 * (DRAINED_KEPT + 1)
    outputs = [each.attempt for each in book.list_outputs(sent.ticket_id, limit=1_000)]
    assert outputs == list(range(OUTPUTS_KEPT + 3, 3, -1))


def test_heartbeats_and_reports_of_unknown_ids_and_other_logs_count_for_nothing(
    service_engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    own, other, now = LogId(uuid.uuid4()), LogId(uuid.uuid4()), SystemClock().now()
    book, sent = PostgresWireBook(service_engine, "kafka:local"), make("local", own)
    book.enter(sent, "shop")

    def tell_report(ticket_id: TicketId, log_id: LogId) -> WireNotice:
        report = TicketReport(ticket_id, 1, 1, TicketReportKind.CLAIMED, {"owner": "a:1"}, now)
        return WireNotice(NoticeKind.REPORT, "local", log_id, {"behind": [-1, 0], **report_to_json(report)})

    def tell_beat(executor: str, log_id: LogId) -> WireNotice:
        beat = ExecutorHeartbeat(executor, "a:1", log_id, "1", 2, frozenset({"distcp"}))
        return WireNotice(
            NoticeKind.HEARTBEATS, "local", own, {"heartbeats": [beat_to_json(HeardHeartbeat(beat, 0.0, 0, 0))]}
        )

    unknown = TicketId(uuid.uuid4())
    strange = [tell_report(unknown, own), tell_report(sent.ticket_id, other), tell_beat("local", other)]
    strange.append(tell_beat("paris", own))
    good = [tell_report(sent.ticket_id, own), tell_beat("local", own)]
    book.take("topic", 0, list(enumerate([*strange, *good])))
    for said in (
        f"ticket_id: the ticket {unknown} was not sent to the executor local",
        f"log_id: a report of the ticket {sent.ticket_id} comes from the log {other}",
        f"heartbeat.log_id: a heartbeat of local and the log {other} came from local and the log {own}",
        f"heartbeat.log_id: a heartbeat of paris and the log {own} came from local",
    ):
        assert said in caplog.text
    assert caplog.text.count("Start all executors of one name with the same") == 2
    assert [each.ticket_id for each in book.list_reports([sent.ticket_id, unknown], {}, limit=9)] == [sent.ticket_id]
    (heard,) = book.list_heartbeats()
    assert (heard.beat.executor, heard.beat.log_id, book.find_log_id()) == ("local", own, own)


def test_a_refusal_that_the_log_does_not_take_holds_up_nothing(
    ends: KafkaEnds, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused, good = make("somebody-else"), make(ends.name)
    producer = Producer({"bootstrap.servers": ends.bootstrap})
    for each in (refused, good):
        producer.produce(f"gobblin-tickets-{ends.name}", write_order(each))
    producer.flush()
    refuse = ends.stores.wires.refuse
    # NUL, which no column takes.
    monkeypatch.setattr(ends.stores.wires, "refuse", lambda place, of, _said: refuse(place, of, {"message": "\0"}))
    ends.pass_on()
    assert [each.ticket_id for each in ends.stores.tickets.list_claimable(ends.name, limit=9)] == [good.ticket_id]
    assert f"the log does not take why the ticket {refused.ticket_id} was refused" in capsys.readouterr().out


def test_a_record_of_a_later_release_holds_reports_up_until_the_service_is_upgraded(
    ends: KafkaEnds, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer({"bootstrap.servers": ends.bootstrap})
    producer.produce(f"gobblin-reports-{ends.name}", b'{"schema": 2, "kind": "song"}')
    producer.flush()
    await_true(lambda: "schema: the record is of schema 2" in caplog.text, "the service says why it waits")
    sent = make(ends.name)
    ends.wire.send(sent)
    assert not ends.wire.find_ends([sent.ticket_id])


@pytest.mark.thorough
def test_each_end_has_the_login_or_the_certificate_of_its_connection(
    service_engine: Engine, engine: Engine, tmp_path: Path
) -> None:
    name, stores = name_executor(), open_stores(engine)
    with start_broker(tmp_path, users={"ann": "hunter2"}, tls=True) as broker:
        ca_file = str(tmp_path / "ca.pem")
        by_login = KafkaConnection(
            broker.sasl_bootstrap,
            "SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            username="ann",
            password="hunter2",
            name="main",
        )
        wrong = make_kafka_wire(replace(by_login, password="hunter3"), name, stores)
        with pytest.raises(RejectedError, match="username") as refused:
            wrong.look()
        assert "hunter3" not in str(refused.value)
        wrong.close()
        executor = make_kafka_wire(by_login, name, stores)
        executor.look()
        by_certificate = KafkaConnection(broker.tls_bootstrap, "SSL", ssl_ca_file=ca_file, name="main")
        book = PostgresWireBook(service_engine, f"kafka:{name}")
        with open_kafka(by_certificate, name, service_engine) as wire:
            ends = KafkaEnds(broker.bootstrap, name, wire, executor, stores, book)
            sent = make(name)
            wire.send(sent)
            ends.pass_on()
            work(ends, sent)
            ends.pass_on()
            assert read(ends, sent) == read_log(ends, sent)
            assert len(read(ends, sent)) == 5
        executor.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_an_answer_that_is_lost_behind_the_insert_is_not_waited_for_long_and_makes_no_second_ticket(
    engine: Engine, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simple_rest, "ANSWER_S", 0.5)
    stores = open_stores(engine)
    answers = threading.Event()

    def hang(point: Failpoint) -> None:
        if point is Failpoint.TICKET_SENT:
            answers.wait(WAIT_S_MAX)

    with serve_rest("local", stores, authority) as port, failpoints.install(hang):
        wire = make_rest("local", port, authority)
        sent, began = make("local"), time.monotonic()
        with pytest.raises(OutcomeUnknownError, match="local"):
            wire.send(sent)
        assert time.monotonic() - began < WAIT_S_MAX / 2
        assert count_tickets(engine) == 1
        answers.set()
        wire.send(sent)
        assert count_tickets(engine) == 1
    with pytest.raises(RetryableError):
        wire.send(sent)


@pytest.mark.every_run
def test_whoever_has_a_wrong_certificate_name_or_log_is_refused_with_the_fix(
    engine: Engine, authority: Authority, tmp_path: Path
) -> None:
    stores = open_stores(engine)
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "stranger")
    with serve_rest("local", stores, authority) as port:
        unknown_client = make_rest("local", port, stranger, ca=authority.ca)
        with pytest.raises(OutcomeUnknownError, match="did not answer") as refused:
            unknown_client.find_log_id()
        assert "GOBBLIN_EXECUTOR_LOCAL_CERTIFICATE" in refused.value.hint
        with pytest.raises(RejectedError, match="certificates"):
            make_rest("local", port, authority, ca=stranger.ca).find_log_id()
        with pytest.raises(RejectedError, match="is not the inbox of the executor paris"):
            make_rest("paris", port, authority).find_log_id()
        wire = make_rest("local", port, authority)
        with pytest.raises(ConflictError, match="is meant for the log"):
            wire.send(make("local", LogId(uuid.uuid4())))
        with pytest.raises(ConflictError, match="for the executor paris"):
            wire.send(make("paris"))
        wire.close()
    assert count_tickets(engine) == 0


def test_an_inbox_says_what_is_wrong_with_what_no_log_takes(engine: Engine, authority: Authority) -> None:
    stores = open_stores(engine)
    with serve_rest("local", stores, authority) as port:
        wire = make_rest("local", port, authority)
        with pytest.raises(ConflictError, match="expected no NUL"):
            wire.send(make("local", more="\0"))
        sent = make("local")
        wire.send(sent)
        with pytest.raises(RejectedError, match="expected no NUL"):
            wire.give_up(sent.ticket_id, {"message": "\0"})
        assert wire.end_unclaimed(sent.ticket_id, "a\0b")
        wire.close()
        certificate, key = authority.sign("service")
        with PoolManager(cert_file=str(certificate), key_file=str(key), ca_certs=str(authority.ca)) as pool:
            body = json.dumps({"schema": 1, "kind": "ticket", "ticket": {"\ud800": 1}})
            answer = pool.request("POST", f"https://127.0.0.1:{port}/tickets", body=body)
    assert (answer.status, answer.headers["Gobblin-Executor"]) == (422, "local")
    assert answer.json()["field"] == "\\ud800"
    (end,) = stores.tickets.find_ends([sent.ticket_id]).values()
    assert end.details["message"] == "a\\0b"
