"""Shares of lanes among workers, and of vnodes among lanes: pure decisions, each of one worker about itself.

Nobody assigns. Workers see the same log, so that their decisions fit together; where two of them have seen different
moments, a lease or a fence refuses one, and the next look mends it.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gobblin_assets.commit.lanes import DatasetLanes, LaneState
from gobblin_assets.model.state import LaneId


@dataclass(frozen=True, slots=True)
class Shares:
    """A worker's steps to its share.

    ``take``: free lanes, at most as many as are missing. ``give_back``: lanes above the worker's share.
    """

    take: tuple[LaneId, ...] = ()
    give_back: tuple[LaneId, ...] = ()


def decide_quota(workers: Sequence[uuid.UUID], me: uuid.UUID, unit_count: int) -> int:
    """The number of units of lanes that is the worker's fair share; all shares add up to ``unit_count``."""
    place = sorted(workers).index(me)
    least, more = divmod(unit_count, len(workers))
    return least + (place < more)


def decide_shares(
    units: Sequence[Sequence[LaneState]], mine: frozenset[LaneId], quota: int, backing_off: frozenset[LaneId]
) -> Shares:
    """The lanes that the worker takes and gives back.

    ``units``: the lanes of all datasets that are in use, in one order; those of a unit are held together, by one
    worker. ``backing_off``: lanes that failed here a moment ago; they are left to others. A lane of the worker's that
    is not in use is given back: its vnodes have moved, and nobody needs it.
    """
    held = [unit for unit in units if _is_kept(unit, mine)]
    kept, unused = held[:quota], set(mine)
    for unit in held:
        unused.difference_update(lane.lane_id for lane in unit)
    # A lane of a unit that failed here comes back to it.
    take = [lane for unit in kept for lane in unit]
    free = [unit for unit in units if not any(lane.is_live or lane.lane_id in mine for lane in unit)]
    ready = [unit for unit in free if any(lane.lane_id not in backing_off for lane in unit)]
    take += [lane for unit in ready[: max(0, quota - len(held))] for lane in unit]
    return Shares(
        tuple(lane.lane_id for lane in take if not lane.is_live and lane.lane_id not in mine | backing_off),
        (*(lane.lane_id for unit in held[quota:] for lane in unit if lane.lane_id in mine), *sorted(unused)),
    )


def _is_kept(unit: Sequence[LaneState], mine: frozenset[LaneId]) -> bool:
    """Whether the unit is the worker's: of two that hold parts of it, it belongs to the one that has the first part."""
    first = next((lane.lane_id for lane in unit if lane.is_live or lane.lane_id in mine), None)
    return first in mine


def lanes_in_use(found: DatasetLanes) -> list[LaneState]:
    """The lanes over which vnodes are to be spread, and those that still have some."""
    return [lane for lane in found.lanes if _is_in_use(lane, found)]


def lanes_out_of_use(found: DatasetLanes) -> list[LaneState]:
    """The lanes that were given up when there were to be fewer; nobody takes them for their vnodes."""
    return [lane for lane in found.lanes if not _is_in_use(lane, found)]


def _is_in_use(lane: LaneState, found: DatasetLanes) -> bool:
    return lane.number < found.count or bool(lane.vnodes)


def plan_places(found: DatasetLanes, vnodes: Sequence[str]) -> Mapping[str, int]:
    """The lanes of vnodes that have none: where there are fewest."""
    known = {vnode for lane in found.lanes for vnode in lane.vnodes}
    loads = {lane.number: len(lane.vnodes) for lane in found.lanes if lane.number < found.count}
    places: dict[str, int] = {}
    for vnode in vnodes:
        if vnode not in known:
            number = min(loads, key=lambda each: (loads[each], each))
            places[vnode] = number
            loads[number] += 1
    return places


def plan_moves(found: DatasetLanes, read: frozenset[str]) -> Mapping[int, Mapping[str, int]]:
    """The vnodes that each lane gives to other lanes, until shares are even: (from lane) -> vnode -> (to lane).

    ``read``: the vnodes that are read. Others, of earlier lives of a topic, stay where they are in lanes that are kept.
    """
    total = sum(vnode in read for lane in found.lanes for vnode in lane.vnodes)
    least, more = divmod(total, found.count)
    surplus: list[tuple[int, str]] = []
    wanting: list[int] = []
    for lane in found.lanes:
        mine = [vnode for vnode in lane.vnodes if vnode in read]
        share = (least + (lane.number < more)) if lane.number < found.count else 0
        surplus += [(lane.number, vnode) for vnode in mine[share:]]
        wanting += [lane.number] * max(0, share - len(mine))
    moves: dict[int, dict[str, int]] = {}
    for (number, vnode), target in zip(surplus, wanting, strict=True):
        moves.setdefault(number, {})[vnode] = target
    for lane in found.lanes:
        for place, vnode in enumerate(each for each in lane.vnodes if each not in read):
            if lane.number >= found.count:
                moves.setdefault(lane.number, {})[vnode] = place % found.count
    return moves
