"""What a source lost at once: removals there are stopped until a person confirms them.

A file system that is not mounted, or another one in its place, looks as if somebody had removed all files of the one
that was there. So the log remembers which were mounted when a file set was published. Where nothing tells of mounts, a
directory shows it that stands and has no entry any more; and in an object store, which has no directories, a prefix
that had several objects and has none.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gobblin_assets.fs.object_tree import ObjectTree
from gobblin_assets.fs.tree import MountedPlaces, Tree, TreeEntry
from gobblin_assets.jobs.copy.datasets import FileSet
from gobblin_assets.jobs.copy.difference import Deletes, Difference, LinkPolicy
from gobblin_assets.jobs.copy.memory import MemoryRoom
from gobblin_assets.jobs.copy.parsing import CopyDataset
from gobblin_assets.jobs.copy.removals import Loss, StoppedRemovals
from gobblin_assets.run.job_kind import PlanRequest

LOSS_FACT: Final = "source_places"
"""Key in a dataset's facts: by partition, what was mounted at its source, and which of its places are empty."""

PLACES_MAX: Final = 10_000
"""Of all file sets of a dataset. The log writes them with each publication, some 60 bytes each."""


@dataclass(slots=True)
class Losses:
    """For one plan of one file set, made before its source is listed.

    ``tree`` and ``root``: of the source. ``find_directory``: of the source, by full path.
    """

    request: PlanRequest
    dataset: CopyDataset
    file_set: FileSet
    tree: Tree
    root: str
    room: MemoryRoom
    find_directory: Callable[[str], TreeEntry | None]
    _before: Mapping[str, str] = field(init=False)
    _behind: Mapping[str, str] = field(default_factory=dict, init=False)
    _changed: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._before = self._look()

    def stands_empty(self, path: str) -> bool:
        """Whether the source has a directory of which its listing gave nothing."""
        if isinstance(self.tree, ObjectTree):
            # A prefix without objects is as little there as it is gone.
            return True
        chooses_files = bool(self.dataset.spec.include or self.dataset.spec.filters)
        return chooses_files and self.find_directory(f"{self.root}/{path}") is not None

    def split(self, extras: Sequence[Difference]) -> tuple[Sequence[Difference], StoppedRemovals]:
        """Those to remove, and what is said of the others. To be called once the source was listed."""
        self._behind = self._look()
        if not self._is_judged or self.request.confirm_deletes:
            return extras, StoppedRemovals()
        known = self._known
        changed = {path for path, name in known.get("mounts", {}).items() if not self._is_mounted(path, name)}
        self._changed = set(changed)
        if changed and self.dataset.spec.links is LinkPolicy.FOLLOW:
            # Links lead to what was mounted from anywhere.
            changed.add("")
        emptied = set(known.get("emptied", ()))
        found = [self._find_place(each, changed, emptied) for each in extras]
        files = Counter(place for place, _loss in filter(None, found))
        # A store can't be told to remove the last object, and to keep its prefix.
        single = {place for place, count in files.items() if count == 1 and isinstance(self.tree, ObjectTree)}
        single -= changed | emptied
        places = {place: loss for place, loss in filter(None, found) if place not in single}
        for place in single:
            del files[place]
        removed = [each for each, at in zip(extras, found, strict=True) if at is None or at[0] in single]
        return removed, StoppedRemovals(places, files)

    def write(self, stopped: StoppedRemovals) -> Mapping[str, object]:
        """The facts of the file set after the plan is published: what is stopped now stays so."""
        known = self._known
        if self._is_judged:
            # What was listed was mounted before or behind the listing.
            mounts = {**self._behind, **self._before}
            if Loss.MOUNT in stopped.places.values():
                # All of them: one may have been mounted below another.
                mounts |= {path: known["mounts"][path] for path in self._changed}
            emptied = sorted(path for path, loss in stopped.places.items() if loss is Loss.ENTRIES)
            value = {name: each for name, each in (("mounts", mounts), ("emptied", emptied)) if each}
            amounts = {key: _count(each) for key, each in self._facts.items()}
            if value and self.room.take(self.request.urn, self.file_set.key, _count(value), amounts):
                return {LOSS_FACT: value}
        return {LOSS_FACT: None} if known else {}

    def _is_mounted(self, path: str, name: str) -> bool:
        return self._before.get(path) == name == self._behind.get(path)

    def _look(self) -> Mapping[str, str]:
        return self.tree.find_mounts(self.root) if isinstance(self.tree, MountedPlaces) else {}

    def _find_place(self, extra: Difference, changed: set[str], emptied: set[str]) -> tuple[str, Loss] | None:
        above = [extra.path[:at] for at, letter in enumerate(extra.path) if letter == "/"]
        for place in ("", *above):
            if place in changed:
                return place, Loss.MOUNT
        for place in above:
            if place in emptied or place == extra.lost_with:
                return place, Loss.ENTRIES
        return None

    @property
    def _is_judged(self) -> bool:
        """What a person named one by one may be removed."""
        return self.dataset.spec.deletes is not Deletes.OFF and not self.file_set.files

    @property
    def _facts(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.request.state.source_facts.get(LOSS_FACT, {})  # type: ignore[assignment]  # as it was written
        return found

    @property
    def _known(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._facts.get(self.file_set.key) or {}
        return found


def _count(value: Mapping[str, Any]) -> int:
    return sum(map(len, value.values()))
