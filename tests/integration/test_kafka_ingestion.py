"""Topics become datasets, exactly once, on a real broker and a real Spark."""

from collections import Counter
from collections.abc import Callable

import pytest

from demo.kafka.broker import KafkaBroker
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import Role
from gobblin_assets.run.job_kind import Restart
from tests.support.kafka import Record, delete_topics, make_topic, open_transaction, produce, produce_aborted
from tests.support.topics import Open

pytestmark = pytest.mark.turns(of=8)


@pytest.mark.core
def test_records_are_published_once_run_after_run(
    ingest: Open, kafka_broker: KafkaBroker, topic: Callable[..., str]
) -> None:
    name = topic("orders", partitions=3)
    ingestion = ingest({"topic": name, "kafka": {"value": {"format": "string"}, "keep": ["key", "offset"]}})
    sent: Counter[str] = Counter()
    for batch in range(3):
        texts = [f"{batch}-{number}" for number in range(50)]
        produce(kafka_broker.bootstrap, name, [Record(t.encode(), b"k", n % 3) for n, t in enumerate(texts)])
        sent.update(texts)

        report = ingestion.run()

        assert not report.failed, report.failed
        assert Counter({value: n for (value,), n in ingestion.rows(name, "value").items()}) == sent
    assert not ingestion.run().failed
    assert sum(ingestion.rows(name, "value").values()) == 150
    assert ingestion.watermarks(name) == {f"{name}:0": "51", f"{name}:1": "51", f"{name}:2": "48"}


def test_a_topic_without_records_has_the_columns_that_are_known_of_it(ingest: Open, topic: Callable[..., str]) -> None:
    name = topic("quiet")
    value = {"format": "json", "schema": "id bigint, page string"}
    ingestion = ingest({"topic": name, "kafka": {"value": value, "keep": ["offset"]}})

    for _run in range(2):
        report = ingestion.run()
        assert not report.failed, report.failed
        assert ingestion.read(name).schema.simpleString() == "struct<id:bigint,page:string,kafka_offset:bigint>"
        assert ingestion.rows(name) == Counter()


def test_a_topic_whose_columns_its_records_tell_has_none_before_the_first(
    ingest: Open, kafka_broker: KafkaBroker, topic: Callable[..., str]
) -> None:
    name = topic("quiet")
    ingestion = ingest({"topic": name, "kafka": {"value": {"format": "json"}}})
    report = ingestion.run()
    assert not report.failed, report.failed
    with pytest.raises(RejectedError, match="has published no data files yet"):
        ingestion.read(name)

    produce(kafka_broker.bootstrap, name, [b'{"id": 1}'])
    assert not ingestion.run().failed
    assert ingestion.rows(name) == Counter([(1,)])


def test_undecodable_records_are_dead_letters_of_the_same_publication(
    ingest: Open, kafka_broker: KafkaBroker, topic: Callable[..., str]
) -> None:
    name = topic("views")
    records = [b'{"id": 1, "page": "a"}', b"not json", b'{"id": "x"}', b'{"id": 2, "page": "b", "more": true}']
    produce(kafka_broker.bootstrap, name, records)
    value = {"format": "json", "schema": "id bigint, page string"}
    ingestion = ingest({"topic": name, "kafka": {"value": value}, "quality": {"dead_letter_fraction_max": 0.5}})

    report = ingestion.run()

    assert not report.failed, report.failed
    assert ingestion.rows(name) == Counter({(1, "a"): 1, (2, "b"): 1})
    letters = ingestion.read(name, role=Role.DEAD_LETTER)
    assert {row.dead_letter_offset: bytes(row.dead_letter_value) for row in letters.collect()} == {
        1: b"not json",
        2: b'{"id": "x"}',
    }
    assert ingestion.watermarks(name) == {f"{name}:0": "4"}


def test_too_many_dead_letters_publish_nothing(
    ingest: Open, kafka_broker: KafkaBroker, topic: Callable[..., str]
) -> None:
    name = topic("views")
    produce(kafka_broker.bootstrap, name, [b"{}", b"not json"])
    ingestion = ingest({"topic": name, "kafka": {"value": {"format": "json", "schema": "id bigint"}}})

    (failed,) = ingestion.run().failed

    assert "1 of 2 records are dead letters" in str(failed.error)
    assert ingestion.watermarks(name) == {}


def test_a_topic_that_was_made_anew_stops_until_it_is_started_over(
    ingest: Open, kafka_broker: KafkaBroker, topic: Callable[..., str]
) -> None:
    name = topic("orders")
    produce(kafka_broker.bootstrap, name, [b"a", b"b", b"c"])
    ingestion = ingest({"topic": name, "kafka": {"value": {"format": "string"}}})
    assert not ingestion.run().failed
    delete_topics(kafka_broker.bootstrap, name)
    make_topic(kafka_broker.bootstrap, name)
    produce(kafka_broker.bootstrap, name, [b"d"])

    (failed,) = ingestion.run().failed
    assert failed.error_family == "RejectedError"
    assert "was deleted and made again" in str(failed.error)
    assert ingestion.watermarks(name) == {f"{name}:0": "3"}

    assert not ingestion.run(restart=Restart.START_OVER).failed
    assert ingestion.rows(name, "value") == Counter({("a",): 1, ("b",): 1, ("c",): 1, ("d",): 1})
    produce(kafka_broker.bootstrap, name, [b"e"])
    assert not ingestion.run().failed
    assert ingestion.watermarks(name) == {f"{name}:0": "3", f"{name}:0#1": "2"}


@pytest.mark.core
def test_a_transaction_that_is_open_is_read_once_it_is_committed_and_an_aborted_one_never(
    ingest: Open, kafka_broker: KafkaBroker, topic: Callable[..., str]
) -> None:
    name = topic("orders")
    ingestion = ingest({"topic": name, "kafka": {"value": {"format": "string"}}})
    produce(kafka_broker.bootstrap, name, [b"before"])
    produce_aborted(kafka_broker.bootstrap, name, [b"never"])
    with open_transaction(kafka_broker.bootstrap) as transaction:
        transaction.produce(name, [b"late"])
        produce(kafka_broker.bootstrap, name, [b"behind"])
        assert not ingestion.run().failed
        assert ingestion.rows(name, "value") == Counter({("before",): 1})
        transaction.commit()

    assert not ingestion.run().failed
    assert ingestion.rows(name, "value") == Counter({("before",): 1, ("late",): 1, ("behind",): 1})
    assert not ingestion.run().failed
    assert sum(ingestion.rows(name, "value").values()) == 3
