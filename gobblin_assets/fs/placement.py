"""Placement of a file, which distributed file systems keep besides: owners by name, and how its bytes are stored."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol, runtime_checkable

PLACEMENTS_KEPT_MAX: Final = 1_024


@dataclass(frozen=True, slots=True)
class Placement:
    """``replication``: how many copies there are of each block. ``block_bytes``: the size of all blocks but the last.

    None: it is not known, or shall be as the file system gives it.
    """

    owner: str | None = None
    group: str | None = None
    replication: int | None = None
    block_bytes: int | None = None

    def over(self, others: "Placement") -> "Placement":
        """What is None here is taken from the others."""
        return make_placement(
            others.owner if self.owner is None else self.owner,
            others.group if self.group is None else self.group,
            others.replication if self.replication is None else self.replication,
            others.block_bytes if self.block_bytes is None else self.block_bytes,
        )


@lru_cache(PLACEMENTS_KEPT_MAX)
def make_placement(owner: str | None, group: str | None, replication: int | None, block_bytes: int | None) -> Placement:
    """One for all files that have the same: a listing may give a million."""
    return Placement(owner, group, replication, block_bytes)


AS_GIVEN: Final = make_placement(None, None, None, None)


@runtime_checkable
class PlacedEntries(Protocol):
    """A tree whose entries have placements."""

    @property
    def has_placements(self) -> bool: ...
