"""Each partition's share of a run's limit, and the size of its WorkUnits by figures of earlier runs."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.run.job_kind import TaskFigures
from gobblin_assets.sources.kafka.kafka_kind import KafkaSourceSpec, SizeEstimator
from gobblin_assets.sources.kafka.planning import share_out
from gobblin_assets.sources.kafka.sizes import (
    Sizes,
    average_record_time_ms,
    learn_sizes,
    recall_sizes,
    recall_task_rates,
    track_production,
)

BACKLOGS = st.dictionaries(st.integers(0, 50), st.one_of(st.integers(0, 20), st.integers(0, 10**9)), max_size=20)


def source(estimator: SizeEstimator, **options: float) -> KafkaSourceSpec:
    return KafkaSourceSpec.model_validate(
        {"type": "kafka", "connection": "events", "size_estimator": estimator, **options}
    )


@given(BACKLOGS, st.integers(1, 10**9), st.integers(0, 10**12))
def test_shares_use_the_bound_up_and_nobody_gets_more_while_another_who_needs_it_has_less(
    backlogs: dict[int, int], offsets_max: int, turn: int
) -> None:
    shares = share_out(backlogs, offsets_max, turn=turn)

    assert shares == share_out(backlogs, offsets_max, turn=turn)
    assert shares.keys() == backlogs.keys()
    assert sum(shares.values()) == min(offsets_max, sum(backlogs.values()))
    assert all(0 <= share <= backlogs[name] for name, share in shares.items())
    unserved = [share for name, share in shares.items() if share < backlogs[name]]
    assert all(share <= least + 1 for least in unserved for share in shares.values())


def test_little_lag_is_read_at_once_however_much_another_partition_has() -> None:
    assert share_out({"huge": 10**9, "small": 40, "middle": 500}, 1_000, turn=0) == {
        "huge": 480,
        "small": 40,
        "middle": 480,
    }


@given(st.lists(st.integers(0, 200), min_size=1, max_size=12), st.integers(1, 40))
def test_run_after_run_every_partition_is_read_to_its_end(ends: list[int], offsets_max: int) -> None:
    lows = [0] * len(ends)
    runs_max = -(-sum(ends) // offsets_max)
    for _run in range(runs_max):
        shares = share_out({number: end - lows[number] for number, end in enumerate(ends)}, offsets_max, turn=sum(lows))
        lows = [low + shares[number] for number, low in enumerate(lows)]
    assert lows == ends


def test_with_fewer_offsets_than_partitions_each_has_its_turn() -> None:
    lows = [0] * 10
    for _run in range(5):
        shares = share_out(dict.fromkeys(range(10), 1_000), 2, turn=sum(lows))
        lows = [low + shares[number] for number, low in enumerate(lows)]
    assert lows == [1] * 10


@pytest.mark.parametrize(
    ("sizes", "load"),
    [
        (Sizes(SizeEstimator.UNIT), 1_000_000),
        (Sizes(SizeEstimator.AVERAGE_RECORD_SIZE), 7_200 * 1_024),
        (Sizes(SizeEstimator.AVERAGE_RECORD_SIZE, record_bytes=50), 360_000),
        (Sizes(SizeEstimator.AVERAGE_RECORD_TIME), 7_200 * 1_000),
        (Sizes(SizeEstimator.AVERAGE_RECORD_TIME, record_time_ms=0.5), 7_200 * 500),
        # 7,200 records of 1,000 bytes in an hour are 2,000 B/s; 10 records/s of them, half of them here, times 1.3.
        (Sizes(SizeEstimator.PRODUCE_RATE, record_bytes=1_000, rates={3: 10.0}), 2_000 + 6_500),
        (Sizes(SizeEstimator.PRODUCE_RATE, record_bytes=1_000, rates={4: 10.0}), 2_000),
        (Sizes(SizeEstimator.PRODUCE_RATE, record_bytes=1_000, catch_up_sla_hours=0.5), 4_000),
        (
            Sizes(SizeEstimator.PRODUCE_RATE, record_bytes=1_000, rates={3: 10.0}, produce_rate_scaling=2.0),
            2_000 + 10_000,
        ),
    ],
)
def test_each_estimator_counts_in_millionths_of_its_unit(sizes: Sizes, load: int) -> None:
    assert sizes.estimate_load(3, 7_200, share=0.5) == load


def test_a_topic_that_was_never_read_takes_the_geometric_mean_of_the_others() -> None:
    others = average_record_time_ms([{"record_time_ms": 1.0}, {"record_time_ms": 100.0}, {}])
    assert others == pytest.approx(10.0)
    assert average_record_time_ms([{}, {"record_time_ms": "odd"}]) == 1.0
    spec = source(SizeEstimator.AVERAGE_RECORD_TIME)
    assert recall_sizes(spec, {}, others_time_ms=others).record_time_ms == others
    assert recall_sizes(spec, {"record_time_ms": 3}, others_time_ms=others).record_time_ms == 3


def test_a_run_teaches_bytes_and_times_of_offsets_and_what_a_task_can_do() -> None:
    figures = [
        TaskFigures(100, 20_000, 0.1),
        TaskFigures(100, 60_000, 10.0),
        TaskFigures(0, 0, 1.0),
        TaskFigures(9, 9, 0.0),
    ]

    learned = learn_sizes({"topic_id": "x"}, figures)

    assert learned == {
        "topic_id": "x",
        "record_bytes": 400.0,
        # The geometric mean of 1 ms and 100 ms.
        "record_time_ms": 10.0,
        "task_rates": [200_000, 6_000],
    }
    assert learn_sizes(learned, []) == learned
    later = learn_sizes(learned, [TaskFigures(100, 140_000, 1.0)])
    assert later["record_bytes"] == 400 + 0.3 * 1_000
    assert later["record_time_ms"] == 10.0
    assert recall_task_rates(later) == (200_000, 6_000, 140_000)


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**12), st.floats(0, 10**5)), max_size=60))
def test_what_is_learned_stays_small_and_finite(runs: list[tuple[int, int, float]]) -> None:
    facts: dict[str, object] = {}
    for offsets, file_bytes, duration_s in runs:
        facts = learn_sizes(facts, [TaskFigures(offsets, file_bytes, duration_s)])
    assert len(json.dumps(facts, allow_nan=False)) < 250
    sizes = recall_sizes(source(SizeEstimator.AVERAGE_RECORD_TIME), facts, others_time_ms=1.0)
    assert math.isfinite(sizes.estimate_load(0, 10**12, share=1.0))


def test_produce_rates_follow_the_ends_and_outlast_a_partition_that_does_not_answer() -> None:
    facts = track_production({}, {0: 100, 1: 50}, [0, 1], now_s=1_000.0)
    assert rates_of(facts) == {}
    facts = track_production(facts, {0: 1_100, 1: 50}, [0, 1], now_s=1_010.0)
    assert rates_of(facts) == {0: 100.0, 1: 0.0}
    facts = track_production(facts, {1: 80}, [0, 1], now_s=1_020.0)
    assert rates_of(facts) == {0: 100.0, 1: pytest.approx(0.9)}
    facts = track_production(facts, {0: 9_000, 1: 20}, [0, 1], now_s=1_030.0)
    assert rates_of(facts) == {0: 100.0, 1: pytest.approx(0.9)}
    assert track_production(facts, {0: 9_999, 1: 99}, [0, 1], now_s=1_030.5) == facts
    facts = track_production(facts, {0: 9_000, 1: 20}, [0, 1], now_s=1_040.0)
    assert rates_of(facts) == {0: pytest.approx(70.0), 1: pytest.approx(0.63)}


def test_a_clock_that_went_back_makes_no_rate() -> None:
    facts = track_production({}, {0: 100}, [0], now_s=1_000.0)
    facts = track_production(facts, {0: 200}, [0], now_s=500.0)
    assert rates_of(facts) == {}
    assert rates_of(track_production(facts, {0: 300}, [0], now_s=600.0)) == {0: 1.0}


def test_facts_of_ten_thousand_partitions_take_few_bytes_of_each() -> None:
    ends = dict.fromkeys(range(10_000), 10**12)
    facts = track_production({}, ends, list(ends), now_s=1e9)
    facts = track_production(facts, {n: end + 123_456_789 for n, end in ends.items()}, list(ends), now_s=1e9 + 777)
    assert len(json.dumps(facts)) < 64 * 10_000


@pytest.mark.parametrize(
    "facts",
    [{"produced": 1}, {"produced": {"at": "x", "partitions": {"0": [1]}}}, {"task_rates": {}}, {"record_bytes": -1}],
)
def test_facts_of_another_shape_count_as_none(facts: dict[str, object]) -> None:
    sizes = recall_sizes(source(SizeEstimator.PRODUCE_RATE), facts, others_time_ms=1.0)
    assert sizes.estimate_load(0, 3_600, share=1.0) == 1_024
    assert recall_task_rates(facts) == ()


def rates_of(facts: dict[str, object]) -> dict[int, float]:
    return dict(recall_sizes(source(SizeEstimator.PRODUCE_RATE), facts, others_time_ms=1.0).rates or {})
