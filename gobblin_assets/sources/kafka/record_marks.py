"""The record before a position, by which the position is known again. Pure.

An offset alone is no place: a log whose end was lost gives old offsets to new records. The record before the position
says which log it is: by the epoch of the leader that appended it, by its time, and by a digest of what it holds. Epochs
alone would not do, since a broker that lost its files may begin to count anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordMark:
    """The identity of one record.

    ``leader_epoch`` None: the brokers do not say it. ``time_ms``: since 1970, below 0 without a time.
    """

    offset: int
    leader_epoch: int | None
    time_ms: int
    digest: str

    def write(self) -> dict[str, object]:
        """As it is kept with a position."""
        return {"offset": self.offset, "epoch": self.leader_epoch, "time_ms": self.time_ms, "digest": self.digest}

    def tell_difference(self, found: "RecordMark") -> str | None:
        """Why ``found``, which has the same offset, is another record; None: it is the same."""
        if None not in (self.leader_epoch, found.leader_epoch) and self.leader_epoch != found.leader_epoch:
            return (
                f"its record {self.offset} was appended in the leader epoch {found.leader_epoch}, and the one that "
                f"was published in {self.leader_epoch}"
            )
        if (self.time_ms, self.digest) != (found.time_ms, found.digest):
            return f"its record {self.offset} is another one than was published"
        return None


def read_mark(history: Mapping[str, object] | None) -> RecordMark | None:
    """What ``write`` wrote; None: nothing is known."""
    match history:
        case {
            "offset": int() as offset,
            "epoch": int() | None as epoch,
            "time_ms": int() as at,
            "digest": str() as what,
        }:
            return RecordMark(offset, epoch, at, what)
        case _:
            return None
