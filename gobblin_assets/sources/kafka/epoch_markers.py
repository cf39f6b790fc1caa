"""Barriers that a topic carries: marker records of epochs, and the alignment of vnodes by them.

A marker is a record with the header ``gobblin-epoch``. It lies in every vnode, behind the last record of its epoch. A
vnode that reached the marker of an epoch waits until all others are as far. A vnode may come to a higher marker
instead. Then it has no marker of that epoch: it began later, or its marker was never written. The waiting vnodes go on,
and the higher epoch takes in the records of both. So barriers are at the epochs for which all vnodes have markers, in
any order of reading. The alignment is pure.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.kafka.client_messages import ClientMessage, headers_of, offset_of_message
from gobblin_assets.sources.kafka.cluster import TopicPartition

EPOCH_HEADER: Final = "gobblin-epoch"
"""Its value is the number of the epoch that ends here, in decimal digits."""

ALIGNMENT_S: Final = 300.0

_DIGITS_MAX: Final = 18
_SHOWN_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class MarkerBarriers:
    """Barriers by markers in the topic; ``alignment_s``: how long vnodes wait for the next marker of another one."""

    alignment_s: float = ALIGNMENT_S


def find_marker(messages: Sequence[ClientMessage]) -> int | None:
    """The place of the first record that has the header."""
    for place, headers in enumerate(map(headers_of, messages)):
        if headers is not None and any(name == EPOCH_HEADER for name, _value in headers):
            return place
    return None


def read_epoch(marker: ClientMessage, name: TopicPartition) -> int:
    """RejectedError for a header that is no number of an epoch."""
    values = [value for name, value in headers_of(marker) or () if name == EPOCH_HEADER]
    value = values[0] or b""
    if len(values) == 1 and value.isdigit() and len(value) <= _DIGITS_MAX and int(value) > 0:
        return int(value)
    found = " and ".join(repr((each or b"")[:_SHOWN_MAX]) for each in values)
    raise reject_marker(
        marker, name, f"expected one header {EPOCH_HEADER} with a whole number from 1 on, in digits, found {found}"
    )


def reject_marker(marker: ClientMessage, name: TopicPartition, message: str) -> RejectedError:
    offset = offset_of_message(marker)
    return RejectedError(
        f"{name}, offset {offset}: {message}",
        field="barriers",
        hint="Nothing from this record on was published. Correct the program that writes the markers; then "
        f"go on behind it: `gobblin-assets run JOB_FILE --start-at {name.partition}={offset + 1}`.",
        topic=name.topic,
        partition=name.partition,
        offset=offset,
    )


class Reached(Enum):
    """The three things that a vnode can do at a marker.

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
