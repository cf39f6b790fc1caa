"""Barriers that lie in a topic: markers over several partitions, with a real broker's transactions and fetches."""

from collections import Counter
from functools import partial

import pytest

from demo.kafka.broker import KafkaBroker
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.sources.kafka.epoch_markers import EPOCH_HEADER, MarkerBarriers
from gobblin_assets.sources.log_port import Barrier
from tests.support.kafka import MakeTopic, Record, open_transaction, produce, produce_aborted
from tests.support.topic_epochs import Epochs, following

pytestmark = pytest.mark.turns(of=4)

_IN_LOG = MarkerBarriers()


def _marker(epoch: int | bytes, partition: int) -> Record:
    value = b"%d" % epoch if isinstance(epoch, int) else epoch
    return Record(b"marker", partition=partition, headers=[("trace", b"1"), (EPOCH_HEADER, value)])


def _values_by_epoch(epochs: Epochs) -> dict[int, Counter[bytes]]:
    return {barrier.epoch: Counter(value for _vnode, value in values.elements()) for barrier, values in epochs.closed}


def _has(epochs: Epochs, count: int) -> bool:
    return len(epochs.closed) == count


def test_epochs_are_whole_over_partitions_of_any_length(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    """One partition is far ahead of the other one at each marker; the last epoch is not over."""
    bootstrap, name = kafka_broker.bootstrap, topic(partitions=2)
    records: list[Record] = []
    expected: dict[int, Counter[bytes]] = {}
    for epoch in range(1, 31):
        members = [Record(b"%d/%d" % (epoch, n), partition=min(1, n % 7)) for n in range(epoch * 7)]
        members = [*members, *(Record(b"%d/+" % epoch, partition=epoch % 2) for _ in range(epoch % 3 * 40))]
        expected[epoch] = Counter(record.value or b"" for record in members)
        records += [*members, _marker(epoch, 0), _marker(epoch, 1)]
    produce(bootstrap, name, [*records, Record(b"open", partition=0), Record(b"open", partition=1)])
    with following(bootstrap, name, barriers=_IN_LOG) as epochs:
        epochs.read_until(lambda: len(epochs.closed) == 30, "all epochs")
        assert _values_by_epoch(epochs) == expected
        assert epochs.log.measure_lag() == {f"{name}:0": 1, f"{name}:1": 1}
        middle: Barrier = epochs.closed[9][0]
    with following(bootstrap, name, middle.positions, epoch=middle.epoch, barriers=_IN_LOG) as again:
        again.read_until(lambda: len(again.closed) == 20, "the epochs after a restart")
        assert _values_by_epoch(again) == {epoch: values for epoch, values in expected.items() if epoch > 10}


def test_a_transaction_over_partitions_is_in_one_epoch(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic(partitions=2)
    with following(bootstrap, name, barriers=_IN_LOG) as epochs, open_transaction(bootstrap) as transaction:
        for number, epoch in enumerate((5, 9), start=1):
            both = [Record(b"%d" % epoch, partition=partition) for partition in (0, 1)]
            transaction.produce(name, [*both, _marker(epoch, 0)])
            produce_aborted(bootstrap, name, [Record(b"never"), _marker(epoch + 1, 0), _marker(epoch + 1, 1)])
            transaction.produce(name, [_marker(epoch, 1)])
            transaction.commit()
            transaction.begin()
            epochs.read_until(partial(_has, epochs, number), f"epoch {epoch}")
        assert _values_by_epoch(epochs) == {epoch: Counter({b"%d" % epoch: 2}) for epoch in (5, 9)}
        last = epochs.closed[-1][0]
        transaction.abort()
    with following(bootstrap, name, last.positions, epoch=last.epoch, barriers=_IN_LOG) as again:
        produce(bootstrap, name, [Record(b"next"), _marker(10, 0), _marker(10, 1)])
        again.read_until(lambda: len(again.closed) == 1, "epoch 10")
        assert _values_by_epoch(again) == {10: Counter([b"next"])}


def test_vnodes_may_change_while_some_wait(kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic(partitions=3)
    a, b, c = (f"{name}:{number}" for number in range(3))
    produce(bootstrap, name, [Record(b"a1"), _marker(1, 0), Record(b"a2"), _marker(2, 0), Record(b"b1", partition=1)])
    with following(bootstrap, name, {a: 0, b: 0}, barriers=_IN_LOG) as epochs:
        epochs.read_until(lambda: len(epochs.open) == 2, "the records of epoch 1")
        epochs.open.clear()  # as a reader that cuts nothing and begins anew
        epochs.log.rewind(a, 0)
        epochs.log.rewind(b, 0)
        epochs.read_until(lambda: len(epochs.open) == 2, "them again")
        waiting, epochs.open = epochs.open, Counter()
        epochs.log.assign({a: 0, c: 0})
        produce(bootstrap, name, [Record(b"c1", partition=2), _marker(1, 2), _marker(2, 2), _marker(1, 1)])
        epochs.read_until(lambda: len(epochs.closed) == 2, "two epochs")
        assert waiting == Counter([(a, b"a1"), (b, b"b1")])
        assert _values_by_epoch(epochs) == {1: Counter([b"c1"]), 2: Counter([b"a2"])}
        assert epochs.positions == {a: 4, c: 3}


@pytest.mark.parametrize(
    ("markers", "said"),
    [
        ([_marker(b"seven", 0)], "a whole number from 1 on, in digits, found b'seven'"),
        ([_marker(b"0", 0)], "found b'0'"),
        ([Record(b"m", headers=[(EPOCH_HEADER, b"1"), (EPOCH_HEADER, b"2")])], "found b'1' and b'2'"),
        ([_marker(3, 0), _marker(3, 0)], "the marker of epoch 3 comes after the one of 3"),
        ([_marker(3, 0), _marker(2, 0)], "the marker of epoch 2 comes after the one of 3"),
    ],
)
def test_a_wrong_marker_is_refused_and_never_passed(
    kafka_broker: KafkaBroker, topic: MakeTopic, markers: list[Record], said: str
) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic()
    produce(bootstrap, name, [Record(b"before"), *markers, Record(b"behind"), _marker(9, 0)])
    wrong = len(markers)
    with following(bootstrap, name, barriers=_IN_LOG) as epochs:
        for _try in range(2):
            with pytest.raises(RejectedError, match=said) as refused:
                epochs.read_until(lambda: False, "an error")
            assert f"{name}:0, offset {wrong}: " in str(refused.value)
            assert f"--start-at 0={wrong + 1}" in refused.value.hint
            produce(bootstrap, name, [Record(b"more")])
        assert all(barrier.epoch < 9 for barrier, _values in epochs.closed)


def test_a_marker_that_does_not_come_is_an_error_that_names_its_partition(
    kafka_broker: KafkaBroker, topic: MakeTopic
) -> None:
    bootstrap, name = kafka_broker.bootstrap, topic(partitions=2)
    produce(bootstrap, name, [_marker(4, 0), Record(b"x", partition=1)])
    with following(bootstrap, name, barriers=MarkerBarriers(alignment_s=0.5)) as epochs:
        with pytest.raises(RetryableError, match=rf"{name}:1: no marker of epoch 4 up to offset 1, .* waited 0.5 s"):
            epochs.read_until(lambda: False, "an error")
        assert not epochs.closed
