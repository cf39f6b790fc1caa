"""How many offsets of each partition one run reads, when it may read only so many of all of them. Pure."""

from collections.abc import Mapping
from typing import TypeVar

_Name = TypeVar("_Name")


def share_out(backlogs: Mapping[_Name, int], offsets_max: int, *, turn: int) -> dict[_Name, int]:
    """Shares of at most ``offsets_max`` in all, none larger than its backlog.

    Who needs least gets all of it before anybody gets more: shares are those of one level, cut at each backlog. What
    doesn't go into equal shares is given out one by one in the order of ``backlogs``, from the place that ``turn``
    names. With a turn that counts what was read so far, each partition has its turn also where there are fewer
    offsets than partitions.
    """
    level, left = _find_level(sorted(backlogs.values()), offsets_max)
    shares = {name: min(backlog, level) for name, backlog in backlogs.items()}
    unserved = [name for name, backlog in backlogs.items() if backlog > level]
    for number in range(min(left, len(unserved))):
        shares[unserved[(turn + number) % len(unserved)]] += 1
    return shares


def _find_level(ascending: list[int], offsets_max: int) -> tuple[int, int]:
    """The highest level that there is enough for, and what is left then: fewer than there are backlogs above it."""
    left = offsets_max
    for place, backlog in enumerate(ascending):
        others = len(ascending) - place
        if backlog * others > left:
            return left // others, left % others
        left -= backlog
    return (ascending[-1] if ascending else 0), 0
