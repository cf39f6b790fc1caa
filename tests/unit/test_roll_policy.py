"""When the open files of a lane are due to be cut."""

import datetime as dt

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink.sink_rules import EMPTY_CUT_AGE_S, FAR_CUT_AGE_S, RollPolicy, check_roll_policy

BEGAN = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def is_old(policy: RollPolicy, waited_s: float, *, has_rows: bool = True) -> bool:
    return policy.is_old(opened_at=BEGAN, at=BEGAN + dt.timedelta(seconds=waited_s), has_rows=has_rows)


@pytest.mark.parametrize(
    ("policy", "row_count", "size_bytes", "expected"),
    [
        (RollPolicy(rows_max=10), 9, 1 << 40, False),
        (RollPolicy(rows_max=10), 10, 0, True),
        (RollPolicy(bytes_max=100), 1 << 40, 99, False),
        (RollPolicy(bytes_max=100), 0, 100, True),
        (RollPolicy(rows_max=10, bytes_max=100), 3, 100, True),
        (RollPolicy(age_s=0.0), 1 << 40, 1 << 40, False),
    ],
)
def test_the_first_bound_that_is_reached_fills_files(
    *, policy: RollPolicy, row_count: int, size_bytes: int, expected: bool
) -> None:
    assert policy.is_full(row_count=row_count, size_bytes=size_bytes) is expected


def test_age_lies_between_barriers() -> None:
    assert not is_old(RollPolicy(age_s=30), 29.9)
    assert is_old(RollPolicy(age_s=30), 30)
    assert is_old(RollPolicy(age_s=0), 0)
    assert not is_old(RollPolicy(rows_max=1), 1e9)
    assert not is_old(RollPolicy(age_s=30), -5), "a log whose clock went back"


def test_positions_without_rows_wait_longer() -> None:
    assert not is_old(RollPolicy(age_s=0), EMPTY_CUT_AGE_S - 1, has_rows=False)
    assert is_old(RollPolicy(age_s=0), EMPTY_CUT_AGE_S, has_rows=False)
    assert not is_old(RollPolicy(age_s=900), EMPTY_CUT_AGE_S, has_rows=False)
    assert is_old(RollPolicy(rows_max=1), EMPTY_CUT_AGE_S, has_rows=False), "else the log would never be truncated"


def test_positions_that_moved_far_wait_less() -> None:
    def is_far(policy: RollPolicy, waited_s: float, span: int) -> bool:
        return policy.is_far(opened_at=BEGAN, at=BEGAN + dt.timedelta(seconds=waited_s), span=span)

    bounded = RollPolicy(age_s=900, span_max=100)
    assert is_far(bounded, FAR_CUT_AGE_S, 100)
    assert not is_far(bounded, FAR_CUT_AGE_S - 1, 1 << 40), "a cut at each barrier would cost more than it frees"
    assert not is_far(bounded, 1e9, 99)
    assert not is_far(RollPolicy(age_s=0), 1e9, 1 << 40)


def test_a_policy_that_never_closes_is_refused() -> None:
    with pytest.raises(RejectedError, match="never be closed") as refused:
        check_roll_policy(RollPolicy(), field="roll")
    assert (refused.value.field, bool(refused.value.hint)) == ("roll", True)
    for good in (RollPolicy(rows_max=1), RollPolicy(bytes_max=1), RollPolicy(age_s=0)):
        check_roll_policy(good, field="roll")


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (RollPolicy(rows_max=0), "roll.rows_max"),
        (RollPolicy(rows_max=5, bytes_max=-1), "roll.bytes_max"),
        (RollPolicy(age_s=-0.5), "roll.age_s"),
        (RollPolicy(age_s=float("inf")), "roll.age_s"),
        (RollPolicy(age_s=float("nan")), "roll.age_s"),
    ],
)
def test_a_bound_that_is_none_is_refused(policy: RollPolicy, field: str) -> None:
    with pytest.raises(RejectedError) as refused:
        check_roll_policy(policy, field="roll")
    assert refused.value.field == field
