"""Which cases of the tests a run has: those of consecutive seeds are all of them."""

import pytest

from tests.support.shares import OFTEN_SHARES, SHARES, Share


@pytest.mark.parametrize("of", [OFTEN_SHARES, SHARES])
@pytest.mark.parametrize("count", [1, 2, 11, 40])
def test_as_many_consecutive_seeds_as_there_are_shares_try_each_case_once(count: int, of: int) -> None:
    shares = [Share(seed, of=of).numbers(count, "a test") for seed in range(5, 5 + of)]

    assert sorted(number for share in shares for number in share) == list(range(count))


def test_a_test_of_few_cases_has_one_in_each_run() -> None:
    assert all(len(Share(seed).numbers(2, "a test", at_least_one=True)) == 1 for seed in range(SHARES))
