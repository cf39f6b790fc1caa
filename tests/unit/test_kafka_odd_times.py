"""Which offsets are read apart from Spark: those beyond time, and the few offsets between near ones."""

from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.sources.kafka.cluster import TopicPartition
from gobblin_assets.sources.kafka.topic_reader import is_time_overflow, plan_spans, split_ranges

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


@given(st.sets(st.integers(0, 200)).map(sorted), st.integers(1, 6))
def test_spans_hold_all_offsets_in_few_pieces_and_begin_and_end_with_one(offsets: list[int], spans_max: int) -> None:
    spans = plan_spans(offsets, spans_max)
    assert len(spans) <= spans_max
    assert all(low in offsets and high - 1 in offsets for low, high in spans)
    assert spans == sorted(spans)
    assert all(any(low <= each < high for low, high in spans) for each in offsets)


def test_spans_are_cut_where_most_lies_between() -> None:
    assert plan_spans([], 3) == []
    assert plan_spans([5, 6, 7], 3) == [(5, 8)]
    assert plan_spans([1, 3, 50, 51, 90], 3) == [(1, 4), (50, 52), (90, 91)]
    assert plan_spans([1, 3, 50, 51, 90], 2) == [(1, 4), (50, 91)]


@given(
    st.dictionaries(st.sampled_from([A, B]), st.tuples(st.integers(0, 9), st.integers(10, 30))),
    st.dictionaries(st.sampled_from([A, B]), st.sets(st.integers(10, 29), min_size=1)),
)
def test_every_offset_is_read_once(
    ranges: dict[TopicPartition, tuple[int, int]], beyond: dict[TopicPartition, set[int]]
) -> None:
    found = {
        name: [each for each in sorted(offsets) if each < ranges[name][1]]
        for name, offsets in beyond.items()
        if name in ranges
    }
    spans = {name: plan_spans(offsets, 3) for name, offsets in found.items()}
    between, around = split_ranges(ranges, spans)
    read = [(name, each) for layer in (*between, *around) for name, piece in layer.items() for each in range(*piece)]
    assert sorted(read, key=str) == sorted(((n, e) for n, r in ranges.items() for e in range(*r)), key=str)
    assert not {(n, e) for layer in around for n, piece in layer.items() for e in range(*piece)} & {
        (name, each) for name, offsets in found.items() for each in offsets
    }


def test_only_what_may_be_the_source_s_own_failure_is_taken_for_it() -> None:
    assert is_time_overflow(RuntimeError("java.lang.ArithmeticException: long overflow"))
    assert not is_time_overflow(RuntimeError("[ARITHMETIC_OVERFLOW] long overflow. Use try_add"))
    assert not is_time_overflow(RuntimeError("out of memory"))
