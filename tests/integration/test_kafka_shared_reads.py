"""Many small topics are read by one consumer and written by one Spark job, and stay separate datasets."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import RetriesExceeded
from sqlalchemy import text

from demo.kafka.broker import KafkaBroker
from gobblin_assets.errors import RetryableError
from gobblin_assets.failpoints import Failpoint, install
from gobblin_assets.jobs.ingest import extractor
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.urn import Role
from gobblin_assets.sources.kafka import source, topic_reader
from gobblin_assets.sources.kafka.cluster import TopicPartition
from gobblin_assets.sources.kafka.consumer import read_ranges
from gobblin_assets.spark.errors import spark_families
from tests.support.kafka import (
    MakeTopic,
    Record,
    delete_records,
    delete_topics,
    open_transaction,
    produce,
    produce_aborted,
    produce_committed,
    read_all,
)
from tests.support.topics import Ingestion, Open, between_planning_and_reading

pytestmark = pytest.mark.turns(of=8)

JSON = {"value": {"format": "json", "schema": "id bigint, kind string"}}
IN_ONE_TASK = {"split": {"max_multi_work_units": 1}}


def dataset(topic: str, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "kafka": JSON, **IN_ONE_TASK, **more}


def records(topic: str, count: int, partitions: int = 1) -> list[Record]:
    values = [json.dumps({"id": number, "kind": topic}).encode() for number in range(count)]
    return [Record(value, partition=number % partitions) for number, value in enumerate(values)]


def count_tags(ingestion: Ingestion) -> int:
    """The number of reads: all attempts of one read have its tag."""
    with ingestion.engine.connect() as connection:
        found = connection.execute(text("SELECT count(DISTINCT tag) FROM gobblin.attempt")).scalar()
    assert isinstance(found, int)
    return found


def expect(topic: str, count: int) -> Counter[tuple[int, str]]:
    return Counter((number, topic) for number in range(count))


WHOLE, MORE_WHOLE, MANY, LARGE, ENDED, LEFT_OPEN = range(6)
"""Partitions of the topic that the tests of the consumer read."""


@pytest.fixture(scope="module")
def orders(kafka_broker: KafkaBroker, module_topic: MakeTopic) -> str:
    """A topic whose records stay. Only the test of an open transaction adds one, in a partition of its own."""
    bootstrap, name = kafka_broker.bootstrap, module_topic("orders", partitions=6)
    sent = [
        Record(b"a", key=b"k", partition=WHOLE, timestamp_ms=1_000, headers=[("h", b"1"), ("h", None)]),
        Record(None, key=b"gone", partition=MORE_WHOLE, timestamp_ms=2_000),
        Record(b"", partition=MORE_WHOLE, timestamp_ms=3_000),
        *(Record(b"%d" % number, partition=MANY) for number in range(100)),
        *(Record(b"a" * 1_000, partition=LARGE) for _ in range(10)),
        Record(b"plain", partition=ENDED),
        Record(b"before", partition=LEFT_OPEN),
    ]
    produce(bootstrap, name, sent)
    produce_committed(bootstrap, name, [Record(b"committed", partition=ENDED)])
    produce_aborted(bootstrap, name, [Record(b"never", partition=ENDED)] * 5)
    return name


class TestConsumer:
    """``read_ranges`` gives what Spark's reader gives: exactly the range, or an error."""

    @pytest.mark.core
    def test_all_of_a_record_is_read(self, kafka_broker: KafkaBroker, orders: str) -> None:
        ranges = {TopicPartition(orders, WHOLE): (0, 1), TopicPartition(orders, MORE_WHOLE): (0, 2)}

        table = read_ranges(KafkaConnection(kafka_broker.bootstrap), ranges, isolation="read_committed")

        rows = sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))
        assert [(r["topic"], r["partition"], r["offset"], r["key"], r["value"]) for r in rows] == [
            (orders, WHOLE, 0, b"k", b"a"),
            (orders, MORE_WHOLE, 0, b"gone", None),
            (orders, MORE_WHOLE, 1, None, b""),
        ]
        assert [row["timestamp"].timestamp() for row in rows] == [1.0, 2.0, 3.0]
        assert {row["timestampType"] for row in rows} == {0}
        assert rows[0]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]

    def test_nothing_at_or_behind_the_end_is_read(self, kafka_broker: KafkaBroker, orders: str) -> None:
        ranges = {TopicPartition(orders, MANY): (10, 20)}

        table = read_ranges(KafkaConnection(kafka_broker.bootstrap), ranges, isolation="read_committed")

        assert table["offset"].to_pylist() == list(range(10, 20))

    def test_a_range_that_ends_in_markers_and_aborted_records_ends(
        self, kafka_broker: KafkaBroker, orders: str
    ) -> None:
        # plain, committed, the marker, five aborted ones, and their marker
        ranges = {TopicPartition(orders, ENDED): (0, 9)}
        connection = KafkaConnection(kafka_broker.bootstrap)

        committed = read_ranges(connection, ranges, isolation="read_committed")
        everything = read_ranges(connection, ranges, isolation="read_uncommitted")

        assert committed["value"].to_pylist() == [b"plain", b"committed"]
        assert Counter(everything["value"].to_pylist()) == Counter([b"plain", b"committed", *[b"never"] * 5])

    def test_an_open_transaction_behind_the_range_hides_nothing_of_it(
        self, kafka_broker: KafkaBroker, orders: str
    ) -> None:
        with open_transaction(kafka_broker.bootstrap) as left_open:
            left_open.produce(orders, [Record(b"open", partition=LEFT_OPEN)])
            ranges = {TopicPartition(orders, LEFT_OPEN): (0, 1)}

            table = read_ranges(KafkaConnection(kafka_broker.bootstrap), ranges, isolation="read_committed")

        assert table["value"].to_pylist() == [b"before"]

    @pytest.mark.core
    def test_records_that_were_deleted_are_an_error(self, kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
        name = topic("orders")
        produce(kafka_broker.bootstrap, name, [b"a"] * 10)
        delete_records(kafka_broker.bootstrap, name, {0: 5})
        ranges = {TopicPartition(name, 0): (3, 10)}

        with pytest.raises(RetryableError, match="were deleted between planning and reading"):
            read_ranges(KafkaConnection(kafka_broker.bootstrap), ranges, isolation="read_committed")

    def test_a_log_that_is_shorter_than_planned_is_an_error(self, kafka_broker: KafkaBroker, orders: str) -> None:
        ranges = {TopicPartition(orders, LARGE): (3, 12)}

        with pytest.raises(RetryableError, match="the log ends at 10 and ended at 12"):
            read_ranges(KafkaConnection(kafka_broker.bootstrap), ranges, isolation="read_committed")

    def test_a_topic_that_is_gone_is_an_error(self, kafka_broker: KafkaBroker) -> None:
        ranges = {TopicPartition("no-such-topic", 0): (0, 1)}

        with pytest.raises(RetryableError, match="the topic was deleted while it was read"):
            read_ranges(KafkaConnection(kafka_broker.bootstrap), ranges, isolation="read_committed")

    def test_more_than_the_bound_is_an_error(self, kafka_broker: KafkaBroker, orders: str) -> None:
        ranges = {TopicPartition(orders, LARGE): (0, 10)}

        with pytest.raises(RetryableError, match="more than 5,000 bytes"):
            read_ranges(KafkaConnection(kafka_broker.bootstrap), ranges, isolation="read_committed", bytes_max=5_000)

    def test_brokers_that_are_away_are_waited_for_in_bounds(self) -> None:
        connection = KafkaConnection("127.0.0.1:9", options={"default.api.timeout.ms": "1000"})
        ranges = {TopicPartition("orders", 0): (0, 1)}

        with pytest.raises(RetryableError, match=r"no broker of 127\.0\.0\.1:9 answered"):
            read_ranges(connection, ranges, isolation="read_committed")


@pytest.mark.core
def test_small_topics_are_one_read_and_each_its_own_publication(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
) -> None:
    names = [topic(f"small.{number}", partitions=2) for number in range(12)]
    for number, name in enumerate(names):
        produce(kafka_broker.bootstrap, name, records(name, 1 + number, partitions=2))
    ingestion = ingest(*map(dataset, names))

    report = ingestion.run()

    assert not report.failed, report.failed
    for number, name in enumerate(names):
        assert ingestion.rows(name, "id", "kind") == expect(name, 1 + number)
    assert count_tags(ingestion) == 1
    assert ingestion.read(names[3]).columns == ["id", "kind"]
    assert len({str(Path(each.uri or "")) for each in report.datasets}) == len(names)


@pytest.mark.parametrize("bytes_max", [topic_reader.THIN_BYTES_MAX, 100])
def test_few_records_of_many_partitions_are_one_read_unless_they_are_large(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    partitions = topic_reader.THIN_PARTITIONS_MIN
    name = topic("thin", partitions=partitions)
    produce(kafka_broker.bootstrap, name, [*records(name, 3 * partitions, partitions=partitions), b"broken"])
    monkeypatch.setattr(topic_reader, "THIN_BYTES_MAX", bytes_max)
    ingestion = ingest(dataset(name))

    report = ingestion.run()

    assert not report.failed, report.failed
    assert ingestion.rows(name, "id", "kind") == expect(name, 3 * partitions)
    # Spark's reader makes a file of each partition.
    assert (len(ingestion.read(name).inputFiles()) == partitions) is (bytes_max == 100)
    assert not ingestion.run().failed
    assert ingestion.rows(name, "id", "kind") == expect(name, 3 * partitions)


@pytest.mark.turns("what readers of topics meet", of=8)
def test_dead_letters_converters_and_event_times_stay_with_their_topic(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
) -> None:
    names = [topic("mixed") for _ in range(3)]
    for name in names:
        produce(kafka_broker.bootstrap, name, [*records(name, 30), b"broken", b"\xff"])
    more = {
        "converters": [{"where": "id % 2 = 0"}, {"sql": {"twice": "2 * id"}}, {"select": ["id", "twice"]}],
        "writer": {"partition_by": ["id"]},
        "quality": {
            "dead_letter_fraction_max": 0.5,
            "rows": [{"name": "small", "check": "id < 20", "on_failure": "err_file"}],
        },
    }
    ingestion = ingest(*(dataset(name, **more) for name in names))

    report = ingestion.run()

    assert not report.failed, report.failed
    assert count_tags(ingestion) == 1, ingestion.lines
    for name in names:
        assert ingestion.rows(name, "id", "twice") == Counter((n, 2 * n) for n in range(0, 20, 2))
        assert ingestion.rows(name, "id", role=Role.QUARANTINE) == Counter((n,) for n in range(20, 30, 2))
        letters = ingestion.read(name, role=Role.DEAD_LETTER).collect()
        assert Counter(bytes(row.dead_letter_value) for row in letters) == Counter([b"broken", b"\xff"])
        assert {row.dead_letter_topic for row in letters} == {name}


@pytest.mark.turns("what readers of topics meet", of=8)
def test_one_topic_that_fails_is_found_and_the_others_are_published(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
) -> None:
    names = [topic("small") for _ in range(5)]
    for name in names:
        produce(kafka_broker.bootstrap, name, records(name, 4))
    produce(kafka_broker.bootstrap, names[2], [b'{"id": -1, "kind": "bad"}'])
    rule = {"quality": {"rows": [{"name": "positive", "check": "id >= 0", "on_failure": "fail"}]}}
    ingestion = ingest(*(dataset(name, **rule) for name in names))

    (failed,) = ingestion.run().failed

    assert failed.urn == names[2]
    assert "failed the row policy 'positive'" in str(failed.error)
    for name in {*names} - {names[2]}:
        assert ingestion.rows(name, "id", "kind") == expect(name, 4)


@pytest.mark.turns("shared reads without a server")
def test_a_spark_server_that_is_gone_is_asked_once_and_not_for_each_half(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [topic("small") for _ in range(5)]
    for name in names:
        produce(kafka_broker.bootstrap, name, records(name, 4))
    ingestion = ingest(*map(dataset, names))
    asked: list[str] = []

    def give_up(_frame: object, uri: str, **_how: object) -> None:
        asked.append(uri)
        with spark_families("write"):
            raise RetriesExceeded(errorClass="RETRIES_EXCEEDED", messageParameters={})

    with monkeypatch.context() as patched:
        patched.setattr(extractor, "write_parquet", give_up)
        report = ingestion.run()

    assert len(asked) == 1
    assert [each.error_family for each in report.failed] == ["RetryableError"] * len(names)
    assert not ingestion.run().failed
    for name in names:
        assert ingestion.rows(name, "id", "kind") == expect(name, 4)


@pytest.mark.turns("shared reads without a server")
def test_a_spark_server_that_is_gone_before_planning_is_the_failure_of_each_dataset(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [topic("small") for _ in range(3)]
    for name in names:
        produce(kafka_broker.bootstrap, name, records(name, 4))
    ingestion = ingest(*map(dataset, names))
    asked: list[object] = []

    def give_up(_spark: object, plan: object) -> None:
        asked.append(plan)
        raise RetriesExceeded(errorClass="RETRIES_EXCEEDED", messageParameters={})

    with monkeypatch.context() as patched:
        patched.setattr(source, "decoded_columns", give_up)
        report = ingestion.run()

    assert len(asked) == 1
    assert [each.urn for each in report.failed] == sorted(names)
    assert {each.error_family for each in report.failed} == {"RetryableError"}
    assert "Spark failed: [RETRIES_EXCEEDED]" in str(report.failed[0].error)
    assert not ingestion.run().failed
    for name in names:
        assert ingestion.rows(name, "id", "kind") == expect(name, 4)


@pytest.mark.turns("what readers of topics meet", of=8)
def test_what_is_deleted_of_one_topic_fails_that_one(ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    names = [topic("small") for _ in range(4)]
    for name in names:
        produce(kafka_broker.bootstrap, name, records(name, 6))
    ingestion = ingest(*map(dataset, names))

    def harm() -> None:
        delete_records(kafka_broker.bootstrap, names[1], {0: 3})
        delete_topics(kafka_broker.bootstrap, names[2])

    with between_planning_and_reading(harm):
        report = ingestion.run()

    assert {each.urn for each in report.failed} == {names[1], names[2]}
    for name in (names[0], names[3]):
        assert ingestion.rows(name, "id", "kind") == expect(name, 6)
    assert ingestion.watermarks(names[1]) == {}


def test_a_window_function_never_sees_another_topic(ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    names = [topic("small") for _ in range(2)]
    for name in names:
        produce(kafka_broker.bootstrap, name, records(name, 4))
    counted = {"converters": [{"sql": {"rows": "count(*) OVER ()"}}]}
    ingestion = ingest(*(dataset(name, **counted) for name in names))

    assert not ingestion.run().failed
    for name in names:
        assert {count for (count,) in ingestion.rows(name, "rows")} == {4}


@pytest.mark.rotating
@pytest.mark.parametrize("point", [Failpoint.ATTEMPT_REGISTERED, Failpoint.ATTEMPT_WRITTEN, Failpoint.ATTEMPT_DURABLE])
def test_a_failure_at_one_of_many_leaves_each_published_once(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic, point: Failpoint
) -> None:
    names = [topic("small") for _ in range(4)]
    for name in names:
        produce(kafka_broker.bootstrap, name, records(name, 4))
    ingestion = ingest(*map(dataset, names))
    reached = iter(range(100))

    def hook(found: Failpoint) -> None:
        if found is point and next(reached) == 2:
            raise RetryableError("the disk was full for a moment")

    with install(hook):
        report = ingestion.run()

    assert not report.failed, report.failed
    for name in names:
        assert ingestion.rows(name, "id", "kind") == expect(name, 4)
        assert len(read_all(kafka_broker.bootstrap, name)) == 4
