"""The alignment of vnodes by the barriers that their log carries: whether all have reached one epoch. Pure.

A marker with the number of an epoch lies in every vnode, behind the last record of the epoch. A vnode that reached the
marker of an epoch waits until all others are as far. If one of them comes to a higher marker instead, it has no marker
of that epoch (it began later, or its marker was never written): the waiting ones go on, and the higher epoch takes in
the records of both. So barriers are at the epochs that all vnodes have markers of, in whatever order they are read.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto


class Reached(Enum):
    """What a vnode does at a marker.

    ``WAITS``: until all vnodes are there. ``PASSES``: other vnodes are ahead of this epoch, no barrier will be here.
    ``BACK``: the marker is wrong, its epoch is not above the one before it in the same vnode.
    """

    WAITS = auto()
    PASSES = auto()
    BACK = auto()


@dataclass(frozen=True, slots=True)
class AlignedEpoch:
    """An epoch whose markers all vnodes are at. ``positions`` lie just behind the markers.

    ``at_ms`` is the latest time of the markers, in milliseconds since 1970.
    """

    epoch: int
    positions: Mapping[str, int]
    at_ms: int


@dataclass(frozen=True, slots=True)
class _Place:
    epoch: int
    position: int
    at_ms: int


@dataclass(slots=True)
class EpochAlignment:
    """The markers of the vnodes that one reader has. ``last``: the epoch of the last barrier, and 0 before the first.

    Each vnode begins behind the marker of an epoch of its own, which is unknown if it was never cut.
    """

    last: int = 0
    _epochs: dict[str, int | None] = field(default_factory=dict)
    _places: dict[str, _Place] = field(default_factory=dict)

    def begin(self, vnode: str, epoch: int | None) -> None:
        """The vnode is read from behind the marker of this epoch; what was known of it is forgotten."""
        self._epochs[vnode] = epoch
        self._places.pop(vnode, None)

    def drop(self, vnode: str) -> None:
        del self._epochs[vnode]
        self._places.pop(vnode, None)

    def epoch_of(self, vnode: str) -> int | None:
        """The epoch of the vnode's last marker."""
        return self._epochs[vnode]

    def reach(self, vnode: str, epoch: int, position: int, at_ms: int) -> Reached:
        """The vnode's next record is behind the marker of ``epoch``."""
        before = self._epochs[vnode]
        if before is not None and epoch <= before:
            return Reached.BACK
        self._epochs[vnode] = epoch
        if epoch <= self.last or epoch < self._target():
            return Reached.PASSES
        self._places[vnode] = _Place(epoch, position, at_ms)
        return Reached.WAITS

    def find_released(self) -> Collection[str]:
        """Vnodes that waited at an epoch that another vnode does not have; from now on they don't wait any more."""
        target = self._target()
        released = [vnode for vnode, place in self._places.items() if place.epoch < target]
        for vnode in released:
            del self._places[vnode]
        return released

    def waits(self, vnode: str) -> bool:
        return vnode in self._places

    def find_missing(self) -> Sequence[str]:
        """The vnodes that others wait for; none if no vnode waits."""
        return sorted(self._lacking()) if self._places else ()

    def find_target(self) -> int | None:
        """The epoch at which vnodes wait, if any does."""
        return self._target() if self._places else None

    @property
    def is_whole(self) -> bool:
        """All vnodes wait at the same epoch."""
        return bool(self._epochs) and len({place.epoch for place in self._places.values()}) == 1 and not self._lacking()

    def complete(self) -> AlignedEpoch:
        """The epoch that all vnodes have reached, when it ``is_whole``. All of them go on behind it."""
        self.last = self._target()
        found = AlignedEpoch(
            self.last,
            {vnode: place.position for vnode, place in self._places.items()},
            max(place.at_ms for place in self._places.values()),
        )
        self._places.clear()
        return found

    def _lacking(self) -> Collection[str]:
        return self._epochs.keys() - self._places.keys()

    def _target(self) -> int:
        return max((place.epoch for place in self._places.values()), default=self.last)
