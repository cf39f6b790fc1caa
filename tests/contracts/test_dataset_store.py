"""What any store of dataset states must do: Postgres and the simulated database alike."""

import datetime as dt
from dataclasses import replace

from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import (
    Watermark,
    WatermarkType,
    long_watermark,
    timestamp_watermark,
)
from tests.support.commit_log import JOB, LogWorld, move, move_by

OTHER_JOB = JobName("warehouse")


def test_registering_makes_what_is_missing_and_repeats_itself(log: LogWorld) -> None:
    urns = [DatasetUrn("public.orders"), DatasetUrn("Größe/1 %"), DatasetUrn("public.orders")]
    first = log.datasets.register(JOB, urns)
    assert first.keys() == set(urns)
    assert len(set(first.values())) == 2

    assert log.changes_nothing(lambda: log.datasets.register(JOB, urns))
    assert log.datasets.register(JOB, [*urns, DatasetUrn("new")]).items() > first.items()


def test_one_urn_in_two_jobs_is_two_datasets(log: LogWorld) -> None:
    ids = {log.register("orders"), log.register("orders", OTHER_JOB)}

    assert len(ids) == 2
    assert log.datasets.list_urns(JOB) == [(JOB, "orders")]


def test_names_are_listed_in_order(log: LogWorld) -> None:
    log.register("b", OTHER_JOB)
    log.datasets.register(JOB, [DatasetUrn("b"), DatasetUrn("a")])

    assert log.datasets.list_urns() == [(JOB, "a"), (JOB, "b"), (OTHER_JOB, "b")]
    assert log.datasets.list_urns(JobName("nobody")) == []


def test_a_dataset_starts_without_version_position_and_schema(log: LogWorld) -> None:
    orders = log.register("orders")

    states = log.datasets.load(JOB, [DatasetUrn("orders"), DatasetUrn("never registered")])

    assert states.keys() == {"orders"}
    state = states[DatasetUrn("orders")]
    assert (state.dataset_id, state.job, state.urn, state.version) == (orders, JOB, "orders", 0)
    assert (dict(state.keys), state.published) == ({}, frozenset())
    assert (state.source_columns, state.published_columns) == (None, None)


def test_a_finished_sequence_is_the_next_run_s_state(log: LogWorld) -> None:
    orders = log.register("orders")

    log.publish(log.take(orders))

    state = log.state_of(orders)
    assert (state.version, state.published) == (1, {""})
    assert state.find_watermark("id", "") == long_watermark(10)
    assert (state.source_columns, state.published_columns) == ({"id": "int8"}, {"id": "bigint"})


def test_a_sealed_sequence_moves_nothing_yet(log: LogWorld) -> None:
    orders = log.register("orders")

    log.prepare(log.take(orders))

    state = log.state_of(orders)
    assert (state.version, state.published, state.source_columns) == (0, frozenset(), None)
    assert state.find_watermark("id", "") is None


def test_an_empty_run_keeps_the_columns_that_the_last_one_had(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    columns = [["z", "int"], ["a", "string"]]
    first = log.build(lease)
    log.commits.seal(replace(first.order, details={"columns": columns, "source_columns": columns}))
    log.commits.finish(first.sequence_id, fence=lease.fence)

    second = log.build(lease)
    log.commits.seal(replace(second.order, details={"columns": [], "source_columns": []}))
    log.commits.finish(second.sequence_id, fence=lease.fence)

    state = log.state_of(lease.dataset_id)
    assert state.version == 2
    # In the order of the source, which the writer keeps.
    assert list((state.source_columns or {}).items()) == [("z", "int"), ("a", "string")]
    assert state.published_columns == {"z": "int", "a": "string"}


def test_what_the_source_wants_remembered_moves_with_the_version(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    assert log.state_of(lease.dataset_id).source_facts == {}
    built = log.build(lease)
    log.commits.seal(replace(built.order, details={"source_facts": {"topic_id": "x", "partitions": [0, 1]}}))
    assert log.state_of(lease.dataset_id).source_facts == {}
    log.commits.finish(built.sequence_id, fence=lease.fence)
    assert log.state_of(lease.dataset_id).source_facts == {"topic_id": "x", "partitions": [0, 1]}

    log.publish(lease)

    kept = log.state_of(lease.dataset_id).source_facts
    assert kept == {"topic_id": "x", "partitions": [0, 1]}, "a sequence that says nothing of it forgets nothing"


def test_facts_of_partitions_stand_side_by_side(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))

    def publish(partition: str, facts: dict[str, object]) -> object:
        built = log.build(lease, partition=partition)
        log.commits.seal(replace(built.order, details={"partition_facts": facts}))
        log.commits.finish(built.sequence_id, fence=lease.fence)
        return log.state_of(lease.dataset_id).source_facts

    assert publish("a", {"seen": {"x": [None, 1]}}) == {"seen": {"a": {"x": [None, 1]}}}
    assert publish("b", {"seen": {}, "as": "y"}) == {"seen": {"a": {"x": [None, 1]}, "b": {}}, "as": {"b": "y"}}
    assert publish("a", {"seen": {"z": 2}}) == {"seen": {"a": {"z": 2}, "b": {}}, "as": {"b": "y"}}
    assert publish("b", {"as": None, "seen": None}) == {"seen": {"a": {"z": 2}}, "as": {}}
    assert publish("b", {}) == {"seen": {"a": {"z": 2}}, "as": {}}


def test_each_partition_has_positions_of_its_own(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    log.publish(lease, partition="2013-03", moves=[move(None, 30, partition="2013-03")])
    log.publish(lease, partition="2013-01", moves=[move(None, 10, low=0, partition="2013-01")])

    state = log.state_of(lease.dataset_id)
    assert state.published == {"2013-01", "2013-03"}
    assert {at: str(key.watermark) for at, key in state.keys.items()} == {
        ("id", "2013-01"): "10",
        ("id", "2013-03"): "30",
    }
    assert len({key.key_id for key in state.keys.values()}) == 2


def test_positions_of_every_type_come_back_and_can_be_moved_on(log: LogWorld) -> None:
    moment = dt.datetime(2013, 1, 1, 5, 0, 0, 1, tzinfo=dt.UTC)
    text = Watermark(WatermarkType.STRING, "żółw")
    starts = {
        "long": long_watermark(-5),
        "instant": timestamp_watermark(moment),
        "wall": Watermark(WatermarkType.LOCAL_TIMESTAMP, moment.replace(tzinfo=None)),
        "date": Watermark(WatermarkType.DATE, moment.date()),
        "text": text,
        "pair": Watermark(WatermarkType.COMPOSITE, (timestamp_watermark(moment), text)),
    }
    lease = log.take(log.register("orders"))
    log.publish(lease, moves=[move_by(None, at, None, key=key) for key, at in starts.items()])
    state = log.state_of(lease.dataset_id)
    assert {key: state.find_watermark(key, "") for key in starts} == starts

    # The next interval ends at the last position seen, as planning makes it.
    ends = {key: at.successor() for key, at in starts.items()}
    log.publish(lease, moves=[move_by(starts[key], ends[key], starts[key], key=key) for key in starts])
    state = log.state_of(lease.dataset_id)
    assert {key: state.find_watermark(key, "") for key in starts} == ends

    further = {key: at.successor() for key, at in ends.items()}
    moves = [move_by(state.find_watermark(key, ""), further[key], ends[key], key=key) for key in starts]
    log.publish(lease, moves=moves)
    assert log.state_of(lease.dataset_id).version == 3


def test_the_first_columns_that_are_settled_stay(log: LogWorld) -> None:
    orders, others = log.register("orders"), log.register("others")

    assert log.datasets.settle_columns(orders, {"n": "bigint", "at": "string"}) == {"n": "bigint", "at": "string"}
    second = {"n": "string", "more": "int"}
    assert list(log.datasets.settle_columns(orders, second).items()) == [("n", "bigint"), ("at", "string")]

    assert log.state_of(orders).source_columns == {"n": "bigint", "at": "string"}
    assert log.state_of(orders).published_columns is None
    assert log.state_of(others).source_columns is None


def test_a_lost_history_is_noted_once_at_its_position_and_ends_with_it(log: LogWorld) -> None:
    orders = log.register("orders")
    log.publish(log.take(orders))
    log.datasets.note_lost(orders, "id", long_watermark(9), "of an older position")
    log.datasets.note_lost(orders, "other", long_watermark(10), "of another key")
    assert [key.watermark and key.watermark.history for key in log.state_of(orders).keys.values()] == [None]

    log.datasets.note_lost(orders, "id", long_watermark(10), "first")
    log.datasets.note_lost(orders, "id", long_watermark(10), "second")
    noted = log.state_of(orders).find_watermark("id", "")
    assert (noted, noted and noted.history) == (long_watermark(10), {"lost": "first"})
