"""Pack WorkUnits into MultiWorkUnits, so that few tasks cover many small reads and a huge one starves none.

Worst-fit decreasing, of groups that the packer forms. ``bi_level``: the WorkUnits of a small dataset stay together,
those of a large one are divided by watermark key, and a large key into runs of neighbours. ``single_level``: each
key by itself. ``topic_grouping``: keys of one dataset, up to a task's capacity by best-fit decreasing.

A task costs the driver a quarter of a second besides its reading. If a dataset is published whole or not at all,
another task is worth this only if it has many rows: a failed task then reads fewer rows again.

A MultiWorkUnit gets at most one run of neighbours of a key. An attempt is published whole or not at all, and only
contiguous prefixes are published. So a MultiWorkUnit with a hole would lose its good part if the WorkUnit in the hole
failed.
"""

import bisect
import heapq
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.policy import CommitPolicy
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.work_unit import MultiWorkUnit, WorkUnit, sum_bytes, sum_rows
from gobblin_assets.run.job_rules import JobRules, PackerRules, SplitRules

_Key = tuple[str, str, str]
# Neighbours of one key.
_Run = list[WorkUnit]
# Runs of different keys that are placed together, if there is room.
_Group = list[_Run]

_CAPACITY_UNIT: Final = 1_000_000
_CAPACITY_MIN: Final = 1 * _CAPACITY_UNIT
"""A task that was slower than this says nothing about the next task: Gobblin's own default."""

_NO_CAPACITIES: Mapping[DatasetUrn, Sequence[int]] = MappingProxyType({})
_NO_LIMITS: Mapping[DatasetUrn, int] = MappingProxyType({})

TASK_BYTES: Final = 2 * 1024**3
"""Bytes that a task may read, however few rows they hold: a failed task reads them again."""


def pack_run(
    job: JobRules,
    units: Sequence[WorkUnit],
    splits: Mapping[DatasetUrn, SplitRules],
    capacities: Mapping[DatasetUrn, Sequence[int]] = _NO_CAPACITIES,
) -> tuple[MultiWorkUnit, ...]:
    """``pack_work_units`` by a job's rules. ``splits`` has each dataset of the run."""
    bins = max((split.max_multi_work_units for split in splits.values()), default=1)
    # Tasks that publish by themselves, or begin one after another, are small on purpose.
    is_whole = job.commit_policy is CommitPolicy.FULL and job.rows_per_s_max is None
    limits = _limit_tasks(units, splits, bins) if is_whole else _NO_LIMITS
    return pack_work_units(units, bins, job.packer, capacities, limits)


def pack_work_units(
    units: Sequence[WorkUnit],
    max_multi_work_units: int,
    packer: PackerRules,
    capacities: Mapping[DatasetUrn, Sequence[int]] = _NO_CAPACITIES,
    limits: Mapping[DatasetUrn, int] = _NO_LIMITS,
) -> tuple[MultiWorkUnit, ...]:
    """Put every WorkUnit into one of at most ``max_multi_work_units`` groups, none of them empty.

    ``capacities``: the loads of a dataset's earlier tasks, in the unit of ``WorkUnit.weight``. ``limits``: ``bi_level``
    divides a dataset into at most this many groups.
    """
    if max_multi_work_units < 1:
        raise RejectedError("expected at least 1", field="split.max_multi_work_units", hint="Give 1 or more.")
    target = -(-_weigh(units) // max_multi_work_units)
    ordered = sorted(units, key=lambda unit: (*_key_of(unit), unit.number))
    groups: list[_Group] = []
    for dataset, of_dataset in itertools.groupby(ordered, key=_dataset_of):
        keys = [list(of_key) for _key, of_key in itertools.groupby(of_dataset, key=_key_of)]
        if packer.type == "topic_grouping":
            capacity = _decide_capacity(packer, capacities.get(dataset, ()))
            groups += _fill_groups(keys, capacity, max_multi_work_units)
        elif packer.type == "bi_level" and _weigh_group(keys) <= target:
            groups.append(keys)
        else:
            limit = limits.get(dataset) if packer.type == "bi_level" else None
            aim = target if limit is None else max(target, -(-_weigh_group(keys) // limit))
            runs = [[run] for key in keys for run in _divide_key(key, aim, max_multi_work_units)]
            groups += runs if limit is None else _Bins.fill(runs, limit).groups()
    if packer.type == "topic_grouping":
        groups = _split_groups(groups, min(packer.containers_min, max_multi_work_units))
    return _place(groups, max_multi_work_units)


def _limit_tasks(
    units: Sequence[WorkUnit], splits: Mapping[DatasetUrn, SplitRules], bins: int
) -> dict[DatasetUrn, int]:
    """How many tasks each dataset is worth; a dataset with an unknown number of rows has no limit."""
    limits: dict[DatasetUrn, int] = {}
    for dataset, of_dataset in itertools.groupby(sorted(units, key=_dataset_of), key=_dataset_of):
        found = list(of_dataset)
        worth = max(-(-sum_rows(found) // splits[dataset].task_rows_min), -(-sum_bytes(found) // TASK_BYTES), 1)
        if worth < bins and all(unit.estimated_row_count is not None for unit in found):
            limits[dataset] = worth
    return limits


def _dataset_of(unit: WorkUnit) -> DatasetUrn:
    return unit.dataset


def _divide_key(units: _Run, target: int, bins: int) -> list[_Run]:
    """Runs of neighbours of about ``target``; at most ``bins`` of them, so that each finds a place alone."""
    return _cut_evenly(units, min(bins, len(units), max(1, -(-_weigh(units) // target))))


def _cut_evenly(units: _Run, count: int) -> list[_Run]:
    aim = _weigh(units) / count
    runs: list[_Run] = [[]]
    seen = 0.0
    for unit in units:
        # A unit belongs to the run in which its middle falls.
        if runs[-1] and len(runs) < count and seen + unit.weight / 2 > aim * len(runs):
            runs.append([])
        runs[-1].append(unit)
        seen += unit.weight
    return runs


def _decide_capacity(packer: PackerRules, observed: Sequence[int]) -> int:
    if not observed:
        return max(1, round(packer.container_capacity * _CAPACITY_UNIT))
    match packer.capacity_strategy:
        case "min":
            found: float = min(observed)
        case "max":
            found = max(observed)
        case "mean":
            found = statistics.fmean(observed)
        case "median":
            found = statistics.median(observed)
    return max(_CAPACITY_MIN, round(found))


def _fill_groups(keys: Sequence[_Run], capacity: int, bins: int) -> list[_Group]:
    """A dataset's keys, each run in the fullest group that has room for it."""
    if _weigh_group(keys) <= capacity:
        return [list(keys)]
    runs = [run for key in keys for run in _divide_key(key, capacity, bins)]
    groups: list[_Group] = []
    inside: list[set[_Key]] = []
    levels: list[tuple[int, int]] = []
    for run in sorted(runs, key=lambda run: (-_weigh(run), _key_of(run[0]), run[0].number)):
        key, weight = _key_of(run[0]), _weigh(run)
        place = bisect.bisect_right(levels, (capacity - weight, len(groups))) - 1
        # Bounded by the runs of one key: only groups with another run of this key are skipped.
        while place >= 0 and key in inside[levels[place][1]]:
            place -= 1
        level, number = levels.pop(place) if place >= 0 else (0, len(groups))
        if number == len(groups):
            groups.append([])
            inside.append(set())
        groups[number].append(run)
        inside[number].add(key)
        bisect.insort(levels, (level + weight, number))
    return groups


def _split_groups(groups: Sequence[_Group], count: int) -> list[_Group]:
    """The heaviest groups cut in two until there are ``count``, or none can be cut any more."""
    heap = [(-_weigh_group(group), number, group) for number, group in enumerate(groups)]
    heapq.heapify(heap)
    numbers = itertools.count(len(heap))
    whole: list[_Group] = []
    while heap and len(heap) + len(whole) < count:
        _weight, _number, group = heapq.heappop(heap)
        halves = _halve(group)
        if len(halves) == 1:
            whole.append(group)
            continue
        for half in halves:
            heapq.heappush(heap, (-_weigh_group(half), next(numbers), half))
    return [*whole, *(group for _weight, _number, group in heap)]


def _halve(group: _Group) -> list[_Group]:
    if len(group) == 1:
        return [[run] for run in _cut_evenly(group[0], min(2, len(group[0])))]
    halves: list[_Group] = [[], []]
    weights = [0, 0]
    for run in sorted(group, key=lambda run: (-_weigh(run), _key_of(run[0]))):
        lighter = weights.index(min(weights))
        halves[lighter].append(run)
        weights[lighter] += _weigh(run)
    return halves


def _place(groups: Sequence[_Group], bins: int) -> tuple[MultiWorkUnit, ...]:
    filled = [sorted(runs, key=lambda run: _key_of(run[0])) for runs in _Bins.fill(groups, bins).groups()]
    return tuple(
        MultiWorkUnit(number, tuple(itertools.chain.from_iterable(runs))) for number, runs in enumerate(filled)
    )


@dataclass(frozen=True, slots=True)
class _Bins:
    """MultiWorkUnits that are being filled, the lightest first in ``heap``."""

    runs: list[list[_Run]]
    keys: list[set[_Key]]
    heap: list[tuple[int, int]]

    @classmethod
    def fill(cls, groups: Sequence[_Group], count: int) -> "_Bins":
        """Fill heaviest first; equal weights by name, so that the same plan is packed in the same way."""
        numbers = range(min(count, len(groups)))
        found = cls([[] for _ in numbers], [set() for _ in numbers], [(0, number) for number in numbers])
        for group in sorted(groups, key=lambda group: (-_weigh_group(group), _key_of(group[0][0]), group[0][0].number)):
            if found.add(group):
                continue
            # Each bin has a run of some key of the group. One key alone has no more runs than there may be bins.
            for run in group:
                found.add([run])
        return found

    def groups(self) -> list[_Group]:
        return [runs for runs in self.runs if runs]

    def add(self, group: _Group) -> bool:
        """Put the group into the lightest bin without another run of its keys. False: there is no such bin."""
        of_group = {_key_of(run[0]) for run in group}
        passed: list[tuple[int, int]] = []
        while self.heap and not self.keys[self.heap[0][1]].isdisjoint(of_group):
            passed.append(heapq.heappop(self.heap))
        fits = bool(self.heap)
        if fits:
            weight, number = heapq.heappop(self.heap)
            self.runs[number] += group
            self.keys[number] |= of_group
            passed.append((weight + _weigh_group(group), number))
        for entry in passed:
            heapq.heappush(self.heap, entry)
        return fits


def _weigh(units: Sequence[WorkUnit]) -> int:
    return sum(unit.weight for unit in units)


def _weigh_group(group: Sequence[_Run]) -> int:
    return sum(map(_weigh, group))


def _key_of(unit: WorkUnit) -> _Key:
    return (unit.dataset, unit.partition.key or "", unit.key)
