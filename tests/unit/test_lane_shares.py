"""How lanes are shared among workers: each worker decides about itself."""

import pytest

from gobblin_assets.commit.lanes import LaneState
from gobblin_assets.jobs.sink.lane_shares import decide_shares
from gobblin_assets.model.state import LaneId
from gobblin_assets.model.watermark import long_watermark


def lane(number: int, *, is_live: bool = True) -> LaneState:
    return LaneState(LaneId(number), number, 0, is_live, "host:1", {f"t:{number}": long_watermark(1)})


@pytest.mark.parametrize(
    ("in_use", "mine", "quota", "take", "give_back"),
    [
        ([lane(0), lane(1)], {0, 1}, 2, (), ()),
        ([lane(0), lane(1, is_live=False)], {0}, 2, (1,), ()),
        ([lane(0), lane(1)], {0, 1}, 1, (), (1,)),
        # Lanes 2 and 3 have lost their vnodes: there are fewer lanes now.
        ([lane(0), lane(1)], {0, 1, 2, 3}, 2, (), (2, 3)),
        ([lane(0), lane(1)], {0, 1, 3}, 1, (), (1, 3)),
    ],
)
def test_a_worker_takes_what_is_missing_and_gives_back_what_is_above_its_share_or_not_in_use(
    in_use: list[LaneState], mine: set[int], quota: int, take: tuple[int, ...], give_back: tuple[int, ...]
) -> None:
    shares = decide_shares(in_use, frozenset(map(LaneId, mine)), quota, frozenset())

    assert (shares.take, shares.give_back) == (take, give_back)
