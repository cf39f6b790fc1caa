"""Memory of a dataset's file sets, which the log keeps with each publication, and how much of it there may be.

The options by which archives were unpacked. The times of the unpacked files show that the archive has not changed. Only
the log has the options by which its members were chosen and converted.

Directories of a source whose times stayed since the last complete copy are not listed again. The times of a directory
change when an entry comes, goes or gets another name; somebody may set its modification time back, and nobody its
ctime. They do not change when a file is written in place, or when something changes in a directory below. So
directories below are looked at one by one, and files that are written in place are not noticed. Nor is what others
changed at the destination.

Mounts of a source: a file system that is not mounted, or another one in its place, looks as if somebody had removed all
files of the one that was there. So removals of what a source lost at once are stopped until a person confirms them. If
mounts can't be known, a loss is a directory that is still there and has no entry any more. In an object store, which
has no directories, it is a prefix that had several objects and has none.
"""

import datetime as dt
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gobblin_assets.commit.repair import EVERY_NAME, UNLOGGED_FACT
from gobblin_assets.fs.object_tree import ObjectTree
from gobblin_assets.fs.tree import Descend, EntryKind, MountedPlaces, Tree, TreeEntry
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import FileSet
from gobblin_assets.jobs.copy.difference import Deletes, Difference, LinkPolicy
from gobblin_assets.jobs.copy.parsing import CopyDataset
from gobblin_assets.jobs.copy.removals import Loss, StoppedRemovals
from gobblin_assets.jobs.copy.source_ledger import reads_ledger
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import PlanRequest

UNPACKED_FACT: Final = "unpacked"
"""Key in a dataset's facts: by partition, the digest of the options by which its archives were unpacked."""

UNPACKED_SETS_MAX: Final = 10_000
"""Of a dataset. The log writes all of them with each publication, some 40 bytes each."""


@dataclass(slots=True)
class MemoryRoom:
    """The room for what is remembered of each dataset, as far as one run has planned it."""

    amount_max: int
    _amounts: dict[DatasetUrn, dict[str, int]] = field(default_factory=dict)

    def take(self, urn: DatasetUrn, key: str, amount: int, known: Mapping[str, int]) -> bool:
        """Whether there is room for ``amount`` of the file set ``key``. ``known``: what is remembered, by file set."""
        amounts = self._amounts.setdefault(urn, dict(known))
        amounts[key] = 0
        if sum(amounts.values()) + amount > self.amount_max:
            return False
        amounts[key] = amount
        return True


@dataclass(frozen=True, slots=True)
class UnloggedNames:
    """Names of a file set that are occupied by something that the log does not know (``commit.repair``).

    ``root``: full path of the file set at the destination.
    """

    request: PlanRequest
    file_set: FileSet
    root: str

    def read(self) -> Callable[[str], bool]:
        """Whether a path below the file set is one of them."""
        names = self._names
        if EVERY_NAME in names:
            return lambda _path: True
        return lambda path: bool(names) and f"{self.root}/{path}" in names

    @property
    def is_empty(self) -> bool:
        return not self._names

    def write(self, plan: CopyPlan) -> Mapping[str, object]:
        """The facts of the file set once the plan is published: it has copied them, unless files wait."""
        return {UNLOGGED_FACT: None} if self._names and not plan.waiting.files else {}

    @property
    def _names(self) -> frozenset[str]:
        found: Mapping[str, Any] = self.request.state.source_facts.get(UNLOGGED_FACT, {})  # type: ignore[assignment]  # as it was written
        return frozenset(found.get(self.file_set.key) or ())


@dataclass(frozen=True, slots=True)
class UnpackedMemory:
    """The memory of the options by which archives were unpacked, for one plan of one file set.

    The times of the unpacked files show that the archive has not changed. Only the log has the options by which they
    were chosen and converted.
    """

    request: PlanRequest
    dataset: CopyDataset
    file_set: FileSet
    room: MemoryRoom

    @property
    def agrees(self) -> bool:
        return self.request.mode is not Mode.REFRESH and self._known.get(self.file_set.key) == self._options

    def write(self, plan: CopyPlan, *, unpacks: bool) -> Mapping[str, object]:
        """The facts of the file set once the plan is published. Where files wait, only what holds already."""
        if unpacks and (self.agrees or not plan.waiting.files):
            known = dict.fromkeys(self._known, 1)
            if self.room.take(self.request.urn, self.file_set.key, 1, known):
                return {UNPACKED_FACT: self._options}
        return {UNPACKED_FACT: None} if self.file_set.key in self._known else {}

    @property
    def _known(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.request.state.source_facts.get(UNPACKED_FACT, {})  # type: ignore[assignment]  # as it was written
        return found

    @property
    def _options(self) -> str:
        spec, found = self.dataset.spec, self.dataset.found
        chosen = (spec.include, spec.exclude, spec.filters, spec.links, spec.preserve, spec.deletes, spec.converters)
        places = (found.source, found.destination, self.file_set.directory)
        return hashlib.sha256(json.dumps([chosen, places]).encode()).hexdigest()[:12]


FACT: Final = "directories"
"""Key in a dataset's facts: by partition, what was remembered at its last complete copy."""

DIRECTORIES_MAX: Final = 10_000
"""Of all file sets of a dataset. The log keeps them with each publication, some 40 bytes each."""

SETTLED_NS: Final = 2_000_000_000
"""A directory that changed later than this before the listing may change again without another time."""

DirectoryTimes = tuple[int | None, int | None, int | None]
"""Modification time in nanoseconds, if it had settled; inode; and ctime, None where it is not known."""

Known = Mapping[str, DirectoryTimes]
"""By path below the file set."""


@dataclass(slots=True)
class UnchangedDirectories:
    """A ``Tree`` that leaves out the files of unchanged directories. For one listing.

    ``find_entry``: of the source, by full path. ``has_directory``: whether the destination has the directory.
    ``skipped``: the directories left out; each is added before the listing goes on below it.
    """

    tree: Tree
    known: Known
    find_entry: Callable[[str], TreeEntry | None]
    has_directory: Callable[[str], bool]
    seen: dict[str, DirectoryTimes] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)

    @property
    def mtime_precision_ns(self) -> int:
        return self.tree.mtime_precision_ns

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        below: dict[str, list[str]] = {}
        for path in self.known:
            below.setdefault(path.rpartition("/")[0], []).append(path)
        yield from self._list(root, "", descend, below)

    def _list(
        self, root: str, prefix: str, descend: Descend | None, below: Mapping[str, Sequence[str]]
    ) -> Iterator[TreeEntry]:
        def goes_on(path: str) -> bool:
            place = prefix + path
            return (descend is None or descend(place)) and not self._skips(root, place)

        for entry in self.tree.list_tree(f"{root}/{prefix}".rstrip("/"), goes_on):
            found = replace(entry, path=prefix + entry.path)
            yield from self._give(root, found, descend, below)

    def _give(
        self, root: str, found: TreeEntry, descend: Descend | None, below: Mapping[str, Sequence[str]]
    ) -> Iterator[TreeEntry]:
        if found.kind is EntryKind.DIRECTORY:
            self.seen[found.path] = found.identity.mtime_ns, found.identity.inode, found.changed_ns
        yield found
        if found.path not in self.skipped:
            return
        for path in sorted(below.get(found.path, ()), key=lambda each: f"{each}/".encode()):
            entry = self.find_entry(f"{root}/{path}")
            if entry is None or entry.kind is not EntryKind.DIRECTORY:
                continue
            directory = replace(entry, path=path)
            is_wanted = descend is None or descend(path)
            if not is_wanted or self._skips(root, path):
                yield from self._give(root, directory, descend, below)
                continue
            yield from self._give(root, directory, descend, below)
            yield from self._list(root, f"{path}/", descend, below)

    def _skips(self, root: str, path: str) -> bool:
        known = self.known.get(path)
        found = None if known is None or known[0] is None else self.find_entry(f"{root}/{path}")
        if found is None or known is None or not _is_as_known(found, known) or not self.has_directory(path):
            return False
        self.skipped.add(path)
        return True

    def leave_out(self, existing: Iterator[TreeEntry]) -> Iterator[TreeEntry]:
        """The destination's entries without the files of directories that are skipped."""
        skipped = self.skipped
        for entry in existing:
            if not skipped or entry.kind is EntryKind.DIRECTORY or entry.path.rpartition("/")[0] not in skipped:
                yield entry

    def remember(self, listed_at_ns: int, *, is_complete: bool) -> dict[str, list[int | None]]:
        """The facts that the next listing may rely on, once this plan is published.

        Every directory is named, because one below a skipped directory is found by its name here. One that has not
        settled, or of which files may wait (``is_complete`` False), has no time, and is listed again. Of those that
        were skipped, what was compared is kept.
        """
        found: dict[str, list[int | None]] = {}
        for path, (mtime_ns, inode, changed_ns) in self.seen.items():
            if path in self.skipped:
                found[path] = list(self.known[path])
            else:
                is_settled = is_complete and mtime_ns is not None and mtime_ns < listed_at_ns - SETTLED_NS
                found[path] = [mtime_ns if is_settled else None, inode, changed_ns]
        return found


def _read_times(mtime_ns: int | None, inode: int | None, changed_ns: int | None = None) -> DirectoryTimes:
    """Earlier versions wrote no ctime."""
    return mtime_ns, inode, changed_ns


def _is_as_known(found: TreeEntry, known: DirectoryTimes) -> bool:
    mtime_ns, inode, changed_ns = known
    is_same = (found.identity.mtime_ns, found.identity.inode) == (mtime_ns, inode)
    return is_same and (changed_ns is None or changed_ns == found.changed_ns)


@dataclass(frozen=True, slots=True)
class DirectoryMemory:
    """The memory of the source's directories, for one plan of one file set."""

    request: PlanRequest
    dataset: CopyDataset
    file_set: FileSet
    room: MemoryRoom

    @property
    def is_kept(self) -> bool:
        """Files that somebody names are looked at one by one."""
        return self.dataset.spec.skip_unchanged_directories and not self.file_set.files

    def read(self) -> Known:
        """Nothing, if other options chose the files then, or if every file is to be copied again."""
        found = self._facts.get(self.file_set.key, {})
        if not self.is_kept or self.request.mode is Mode.REFRESH or found.get("options") != self._options:
            return {}
        return {path: _read_times(*times) for path, times in found["entries"].items()}

    def write(self, unchanged: UnchangedDirectories, listed_at: dt.datetime, plan: CopyPlan) -> Mapping[str, object]:
        """The facts of the file set after the plan is published; None takes away what is remembered of it."""
        if self.is_kept:
            listed_at_ns = int(listed_at.timestamp()) * 1_000_000_000
            entries = unchanged.remember(listed_at_ns, is_complete=not plan.waiting.files)
            known = {key: len(each["entries"]) for key, each in self._facts.items()}
            if self.room.take(self.request.urn, self.file_set.key, len(entries), known):
                return {FACT: {"options": self._options, "entries": entries}}
        return {FACT: None} if self.file_set.key in self._facts else {}

    @property
    def _facts(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.request.state.source_facts.get(FACT, {})  # type: ignore[assignment]  # as it was written
        return found

    @property
    def _options(self) -> str:
        """A digest of what chooses the files, and of where they come from and go to."""
        spec = self.dataset.spec
        chosen = (spec.include, spec.exclude, spec.filters, spec.links, spec.preserve, spec.deletes, spec.metadata)
        found = self.dataset.found
        places = (found.source, found.destination, self.file_set.directory)
        return hashlib.sha256(json.dumps([chosen, places]).encode()).hexdigest()[:16]


LOSS_FACT: Final = "source_places"
"""Key in a dataset's facts: by partition, what was mounted at its source, and which of its places are empty."""

PLACES_MAX: Final = 10_000
"""Of all file sets of a dataset. The log writes them with each publication, some 60 bytes each."""


@dataclass(slots=True)
class Losses:
    """The losses of a source, for one plan of one file set; made before the source is listed.

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

    def is_empty_directory(self, path: str) -> bool:
        """Whether the source has a directory although the source's listing gave nothing of it."""
        if isinstance(self.tree, ObjectTree):
            # A prefix without objects is as little there as it is gone.
            return True
        chooses_files = bool(self.dataset.spec.include or self.dataset.spec.filters)
        return chooses_files and self.find_directory(f"{self.root}/{path}") is not None

    def split(self, extras: Sequence[Difference]) -> tuple[Sequence[Difference], StoppedRemovals]:
        """The removals to make, and what is said of the others. To be called once the source was listed."""
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
        """What a person named one by one may be removed, and so may what a ledger has no more."""
        is_said = bool(self.file_set.files) or reads_ledger(self.dataset.spec)
        return self.dataset.spec.deletes is not Deletes.OFF and not is_said

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
