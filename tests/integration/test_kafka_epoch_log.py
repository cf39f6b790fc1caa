"""A topic as a log of epochs, on a real broker: exact barriers, transactions, restarts, and topics that change."""

import datetime as dt
from collections import Counter

import pyarrow as pa
import pytest

from demo.kafka.broker import KafkaBroker
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.sources.kafka.confluent import ConfluentCluster
from gobblin_assets.sources.log_port import StreamChunk, UpdateVnodeBitmap
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
from tests.support.topic_epochs import following, numbered, start_positions
from tests.support.topic_plans import Follower

pytestmark = pytest.mark.turns(of=4)


def test_epochs_hold_each_record_once_over_a_restart(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    """The second reader begins at some barrier in the middle of the first one's."""
    bootstrap, name = kafka_broker.bootstrap, topic(partitions=2)
    sent: Counter[tuple[str, bytes]] = Counter()
    with following(bootstrap, name) as first:
        for round_number in range(4):
            records, expected = numbered(name, range(round_number * 500, (round_number + 1) * 500), 2)
            produce(bootstrap, name, records)
            sent += expected
            first.read_to({f"{name}:0": 250 * (round_number + 1), f"{name}:1": 250 * (round_number + 1)})
        assert first.values == sent
        filled = [place for place, (_barrier, values) in enumerate(first.closed) if values]
    at = filled[1]
    barrier = first.closed[at][0]
    before: Counter[tuple[str, bytes]] = sum((values for _barrier, values in first.closed[: at + 1]), Counter())
    with following(bootstrap, name, barrier.positions, epoch=first.closed[-1][0].epoch) as second:
        second.read_to({f"{name}:0": 1000, f"{name}:1": 1000})
        assert before + second.values == sent
        assert second.closed[0][0].epoch > first.closed[-1][0].epoch


def test_records_keep_their_parts(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic()
    at = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    at_ms = round(at.timestamp() * 1000)
    produce(
        bootstrap,
        name,
        [
            Record(b"a", key=b"k", timestamp_ms=at_ms, headers=[("trace", b"\xff"), ("none", None)]),
            Record(None, timestamp_ms=at_ms),
        ],
    )
    found: list[pa.RecordBatch] = []
    for is_whole in (True, False):
        with following(bootstrap, name, with_headers=is_whole, with_times=is_whole) as epochs:
            wait_until(
                lambda: any(
                    isinstance(item, StreamChunk) and not found.append(item.chunk)  # type: ignore[func-returns-value]  # keeps it
                    for item in epochs.log.read(wait_s=0.2)
                ),
                "a chunk",
            )
    whole, without = (batch.to_pylist() for batch in found)
    shared = {"topic": name, "partition": 0, "timestamp": at, "timestampType": 0}
    assert whole == [
        {
            **shared,
            "key": b"k",
            "value": b"a",
            "offset": 0,
            "headers": [{"key": "trace", "value": b"\xff"}, {"key": "none", "value": None}],
        },
        {**shared, "key": None, "value": None, "offset": 1, "headers": None},
    ]
    assert without == [{**row, **dict.fromkeys(("headers", "timestamp", "timestampType"))} for row in whole]


def test_positions_pass_what_no_reader_sees_and_no_open_transaction(
    kafka_broker: KafkaBroker, topic: MakeTopic
) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic()
    vnode = f"{name}:0"
    produce_committed(bootstrap, name, [b"a", b"b"])
    produce_aborted(bootstrap, name, [b"never"])
    with following(bootstrap, name) as epochs:
        epochs.read_to({vnode: 5})  # three records and two markers
        assert epochs.values == Counter({(vnode, b"a"): 1, (vnode, b"b"): 1})
        with open_transaction(bootstrap) as transaction:
            transaction.produce(name, [b"c"])
            produce(bootstrap, name, [b"plain, behind it"])
            seen = len(epochs.closed)
            epochs.read_until(lambda: len(epochs.closed) > seen + 3, "barriers beside an open transaction")
            assert epochs.positions == {vnode: 5}
            assert epochs.log.measure_lag() == {vnode: 0}
            transaction.commit()
        epochs.read_to({vnode: 8})
        assert epochs.values == Counter([(vnode, b"a"), (vnode, b"b"), (vnode, b"c"), (vnode, b"plain, behind it")])
    # A reader that begins in front of a marker ends up behind it.
    with following(bootstrap, name, {vnode: 2}) as epochs:
        epochs.read_to({vnode: 8})
        assert epochs.values == Counter([(vnode, b"c"), (vnode, b"plain, behind it")])


def test_read_uncommitted_sees_open_transactions(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic()
    with open_transaction(bootstrap) as transaction:
        transaction.produce(name, [b"a", b"b"])
        with following(bootstrap, name, isolation="read_uncommitted") as epochs:
            epochs.read_to({f"{name}:0": 2})
            assert epochs.values == Counter([(f"{name}:0", b"a"), (f"{name}:0", b"b")])
        transaction.abort()


def test_a_compacted_topic_is_read_to_its_end(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic(settings=COMPACTED)
    produce(bootstrap, name, [Record(b"%d" % number, key=b"k") for number in range(5)])
    compact(bootstrap, name)
    end = ConfluentCluster(KafkaConnection(bootstrap)).find_offsets([name], isolation="read_committed")[name]
    assert not isinstance(end, GobblinError)
    with following(bootstrap, name) as epochs:
        epochs.read_to({f"{name}:0": end.partitions[0].end})
        assert epochs.values[f"{name}:0", b"4"] == 1
        assert epochs.values[f"{name}:0", b"3"] == 0


def test_a_vnode_is_read_again_from_a_barrier_and_others_go_on(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic(partitions=2)
    records, expected = numbered(name, range(100), 2)
    produce(bootstrap, name, records)
    with following(bootstrap, name) as epochs:
        epochs.read_to({f"{name}:0": 50, f"{name}:1": 50})
        assert epochs.values == expected
        epochs.log.rewind(f"{name}:1", 20)
        more, later = numbered(name, range(100, 110), 2)
        produce(bootstrap, name, more)
        epochs.closed.clear()
        epochs.read_to({f"{name}:0": 55, f"{name}:1": 55})
        again = Counter((f"{name}:1", b"%d" % number) for number in range(41, 100, 2))
        assert epochs.values == again + later


def test_vnodes_come_and_go_at_barriers(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic(partitions=3)
    records, expected = numbered(name, range(300), 3)
    produce(bootstrap, name, records)
    a, b, c = (f"{name}:{number}" for number in range(3))
    with following(bootstrap, name, {a: 0, b: 0}) as epochs:
        epochs.read_to({a: 100, b: 100})
        epochs.log.assign({b: 100, c: 10})
        more, later = numbered(name, range(300, 330), 3)
        produce(bootstrap, name, more)
        items = epochs.log.read(wait_s=0.2)
        assert next(items) == UpdateVnodeBitmap(frozenset({b, c}))
        epochs.read_to({b: 110, c: 110})
        missing = Counter((c, b"%d" % number) for number in range(2, 30, 3))
        found = epochs.values
        assert (
            found
            == Counter({each: n for each, n in (expected + later).items() if each[0] != a or each in expected})
            - missing
        )
        assert epochs.log.measure_lag() == {b: 0, c: 0}


def test_added_partitions_are_found_and_read_from_their_beginning(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic()
    produce(bootstrap, name, [b"old"])
    follower = Follower({"bootstrap_with": "latest"}, topic=name)
    first = start_positions(bootstrap, name, follower)
    assert first.positions == {f"{name}:0": 1}
    assert first.vnodes[f"{name}:0"].lost == 1
    follower.watermarks, follower.facts = {f"{name}:0": 1}, dict(first.facts)
    add_partitions(bootstrap, name, 2)
    produce(bootstrap, name, [Record(b"new", partition=1), Record(b"old's next", partition=0)])
    second = start_positions(bootstrap, name, follower)
    assert second.positions == {f"{name}:0": 1, f"{name}:1": 0}
    assert second.vnodes[f"{name}:0"].watermark == 1
    assert second.vnodes[f"{name}:1"].watermark is None
    with following(bootstrap, name, second.positions) as epochs:
        epochs.read_to({f"{name}:0": 2, f"{name}:1": 1})
        assert epochs.values == Counter([(f"{name}:0", b"old's next"), (f"{name}:1", b"new")])


def test_offsets_out_of_range_are_refused_or_reset_by_the_rule(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic()
    vnode = f"{name}:0"
    produce(bootstrap, name, [b"%d" % number for number in range(10)])
    delete_records(bootstrap, name, {0: 4})
    for position in (2, 11):
        with following(bootstrap, name, {vnode: position}) as epochs:
            with pytest.raises(RejectedError, match=rf"{name}:0: the broker does not have the offset") as refused:
                epochs.read_until(lambda: False, "an error")
            assert refused.value.field == "kafka.reset_on_out_of_range"
            assert not epochs.values
    facts = start_positions(bootstrap, name).facts
    with pytest.raises(RejectedError, match="the next offset is 2, and the broker has 4 to 10"):
        start_positions(bootstrap, name, Follower(watermarks={vnode: 2}, facts=dict(facts), topic=name))
    nearest = Follower({"reset_on_out_of_range": "nearest"}, watermarks={vnode: 2}, facts=dict(facts), topic=name)
    found = start_positions(bootstrap, name, nearest)
    start = found.vnodes[vnode]
    assert (start.position, start.watermark, start.lost) == (4, 2, 2)
    assert any("reset to 4 by the rule nearest" in note for note in found.notes)
    nearest.watermarks = {vnode: 11}
    shorter = start_positions(bootstrap, name, nearest)
    assert shorter.positions == {f"{vnode}#1": 10}
    with following(bootstrap, name, shorter.positions) as epochs:
        produce(bootstrap, name, [b"next"])
        epochs.read_to({f"{vnode}#1": 11})
        assert epochs.values == Counter([(f"{vnode}#1", b"next")])


def test_records_of_a_topic_made_anew_are_in_no_epoch(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    """The client itself reads on in the new topic, at the old one's offsets."""
    bootstrap, name = kafka_broker.bootstrap, topic()
    produce(bootstrap, name, [b"old"] * 5)
    with following(bootstrap, name) as epochs:
        epochs.read_to({f"{name}:0": 5})
        delete_topics(bootstrap, name)
        make_topic(bootstrap, name)
        produce(bootstrap, name, [b"new"] * 50)
        with pytest.raises(RejectedError, match="was deleted and made again while it was read"):
            epochs.read_until(lambda: False, "an error")
        assert epochs.values == Counter({(f"{name}:0", b"old"): 5})
    with pytest.raises(RejectedError, match="was deleted and made again: its id was"):
        start_positions(bootstrap, name, Follower(facts={"topic_id": "another"}, topic=name))


def test_a_deleted_topic_is_an_error(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic()
    produce(bootstrap, name, [b"old"] * 5)
    with following(bootstrap, name) as epochs:
        epochs.read_to({f"{name}:0": 5})
        delete_topics(bootstrap, name)
        with pytest.raises(RejectedError, match="there is no topic"):
            epochs.read_until(lambda: False, "an error")


def test_vnodes_that_can_t_be_read_together_change_nothing(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic()
    vnode = f"{name}:0"
    with following(bootstrap, name) as epochs:
        for wrong, said in (
            ({vnode: 0, f"{vnode}#1": 0}, "two vnodes are of one partition"),
            ({"0": 0}, "is no vnode"),
        ):
            with pytest.raises(RejectedError, match=said):
                epochs.log.assign(wrong)
        produce(bootstrap, name, [b"a"])
        epochs.read_to({vnode: 1})
        assert epochs.values == Counter([(vnode, b"a")])
