"""A real broker's answers on topics and offsets, and the errors for a broker that does not answer."""

import datetime as dt
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.kafka.broker import KafkaBroker, start_broker, start_cluster
from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.sources.kafka.cluster import Isolation, PartitionOffsets, TopicOffsets, TopicPartition
from gobblin_assets.sources.kafka.confluent import PARTITIONS_PER_CALL, ConfluentCluster
from tests.support.kafka import (
    COMPACTED,
    MakeTopic,
    Record,
    add_partitions,
    compact,
    delete_records,
    delete_topics,
    make_topic,
    open_transaction,
    produce,
    produce_aborted,
    produce_committed,
)
from tests.support.spark import wait_until

pytestmark = pytest.mark.turns(of=8)

_NOBODY = "127.0.0.1:9"
_NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
_USERS = {"ann": "hunter2", "bob": "hunter3"}
_RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:ann",
}


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaBroker]:
    """A broker on which ann may do everything, and bob nothing."""
    folder = Path(tempfile.mkdtemp(prefix="gobblin-kafka-"))
    with start_broker(folder, settings=_RIGHTS, users=_USERS, tls=True) as broker:
        make_topic(broker.bootstrap, "kept")
        yield broker
    shutil.rmtree(folder, ignore_errors=True)


PLAIN, TIMED, UNTIMED = (0, 1, 2), 3, 4
"""Partitions of ``numbered``."""


@pytest.fixture(scope="module")
def numbered(kafka_broker: KafkaBroker, module_topic: MakeTopic) -> str:
    """A topic that tests only read: plain records, and records a minute apart."""
    name = module_topic(partitions=5)
    noon_ms = round(_NOON.timestamp() * 1000)
    plain = [Record(b"x", partition=number % 2) for number in range(7)]
    timed = [Record(b"x", partition=TIMED, timestamp_ms=noon_ms + minute * 60_000) for minute in range(5)]
    produce(kafka_broker.bootstrap, name, [*plain, *timed])
    return name


def _at(bootstrap: str, *, timeout_s: float = 30) -> ConfluentCluster:
    return ConfluentCluster(KafkaConnection(bootstrap, timeout_s=timeout_s))


def _login(broker: KafkaBroker, user: str, password: str, mechanism: str = "PLAIN") -> ConfluentCluster:
    return ConfluentCluster(
        KafkaConnection(
            broker.sasl_bootstrap,
            "SASL_PLAINTEXT",
            sasl_mechanism=mechanism,  # type: ignore[arg-type]  # of the three that there are
            username=user,
            password=password,
        )
    )


def _offsets(bootstrap: str, topic: str, isolation: Isolation = "read_committed") -> TopicOffsets:
    found = _at(bootstrap).find_offsets([topic], isolation=isolation)[topic]
    assert isinstance(found, TopicOffsets), found
    return found


def _range(bootstrap: str, topic: str, isolation: Isolation = "read_committed") -> tuple[int, int]:
    """The offsets of partition 0."""
    found = _offsets(bootstrap, topic, isolation).partitions[0]
    return found.earliest, found.end


@pytest.mark.core
def test_plain_records_are_between_the_earliest_offset_and_the_end(kafka_broker: KafkaBroker, numbered: str) -> None:
    found = _offsets(kafka_broker.bootstrap, numbered)
    assert found.failures == {}
    plain = {number: found.partitions[number] for number in PLAIN}
    assert plain == {0: PartitionOffsets(0, 4), 1: PartitionOffsets(0, 3), 2: PartitionOffsets(0, 0)}
    assert found.partitions.keys() == {*PLAIN, TIMED, UNTIMED}


@pytest.mark.core
def test_an_open_transaction_holds_the_end_of_read_committed(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic()
    produce_committed(bootstrap, name, [b"a", b"b"])
    assert _range(bootstrap, name) == (0, 3)  # two records and the marker
    produce_aborted(bootstrap, name, [b"c"])
    assert _range(bootstrap, name) == (0, 5)
    with open_transaction(bootstrap) as transaction:
        transaction.produce(name, [b"d", b"e"])
        produce(bootstrap, name, [b"plain, behind it"])
        assert _range(bootstrap, name) == (0, 5)
        assert _range(bootstrap, name, "read_uncommitted") == (0, 8)
        transaction.commit()
    assert _range(bootstrap, name) == (0, 9)


def test_deleted_records_move_the_earliest_offset(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    name = topic()
    produce(kafka_broker.bootstrap, name, [b"x"] * 10)
    delete_records(kafka_broker.bootstrap, name, {0: 4})
    assert _range(kafka_broker.bootstrap, name) == (4, 10)
    delete_records(kafka_broker.bootstrap, name, {0: 10})
    assert _range(kafka_broker.bootstrap, name) == (10, 10)


def test_compaction_moves_neither_end(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    name = topic(settings=COMPACTED)
    produce(kafka_broker.bootstrap, name, [Record(b"%d" % number, key=b"k") for number in range(5)])
    before = _range(kafka_broker.bootstrap, name)
    assert [found.offset for found in compact(kafka_broker.bootstrap, name)] == [4]
    after = _range(kafka_broker.bootstrap, name)
    assert before == (0, 5)
    assert after[0] == 0
    assert after[1] > 5  # the fillers that closed the segment


def test_a_topic_that_is_made_again_has_another_id(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic(partitions=2)
    first = _at(bootstrap).list_topics()[name]
    assert first.partitions == (0, 1)
    assert _offsets(bootstrap, name).topic_id == first.topic_id
    add_partitions(bootstrap, name, 3)
    grown = _at(bootstrap).list_topics()[name]
    assert (grown.topic_id, grown.partitions) == (first.topic_id, (0, 1, 2))
    delete_topics(bootstrap, name)
    assert name not in _at(bootstrap).list_topics()
    make_topic(bootstrap, name)
    assert _at(bootstrap).list_topics()[name].topic_id != first.topic_id


def test_kafka_s_own_topics_are_not_listed(kafka_broker: KafkaBroker, numbered: str) -> None:
    # It makes the broker's own topic of transactions.
    produce_committed(kafka_broker.bootstrap, numbered, [])
    listed = _at(kafka_broker.bootstrap).list_topics()
    assert numbered in listed
    assert [each for each in listed if each.startswith("__")] == []


def test_a_topic_that_is_not_there_fails_alone(kafka_broker: KafkaBroker, numbered: str) -> None:
    found = _at(kafka_broker.bootstrap).find_offsets([numbered, "nowhere", "no name"], isolation="read_committed")
    assert isinstance(found[numbered], TopicOffsets)
    for wrong in ("nowhere", "no name"):
        error = found[wrong]
        assert isinstance(error, RejectedError)
        assert f"no topic {wrong!r} on {kafka_broker.bootstrap}" in str(error)


@pytest.mark.thorough
def test_more_partitions_than_one_call_takes_are_all_found(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    count = PARTITIONS_PER_CALL + 10
    name = topic(partitions=count)
    produce(kafka_broker.bootstrap, name, [Record(b"x", partition=count - 1)])
    found = _offsets(kafka_broker.bootstrap, name)
    assert found.failures == {}
    assert len(found.partitions) == count
    assert [number for number, offsets in found.partitions.items() if offsets.end] == [count - 1]


def test_times_lead_to_the_first_record_that_is_not_older(kafka_broker: KafkaBroker, numbered: str) -> None:
    def find(at: dt.datetime, partition: int = TIMED) -> int | None:
        wanted = TopicPartition(numbered, partition)
        return _at(kafka_broker.bootstrap).find_offsets_at({wanted: at})[wanted]

    assert find(_NOON) == 0
    assert find(_NOON + dt.timedelta(minutes=2)) == 2
    assert find(_NOON + dt.timedelta(minutes=2, microseconds=1)) == 3
    assert find(_NOON + dt.timedelta(minutes=4, seconds=1)) is None
    assert find(_NOON, partition=UNTIMED) is None
    assert find(dt.datetime.min.replace(tzinfo=dt.UTC)) == 0


@pytest.mark.thorough
def test_a_lost_broker_takes_its_partitions_along_and_no_others(tmp_path: Path) -> None:
    with start_cluster(tmp_path, 3) as cluster:
        make_topic(cluster.bootstrap, "spread", replicas=[[1], [2], [3]])
        produce(cluster.bootstrap, "spread", [Record(b"x", partition=number) for number in range(3)])
        cluster.get(2).kill()
        found = _offsets(cluster.bootstrap, "spread")
        assert found.partitions == {0: PartitionOffsets(0, 1), 2: PartitionOffsets(0, 1)}
        assert found.failures.keys() == {1}
        client = _at(cluster.bootstrap)
        with pytest.raises(RetryableError, match="spread:1 does not say"):
            client.find_offsets_at({TopicPartition("spread", 1): _NOON})
        assert client.find_offsets_at({TopicPartition("spread", 0): _NOON}) == {TopicPartition("spread", 0): 0}
        cluster.get(2).restart()
        wait_until(lambda: not _offsets(cluster.bootstrap, "spread").failures, "partition 1 led again")


@pytest.mark.parametrize("servers", [_NOBODY, "no-such-host.invalid:9092", f"{_NOBODY},127.0.0.1:19"])
def test_wrong_servers_get_one_line_that_names_them_and_nothing_on_the_console(
    servers: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RetryableError, match=rf"no broker of {servers} answered in 2 s: .*bootstrap_servers") as caught:
        _at(servers, timeout_s=2).list_topics()
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.thorough
def test_a_broker_that_goes_away_during_a_call_is_tried_for_a_bounded_time(tmp_path: Path) -> None:
    caught: list[Exception] = []

    def ask() -> None:
        try:
            _at(broker.bootstrap, timeout_s=5).list_topics()
        except GobblinError as error:
            caught.append(error)

    with start_broker(tmp_path) as broker:
        broker.pause()
        asking = threading.Thread(target=ask)
        asking.start()
        broker.kill()
        asking.join(60)
    assert [type(error) for error in caught] == [RetryableError]
    assert broker.bootstrap in str(caught[0])


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_login_is_taken_or_refused_with_its_field(secured: KafkaBroker, mechanism: str) -> None:
    assert list(_login(secured, "ann", "hunter2", mechanism).list_topics()) == ["kept"]
    with pytest.raises(RejectedError, match=r"refuses the login of 'ann'") as caught:
        _login(secured, "ann", "wrong-s3cr3t", mechanism).list_topics()
    assert caught.value.field == "connections[kafka].password"
    assert "s3cr3t" not in repr(caught.value)


def test_a_mechanism_that_the_brokers_do_not_have_is_named(secured: KafkaBroker) -> None:
    with pytest.raises(RejectedError, match="SCRAM-SHA-512"):
        _login(secured, "ann", "hunter2", "SCRAM-SHA-512").list_topics()


@pytest.mark.core
def test_a_user_without_rights_sees_no_topic_and_is_told_what_to_grant(secured: KafkaBroker) -> None:
    bob = _login(secured, "bob", "hunter3")
    assert bob.list_topics() == {}
    error = bob.find_offsets(["kept"], isolation="read_committed")["kept"]
    assert isinstance(error, RejectedError)
    assert "Grant this user Describe and Read" in str(error)


def test_tls_trusts_the_given_authority_and_no_other(secured: KafkaBroker) -> None:
    ca_file = secured.folder.parent.parent / "ca.pem"
    trusted = KafkaConnection(secured.tls_bootstrap, "SSL", ssl_ca_file=str(ca_file))
    assert list(ConfluentCluster(trusted).list_topics()) == ["kept"]
    with pytest.raises(RejectedError, match="is not trusted"):
        ConfluentCluster(KafkaConnection(secured.tls_bootstrap, "SSL")).list_topics()


def test_a_file_that_is_no_certificate_is_refused(secured: KafkaBroker) -> None:
    with pytest.raises(RejectedError, match=r"connections\[kafka\]\.ssl_ca_file: expected a PEM file, found none at"):
        ConfluentCluster(KafkaConnection(secured.tls_bootstrap, "SSL", ssl_ca_file="nowhere.pem"))
    wrong = KafkaConnection(secured.tls_bootstrap, "SSL", ssl_ca_file=__file__)
    with pytest.raises(RejectedError, match="the client refuses its settings"):
        ConfluentCluster(wrong).list_topics()
