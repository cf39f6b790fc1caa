"""Directories of a source whose times stayed since the last complete copy: these are not listed again.

The times of a directory change when an entry comes, goes or gets another name; somebody may set its modification time
back, and nobody its ctime. They do not change when a file is written in place, or when something changes in a directory
below. So directories below are looked at one by one, and files that are written in place are not noticed. Nor is what
others changed at the destination.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gobblin_assets.fs.tree import Descend, EntryKind, Tree, TreeEntry
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.datasets import FileSet
from gobblin_assets.jobs.copy.memory import MemoryRoom
from gobblin_assets.jobs.copy.parsing import CopyDataset
from gobblin_assets.model.extract import Mode
from gobblin_assets.run.job_kind import PlanRequest

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

    ``find_entry``: of the source, by full path. ``stands``: whether the destination has the directory. ``skipped``
    fills up before the listing goes on below such a directory.
    """

    tree: Tree
    known: Known
    find_entry: Callable[[str], TreeEntry | None]
    stands: Callable[[str], bool]
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
        if found is None or known is None or not _is_as_known(found, known) or not self.stands(path):
            return False
        self.skipped.add(path)
        return True

    def leave_out(self, standing: Iterator[TreeEntry]) -> Iterator[TreeEntry]:
        """The destination's entries without the files of directories that are skipped."""
        skipped = self.skipped
        for entry in standing:
            if not skipped or entry.kind is EntryKind.DIRECTORY or entry.path.rpartition("/")[0] not in skipped:
                yield entry

    def remember(self, listed_at_ns: int, *, is_complete: bool) -> dict[str, list[int | None]]:
        """What the next listing may rely on, once this plan is published.

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
    """What the log remembers of the source's directories, for one plan of one file set."""

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
