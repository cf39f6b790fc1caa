"""Loads into topics of a real broker: what is refused, and what a producer remembers of its lane."""

import json
import random
import uuid
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the vendor does not mark what it exports
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from demo.kafka.broker import KafkaBroker
from gobblin_assets.destinations.kafka import kafka_topics
from gobblin_assets.destinations.kafka.kafka_topics import KafkaTopics
from gobblin_assets.destinations.kafka.lane_producer import LaneProducer, choose_timeout_s
from gobblin_assets.destinations.kafka.topic_batches import LoadedTopic, TopicBatch
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace
from gobblin_assets.errors import (
    ConflictError,
    FencedError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
)
from gobblin_assets.kafka.connection import read_cluster
from tests.support.kafka import (
    Record,
    add_partitions,
    delete_topics,
    make_topic,
    open_admin,
    open_transaction,
    read_all,
)
from tests.support.kafka_rows import CONNECTION, new_topics, variables_for

pytestmark = pytest.mark.turns(of=8)

ROWS = pa.record_batch([pa.array([1, 2, 3]), pa.array(["a", None, "c"])], names=["n", "text"])


@pytest.fixture
def topics(kafka_broker: KafkaBroker) -> Iterator[KafkaTopics]:
    opened = KafkaTopics(read_cluster(CONNECTION, variables_for(kafka_broker.bootstrap)))
    yield opened
    opened.close()


@pytest.fixture
def names(kafka_broker: KafkaBroker) -> Iterator[tuple[str, str]]:
    made = new_topics()
    yield made
    delete_topics(kafka_broker.bootstrap, *made)


def batch_of(
    names: tuple[str, str], version: int = 1, *, row_count: int = ROWS.num_rows, **options: object
) -> TopicBatch:
    topic, marks = names
    mark = MarkPlace(marks, "root", marks, "orders", 0)
    loaded = LoadedTopic(topic, **{"partitions": 1, "replication_factor": 1, **options})  # type: ignore[arg-type]  # options
    return TopicBatch(loaded, mark, version, str(uuid.uuid4()), row_count, 100)


def load(topics: KafkaTopics, batch: TopicBatch, rows: pa.RecordBatch = ROWS) -> None:
    topics.prepare(batch, rows.schema)
    topics.load(batch, [rows])


@pytest.mark.core
def test_publications_follow_each_other_and_the_mark_names_them(
    topics: KafkaTopics, kafka_broker: KafkaBroker, names: tuple[str, str]
) -> None:
    """In the first partition, although somebody has added another one."""
    first, second = batch_of(names, key=("n",)), batch_of(names, 2, key=("n",))

    load(topics, first)
    add_partitions(kafka_broker.bootstrap, names[1], 8)
    load(topics, second)

    assert topics.find_mark(first.mark) == LaneMark(2, (second.sequence_id, first.sequence_id))
    assert topics.count_loaded(first.mark) == 6
    found = [(each.key, json.loads(each.value or b"")) for each in read_all(kafka_broker.bootstrap, names[0])]
    assert found == [(str(row["n"]).encode(), row) for row in ROWS.to_pylist()] * 2
    topics.load(second, [ROWS])
    with pytest.raises(ConflictError, match="refuses sequence"):
        topics.load(batch_of(names, 2), [ROWS])
    assert len(read_all(kafka_broker.bootstrap, names[0])) == 6


@pytest.mark.core
def test_a_producer_that_was_replaced_commits_nothing_and_its_successor_does(
    topics: KafkaTopics, kafka_broker: KafkaBroker, names: tuple[str, str]
) -> None:
    batch = batch_of(names)
    load(topics, batch)
    with open_transaction(kafka_broker.bootstrap, batch.transactional_id):
        with pytest.raises(FencedError):
            topics.load(batch_of(names, 2), [ROWS])

        load(topics, batch_of(names, 2))

    assert len(read_all(kafka_broker.bootstrap, names[0])) == 6


@pytest.mark.parametrize("is_there", [True, False])
def test_a_commit_without_an_answer_is_looked_up(
    topics: KafkaTopics,
    kafka_broker: KafkaBroker,
    names: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    is_there: bool,
) -> None:
    """Whether or not the brokers have carried it out."""
    commit = LaneProducer._commit

    def lose(producer: LaneProducer, left_s: float) -> None:
        if is_there:
            commit(producer, left_s)
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    batch = batch_of(names)
    monkeypatch.setattr(LaneProducer, "_commit", lose)
    with pytest.raises(OutcomeUnknownError):
        load(topics, batch)
    monkeypatch.undo()

    load(topics, batch)

    assert len(read_all(kafka_broker.bootstrap, names[0])) == 3


def test_marks_behind_an_open_transaction_of_another_lane_are_waited_for(
    topics: KafkaTopics, kafka_broker: KafkaBroker, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which a look that decides knows nothing: it says so, and the next one finds them."""
    monkeypatch.setattr(kafka_topics, "LOOK_S", 0.3)
    batch = batch_of(names)
    topics.prepare(batch, ROWS.schema)
    with open_transaction(kafka_broker.bootstrap) as other:
        other.produce(names[1], [Record(b"{}", b"of another lane")])
        with pytest.raises(OutcomeUnknownError, match="a transaction has been open"):
            topics.load(batch, [ROWS])
        assert topics.find_mark(batch.mark) is None
        other.commit()

    monkeypatch.undo()
    load(topics, batch)
    assert topics.count_loaded(batch.mark) == 3


def test_a_mark_that_is_hidden_is_not_taken_for_none_where_files_are_gone(
    topics: KafkaTopics, kafka_broker: KafkaBroker, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane's producer goes on while another lane has a transaction open, and nobody sees its mark yet."""
    load(topics, batch_of(names))
    second = batch_of(names, 2)
    with open_transaction(kafka_broker.bootstrap) as other:
        other.produce(names[1], [Record(b"{}", b"of another lane")])
        load(topics, second)
        topics.close()
        looking = KafkaTopics(topics.connection)
        monkeypatch.setattr(kafka_topics, "LOOK_S", 0.3)
        with pytest.raises(OutcomeUnknownError, match="a transaction has been open"):
            looking.find_settled_mark(second.mark)
        other.commit()

    monkeypatch.undo()
    found = looking.find_settled_mark(second.mark)
    assert found is not None
    assert found.recent[0] == second.sequence_id
    looking.close()


@pytest.mark.parametrize("size", [1_200_000, 900_000])
def test_a_record_that_is_too_large_is_named(
    topics: KafkaTopics, kafka_broker: KafkaBroker, names: tuple[str, str], size: int
) -> None:
    """By the client, and by a broker that takes less."""
    make_topic(kafka_broker.bootstrap, names[0], 1, {"max.message.bytes": "20000"} if size < 1_000_000 else None)
    text = uuid.uuid4().hex + "".join(uuid.uuid4().hex for _part in range(size // 32))
    rows = pa.record_batch([pa.array([1, 2, 3]), pa.array(["a", text, "c"])], names=["n", "text"])

    with pytest.raises(RejectedError, match=rf"^into: a record is larger than .*{names[0]}") as raised:
        load(topics, batch_of(names), rows)

    assert "max.message.bytes" in raised.value.hint
    assert text[:32] not in str(raised.value)
    assert read_all(kafka_broker.bootstrap, names[0]) == []


@pytest.mark.parametrize("is_lowered", [False, True], ids=["before", "while it is loaded"])
def test_records_that_fit_one_by_one_are_cut_into_batches_that_fit(
    topics: KafkaTopics, kafka_broker: KafkaBroker, names: tuple[str, str], *, is_lowered: bool
) -> None:
    make_topic(kafka_broker.bootstrap, names[0], 1, {} if is_lowered else {"max.message.bytes": "20000"})
    texts = [random.Random(number).randbytes(500).hex() for number in range(400)]
    rows = pa.record_batch([pa.array(range(400)), pa.array(texts)], names=["n", "text"])
    batch = batch_of(names, row_count=400)
    topics.prepare(batch, rows.schema)
    if is_lowered:
        lower_record_bytes(kafka_broker.bootstrap, names[0], 20_000)
        with pytest.raises(RetryableError, match=r"batches .* are larger than the topic takes"):
            topics.load(batch, [rows])

    load(topics, batch, rows)

    assert [json.loads(each.value or b"")["text"] for each in read_all(kafka_broker.bootstrap, names[0])] == texts


def lower_record_bytes(bootstrap: str, topic: str, limit: int) -> None:
    setting = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
    admin = open_admin(bootstrap)
    for answer in admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[setting])]
    ).values():
        answer.result()


@pytest.mark.parametrize(
    ("which", "partitions", "settings", "field"),
    [
        (0, 1, {"cleanup.policy": "compact"}, r"into\.key"),
        (0, 1, {"min.insync.replicas": "2"}, r"into\.topic"),
        (1, 1, {}, r"into\.marks_topic"),
        (1, 1, {"cleanup.policy": "compact,delete"}, r"into\.marks_topic"),
        (1, 2, {"cleanup.policy": "compact", "min.insync.replicas": "2"}, r"into\.marks_topic"),
    ],
    ids=str,
)
def test_a_topic_that_can_t_keep_what_is_loaded_is_refused_before_anything_is_written(
    topics: KafkaTopics,
    kafka_broker: KafkaBroker,
    names: tuple[str, str],
    which: int,
    partitions: int,
    settings: Mapping[str, str],
    field: str,
) -> None:
    make_topic(kafka_broker.bootstrap, names[which], partitions, settings)
    batch = batch_of(names)
    ways: list[Callable[[], object]] = [
        lambda: topics.require([batch.topic], batch.mark.marks),
        lambda: load(topics, batch),
    ]
    for way in ways:
        with pytest.raises(RejectedError, match=f"^{field}: ") as raised:
            way()
        assert raised.value.hint


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"replication_factor": 9}, r"into\.replication_factor"),
        ({"key": ("none",)}, r"into\.key"),
    ],
    ids=str,
)
def test_options_that_don_t_fit_the_cluster_or_the_rows_are_refused(
    topics: KafkaTopics, names: tuple[str, str], options: Mapping[str, object], field: str
) -> None:
    with pytest.raises(RejectedError, match=f"^{field}: "):
        load(topics, batch_of(names, 1, **options))


def test_large_loads_may_take_longer() -> None:
    assert [choose_timeout_s(*size) for size in [(3, 100), (10**6, 0), (10**7, 0), (0, 10**9), (10**9, 10**12)]] == [
        20,
        300,
        900,
        900,
        900,
    ]
