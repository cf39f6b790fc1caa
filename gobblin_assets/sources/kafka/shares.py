"""How many offsets of each partition one run reads, when the run's total is limited. Pure."""

from collections.abc import Mapping
from typing import TypeVar

_Name = TypeVar("_Name")


def share_out(backlogs: Mapping[_Name, int], offsets_max: int, *, turn: int) -> dict[_Name, int]:
    """Shares of at most ``offsets_max`` in all, none larger than its backlog.

    Small backlogs are served in full first: all shares are equal, and each is cut at its backlog. The remainder of
    the equal division is given out one by one in the order of ``backlogs``, beginning at the place ``turn``. If
    ``turn`` counts the offsets that were read so far, each partition has its turn even where there are fewer offsets
    than partitions.
    """
    level, left = _find_level(sorted(backlogs.values()), offsets_max)
    shares = {name: min(backlog, level) for name, backlog in backlogs.items()}
    unserved = [name for name, backlog in backlogs.items() if backlog > level]
    for number in range(min(left, len(unserved))):
        shares[unserved[(turn + number) % len(unserved)]] += 1
    return shares


def _find_level(ascending: list[int], offsets_max: int) -> tuple[int, int]:
    """The highest equal share, and the remainder, which is smaller than the number of backlogs above that share."""
    left = offsets_max
    for place, backlog in enumerate(ascending):
        others = len(ascending) - place
        if backlog * others > left:
            return left // others, left % others
        left -= backlog
    return (ascending[-1] if ascending else 0), 0
