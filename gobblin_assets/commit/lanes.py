"""Lanes: the places of a dataset's writers, and the vnodes that each of them publishes.

Every dataset has lane 0. A sink spreads the vnodes of a log (watermark keys) over several lanes, each held by one
worker. The promise: a vnode belongs to one lane at a time. It moves by a transaction of the holder of the lane that it
leaves, while no open sequence moves the vnode; and the seal requires that each vnode belongs to its lane, and that its
position is the sequence's start. There is no coordinator: any process may take any lane that is free.

What a crash leaves. A lane whose lease runs out: the next holder completes its open sequence before it reads a vnode of
the lane. Lanes beyond the count that a person asked for: their holders move their vnodes down, one cut after the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gobblin_assets.model.state import DatasetId, LaneId
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.state.leases import Lease


@dataclass(frozen=True, slots=True)
class LaneState:
    """A lane in the log.

    ``vnodes``: where those of the lane are published up to; None: nothing of the vnode is published yet.
    """

    lane_id: LaneId
    number: int
    version: int
    is_live: bool
    owner: str | None
    vnodes: Mapping[str, Watermark | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DatasetLanes:
    """The lanes of a dataset, by number. ``count``: over how many of them, from 0 on, its vnodes are to be spread."""

    dataset_id: DatasetId
    count: int
    lanes: tuple[LaneState, ...]


class LaneStore(Protocol):
    """Implemented by ``commit.postgres``; the fake of the simulated world passes the same contract suite.

    Each method is one transaction, and a repetition is harmless.
    """

    def load(self, *dataset_ids: DatasetId) -> Mapping[DatasetId, DatasetLanes]:
        """The lanes of the datasets among these that are registered."""
        ...

    def spread(self, dataset_id: DatasetId, count: int) -> None:
        """Set the count of lanes, and make those that are missing. Their fences begin at the dataset's highest."""
        ...

    def place(self, lease: Lease, vnodes: Sequence[str]) -> frozenset[str]:
        """Give vnodes that no lane has yet to the leased lane; returns those that are the lane's now.

        FencedError if the lease is not the newest.
        """
        ...

    def move(self, lease: Lease, number: int, vnodes: Sequence[str]) -> frozenset[str]:
        """Move vnodes from the leased lane to the lane of this number; returns those that are there now.

        A vnode that an open sequence of the leased lane moves stays, and so does one that is not the lane's.
        FencedError if the lease is not the newest, RejectedError if there is no such lane.
        """
        ...
