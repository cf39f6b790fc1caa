"""Windows of ingestion: what each window reads; together they read every offset once, in whatever order."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_assets.errors import CorruptionError, RejectedError, RetryableError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval, join_neighbours, subtract_intervals
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.run.job_kind import Restart
from gobblin_assets.sources.kafka.planning import TopicDecision
from gobblin_assets.sources.kafka.windows import Taken, WindowReading, decide_reading
from gobblin_assets.sources.source_port import SourceRequest
from tests.support.topic_windows import HOUR, START, URN, Topic, interval, pairs


def test_the_open_window_goes_on_from_the_watermarks() -> None:
    topic = Topic()
    topic.produce(0, 0, 10)
    assert topic.run(0, 0) == {"MyTopic:0": [(0, 10)]}
    topic.produce(0, 1, 5)
    assert topic.run(1, 1) == {"MyTopic:0": [(10, 15)]}
    assert topic.run(1, 1, mode=Mode.APPEND, by_hand=False) == {}


def test_a_window_that_passed_reads_its_own_offsets_once_more() -> None:
    topic = Topic()
    topic.produce(0, 0, 10)
    topic.run(0, 0)
    # Late by the clock, but read in the second window.
    topic.produce(0, 0, 3)
    topic.produce(0, 1, 5)
    topic.run(1, 1)

    before = list(topic.ledger)
    assert topic.run(0, 2) == {"MyTopic:0": [(0, 10)]}
    assert topic.run(1, 2) == {"MyTopic:0": [(10, 18)]}
    assert sorted(topic.ledger, key=str) == sorted(before, key=str)
    assert topic.watermarks["MyTopic:0"] == long_watermark(18)


def test_a_missed_window_is_filled_by_the_times_of_the_records_and_the_next_run_leaves_that_out() -> None:
    topic = Topic()
    topic.produce(0, 0, 10)
    topic.run(0, 0)
    topic.produce(0, 1, 5)
    topic.produce(0, 2, 7)
    topic.produce(1, 1, 2)
    topic.produce(0, 3, 1)

    assert topic.run(1, 3, mode=Mode.APPEND) == {"MyTopic:0": [(10, 15)], "MyTopic:1": [(0, 2)]}
    assert topic.watermarks == {"MyTopic:0": long_watermark(10), "MyTopic:1": long_watermark(0)}
    assert topic.run(3, 3) == {"MyTopic:0": [(15, 23)]}
    assert topic.watermarks == {"MyTopic:0": long_watermark(23), "MyTopic:1": long_watermark(2)}
    assert topic.run(2, 4, mode=Mode.APPEND) == {}


def test_a_window_from_before_the_topic_was_followed_can_be_filled() -> None:
    topic = Topic({"bootstrap_with": "latest"})
    topic.produce(0, 0, 10)
    topic.produce(0, 1, 5)
    topic.produce(0, 2, 5)
    assert topic.run(2, 2) == {}
    assert topic.run(1, 2) == {"MyTopic:0": [(10, 15)]}
    assert topic.run(0, 2) == {"MyTopic:0": [(0, 10)]}
    assert topic.run(0, 2) == {"MyTopic:0": [(0, 10)]}, "once more"


def test_a_window_that_was_filled_before_the_first_run_is_left_out_of_it() -> None:
    topic = Topic()
    topic.produce(0, 0, 10)
    topic.produce(0, 1, 5)
    topic.produce(0, 2, 5)
    assert topic.run(1, 2) == {"MyTopic:0": [(10, 15)]}
    assert topic.watermarks == {}
    assert topic.run(2, 2) == {"MyTopic:0": [(0, 10), (15, 20)]}
    assert topic.run(1, 3) == {"MyTopic:0": [(10, 15)]}


def test_windows_of_one_run_share_out_what_there_is() -> None:
    topic = Topic()
    topic.produce(0, 0, 10)
    topic.produce(0, 1, 5)
    topic.produce(0, 2, 5)
    taken = Taken()
    requests = [topic.request(window, Mode.APPEND) for window in (1, 2, 0)]
    decided = [(each, *topic.decide(each, 2, taken)) for each in requests]

    assert [pairs_of(decision) for _request, _reading, decision in decided] == [[(10, 15)], [(0, 10)], []]
    topic.publish(*decided[1])
    topic.publish(*decided[0])
    assert topic.run(2, 2) == {"MyTopic:0": [(15, 20)]}


def pairs_of(decision: TopicDecision) -> list[tuple[int, int]]:
    return [
        piece for _number, chosen in sorted(decision.ranges.items()) for piece in chosen.pieces if piece[0] < piece[1]
    ]


def test_the_open_window_ends_where_another_window_of_the_run_begins_so_that_its_failure_leaves_no_gap() -> None:
    topic = Topic()
    topic.produce(0, 0, 10)
    topic.produce(0, 1, 5)
    topic.produce(0, 2, 5)
    taken = Taken()
    fill = topic.request(1, Mode.APPEND)
    topic.decide(fill, 2, taken)
    request = topic.request(2, Mode.APPEND)
    topic.publish(request, *topic.decide(request, 2, taken))

    # The window was not published: the next run reads it.
    assert topic.run(2, 2) == {"MyTopic:0": [(10, 20)]}


@pytest.mark.parametrize(
    ("window", "now_hour", "mode", "by_hand", "published", "expected"),
    [
        (1, 1, Mode.AUTO, True, False, WindowReading.CONTINUE),
        (1, 1, Mode.AUTO, True, True, WindowReading.CONTINUE),
        (1, 1, Mode.REFRESH, True, True, WindowReading.REREAD),
        (1, 1, Mode.REFRESH, True, False, WindowReading.CONTINUE),
        (1, 2, Mode.AUTO, True, True, WindowReading.REREAD),
        (1, 2, Mode.AUTO, False, True, WindowReading.FILL),
        (1, 2, Mode.AUTO, True, False, WindowReading.FILL),
        (1, 2, Mode.APPEND, True, True, WindowReading.FILL),
        (1, 2, Mode.REFRESH, False, True, WindowReading.REREAD),
        (1, 2, Mode.REFRESH, True, False, WindowReading.FILL),
    ],
)
def test_the_clock_and_the_mode_decide_what_is_read(
    window: int, now_hour: int, mode: Mode, by_hand: bool, published: bool, expected: WindowReading
) -> None:
    topic = Topic()
    request = topic.request(window, mode, by_hand=by_hand)
    if published:
        request = replace(request, state=replace(request.state, published=frozenset({str(request.partition)})))
    assert decide_reading(request, START + now_hour * HOUR + HOUR / 2) is expected


def test_a_window_that_has_not_begun_is_refused() -> None:
    with pytest.raises(RejectedError, match=r"2013-01-01-05:00 begins at 2013-01-01 05:00 UTC"):
        Topic().run(5, 4)


@pytest.mark.parametrize("restart", Restart)
def test_only_the_open_window_starts_over(restart: Restart) -> None:
    with pytest.raises(RejectedError, match="has passed"):
        Topic().run(1, 4, restart=restart)
    assert decide_reading(Topic().request(4, restart=restart), START + 4 * HOUR) is WindowReading.CONTINUE


def test_what_the_log_has_no_longer_is_not_replaced() -> None:
    topic = Topic()
    topic.produce(0, 0, 10)
    topic.run(0, 0)
    topic.earliest[0] = 4
    with pytest.raises(RejectedError, match=r"MyTopic:0 was published from 0 to 10, and the log has 4 to 10"):
        topic.run(0, 1)
    topic.earliest[0] = 0
    topic.hours[0] = [0] * 7
    with pytest.raises(RejectedError, match=r"the log has 0 to 7"):
        topic.run(0, 1)
    del topic.hours[0]
    with pytest.raises(RejectedError, match="not that partition any more"):
        topic.run(0, 1)


def test_a_window_of_a_log_that_was_given_up_is_not_replaced() -> None:
    topic = Topic()
    topic.produce(0, 0, 10)
    topic.run(0, 0)
    topic.watermarks["MyTopic:0#1"] = long_watermark(3)
    with pytest.raises(RejectedError, match="MyTopic:0 is a log that is not followed any more"):
        topic.run(0, 1)


def test_a_partition_without_a_leader_is_left_out_of_a_window_that_is_filled_and_stops_one_that_is_read_again() -> None:
    topic = Topic()
    topic.produce(0, 0, 10)
    topic.produce(1, 0, 4)
    topic.failing = frozenset({1})
    request = topic.request(0, Mode.APPEND)
    reading, decision = topic.decide(request, 2)
    assert (pairs_of(decision), len(decision.degraded)) == ([(0, 10)], 1)

    topic.failing = frozenset()
    topic.publish(request, reading, topic.decide(request, 2)[1])
    topic.failing = frozenset({1})
    with pytest.raises(RetryableError, match="no leader"):
        topic.run(0, 2)


def test_no_limit_ends_a_window_that_has_passed() -> None:
    topic = Topic({"records_per_partition_max": 4})
    topic.produce(0, 0, 10)
    topic.produce(0, 1, 10)
    assert topic.run(0, 1) == {"MyTopic:0": [(0, 10)]}
    assert [topic.run(1, 1) for _ in range(4)] == [{"MyTopic:0": [each]} for each in ((10, 14), (14, 18), (18, 20))] + [
        {}
    ]
    assert topic.held() == {"MyTopic:0": [interval(0, 20)]}


def test_planning_what_comes_next_never_asks_the_ledger() -> None:
    topic = Topic()
    topic.produce(0, 0, 10)
    request = topic.request(0)
    bare = SourceRequest(URN, request.partition, request.state, Mode.AUTO, by_hand=True, spec=request.spec)
    assert topic.decide(bare, 0)[0] is WindowReading.CONTINUE
    with pytest.raises(CorruptionError):
        bare.load_intervals(None)


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, int, int, tuple[int, ...]]:
    failing = draw(st.lists(st.integers(0, 6), max_size=2))
    return (
        draw(st.sampled_from(["produce", "run", "run", "past", "tick"])),
        draw(st.integers(0, 1)),
        draw(st.integers(0, 6)),
        tuple(failing),
    )


@given(st.lists(steps(), max_size=25), st.booleans())
@settings(max_examples=300, deadline=None)
def test_whatever_order_windows_are_read_in_every_offset_is_published_once_and_none_is_left(
    moves: list[tuple[str, int, int, tuple[int, ...]]], limited: bool
) -> None:
    topic, now_hour = Topic({"records_per_partition_max": 3} if limited else {}), 0
    for what, partition, number, failing in moves:
        match what:
            case "produce":
                topic.produce(partition, now_hour, number)
            case "run":
                topic.run(now_hour, now_hour, Mode.APPEND, failing=failing)
            case "past" if now_hour:
                # A window that is read again must be whole; otherwise the published rows stay.
                topic.run(number % now_hour, now_hour, failing=failing)
            case _:
                now_hour += 1
    for _ in range(60):
        topic.run(now_hour, now_hour)
    expected = {f"MyTopic:{number}": [interval(0, len(hours))] for number, hours in topic.hours.items() if hours}
    assert topic.held() == expected
    for number, hours in topic.hours.items():
        assert topic.watermarks[f"MyTopic:{number}"] == long_watermark(len(hours))


@given(st.integers(0, 20), st.integers(0, 20), st.sets(st.integers(0, 25)))
def test_what_is_left_of_an_interval_is_what_nobody_holds(low: int, width: int, cuts: set[int]) -> None:
    edges = sorted(cuts)
    held = [interval(first, last) for first, last in list(itertools.pairwise(edges))[::2]]
    left = subtract_intervals(interval(low, low + width), held)

    wanted = {at for at in range(low, low + width) if not any(a <= at < b for a, b in pairs(held))}
    assert {at for first, last in pairs(left) for at in range(first, last)} == wanted
    assert list(left) == sorted(left, key=Interval.low_bytes)
    assert join_neighbours(left) == left
    assert not any(each.is_empty for each in left)
