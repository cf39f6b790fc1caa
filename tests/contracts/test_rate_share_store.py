"""What any store of shared rates must do: Postgres and the simulated database alike."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.state.rate_shares import SharedRate
from tests.support.commit_log import TTL_S, LogWorld

RATE: Final = SharedRate("nightly", 1e6, None, 2)
OTHER: Final = replace(RATE, name="daily", shares=1)
A, B, C = (uuid.UUID(int=number) for number in (1, 2, 3))


def take(log: LogWorld, holder: uuid.UUID, rate: SharedRate = RATE) -> bool:
    return log.rate_shares.take(rate, holder, ttl_s=TTL_S)


def test_there_are_no_more_holders_than_shares(log: LogWorld) -> None:
    assert [take(log, holder) for holder in (A, B, C)] == [True, True, False]
    assert take(log, C, OTHER), "another rate has shares of its own"
    log.rate_shares.release(RATE, A)
    assert take(log, C)
    assert not take(log, A)


def test_a_share_that_is_held_is_not_taken_twice_by_its_holder(log: LogWorld) -> None:
    """The acknowledgement of the first may have been lost."""
    assert [take(log, A), take(log, A), take(log, B)] == [True, True, True]
    log.rate_shares.release(RATE, A)
    assert take(log, C)


def test_a_share_that_ran_out_is_another_s(log: LogWorld) -> None:
    assert take(log, A)
    assert take(log, B)
    log.advance(TTL_S / 2)
    assert log.rate_shares.renew(RATE, B, ttl_s=TTL_S)
    log.advance(TTL_S / 2 + 1)
    assert take(log, C)
    assert not log.rate_shares.renew(RATE, A, ttl_s=TTL_S)
    assert not take(log, A)
    log.rate_shares.release(RATE, A)
    assert not take(log, A), "what somebody else holds was released"


def test_a_share_that_ran_out_and_that_nobody_took_goes_on(log: LogWorld) -> None:
    assert take(log, A)
    log.advance(TTL_S + 1)
    assert log.rate_shares.renew(RATE, A, ttl_s=TTL_S)
    assert [take(log, B), take(log, C)] == [True, False]


def test_one_name_is_one_rate_for_all_that_hold_it(log: LogWorld) -> None:
    assert take(log, A)
    with pytest.raises(RejectedError, match="2 shares for a job that holds") as error:
        take(log, B, replace(RATE, shares=3))
    assert error.value.field == "rate"
    log.advance(TTL_S + 1)
    assert take(log, B, replace(RATE, shares=3))


def test_takers_at_once_get_different_shares(log: LogWorld) -> None:
    if type(log.rate_shares).__name__.startswith("Sim"):
        pytest.skip("the simulated database has one thread")
    holders = [uuid.UUID(int=number) for number in range(1, 9)]
    with ThreadPoolExecutor(len(holders)) as pool:
        taken = list(pool.map(lambda holder: take(log, holder), holders))
    assert sorted(taken) == [False] * 6 + [True] * 2
    assert sorted(log.backing.list_rows("rate_share", "share")) == [(1,), (2,)]
