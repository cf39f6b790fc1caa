"""What a commit policy publishes, over every mixture of attempts, keys and failures."""

import itertools
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.interval import Interval, find_gaps
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.policy import CommitPolicy, UnitResult, decide_commit
from gobblin_assets.model.state import AttemptId
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId

KEY_WIDTH = 10


def make_result(key: str, number: int, attempt: int | None, *, succeeded: bool) -> UnitResult:
    low = number * KEY_WIDTH
    return UnitResult(
        unit=WorkUnit(
            id=WorkUnitId(uuid.uuid5(uuid.NAMESPACE_OID, f"{key}{number}")),
            dataset=DatasetUrn("orders"),
            partition=WHOLE,
            key=key,
            number=number,
            interval=Interval(long_watermark(low), long_watermark(low + KEY_WIDTH)),
        ),
        succeeded=succeeded,
        attempt=None if attempt is None else AttemptId(uuid.UUID(int=attempt)),
    )


@st.composite
def results(draw: st.DrawFn) -> list[UnitResult]:
    """Units of up to three keys, spread over up to five attempts; an attempt's units may lie in several keys."""
    made = []
    for key in "abc"[: draw(st.integers(1, 3))]:
        for number in range(draw(st.integers(1, 5))):
            succeeded = draw(st.booleans())
            # A unit that succeeded without rows was not staged.
            attempt = draw(st.one_of(st.none(), st.integers(1, 5)))
            made.append(make_result(key, number, attempt, succeeded=succeeded))
    return draw(st.permutations(made))


@given(st.sampled_from(CommitPolicy), results(), st.booleans())
def test_staged_attempts_are_published_or_discarded_each_once(
    policy: CommitPolicy, given_results: list[UnitResult], replaces: bool
) -> None:
    decision = decide_commit(policy, given_results, replaces=replaces)
    staged = {result.attempt for result in given_results if result.attempt is not None}
    assert set(decision.winners) | set(decision.discarded) == staged
    assert not set(decision.winners) & set(decision.discarded)
    assert len(decision.winners) == len(set(decision.winners))


@given(st.sampled_from(CommitPolicy), results(), st.booleans())
def test_a_published_row_lies_below_its_keys_new_watermark_and_everything_below_is_published(
    policy: CommitPolicy, given_results: list[UnitResult], replaces: bool
) -> None:
    decision = decide_commit(policy, given_results, replaces=replaces)
    highs = {advance.key: advance.high for advance in decision.advances}
    for result in given_results:
        published = highs.get(result.unit.key)
        unit, low = result.unit.interval, result.unit.interval and result.unit.interval.low
        assert unit is not None
        assert low is not None
        inside = published is not None and low < published
        if result.attempt in decision.winners and result.succeeded:
            assert published is not None
            assert unit.high <= published, "published, but read again by the next run: doubled"
        if inside and result.attempt is not None:
            assert result.attempt in decision.winners, "below the watermark, but not published: lost"
        if inside:
            assert result.succeeded


@given(results(), st.sampled_from(CommitPolicy))
def test_full_and_replacements_are_all_or_nothing(given_results: list[UnitResult], policy: CommitPolicy) -> None:
    everything = all(result.succeeded for result in given_results)
    for decision in (
        decide_commit(CommitPolicy.FULL, given_results, replaces=False),
        decide_commit(policy, given_results, replaces=True),
    ):
        assert decision.publish == decision.complete == everything
        if not everything:
            assert decision.winners == ()
            assert decision.advances == ()


@given(st.sampled_from(CommitPolicy), results())
def test_the_order_of_results_decides_nothing(policy: CommitPolicy, given_results: list[UnitResult]) -> None:
    one = decide_commit(policy, given_results, replaces=False)
    other = decide_commit(policy, list(reversed(given_results)), replaces=False)
    assert set(one.winners) == set(other.winners)
    assert set(one.advances) == set(other.advances)


def test_an_attempt_with_one_unit_behind_a_failure_takes_its_other_keys_along() -> None:
    decision = decide_commit(
        CommitPolicy.SUCCESSFUL,
        [
            make_result("a", 0, None, succeeded=False),
            make_result("a", 1, 1, succeeded=True),
            make_result("b", 0, 1, succeeded=True),
            make_result("b", 1, 2, succeeded=True),
        ],
        replaces=False,
    )
    assert decision.winners == ()
    assert not decision.publish


def make_interval(low: int | None, high: int) -> Interval:
    return Interval(None if low is None else long_watermark(low), long_watermark(high))


@given(st.tuples(st.integers(0, 9), st.integers(0, 5)), st.tuples(st.integers(0, 9), st.integers(0, 5)))
def test_intervals_overlap_exactly_when_they_share_a_position(one: tuple[int, int], other: tuple[int, int]) -> None:
    first, second = make_interval(one[0], sum(one)), make_interval(other[0], sum(other))
    shared = set(range(one[0], sum(one))) & set(range(other[0], sum(other)))
    assert first.overlaps(second) == second.overlaps(first) == bool(shared)


@given(st.lists(st.integers(0, 40), unique=True, min_size=2, max_size=12), st.randoms())
def test_gaps_are_exactly_what_no_interval_covers(cuts: list[int], random: object) -> None:
    cuts.sort()
    kept = [make_interval(low, high) for low, high in itertools.pairwise(cuts)][::2]
    random.shuffle(kept)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    found = {(gap.after.value, gap.before.value) for gap in find_gaps(kept) if gap.before is not None}
    ends = sorted((i.low.value, i.high.value) for i in kept if i.low is not None)  # type: ignore[type-var]  # longs
    assert found == {(a[1], b[0]) for a, b in itertools.pairwise(ends) if a[1] != b[0]}


def test_an_interval_from_before_everything_leaves_no_gap_below_it() -> None:
    assert find_gaps([make_interval(None, 5), make_interval(5, 9)]) == []
    assert make_interval(None, 5).overlaps(make_interval(4, 9))


def test_an_interval_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(RejectedError, match="ends before it starts"):
        make_interval(5, 4)
