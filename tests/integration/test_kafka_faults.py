"""Changes of brokers, logs and topics while they are read: the published rows are never silently fewer, or doubled."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from demo.kafka.broker import KafkaBroker, KafkaCluster, start_cluster
from gobblin_assets.errors import RetryableError
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.state import DatasetOutcome
from tests.support.kafka import (
    COMPACTED,
    MakeTopic,
    Record,
    compact,
    delete_records,
    delete_topics,
    make_topic,
    open_transaction,
    produce,
    produce_aborted,
    produce_committed,
    read_all,
)
from tests.support.spark import wait_until
from tests.support.topics import Ingestion, Open, between_planning_and_reading

pytestmark = pytest.mark.turns(of=8)

TEXT = {"value": {"format": "string"}}
RULES = ("fail", "nearest", "earliest", "latest", "skip")

# So slow a read, in such small pieces, that the test's act happens in the middle of it.
SLOW = {"converters": [{"sql": {"slept": "java_method('java.lang.Thread', 'sleep', 200L)"}}]}
SMALL_FETCHES = {"max.partition.fetch.bytes": "20000", "fetch.max.bytes": "20000", "max.poll.records": "1"}
SHORT_WAITS = {"default.api.timeout.ms": "3000", "request.timeout.ms": "2000"}
# Producers and brokers keep some 1 MB of records together, which is always fetched at once: these are ten fetches.
SLOW_RECORDS = [b"%05d" % number + b"." * 300_000 for number in range(30)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers, of which each test may lose the third."""
    with start_cluster(tmp_path_factory.mktemp("cluster"), 3) as started:
        yield started


@contextmanager
def amid_reading(ingestion: Ingestion, act: Callable[[], object]) -> Iterator[None]:
    """Call ``act`` once, when Spark has begun the stage that reads."""
    tracker = ingestion.spark.sparkContext.statusTracker()

    def is_reading() -> bool:
        # The number of active tasks is no use: Spark may tell it only when the stage ends.
        return bool(tracker.getActiveStageIds())

    def watch() -> None:
        wait_until(is_reading, "a task that reads")
        act()

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        yield
        watching.result()


def texts(ingestion: Ingestion, topic: str) -> Counter[str]:
    return Counter({value: count for (value,), count in ingestion.rows(topic, "value").items()})


def as_texts(values: Sequence[bytes]) -> Counter[str]:
    return Counter(value.decode() for value in values)


def values_of(name: str, count: int = 10) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(count)]


class TestBrokers:
    @pytest.mark.thorough
    def test_the_loss_of_one_of_several_brokers_degrades_its_partitions_only(
        self, ingest: Open, cluster: KafkaCluster
    ) -> None:
        bootstrap = cluster.bootstrap
        spread = make_topic(bootstrap, "spread", replicas=[[1], [2], [3]])
        copied = make_topic(bootstrap, "copied", replicas=[[3, 1], [1, 3]])
        ingestion = ingest({"topic": spread, "kafka": TEXT}, {"topic": copied, "kafka": TEXT}, bootstrap=bootstrap)
        sent: dict[str, list[bytes]] = {spread: [], copied: []}

        def send(topic: str, partitions: Sequence[int]) -> None:
            values = values_of(f"{len(sent[topic])}", 10 * len(partitions))
            produce(
                bootstrap,
                topic,
                [Record(value, partition=partitions[n % len(partitions)]) for n, value in enumerate(values)],
            )
            sent[topic] += values

        send(spread, (0, 1, 2))
        send(copied, (0, 1))
        assert not ingestion.run().failed
        send(spread, (0, 1, 2))
        send(copied, (0, 1))
        kept_back = {f"{sent[spread].index(v)}": v for v in sent[spread][30:][2::3]}

        cluster.get(3).kill()
        send(copied, (0, 1))
        report = {each.urn: each for each in ingestion.run().datasets}

        assert report[spread].outcome is DatasetOutcome.PARTIAL, report[spread]
        assert any(f"{spread}:2 is left out, its watermark stays" in note for note in report[spread].notes)
        assert ingestion.watermarks(spread) == {f"{spread}:0": "20", f"{spread}:1": "20", f"{spread}:2": "10"}
        assert texts(ingestion, spread) == as_texts(sent[spread]) - as_texts(list(kept_back.values()))
        assert report[copied].outcome is DatasetOutcome.COMMITTED, report[copied]
        assert texts(ingestion, copied) == as_texts(sent[copied])

        cluster.get(3).restart()
        assert not ingestion.run().failed
        assert texts(ingestion, spread) == as_texts(sent[spread])
        assert texts(ingestion, copied) == as_texts(sent[copied])

    @pytest.mark.thorough
    def test_a_broker_that_is_killed_and_restarted_amid_a_read_is_waited_for(
        self, ingest: Open, cluster: KafkaCluster
    ) -> None:
        slow = make_topic(cluster.bootstrap, "slow", replicas=[[3]])
        produce(cluster.bootstrap, slow, SLOW_RECORDS)
        connection = KafkaConnection(cluster.bootstrap, options=SMALL_FETCHES)
        ingestion = ingest({"topic": slow, "kafka": TEXT, **SLOW}, connection=connection)

        def lose() -> None:
            cluster.get(3).kill()
            cluster.get(3).restart()

        with amid_reading(ingestion, lose):
            report = ingestion.run()

        assert not report.failed, report.failed
        assert texts(ingestion, slow) == as_texts(SLOW_RECORDS)

    @pytest.mark.thorough
    def test_a_leader_that_changes_amid_a_read_is_not_noticed(self, ingest: Open, cluster: KafkaCluster) -> None:
        moved = make_topic(cluster.bootstrap, "moved", replicas=[[3, 1]])
        produce(cluster.bootstrap, moved, SLOW_RECORDS)
        connection = KafkaConnection(cluster.bootstrap, options=SMALL_FETCHES)
        ingestion = ingest({"topic": moved, "kafka": TEXT, **SLOW}, connection=connection)

        with amid_reading(ingestion, cluster.get(3).kill):
            report = ingestion.run()
        cluster.get(3).restart()

        assert not report.failed, report.failed
        assert texts(ingestion, moved) == as_texts(SLOW_RECORDS)

    @pytest.mark.thorough
    def test_a_broker_that_stays_away_fails_the_read_and_the_next_run_has_all_of_it(
        self, ingest: Open, cluster: KafkaCluster
    ) -> None:
        away = make_topic(cluster.bootstrap, "away", replicas=[[3]])
        produce(cluster.bootstrap, away, SLOW_RECORDS)
        connection = KafkaConnection(cluster.bootstrap, options={**SMALL_FETCHES, **SHORT_WAITS})
        ingestion = ingest({"topic": away, "kafka": TEXT, **SLOW}, connection=connection)

        with amid_reading(ingestion, cluster.get(3).kill):
            report = ingestion.run()
        cluster.get(3).restart()

        (failed,) = report.failed
        assert failed.error_family == "RetryableError"
        assert f"reading {away}" in str(failed.error)
        assert ingestion.watermarks(away) == {}
        assert not ingestion.run().failed
        assert texts(ingestion, away) == as_texts(SLOW_RECORDS)

    def test_brokers_that_are_not_there_are_waited_for_in_bounds_and_said_in_a_line(self, ingest: Open) -> None:
        connection = KafkaConnection("127.0.0.1:9", timeout_s=2.0)
        ingestion = ingest({"topic": "orders", "kafka": TEXT}, connection=connection)

        with pytest.raises(RetryableError, match=r"no broker of 127\.0\.0\.1:9 answered in 2 s") as raised:
            ingestion.run()

        assert "\n" not in str(raised.value)


class TestRetention:
    @pytest.mark.core
    def test_what_is_deleted_before_it_is_read_is_never_skipped_silently(
        self, ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
    ) -> None:
        bootstrap = kafka_broker.bootstrap
        names = {rule: topic(rule) for rule in RULES}
        datasets = [{"topic": n, "kafka": {**TEXT, "reset_on_out_of_range": rule}} for rule, n in names.items()]
        ingestion = ingest(*datasets)
        early, late = values_of("early"), values_of("late")
        for name in names.values():
            produce(bootstrap, name, early)
        assert not ingestion.run().failed
        for name in names.values():
            produce(bootstrap, name, late)

        def delete() -> None:
            for name in names.values():
                delete_records(bootstrap, name, {0: 14})

        with between_planning_and_reading(delete):
            report = ingestion.run()

        assert {each.urn for each in report.failed} == set(names.values())
        for each in report.failed:
            assert each.error_family == "RetryableError"
            assert "were deleted between planning and reading" in str(each.error)
            assert ingestion.watermarks(each.urn) == {f"{each.urn}:0": "10"}

        ingestion.lines.clear()
        (failed,) = ingestion.run().failed

        assert failed.urn == names["fail"]
        assert failed.error_family == "RejectedError"
        for told in (f"{failed.urn}:0", "the next offset is 10", "14 to 20", "4 offsets", "reset_on_out_of_range"):
            assert told in str(failed.error)
        expected = {"fail": early, "nearest": early + late[4:], "earliest": early + late[4:], "latest": early}
        expected["skip"] = early
        marks = {"fail": "10", "nearest": "20", "earliest": "20", "latest": "20", "skip": "10"}
        for rule, name in names.items():
            assert texts(ingestion, name) == as_texts(expected[rule]), rule
            assert ingestion.watermarks(name) == {f"{name}:0": marks[rule]}, rule
        for rule, lost in {"nearest": 4, "earliest": 4, "latest": 10}.items():
            assert any(f"by the rule {rule}, {lost} offsets" in note for note in ingestion.notes(names[rule])), rule
            assert any(f"by the rule {rule}, {lost} offsets" in line for line in ingestion.lines), rule
        assert any("left out" in note for note in ingestion.notes(names["skip"]))

    def test_what_is_deleted_amid_a_read_fails_it(
        self, ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
    ) -> None:
        name = topic("slow")
        produce(kafka_broker.bootstrap, name, SLOW_RECORDS)
        dataset = {"topic": name, "kafka": {**TEXT, "reset_on_out_of_range": "nearest"}, **SLOW}
        connection = KafkaConnection(kafka_broker.bootstrap, options=SMALL_FETCHES)
        ingestion = ingest(dataset, connection=connection, options={"retry": {"task_tries_max": 1}})

        with amid_reading(ingestion, lambda: delete_records(kafka_broker.bootstrap, name, {0: 25})):
            report = ingestion.run()

        (failed,) = report.failed
        assert "were deleted between planning and reading" in str(failed.error)
        assert ingestion.watermarks(name) == {}
        assert not ingestion.run().failed
        assert texts(ingestion, name) == as_texts(SLOW_RECORDS[25:])


class TestGaps:
    """Offsets without records, which are no loss."""

    @pytest.mark.core
    def test_compacted_aborted_and_marker_offsets_fail_no_read(
        self, ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
    ) -> None:
        bootstrap = kafka_broker.bootstrap
        compacted, ends_aborted, all_aborted = topic("compacted", settings=COMPACTED), topic("ends"), topic("all")
        produce(bootstrap, compacted, [Record(b"%d" % n, key=b"k%d" % (n % 3)) for n in range(30)])
        compact(bootstrap, compacted)
        produce_aborted(bootstrap, ends_aborted, values_of("never"))
        produce_committed(bootstrap, ends_aborted, values_of("committed", 3))
        produce_aborted(bootstrap, ends_aborted, values_of("never"))
        produce_aborted(bootstrap, all_aborted, values_of("never", 100))
        # Tasks begin and end in the middle of gaps.
        dataset = {"kafka": TEXT, "split": {"work_unit_rows": 3, "max_partitions": 9}}
        ingestion = ingest(*({"topic": name, **dataset} for name in (compacted, ends_aborted, all_aborted)))
        for _run in range(2):
            report = ingestion.run()

            assert not report.failed, report.failed
            assert texts(ingestion, compacted) == as_texts([f.value or b"" for f in read_all(bootstrap, compacted)])
            assert texts(ingestion, ends_aborted) == as_texts(values_of("committed", 3))
            assert not [event for event in ingestion.events if event.urn == all_aborted and event.publication.row_count]
        assert ingestion.watermarks(ends_aborted) == {f"{ends_aborted}:0": "26"}
        assert ingestion.watermarks(all_aborted) == {f"{all_aborted}:0": "101"}

    def test_limits_cut_the_log_in_gaps_as_well(
        self, ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
    ) -> None:
        name = topic("limited")
        produce(kafka_broker.bootstrap, name, values_of("first", 3))
        produce_aborted(kafka_broker.bootstrap, name, values_of("never", 5))
        produce(kafka_broker.bootstrap, name, values_of("second", 3))
        ingestion = ingest({"topic": name, "kafka": {**TEXT, "records_per_partition_max": 4}})

        for mark in ("4", "8", "12"):
            report = ingestion.run()
            assert not report.failed, report.failed
            assert ingestion.watermarks(name) == {f"{name}:0": mark}

        assert texts(ingestion, name) == as_texts(values_of("first", 3) + values_of("second", 3))

    def test_a_transaction_of_a_dead_producer_is_the_end_until_it_is_aborted(
        self, ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
    ) -> None:
        name = topic("orders")
        ingestion = ingest({"topic": name, "kafka": TEXT})
        with open_transaction(kafka_broker.bootstrap, transactional_id=name) as left_open:
            produce(kafka_broker.bootstrap, name, [b"before"])
            left_open.produce(name, [b"never"])
        produce(kafka_broker.bootstrap, name, [b"behind"])

        assert not ingestion.run().failed
        assert ingestion.watermarks(name) == {f"{name}:0": "1"}
        with open_transaction(kafka_broker.bootstrap, transactional_id=name) as successor:
            successor.abort()

        assert not ingestion.run().failed
        assert texts(ingestion, name) == as_texts([b"before", b"behind"])


class TestTopics:
    def test_a_topic_that_is_deleted_before_it_is_read_fails_and_its_sibling_is_published(
        self, ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
    ) -> None:
        deleted, sibling = topic("deleted"), topic("sibling")
        for name in (deleted, sibling):
            produce(kafka_broker.bootstrap, name, values_of("a"))
        ingestion = ingest({"topic": deleted, "kafka": TEXT}, {"topic": sibling, "kafka": TEXT})

        with between_planning_and_reading(lambda: delete_topics(kafka_broker.bootstrap, deleted)):
            (failed,) = ingestion.run().failed

        assert failed.urn == deleted
        assert f"the topic {deleted} was deleted while it was read" in str(failed.error)
        assert ingestion.watermarks(deleted) == {}
        assert texts(ingestion, sibling) == as_texts(values_of("a"))
        (failed,) = ingestion.run().failed
        assert failed.error_family == "RejectedError"
        assert f"there is no topic '{deleted}'" in str(failed.error)

    def test_a_topic_that_is_made_anew_with_less_before_it_is_read_fails_and_is_planned_anew(
        self, ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
    ) -> None:
        name = topic("orders")
        produce(kafka_broker.bootstrap, name, values_of("old"))
        connection = KafkaConnection(kafka_broker.bootstrap, options=SHORT_WAITS)
        ingestion = ingest({"topic": name, "kafka": TEXT}, connection=connection)

        def make_anew() -> None:
            delete_topics(kafka_broker.bootstrap, name)
            make_topic(kafka_broker.bootstrap, name)
            produce(kafka_broker.bootstrap, name, values_of("new", 3))

        with between_planning_and_reading(make_anew):
            (failed,) = ingestion.run().failed

        assert failed.error_family == "RetryableError"
        assert ingestion.watermarks(name) == {}
        assert not ingestion.run().failed
        assert texts(ingestion, name) == as_texts(values_of("new", 3))
