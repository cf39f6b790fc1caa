"""The session of a copy, and what the plans of its file sets share: one run's view of both sides."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.budgets import RunBudget
from gobblin_assets.jobs.copy.datasets import CopyableDataset
from gobblin_assets.jobs.copy.memory import DIRECTORIES_MAX, PLACES_MAX, UNPACKED_SETS_MAX, MemoryRoom
from gobblin_assets.jobs.copy.targets import WayToSets
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import PlanRequest, UnitPlan, Worker


@dataclass(slots=True)
class DestinationNames:
    """Names that a destination which ignores case would take for one. ``datasets``: all of the job's. They are compared
    when the first one asks.
    """

    datasets: Mapping[DatasetUrn, CopyableDataset]
    _alike: dict[DatasetUrn, tuple[str, str]] | None = field(default=None, init=False)

    def require_apart(self, urn: DatasetUrn) -> None:
        """RejectedError if a name of this dataset differs by case only from one that the job has elsewhere."""
        if self._alike is None:
            self._alike = self._compare()
        if urn in self._alike:
            mine, other = self._alike[urn]
            raise RejectedError(
                f"the names {mine!a} and {other!a} differ by case only, and the destination ignores case",
                field="datasets",
                hint="Write both in the same way, or let one be copied to another directory.",
                path=mine,
            )

    def _compare(self) -> dict[DatasetUrn, tuple[str, str]]:
        known: dict[str, tuple[str, DatasetUrn]] = {}
        alike: dict[DatasetUrn, tuple[str, str]] = {}
        for urn, dataset in self.datasets.items():
            for path in _list_paths(dataset):
                for place in accumulate(path.split("/"), "{}/{}".format):
                    spelled, owner = known.setdefault(place.casefold(), (place, urn))
                    if spelled != place:
                        alike.setdefault(urn, (place, spelled))
                        alike.setdefault(owner, (spelled, place))
        return alike


def _list_paths(dataset: CopyableDataset) -> Iterator[str]:
    """Paths below the destination's root. Files are named by a manifest; those of a single file set are listed."""
    yield from filter(None, [dataset.destination])
    for file_set in dataset.file_sets:
        at = "/".join(filter(None, (dataset.destination, file_set.directory)))
        yield from filter(None, [at])
        if len(dataset.file_sets) > 1:
            yield from (f"{at}/{file.path}" if at else file.path for file in file_set.files)


@dataclass(frozen=True, slots=True)
class SharedPlanning:
    """The state that the plans of one run share. ``budget``: for all file sets of the run. ``directories``,
    ``unpacked`` and ``places``: of each dataset.

    ``names``: those of all datasets. ``mtime_precision_ns``: the destination's.
    """

    budget: RunBudget
    names: DestinationNames
    mtime_precision_ns: int
    directories: MemoryRoom = field(default_factory=lambda: MemoryRoom(DIRECTORIES_MAX))
    unpacked: MemoryRoom = field(default_factory=lambda: MemoryRoom(UNPACKED_SETS_MAX))
    places: MemoryRoom = field(default_factory=lambda: MemoryRoom(PLACES_MAX))
    ways: WayToSets = field(default_factory=WayToSets)


class CopySession:
    """``Session``. ``before``: requests that are planned before the first one that is asked for, in this order.

    Where the run has a budget for all file sets, these are all of them, those of a lower priority number first.
    """

    def __init__(
        self,
        plan: Callable[[PlanRequest, SharedPlanning], UnitPlan],
        open_worker: Callable[[], Worker],
        shared: SharedPlanning,
        before: list[PlanRequest],
    ) -> None:
        self._plan = plan
        self._open_worker = open_worker
        self._shared = shared
        self._planned: dict[tuple[DatasetUrn, str | None], UnitPlan | Exception] = {}
        self._before = before

    def open_worker(self) -> Worker:
        return self._open_worker()

    def plan(self, request: PlanRequest) -> UnitPlan:
        wanted = (request.urn, request.partition.key)
        while wanted not in self._planned and self._before:
            each = self._before.pop(0)
            self._planned[each.urn, each.partition.key] = self._try(each)
        found = self._planned.pop(wanted, None) or self._try(request)
        if isinstance(found, Exception):
            raise found
        return found

    def _try(self, request: PlanRequest) -> UnitPlan | Exception:
        before = self._shared.budget.taken
        try:
            return self._plan(request, self._shared)
        except Exception as error:  # noqa: BLE001  raised again where it is asked for
            # What is refused copies nothing: its share is for the others.
            self._shared.budget.taken = before
            return error
