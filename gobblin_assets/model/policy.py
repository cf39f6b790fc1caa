"""Commit policies: which part of what was read may be published, decided without doing anything.

An attempt's files can't be divided, so it is published whole or not at all. That makes the published part
a fixed point: a WorkUnit counts as good only while its whole attempt lies inside the prefixes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gobblin_assets.model.interval import Interval, join_neighbours
from gobblin_assets.model.state import AttemptId
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.model.work_unit import WorkUnit


class CommitPolicy(StrEnum):
    """``FULL``: all or nothing of a dataset partition. ``SUCCESSFUL``: the contiguous prefix of good WorkUnits of each
    watermark key.

    Gobblin's third policy, ``partial``, would also publish the output of failed tasks. It is not offered, because
    nobody knows which rows the files of a failed attempt hold.
    """

    FULL = "full"
    SUCCESSFUL = "successful"


@dataclass(frozen=True, slots=True)
class UnitResult:
    """The end of one WorkUnit. ``attempt`` is the staged attempt that holds its rows; None: nothing staged."""

    unit: WorkUnit
    succeeded: bool
    attempt: AttemptId | None


@dataclass(frozen=True, slots=True)
class KeyAdvance:
    """The advance of ``key`` to ``high``, by ascending ``intervals``; no two of them touch.

    Positions between the intervals are left out, because an earlier publication holds them. A snapshot has neither.
    """

    key: str
    high: Watermark | None
    intervals: tuple[Interval, ...]
    reread_from: Watermark | None


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on a partition. ``publish`` False: nothing of it is published, and no watermark moves.

    ``complete``: whether everything that was planned is published. ``discarded``: staged attempts that must be cleaned
    up; their intervals will be read again.
    """

    publish: bool
    complete: bool
    winners: tuple[AttemptId, ...]
    discarded: tuple[AttemptId, ...]
    advances: tuple[KeyAdvance, ...]


def decide_commit(policy: CommitPolicy, results: Sequence[UnitResult], *, replaces: bool) -> Decision:
    """Decide for one dataset partition. ``replaces``: a refresh or snapshot, which must be complete."""
    staged = tuple(dict.fromkeys(r.attempt for r in results if r.attempt is not None))
    complete = all(result.succeeded for result in results)
    if not complete and (policy is CommitPolicy.FULL or replaces):
        return Decision(publish=False, complete=False, winners=(), discarded=staged, advances=())
    excluded: set[AttemptId] = set()
    while True:
        prefixes = _prefixes(results, excluded)
        inside = {result.unit.id for prefix in prefixes.values() for result in prefix}
        outside = {r.attempt for r in results if r.attempt is not None and r.unit.id not in inside}
        if outside <= excluded:
            break
        excluded |= outside
    winners = tuple(attempt for attempt in staged if attempt not in excluded)
    advances = tuple(_advance(key, prefix) for key, prefix in prefixes.items() if prefix)
    return Decision(
        publish=complete or bool(advances),
        complete=complete,
        winners=winners,
        discarded=tuple(attempt for attempt in staged if attempt in excluded),
        advances=advances,
    )


def _prefixes(results: Sequence[UnitResult], excluded: set[AttemptId]) -> dict[str, list[UnitResult]]:
    prefixes: dict[str, list[UnitResult]] = {}
    ended: set[str] = set()
    for result in sorted(results, key=lambda r: (r.unit.key, r.unit.number)):
        key = result.unit.key
        prefix = prefixes.setdefault(key, [])
        if key in ended:
            continue
        if result.succeeded and result.attempt not in excluded:
            prefix.append(result)
        else:
            ended.add(key)
    return prefixes


def _advance(key: str, prefix: Sequence[UnitResult]) -> KeyAdvance:
    intervals = [result.unit.interval for result in prefix if result.unit.interval is not None]
    if not intervals:
        return KeyAdvance(key, None, (), None)
    joined = join_neighbours(intervals)
    read = tuple(each for each in joined if not each.is_empty)
    # An interval without positions is kept if there is no other: it records that the key was read.
    return KeyAdvance(key, intervals[-1].high, read or joined[-1:], prefix[0].unit.reread_from)
