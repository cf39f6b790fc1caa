"""Pack WorkUnits into MultiWorkUnits, so that few tasks cover many small reads and a huge one starves none.

Bi-level worst-fit decreasing. The WorkUnits of a small dataset stay together. Those of a large one are
divided by watermark key, and a large key into runs of neighbours. Of one key a MultiWorkUnit gets at most
one such run: an attempt is published whole or not at all, and only contiguous prefixes are published, so a
MultiWorkUnit with a hole would lose its good part to a failure elsewhere.
"""

import heapq
import itertools
from collections.abc import Sequence

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.work_unit import MultiWorkUnit, WorkUnit

_Key = tuple[str, str, str]


def pack_work_units(units: Sequence[WorkUnit], max_multi_work_units: int) -> tuple[MultiWorkUnit, ...]:
    """Every WorkUnit once, in at most ``max_multi_work_units`` groups of about equal weight, none of them empty."""
    if max_multi_work_units < 1:
        raise RejectedError("expected at least 1", field="split.max_multi_work_units", hint="Give 1 or more.")
    total = sum(unit.weight_bytes for unit in units)
    target = -(-total // max_multi_work_units)
    ordered = sorted(units, key=lambda unit: (*_key_of(unit), unit.number))
    pieces: list[list[WorkUnit]] = []
    for _dataset, of_dataset in itertools.groupby(ordered, key=lambda unit: unit.dataset):
        pieces.extend(_divide_dataset(list(of_dataset), target, max_multi_work_units))
    return _place(pieces, max_multi_work_units)


def _divide_dataset(units: list[WorkUnit], target: int, bins: int) -> list[list[WorkUnit]]:
    if _weigh(units) <= target:
        return [units]
    pieces: list[list[WorkUnit]] = []
    for _key, of_key in itertools.groupby(units, key=_key_of):
        pieces.extend(_divide_key(list(of_key), target, bins))
    return pieces


def _divide_key(units: list[WorkUnit], target: int, bins: int) -> list[list[WorkUnit]]:
    """Runs of neighbours of about ``target`` bytes; at most ``bins`` of them, so that each finds a group alone."""
    count = min(bins, len(units), max(1, -(-_weigh(units) // target)))
    share = _weigh(units) / count
    runs: list[list[WorkUnit]] = [[]]
    seen = 0.0
    for unit in units:
        # A unit belongs to the run in which its middle falls.
        if runs[-1] and len(runs) < count and seen + unit.weight_bytes / 2 > share * len(runs):
            runs.append([])
        runs[-1].append(unit)
        seen += unit.weight_bytes
    return runs


def _place(pieces: list[list[WorkUnit]], bins: int) -> tuple[MultiWorkUnit, ...]:
    groups: list[list[list[WorkUnit]]] = [[] for _ in range(min(bins, len(pieces)))]
    keys: list[set[_Key]] = [set() for _ in groups]
    weights = [0] * len(groups)
    heap = [(0, number) for number in range(len(groups))]
    # Heaviest first; equal weights by name, so that the same plan is packed the same way.
    for piece in sorted(pieces, key=lambda piece: (-_weigh(piece), _key_of(piece[0]), piece[0].number)):
        of_piece = {_key_of(unit) for unit in piece}
        passed: list[tuple[int, int]] = []
        # Bounded by the number of groups: a key has no more runs than there are groups.
        while keys[heap[0][1]] & of_piece:
            passed.append(heapq.heappop(heap))
        _, number = heapq.heappop(heap)
        groups[number].append(piece)
        keys[number] |= of_piece
        weights[number] += _weigh(piece)
        for entry in (*passed, (weights[number], number)):
            heapq.heappush(heap, entry)
    filled = [sorted(group, key=lambda piece: _key_of(piece[0])) for group in groups if group]
    return tuple(
        MultiWorkUnit(number, tuple(itertools.chain.from_iterable(group))) for number, group in enumerate(filled)
    )


def _weigh(units: Sequence[WorkUnit]) -> int:
    return sum(unit.weight_bytes for unit in units)


def _key_of(unit: WorkUnit) -> _Key:
    return (unit.dataset, unit.partition.key or "", unit.key)
