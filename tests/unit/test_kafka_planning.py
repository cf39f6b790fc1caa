"""Where each partition of a topic goes on, whatever happened to its log or to the brokers since the last run."""

import itertools
from typing import Any

import pytest

from gobblin_assets.errors import CorruptionError, RejectedError, RetryableError
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.watermark import Watermark, WatermarkType, long_watermark
from gobblin_assets.run.job_kind import Restart, StartAt
from gobblin_assets.sources.kafka.cluster import TopicPartition
from gobblin_assets.sources.kafka.keys import PartitionKey, parse_key
from gobblin_assets.sources.kafka.planning import limit_run
from tests.support.topic_plans import Follower, offsets_of, ranges_of


@pytest.mark.parametrize(
    ("kafka", "at_time", "expected"),
    [
        ({}, None, (40, 100)),
        ({"bootstrap_with": "earliest"}, None, (40, 100)),
        ({"bootstrap_with": "latest"}, None, (100, 100)),
        ({"bootstrap_with": "offset_lookback", "offset_lookback": 25}, None, (75, 100)),
        ({"bootstrap_with": "offset_lookback", "offset_lookback": 500}, None, (40, 100)),
        ({"bootstrap_with": "timestamp", "bootstrap_timestamp": "2013-01-01"}, 60, (60, 100)),
        ({"bootstrap_with": "timestamp", "bootstrap_timestamp": "2013-01-01"}, 7, (40, 100)),
        ({"bootstrap_with": "timestamp", "bootstrap_timestamp": "2013-01-01"}, 130, (100, 100)),
        ({"bootstrap_with": "timestamp", "bootstrap_timestamp": "2013-01-01"}, None, (100, 100)),
    ],
)
def test_a_topic_begins_where_its_bootstrap_rule_says(
    kafka: dict[str, Any], at_time: int | None, expected: tuple[int, int]
) -> None:
    decision = Follower(kafka).decide(offsets_of({0: (40, 100)}), at_time={0: at_time})

    assert ranges_of(decision) == {"MyTopic:0": expected}
    assert decision.ranges[0].offsets.lost == expected[0] - 40
    assert bool(decision.notes) == (expected[0] > 40)


def test_a_topic_that_is_skipped_at_first_stays_skipped_but_for_partitions_that_are_added() -> None:
    follower = Follower({"bootstrap_with": "skip"})
    assert follower.follow(offsets_of({0: (0, 100), 1: (0, 5)})) == {}
    assert follower.follow(offsets_of({0: (0, 110), 1: (0, 5), 2: (0, 7)})) == {"MyTopic:2": (0, 7)}


@pytest.mark.parametrize(
    ("rule", "watermark", "expected", "lost", "repeated"),
    [
        ("nearest", 10, {"MyTopic:0": (40, 100)}, 30, 0),
        ("earliest", 10, {"MyTopic:0": (40, 100)}, 30, 0),
        ("latest", 10, {"MyTopic:0": (100, 100)}, 90, 0),
        ("nearest", 250, {"MyTopic:0#1": (100, 100)}, 60, 0),
        ("latest", 250, {"MyTopic:0#1": (100, 100)}, 60, 0),
        ("earliest", 250, {"MyTopic:0#1": (40, 100)}, 0, 60),
        ("nearest", 40, {"MyTopic:0": (40, 100)}, 0, 0),
        ("nearest", 100, {"MyTopic:0": (100, 100)}, 0, 0),
    ],
)
def test_a_reset_counts_what_it_skips_and_repeats_and_never_reuses_offsets_of_a_key(
    rule: str, watermark: int, expected: dict[str, tuple[int, int]], lost: int, repeated: int
) -> None:
    follower = Follower({"reset_on_out_of_range": rule})
    follower.follow(offsets_of({0: (0, watermark)}))

    decision = follower.decide(offsets_of({0: (40, 100)}))

    assert ranges_of(decision) == expected
    (chosen,) = decision.ranges.values()
    assert (chosen.offsets.lost, chosen.offsets.repeated) == (lost, repeated)
    for count in filter(None, (lost, repeated)):
        assert f"{count} offsets" in " ".join(decision.notes)
    follower.publish(decision)
    (key,) = expected
    assert follower.follow(offsets_of({0: (40, 120)})) == {key: (100, 120)}


@pytest.mark.parametrize("watermark", [10, 250])
def test_an_offset_out_of_range_stops_the_dataset_unless_a_rule_says_otherwise(watermark: int) -> None:
    follower = Follower()
    follower.follow(offsets_of({0: (0, watermark)}))
    with pytest.raises(RejectedError, match=f"next offset is {watermark}, and the broker has 40 to 100") as refused:
        follower.decide(offsets_of({0: (40, 100)}))
    assert "reset_on_out_of_range" in str(refused.value)


@pytest.mark.parametrize("watermark", [10, 250])
def test_a_partition_out_of_range_can_be_left_out_and_keeps_its_watermark(watermark: int) -> None:
    follower = Follower({"reset_on_out_of_range": "skip"})
    follower.follow(offsets_of({0: (0, watermark), 1: (0, 5)}))

    decision = follower.decide(offsets_of({0: (40, 100), 1: (0, 9)}))

    assert ranges_of(decision) == {"MyTopic:1": (5, 9)}
    assert f"next offset is {watermark}" in decision.notes[0]
    follower.publish(decision)
    assert follower.watermarks["MyTopic:0"] == watermark


def test_a_partition_that_was_added_is_read_from_its_beginning_whatever_the_bootstrap_rule() -> None:
    follower = Follower({"bootstrap_with": "latest"})
    follower.follow(offsets_of({0: (0, 100)}))

    decision = follower.decide(offsets_of({0: (0, 120), 1: (3, 8)}))

    assert ranges_of(decision) == {"MyTopic:0": (100, 120), "MyTopic:1": (3, 8)}
    assert decision.ranges[1].offsets.lost == 3


def test_a_partition_whose_offsets_failed_keeps_its_watermark_and_is_not_forgotten() -> None:
    follower = Follower({"bootstrap_with": "latest"})
    follower.follow(offsets_of({0: (0, 100), 1: (0, 50)}))

    decision = follower.decide(offsets_of({0: (0, 110)}, 1))

    assert ranges_of(decision) == {"MyTopic:0": (100, 110)}
    assert decision.degraded == ["MyTopic:1 is left out, its watermark stays: no leader"]
    follower.publish(decision)
    assert follower.follow(offsets_of({0: (0, 110), 1: (0, 70)})) == {"MyTopic:0": (110, 110), "MyTopic:1": (50, 70)}


def test_a_partition_that_the_brokers_don_t_name_for_once_keeps_its_watermark() -> None:
    follower = Follower()
    follower.follow(offsets_of({0: (0, 100), 1: (0, 50)}))

    decision = follower.decide(offsets_of({0: (0, 110)}))

    assert decision.degraded == ["MyTopic:1 is left out, its watermark stays: the brokers don't name it any more"]
    follower.publish(decision)
    assert follower.follow(offsets_of({0: (0, 110), 1: (0, 51)}))["MyTopic:1"] == (50, 51)


@pytest.mark.parametrize(
    ("kafka", "expected"),
    [
        ({"bootstrap_with": "latest"}, (60, 60)),
        ({"bootstrap_with": "offset_lookback", "offset_lookback": 10}, (50, 60)),
        ({"bootstrap_with": "timestamp", "bootstrap_timestamp": "2013-01-01"}, (30, 60)),
    ],
)
def test_a_partition_that_failed_at_the_very_first_run_gets_the_bootstrap_rule_later(
    kafka: dict[str, Any], expected: tuple[int, int]
) -> None:
    follower = Follower(kafka)
    follower.publish(follower.decide(offsets_of({0: (0, 100)}, 1), at_time={0: 70}))

    decision = follower.decide(offsets_of({0: (0, 100), 1: (0, 60)}), at_time={1: 30})

    assert ranges_of(decision)["MyTopic:1"] == expected


def test_a_partition_that_was_read_in_vain_at_the_first_run_gets_the_bootstrap_rule_again() -> None:
    follower = Follower({"bootstrap_with": "timestamp", "bootstrap_timestamp": "2013-01-01"})
    first = follower.decide(offsets_of({0: (0, 100), 1: (0, 50)}), at_time={0: 70, 1: 30})
    follower.publish(first, without=frozenset({1}))

    again = follower.decide(offsets_of({0: (0, 100), 1: (0, 55)}), at_time={1: 30})

    assert ranges_of(again) == {"MyTopic:0": (100, 100), "MyTopic:1": (30, 55)}


def test_no_partition_that_answers_is_a_failure_that_passes() -> None:
    with pytest.raises(RetryableError, match="none of its 2 partitions could be fetched: no leader"):
        Follower().decide(offsets_of({}, 0, 1))


def test_a_topic_that_was_made_anew_stops_the_dataset_and_says_how_to_start_over() -> None:
    follower = Follower()
    follower.follow(offsets_of({0: (0, 100)}))
    with pytest.raises(RejectedError, match="deleted and made again: its id was first and is second") as refused:
        follower.decide(offsets_of({0: (0, 100)}, topic_id="second"))
    assert "--start-over" in str(refused.value)
    with pytest.raises(RejectedError, match="deleted and made again"):
        follower.decide(offsets_of({0: (0, 100)}, topic_id="second"), Restart.MOVE_TO_LATEST)


def test_starting_over_follows_the_bootstrap_rule_under_keys_of_their_own() -> None:
    follower = Follower()
    follower.follow(offsets_of({0: (0, 100), 1: (0, 50)}))

    started = follower.follow(offsets_of({0: (0, 3), 1: (0, 4)}, topic_id="second"), Restart.START_OVER)

    assert started == {"MyTopic:0#1": (0, 3), "MyTopic:1#1": (0, 4)}
    assert follower.follow(offsets_of({0: (0, 5), 1: (0, 4)}, topic_id="second")) == {
        "MyTopic:0#1": (3, 5),
        "MyTopic:1#1": (4, 4),
    }
    assert follower.watermarks["MyTopic:0"] == 100


def test_a_partition_of_the_topic_before_leaves_no_position_to_the_one_that_is_added_later() -> None:
    follower = Follower()
    follower.follow(offsets_of({0: (0, 100), 1: (0, 50)}))
    follower.follow(offsets_of({0: (0, 3)}, topic_id="second"), Restart.START_OVER)

    added = follower.follow(offsets_of({0: (0, 3), 1: (0, 80)}, topic_id="second"))

    assert added == {"MyTopic:0#1": (3, 3), "MyTopic:1#1": (0, 80)}


def test_a_partition_that_could_not_be_started_over_does_not_go_on_from_before() -> None:
    follower = Follower()
    follower.follow(offsets_of({0: (0, 100), 1: (0, 50)}))
    started = follower.decide(offsets_of({0: (0, 3), 1: (0, 60)}, topic_id="second"), Restart.START_OVER)
    follower.publish(started, without=frozenset({1}))

    assert follower.follow(offsets_of({0: (0, 3), 1: (0, 60)}, topic_id="second"))["MyTopic:1#1"] == (0, 60)


def test_starting_over_waits_until_all_partitions_answer() -> None:
    follower = Follower()
    follower.follow(offsets_of({0: (0, 100), 1: (0, 50)}))
    with pytest.raises(RetryableError, match="can't start over: the offsets of 1 of its partitions"):
        follower.decide(offsets_of({0: (0, 3)}, 1, topic_id="second"), Restart.START_OVER)


def test_a_key_of_a_publication_that_was_given_up_is_no_position() -> None:
    follower = Follower({"reset_on_out_of_range": "nearest", "bootstrap_with": "latest"})
    follower.follow(offsets_of({0: (0, 100)}))
    follower.watermarks["MyTopic:0#1"] = None

    assert follower.follow(offsets_of({0: (0, 130)})) == {"MyTopic:0": (100, 130)}


def test_a_watermark_that_is_no_offset_is_never_taken_for_a_topic_without_one() -> None:
    follower = Follower(watermarks={"MyTopic:0": Watermark(WatermarkType.STRING, "x")})
    with pytest.raises(CorruptionError, match="watermark of MyTopic:0 is x, which is no offset"):
        follower.decide(offsets_of({0: (0, 100)}))


@pytest.mark.parametrize(
    ("before", "expected", "lost"),
    [(60, {"MyTopic:0": (100, 100)}, 40), (250, {"MyTopic:0#1": (100, 100)}, 0), (None, {"MyTopic:0": (100, 100)}, 60)],
)
def test_moving_to_the_end_skips_what_is_there_and_goes_on_behind_it(
    before: int | None, expected: dict[str, tuple[int, int]], lost: int
) -> None:
    follower = Follower()
    if before is not None:
        follower.follow(offsets_of({0: (0, before)}))

    decision = follower.decide(offsets_of({0: (40, 100)}), Restart.MOVE_TO_LATEST)

    assert ranges_of(decision) == expected
    assert decision.ranges[0].offsets.lost == lost
    assert f"{lost} offsets are skipped" in decision.notes[0]
    follower.publish(decision)
    assert follower.follow(offsets_of({0: (40, 108)})) == {next(iter(expected)): (100, 108)}


def test_a_bound_of_offsets_leaves_the_rest_to_later_runs_without_a_gap() -> None:
    follower = Follower({"records_per_partition_max": 30})
    runs = [follower.follow(offsets_of({0: (0, 100), 1: (0, 10)})) for _ in range(5)]
    assert [run["MyTopic:0"] for run in runs] == [(0, 30), (30, 60), (60, 90), (90, 100), (100, 100)]
    assert [run["MyTopic:1"] for run in runs] == [(0, 10), *[(10, 10)] * 4]


def test_a_bound_of_the_run_is_shared_by_all_topics_and_nothing_is_left_out() -> None:
    topics = {"huge": offsets_of({0: (0, 700), 1: (0, 400)}), "small": offsets_of({0: (0, 20)})}
    followers = {name: Follower(topic=name) for name in topics}
    runs = []
    for _run in range(7):
        decisions = [followers[name].decide(offsets) for name, offsets in topics.items()]
        limit_run(decisions, 200)
        for decision in decisions:
            followers[decision.topic].publish(decision)
        runs.append({key: found for decision in decisions for key, found in ranges_of(decision).items()})

    assert runs[0] == {"huge:0": (0, 90), "huge:1": (0, 90), "small:0": (0, 20)}
    assert runs[1]["small:0"] == (20, 20)
    assert runs[-1] == {"huge:0": (700, 700), "huge:1": (400, 400), "small:0": (20, 20)}
    for key in runs[0]:
        assert all(one[key][1] == other[key][0] for one, other in itertools.pairwise(runs))
    assert all(sum(high - low for low, high in run.values()) <= 200 for run in runs)


def test_what_a_bound_leaves_to_the_next_run_is_said() -> None:
    decision = Follower({"records_per_partition_max": 60}).decide(offsets_of({0: (0, 100), 1: (0, 70)}))
    limit_run([decision], 100)
    assert decision.notes == [
        "MyTopic: 50 offsets are left to the next run",
        "MyTopic: 20 offsets are left to the next run",
    ]


@pytest.mark.parametrize(("end", "count"), [(0, 1), (1, 1), (10, 1), (11, 2), (35, 4), (10_000, 6)])
def test_a_range_is_cut_into_equal_work_units_that_follow_each_other(end: int, count: int) -> None:
    units = Follower(split={"work_unit_rows": 10, "max_partitions": 6}).cut(offsets_of({0: (0, end)}))

    intervals = [unit.interval for unit in units if unit.interval is not None]
    assert len(intervals) == len(units) == count
    assert [unit.number for unit in units] == list(range(count))
    assert (intervals[0].low, intervals[-1].high) == (long_watermark(0), long_watermark(end))
    assert all(one.high == other.low for one, other in itertools.pairwise(intervals))
    widths = [unit.estimated_row_count or 0 for unit in units]
    assert sum(widths) == end
    assert max(widths) - min(widths) <= 1


def test_a_partition_without_news_is_one_empty_work_unit() -> None:
    follower = Follower()
    follower.follow(offsets_of({0: (0, 100)}))
    (unit,) = follower.cut(offsets_of({0: (0, 100)}))
    assert unit.is_empty
    assert unit.interval == Interval(long_watermark(100), long_watermark(100))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("MyTopic:0", PartitionKey(TopicPartition("MyTopic", 0))),
        ("My.Topic-x_y:12#3", PartitionKey(TopicPartition("My.Topic-x_y", 12), 3)),
        ("a:1:2", PartitionKey(TopicPartition("a:1", 2))),
    ],
)
def test_a_key_is_read_as_it_was_written(text: str, key: PartitionKey) -> None:
    assert parse_key(text) == key
    assert str(key) == text


@pytest.mark.parametrize("text", ["", "rows", "MyTopic", ":0", "MyTopic:", "MyTopic:x", "MyTopic:0#"])
def test_what_is_no_key_of_a_partition_is_not_taken_for_one(text: str) -> None:
    assert parse_key(text) is None


@pytest.mark.parametrize(
    ("watermarks", "given", "expected", "said"),
    [
        ({"MyTopic:0": 50}, 70, {"MyTopic:0": (70, 100)}, "20 offsets are left out"),
        ({"MyTopic:0": 50}, 50, {"MyTopic:0": (50, 100)}, "given by hand"),
        ({"MyTopic:0": 50}, 45, {"MyTopic:0#1": (45, 100)}, "5 offsets are read that were read before"),
        ({"MyTopic:0": 50}, 100, {"MyTopic:0": (100, 100)}, "50 offsets are left out"),
        ({"MyTopic:0": 7}, 40, {"MyTopic:0": (40, 100)}, "33 offsets are left out"),
        ({"MyTopic:0": 250}, 60, {"MyTopic:0#1": (60, 100)}, "190 offsets are read that were read before"),
        ({}, 60, {"MyTopic:0": (60, 100)}, "20 offsets are left out"),
    ],
)
def test_an_offset_given_by_hand_is_where_its_partition_goes_on(
    watermarks: dict[str, int | Watermark | None], given: int, expected: dict[str, tuple[int, int]], said: str
) -> None:
    follower = Follower(watermarks={**watermarks, "MyTopic:1": 3}, facts={"partitions_at_bootstrap": [0, 1]})
    decision = follower.decide(offsets_of({0: (40, 100), 1: (0, 5)}), StartAt({0: given}))
    assert ranges_of(decision) == {**expected, "MyTopic:1": (3, 5)}
    assert said in decision.notes[0]
    moved = follower.decide(offsets_of({0: (40, 100), 1: (0, 5)}), StartAt({0: given}), only_moves=True)
    begins = {key: (low, low) for key, (low, _high) in expected.items()}
    assert ranges_of(moved) == {**begins, "MyTopic:1": (3, 3)}, "nothing is read"


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({0: 39}, RejectedError, r"start_at: MyTopic:0: expected an offset from 40 to 100, found 39"),
        ({0: 101}, RejectedError, r"start_at: MyTopic:0: expected an offset from 40 to 100, found 101"),
        ({7: 1}, RejectedError, r"start_at: MyTopic has no partition 7. It has 0, 1"),
        ({1: 1}, RetryableError, r"MyTopic:1 can't start at 1: no leader"),
    ],
)
def test_an_offset_given_by_hand_that_the_log_does_not_have_is_refused(
    given: dict[int, int], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        Follower().decide(offsets_of({0: (40, 100)}, 1), StartAt(given))
