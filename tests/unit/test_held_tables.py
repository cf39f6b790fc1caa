"""``sink recopy`` beside workers: a try of a table that backs off is waited for, and one that is followed is not."""

from collections.abc import Mapping
from typing import cast

import pytest

from gobblin_assets.commit.lanes import DatasetLanes, LaneState, LaneStore
from gobblin_assets.errors import ConflictError
from gobblin_assets.jobs.sink.recopying import await_free
from gobblin_assets.model.state import DatasetId, LaneId
from gobblin_assets.model.urn import DatasetUrn
from tests.simulation.world import SimClock

NOTES, ORDERS = DatasetUrn("public.notes"), DatasetUrn("public.orders")
IDS = {ORDERS: DatasetId(1), NOTES: DatasetId(2)}


class Lanes:
    """Of two tables; a worker has the second one until ``held_until_s``."""

    def __init__(self, clock: SimClock, held_until_s: float) -> None:
        self._clock = clock
        self._held_until_s = held_until_s

    def load(self, *dataset_ids: DatasetId) -> Mapping[DatasetId, DatasetLanes]:
        is_held = self._clock.now_s < self._held_until_s
        return {
            each: DatasetLanes(
                each, 1, (LaneState(LaneId(int(each)), 0, 1, is_held and each == IDS[NOTES], "elsewhere:1"),)
            )
            for each in dataset_ids
        }


def test_a_look_at_a_table_that_rests_is_waited_for() -> None:
    clock = SimClock(1, 0.0)
    await_free(cast("LaneStore", Lanes(clock, 3.0)), IDS, clock)
    assert 3.0 <= clock.now_s < 4.0


def test_a_table_that_is_followed_is_named_with_its_worker() -> None:
    clock = SimClock(1, 0.0)
    with pytest.raises(ConflictError, match=r"public\.notes is being worked on by elsewhere:1") as refused:
        await_free(cast("LaneStore", Lanes(clock, 1e9)), IDS, clock)
    assert "sink drain" in refused.value.hint
    assert clock.now_s < 11.0
