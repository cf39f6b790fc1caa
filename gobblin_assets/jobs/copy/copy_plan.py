"""The plan of a file set: differences become items to copy, files to remove and directories to have."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.object_tree import UNLISTABLE
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.budgets import RunBudget, Tiers, Waiting
from gobblin_assets.jobs.copy.copyable import NO_ATTRIBUTES, Attributes, ConvertedEntry, CopyItem, PlannedFile
from gobblin_assets.jobs.copy.difference import Difference, DifferenceKind
from gobblin_assets.jobs.copy.kept_attributes import ANY_OWNER, Ownership, ReadDirectory, read_nothing
from gobblin_assets.jobs.copy.refusals import ANY_LENGTH, NameLengths, Refusals
from gobblin_assets.jobs.copy.removals import RemovalRules, StoppedRemovals
from gobblin_assets.jobs.copy.transfer.preserve import Preserve
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.wording import count_of
from gobblin_assets.run.job_kind import FIGURES, HAS_ROWS, CheckResult, PlannedChange, Staged

_ANYBODY_READS: Final = 0o444


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The acts of one sequence of a file set.

    ``source_root``: path or URI of the file set's directory. ``replaced``: by item number, the identity of the file at
    the item's path. ``removals`` and ``directories`` have numbers of their own, unique with those of the
    items. Paths are relative to the dataset's directory at the destination; those of origins to ``source_root``.
    ``waiting``: what later runs copy. ``follows_links``: origins may be links to files. ``split_bytes``: a larger file
    is copied in parts of so many bytes.
    ``may_be_reused``: a copy by an earlier attempt is as good, if its origin had the planned path, length and time.
    ``facts``: what the next plan may rely on, once this one is published. ``skipped_count``: directories that were not
    listed again.
    ``converters``: the chain of the items' conversions, as ``write_chain`` writes it. ``mtime_precision_ns``: the steps
    in which times of both sides were compared. ``stopped``: files that stay although the source lacks them.
    ``leaves_out_changed``: files that change while they are copied wait for a later plan; then no item is a directory.
    ``cleared_files`` and ``cleared_directories`` (those below others first) give way to items and directories at their
    names, or above them; their numbers are unique with the others.
    ``closed``: directories that are there, whose modes let their owners not write, and in which names change; and such
    that are cleared.
    """

    source_root: str
    preserve: Preserve
    items: tuple[CopyItem, ...] = ()
    replaced: dict[int, FileIdentity] = field(default_factory=dict)
    metadata: frozenset[int] = frozenset()
    removals: tuple[tuple[int, str, FileIdentity], ...] = ()
    directories: tuple[tuple[int, str, Attributes], ...] = ()
    counts: Counter[DifferenceKind] = field(default_factory=Counter)
    changes: tuple[PlannedChange, ...] = ()
    waiting: Waiting = field(default_factory=Waiting)
    follows_links: bool = False
    split_bytes: int | None = None
    may_be_reused: bool = False
    facts: Mapping[str, object] = field(default_factory=dict)
    skipped_count: int = 0
    converters: str = ""
    mtime_precision_ns: int = 1
    stopped: StoppedRemovals = field(default_factory=StoppedRemovals)
    leaves_out_changed: bool = False
    cleared_files: tuple[tuple[int, str, FileIdentity], ...] = ()
    cleared_directories: tuple[tuple[int, str], ...] = ()
    closed: tuple[TreeEntry, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.items or self.removals or self.directories)

    @property
    def file_count(self) -> int:
        return sum(len(item.files) for item in self.items)

    @property
    def size_bytes(self) -> int:
        return sum(file.work_bytes for item in self.items for file in item.files)


@dataclass(slots=True)
class CopyPlanner:
    """The planner of one file set, which turns differences into a plan. ``place``: the file set's directory below the
    dataset's; empty for all of it.

    ``is_metadata`` says of a path below the file set whether it is published after the others. Items are copied in the
    order of ``tiers`` until one of the ``budgets`` is used up; a new directory has the tier of its most urgent file.
    While any file waits, all metadata waits, which would say that the file is there; so do removals, since the file may
    be a removed one under a new name.

    ``has_directories``: whether the destination has any, which must be there before the files. ``read_directory`` gives
    a directory's access lists and extended attributes. ``ownership``: which owners and modes this process may give.
    ``lengths``: how long names may be. ``removal_rules``: for files that the source lacks.
    """

    source_root: str
    place: str
    preserve: Preserve
    is_metadata: Callable[[str], bool]
    budgets: tuple[RunBudget, ...] = ()
    tiers: Tiers = field(default_factory=Tiers)
    follows_links: bool = False
    has_directories: bool = True
    split_bytes: int | None = None
    may_be_reused: bool = False
    converters: str = ""
    read_directory: ReadDirectory = read_nothing
    ownership: Ownership = ANY_OWNER
    lengths: NameLengths = ANY_LENGTH
    removal_rules: RemovalRules = field(default_factory=RemovalRules)
    _waiting: Waiting = field(default_factory=Waiting, init=False)
    _later: list[tuple[int, Difference]] = field(default_factory=list, init=False)
    _at_last: list[Difference] = field(default_factory=list, init=False)
    _extras: list[Difference] = field(default_factory=list, init=False)
    _stopped: StoppedRemovals = field(default_factory=StoppedRemovals, init=False)
    _items: list[CopyItem] = field(default_factory=list, init=False)
    _replaced: dict[int, FileIdentity] = field(default_factory=dict, init=False)
    _metadata: set[int] = field(default_factory=set, init=False)
    _cleared_files: list[tuple[int, str, FileIdentity]] = field(default_factory=list, init=False)
    _cleared_directories: list[tuple[int, str]] = field(default_factory=list, init=False)
    _cleared: list[Difference] = field(default_factory=list, init=False)
    _removals: list[tuple[int, str, FileIdentity]] = field(default_factory=list, init=False)
    _directories: list[tuple[int, str, Attributes]] = field(default_factory=list, init=False)
    _counts: Counter[DifferenceKind] = field(default_factory=Counter, init=False)
    _changes: list[PlannedChange] = field(default_factory=list, init=False)
    _refused: Refusals = field(default_factory=Refusals, init=False)
    _number: int = field(default=0, init=False)

    def plan(self, missing: Mapping[str, TreeEntry | None], differences: Iterable[Difference]) -> CopyPlan:
        """``missing``: directories on the way to the file set that are not there, outermost first, with what the source
        has of them.

        RejectedError where something at the destination can't give way, and for what else ``Refusals`` has.
        """
        for path, origin in missing.items():
            self._need(path, origin, "is missing")
        for each in differences:
            self._add(each)
        for _tier, each in sorted(self._later, key=lambda later: later[0]):
            self._copy_any(each)
        self._copy_metadata()
        self._remove_extras()
        self._refused.require_none()
        return CopyPlan(
            source_root=self.source_root,
            preserve=self.preserve,
            items=tuple(self._items),
            replaced=self._replaced,
            metadata=frozenset(self._metadata),
            removals=tuple(self._removals),
            directories=tuple(self._directories),
            counts=self._counts,
            changes=tuple(self._changes),
            waiting=self._waiting,
            follows_links=self.follows_links,
            split_bytes=self.split_bytes,
            may_be_reused=self.may_be_reused,
            converters=self.converters,
            stopped=self._stopped,
            cleared_files=tuple(self._cleared_files),
            cleared_directories=tuple(self._cleared_directories),
        )

    def _take(self, found: Difference, files: int, size_bytes: int) -> bool:
        """Whether the run copies this too."""
        if limits := [limit for each in self.budgets for limit in each.list_used_up()]:
            self._waiting.add(self._tier_of(found), files, size_bytes, limits)
            return False
        for each in self.budgets:
            each.take(files, size_bytes)
        return True

    def _tier_of(self, found: Difference) -> int:
        files = (entry.path for entry in found.below if entry.kind is EntryKind.FILE)
        return min(map(self.tiers.tier_of, files), default=self.tiers.tier_of(found.path))

    def _copy_any(self, found: Difference) -> None:
        if found.kind is DifferenceKind.CREATE_TREE:
            self._copy_tree(found)
        else:
            self._copy(found)

    def _add(self, found: Difference) -> None:
        self._counts[found.kind] += 1
        match found.kind:
            case DifferenceKind.CREATE if not self.has_directories and UNLISTABLE.search(found.path):
                self._refused.add_conflict(f"{found.path!a} has a character that not every store's listings can tell")
            case DifferenceKind.CREATE | DifferenceKind.UPDATE | DifferenceKind.ATTRIBUTES | DifferenceKind.CREATE_TREE:
                if self._says_others_are_there(found):
                    self._at_last.append(found)
                elif self.tiers.globs:
                    self._later.append((self._tier_of(found), found))
                else:
                    self._copy_any(found)
            case DifferenceKind.ENSURE_DIRECTORY:
                self._clear(found)
                self._need(self._path(found.path), found.source, found.why)
            case DifferenceKind.DELETE:
                self._extras.append(found)
            case DifferenceKind.CONFLICT:
                self._refused.add_conflict(f"{found.path} {found.why}")
            case _:
                pass

    def _says_others_are_there(self, found: Difference) -> bool:
        """A new directory of metadata alone, too; in any other, metadata is published with the files beside it."""
        if found.kind is not DifferenceKind.CREATE_TREE:
            return self.is_metadata(found.path)
        files = [entry.path for entry in found.below if entry.kind is EntryKind.FILE]
        return bool(files) and all(map(self.is_metadata, files))

    def _copy_metadata(self) -> None:
        must_wait = bool(self._waiting.files)
        for each in sorted(self._at_last, key=self._tier_of):
            if must_wait:
                entries = [entry for entry in (each.source, *each.below) if entry is not None]
                sizes = [entry.identity.size_bytes for entry in entries if entry.kind is EntryKind.FILE]
                self._waiting.add(self._tier_of(each), len(sizes), sum(sizes))
            else:
                self._copy_any(each)

    def _remove_extras(self) -> None:
        chosen, self._stopped = self.removal_rules.choose(self._extras, self._cleared)
        if self._waiting.files:
            self._waiting.removals = len(chosen)
        else:
            for each in chosen:
                self._remove(each)

    def _copy(self, found: Difference) -> None:
        if found.source is None or not self._take(found, 1, found.source.identity.size_bytes):
            return
        self._clear(found)
        if found.destination is None:
            self._check_length(self._path(found.path), found.source)
        else:
            self._refused.check_time("destination", found.path, found.destination.identity)
        number, file = self._next(), self._file(found.source)
        # One text for all that keep the path: a plan may have a million files.
        self._items.append(CopyItem(number, file.path, (file,)))
        if found.destination is not None:
            self._replaced[number] = found.destination.identity
        if self.is_metadata(found.path):
            self._metadata.add(number)
        action = "create" if found.destination is None else "replace"
        self._record(file.path, action, found.why, found.source.identity.size_bytes)

    def _copy_tree(self, found: Difference) -> None:
        """A new directory is published by one rename; without a file in it, its directories are made.

        Among metadata, if all of its files are.
        """
        if found.source is None:
            return
        directories = [entry for entry in found.below if entry.kind is EntryKind.DIRECTORY]
        files = [entry for entry in found.below if entry.kind is EntryKind.FILE]
        if not files:
            self._clear(found)
            for entry in (found.source, *directories):
                self._need(self._path(entry.path), entry, found.why)
            return
        if not self._take(found, len(files), sum(entry.identity.size_bytes for entry in files)):
            return
        self._clear(found)
        start, path, number = len(found.path) + 1, self._path(found.path), self._next()
        for entry in (found.source, *found.below):
            self._check_length(self._path(entry.path), entry, entry.path[start:])
        copied = tuple(map(self._file, files))
        if all(self.is_metadata(entry.path) for entry in files):
            self._metadata.add(number)
        self._items.append(
            CopyItem(
                number=number,
                path=path,
                files=copied,
                is_directory=True,
                directories=tuple((entry.path[start:], self._attributes(entry)) for entry in directories),
                desired=self._attributes(found.source),
            )
        )
        self._record(path, "create", found.why, 0)
        for entry, file in zip(files, copied, strict=True):
            self._record(file.path, "create", found.why, entry.identity.size_bytes)

    def _need(self, path: str, origin: TreeEntry | None, why: str) -> None:
        if not self.has_directories:
            return
        desired = NO_ATTRIBUTES if origin is None else self._attributes(origin)
        if origin is not None:
            self._check_length(path, origin)
        self._directories.append((self._next(), path, desired))
        self._changes.append(PlannedChange(path, "create", why))

    def _clear(self, found: Difference) -> None:
        """In a store, a name has no directory, and what is below it is removed as everything else."""
        for entry in reversed(found.gives_way):
            path = self._path(entry.path)
            if entry.kind is EntryKind.DIRECTORY:
                if self.has_directories:
                    self._cleared_directories.append((self._next(), path))
                continue
            self._refused.check_time("destination", entry.path, entry.identity)
            cleared = self._cleared_files if self.has_directories else self._removals
            cleared.append((self._next(), path, entry.identity))
            why = f"{found.path} {found.why}"
            self._cleared.append(Difference(DifferenceKind.DELETE, entry.path, why, None, entry))
            self._record(path, "remove", why, entry.identity.size_bytes)

    def _remove(self, found: Difference) -> None:
        if found.destination is not None:
            path = self._path(found.path)
            self._refused.check_time("destination", found.path, found.destination.identity)
            self._removals.append((self._next(), path, found.destination.identity))
            self._record(path, "remove", found.why, found.destination.identity.size_bytes)

    def _file(self, entry: TreeEntry) -> PlannedFile:
        desired, path = self._desired(entry), self._path(entry.path)
        if isinstance(entry, ConvertedEntry):
            return PlannedFile.of(path, entry.origin, desired, entry.conversion)
        return PlannedFile.of(path, entry, desired)

    def _desired(self, entry: TreeEntry) -> Attributes:
        desired = self.preserve.attributes_of(entry)
        self._refused.check_time("source", entry.path, entry.identity)
        if not self.ownership.may_give(desired):
            owners = {"user": desired.owner, "group": desired.group}
            said = " and ".join(f"{name} {number}" for name, number in owners.items() if number is not None)
            self._refused.add_owner(f"{entry.path} ({said})")
        self._check_mode(entry, desired)
        return desired

    def _check_mode(self, entry: TreeEntry, desired: Attributes) -> None:
        origin = entry.origin if isinstance(entry, ConvertedEntry) else entry
        if self.source_root.startswith("/") and origin.mode is not None and not origin.mode & _ANYBODY_READS:
            return  # it can't be read at the source either, which its copy says
        if not self.ownership.may_read(desired, is_directory=entry.kind is EntryKind.DIRECTORY):
            self._refused.add_unreadable(f"{entry.path!a} (mode {desired.mode or 0:04o})")

    def _check_length(self, path: str, entry: TreeEntry, below: str = "") -> None:
        """``below``: the part of ``path`` that is below a new directory."""
        trouble = self.lengths.find_trouble(path, below)
        if trouble is None:
            return
        is_made = isinstance(entry, ConvertedEntry) and entry.origin.path != entry.path
        origin = f" (made of {entry.origin.path!a})" if isinstance(entry, ConvertedEntry) and is_made else ""
        self._refused.add_length("converters" if is_made else "destination", f"{path!a}{origin} {trouble}")

    def _attributes(self, directory: TreeEntry) -> Attributes:
        desired = self._desired(directory)
        origin = directory.origin if isinstance(directory, ConvertedEntry) else directory
        xattrs = self.read_directory(origin.path) if origin.kind is EntryKind.DIRECTORY else ()
        return desired._replace(xattrs=xattrs)

    def _record(self, path: str, action: str, why: str, size_bytes: int) -> None:
        self._changes.append(PlannedChange(path, action, why, size_bytes))

    def _path(self, path: str) -> str:
        return "/".join(filter(None, (self.place, path)))

    def _next(self) -> int:
        self._number += 1
        return self._number


@dataclass(frozen=True, slots=True)
class CopyJudge:
    """``Judge`` of a copy: nothing of it fails a publication, and its figures are reported."""

    plan: CopyPlan

    def gate(self, staged: Sequence[Staged], state: DatasetState) -> tuple[CheckResult, ...]:
        del staged, state
        return ()

    def report(self, staged: Sequence[Staged] | None, error: GobblinError | None) -> tuple[CheckResult, ...]:
        del staged, error
        return ()

    def describe(self, staged: Sequence[Staged]) -> Mapping[str, object]:
        del staged
        waiting = self.plan.waiting
        figures = {
            "replaced": len(self.plan.replaced),
            "removed": len(self.plan.removals) + len(self.plan.cleared_files),
            "waiting": waiting.files.total(),
            "waiting_bytes": waiting.size_bytes.total(),
        }
        return {FIGURES: figures, HAS_ROWS: False}


def describe_plan(plan: CopyPlan) -> Iterator[str]:
    """Sentences for the run's log."""
    replaced, same = len(plan.replaced), plan.counts[DifferenceKind.SAME]
    if plan.is_empty:
        begin = "what differs waits" if plan.waiting.files else "nothing differs"
        yield f"{begin}: {count_of(same, 'entry is', 'entries are')} the same"
    else:
        new = plan.file_count - replaced
        yield (
            f"{count_of(new, 'new file', 'new files')}, {replaced:,} replaced, "
            f"{len(plan.removals) + len(plan.cleared_files):,} removed, "
            f"{count_of(same, 'entry', 'entries')} the same; {count_of(plan.size_bytes, 'byte', 'bytes')} in all"
        )
    if plan.skipped_count:
        directories = count_of(plan.skipped_count, "directory", "directories")
        yield f"{directories} of the source did not change, and were not listed again"
    if letters := plan.preserve.without_effect:
        yield f"preserve: {', '.join(letters)} mean nothing to this file system"
    if skipped := plan.counts[DifferenceKind.SKIP]:
        links = count_of(skipped, "link or special file", "links and special files")
        yield f"{links} of the source left out (links: skip)"
    if left := plan.counts[DifferenceKind.ATTRIBUTES]:
        yield f"attributes alone differ of {count_of(left, 'file', 'files')}, copied again (attributes: sync)"
