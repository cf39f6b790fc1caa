"""Differences of two sorted listings: each path that must change at a destination, with the reason.

Nothing of the stream may be acted on before its end. A listing that fails ends the stream by its error, so that no file
is removed because the source's listing broke off, and some refusals are only known behind the last entry.

Memory does not grow with the trees: it holds the two entries at hand, files whose directory of the same name may still
come (never more than a path has letters), and at most ``new_tree_entries_max`` entries of a new directory.

A name may be a file's at one side and a directory's at the other. A directory without a file gives way to a file,
whoever made it: it says nothing. Files give way as they are deleted: of the job's own all, where ``deletes`` says so.
If anything else is there, all of it stays.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.fs.tree import EntryKind, Tree, TreeEntry, sort_key
from gobblin_assets.jobs.copy.copyable import ConvertedEntry
from gobblin_assets.jobs.copy.sameness import Likeness, Sameness, compare_files


class SortedEntries:
    """A cursor over a listing. ``key`` is the sort key of ``entry``; both are None behind the last.

    ``has_file``: whether a file was met so far. Links and special files are none: they may be left out.

    ConflictError: the listing is not ascending, and what is missing from it can't be told. RejectedError: one name is a
    file's and a directory's. Object stores may hold both; no directory can.
    """

    def __init__(self, entries: Iterable[TreeEntry], side: str) -> None:
        self._entries: Iterator[TreeEntry] = iter(entries)
        self._side = side
        self._again: list[TreeEntry] = []
        self._last_key = ""
        # Keys that directories would have beside the files at hand. Each begins with the one below it, so that they are
        # never more than a path has letters.
        self._taken: list[str] = []
        self.entry: TreeEntry | None = None
        self.key: str | None = None
        self.has_file = False
        self.advance()

    def advance(self) -> None:
        """Go to the next entry."""
        if self._again:
            self.entry = self._again.pop()
            self.key = sort_key(self.entry)
            return
        found = next(self._entries, None)
        if found is None:
            self.entry = self.key = None
            return
        path, key = found.path, sort_key(found)
        if key <= self._last_key:
            raise ConflictError(
                f"the listing of the {self._side} gives {key!a} behind {self._last_key!a}",
                hint="Its file system does not list in byte order; compare nothing by it.",
                path=path,
            )
        taken = self._taken
        while taken and taken[-1] < key:
            taken.pop()
        if found.kind is not EntryKind.DIRECTORY:
            taken.append(f"{path}/")
            self.has_file = self.has_file or found.kind is EntryKind.FILE
        elif taken and taken[-1] == key:
            raise RejectedError(
                f"{path!a} is the name of a file, and of a directory with other files",
                field=self._side,
                hint="Rename one of them, or exclude it: no directory can hold both.",
                path=path,
            )
        self.entry, self.key, self._last_key = found, key, key

    def go_back(self, entries: Iterable[TreeEntry]) -> None:
        """Give these entries, which came directly before the present one, once more."""
        if self.entry is not None:
            self._again.append(self.entry)
        self._again += reversed(list(entries))
        self.advance()

    def skip_below(self, prefix: str) -> None:
        """Go on to the first entry whose key does not begin with ``prefix``."""
        while self.key is not None and self.key.startswith(prefix):
            self.advance()


@dataclass(slots=True)
class CaseNames:
    """The names of the directories on the way to the last path, for destinations that ignore case.

    Memory is bounded by the largest directory and the depth.
    """

    _levels: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def add(self, path: str) -> None:
        """Paths of both sides, in byte order. RejectedError: another name of its directory differs by case only, or it
        is that of work directories.
        """
        directory, slash, name = path.rpartition("/")
        if name.casefold() == WORK_NAME:
            raise RejectedError(
                f"the destination ignores case, and would take {path!a} for a work directory {WORK_NAME}",
                field="source",
                hint="Rename it, or exclude it.",
                path=path,
            )
        prefix = directory + slash
        levels = self._levels
        while levels and not prefix.startswith(levels[-1][0]):
            levels.pop()
        if not levels or levels[-1][0] != prefix:
            levels.append((prefix, {}))
        known = levels[-1][1].setdefault(name.casefold(), name)
        if known != name:
            raise RejectedError(
                f"the names {prefix + known!a} and {path!a} differ by case only, and the destination ignores case",
                field="source",
                hint="Rename one of them on both sides, or exclude it.",
                path=path,
            )


NEW_TREE_ENTRIES_MAX: Final = 10_000
"""One rename publishes a new directory; a larger one is given in parts, unless one archive fills it."""


class DifferenceKind(StrEnum):
    """The fate of a path.

    CREATE: a new file. CREATE_TREE: a new directory with all that is below it. ENSURE_DIRECTORY: a new directory that
    is too large for that, and whose contents follow on their own. UPDATE: other bytes. ATTRIBUTES: only they differ.
    DELETE: a file that the source lacks. EXTRA: the source lacks it, and it is left. SKIP: a link or special file of
    the source, left out by the job's choice. CONFLICT: what is at the destination can't give way to the source's entry.
    """

    CREATE = "create"
    CREATE_TREE = "create_tree"
    ENSURE_DIRECTORY = "ensure_directory"
    UPDATE = "update"
    ATTRIBUTES = "attributes"
    SAME = "same"
    DELETE = "delete"
    EXTRA = "extra"
    SKIP = "skip"
    CONFLICT = "conflict"


class Deletes(StrEnum):
    """The files to delete among those that the source lacks. OURS: those that the job itself published."""

    OFF = "off"
    OURS = "ours"
    ALL = "all"


class LinkPolicy(StrEnum):
    """Links and special files of the source: FOLLOW gives links as what they lead to, and refuses special files."""

    FAIL = "fail"
    SKIP = "skip"
    FOLLOW = "follow"


@dataclass(frozen=True, slots=True)
class Difference:
    """One path and what becomes of it. ``why`` is the rest of a sentence about it, such as ``is new``.

    ``below``: of a CREATE_TREE, all entries below it, in byte order; their paths are relative to the tree's root, too.
    ``lost_with``: of a DELETE, the directory above it whose entries the source lost all at once. ``gives_way``: the
    destination's entry of another kind at the path, and all that is below it.
    """

    kind: DifferenceKind
    path: str
    why: str
    source: TreeEntry | None = None
    destination: TreeEntry | None = None
    below: tuple[TreeEntry, ...] = ()
    lost_with: str | None = None
    gives_way: tuple[TreeEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class DifferenceRules:
    """The rules by which two trees are compared.

    ``is_ours``: whether the job published an entry of the destination; OURS needs it. ``is_empty_directory``: whether
    the source has a directory although the source's listing gives nothing of it.
    ``give_way``: the entry that occupies a name, with all that is below it, if it may give way to another kind.
    ``is_unlogged``: whether an entry that the log does not know occupies a path. That path is copied again.
    ``links``: a tree that follows links gives none, so FOLLOW refuses them as FAIL does.
    ``empty_source``: whether deletions are allowed although the source has no file, because somebody named them.
    ``skipped``: directories of the source whose files its listing leaves out; it grows while the source is listed.
    """

    sameness: Sameness = field(default_factory=Sameness)
    deletes: Deletes = Deletes.OFF
    is_ours: Callable[[TreeEntry], bool] | None = None
    is_empty_directory: Callable[[str], bool] = field(default=lambda _path: False)
    is_unlogged: Callable[[str], bool] = field(default=lambda _path: False)
    give_way: Callable[[TreeEntry], tuple[TreeEntry, ...] | None] = field(default=lambda _entry: None)
    empty_source: bool = False
    links: LinkPolicy = LinkPolicy.FAIL
    ignores_case: bool = False
    new_tree_entries_max: int = NEW_TREE_ENTRIES_MAX
    skipped: Collection[str] = ()
    new_tree_file_bytes_max: int | None = None

    def __post_init__(self) -> None:
        if self.deletes is Deletes.OURS and self.is_ours is None:
            raise ValueError("deletes of our own files need is_ours")


def compare_trees(
    source: Iterable[TreeEntry], destination: Iterable[TreeEntry], rules: DifferenceRules
) -> Iterator[Difference]:
    """The differences of two listings in byte order, about in that order.

    A file that only one side has comes somewhat later, after the place of a directory of its name. A directory comes
    before what is below it. Errors of the listings pass. RejectedError: names that collide, links that the policy
    refuses, deletions without a file at the source. ConflictError: a listing is out of order.
    """
    yield from _Comparison(source, destination, rules).differences()


_KINDS: Final = {
    Likeness.SAME: DifferenceKind.SAME,
    Likeness.CONTENT_DIFFERS: DifferenceKind.UPDATE,
    Likeness.ATTRIBUTES_DIFFER: DifferenceKind.ATTRIBUTES,
}
_WORDS: Final = {
    EntryKind.FILE: "a file",
    EntryKind.DIRECTORY: "a directory",
    EntryKind.LINK: "a link",
    EntryKind.SPECIAL: "a special file",
}


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A difference that holds unless the other side has a directory of this name: then its key is ``directory``."""

    directory: str
    difference: Difference


class _Comparison:
    """The merge of both listings."""

    def __init__(self, source: Iterable[TreeEntry], destination: Iterable[TreeEntry], rules: DifferenceRules) -> None:
        self._rules = rules
        self._source = SortedEntries(source, "source")
        self._destination = SortedEntries(destination, "destination")
        self._names = CaseNames() if rules.ignores_case else None
        self._waiting: list[_Waiting] = []
        # The last directory that only the destination has entries of, with its slash, and whether the source has it.
        self._lost = ""
        self._is_empty_directory: bool | None = None

    def differences(self) -> Iterator[Difference]:
        source, destination, rules = self._source, self._destination, self._rules
        while True:
            mine, theirs = source.entry, destination.entry
            if mine is None:
                self._refuse_empty_source()
            key = _first(source.key, destination.key)
            if self._waiting:
                yield from self._settle(key)
            if key is None:
                return
            if self._names is not None:
                self._names.add(key.removesuffix("/"))
            if source.key != key:
                mine = None
            if destination.key != key:
                theirs = None
            if mine is not None and theirs is not None and mine.kind is theirs.kind is EntryKind.FILE:
                likeness, why = compare_files(mine, theirs, rules.sameness)
                if likeness is not Likeness.CONTENT_DIFFERS and rules.is_unlogged(key):
                    likeness, why = Likeness.CONTENT_DIFFERS, "the log does not know what is there"
                source.advance()
                destination.advance()
                yield Difference(_KINDS[likeness], key, why, mine, theirs)
            else:
                yield from self._compare_others(key, mine, theirs)

    def _compare_others(self, key: str, mine: TreeEntry | None, theirs: TreeEntry | None) -> Iterator[Difference]:
        """At most one of them is None. What is no directory has met no directory: their keys differ."""
        if theirs is not None:
            self._destination.advance()
        if mine is not None and mine.kind is EntryKind.DIRECTORY:
            yield from self._meet_source_directory(key, mine, theirs)
        elif theirs is not None and theirs.kind is EntryKind.DIRECTORY:
            yield from self._meet_extra_directory(key, theirs)
        elif mine is None:
            if theirs is not None:
                self._waiting.append(_Waiting(f"{key}/", Difference(DifferenceKind.EXTRA, key, "", None, theirs)))
        else:
            self._source.advance()
            self._waiting.append(_Waiting(f"{key}/", self._place(key, mine, theirs)))

    def _place(self, key: str, mine: TreeEntry, theirs: TreeEntry | None) -> Difference:
        """The change of a source's file that the destination lacks or has as a link, or of a source's link."""
        if mine.kind is not EntryKind.FILE:
            return self._skip(mine, theirs)
        if theirs is None:
            return Difference(DifferenceKind.CREATE, key, "is new", mine)
        return _conflict(key, mine, theirs)

    def _meet_source_directory(self, key: str, mine: TreeEntry, theirs: TreeEntry | None) -> Iterator[Difference]:
        if theirs is not None:
            self._source.advance()
            following = self._source.key
            if mine.path not in self._rules.skipped and (following is None or not following.startswith(key)):
                self._lost, self._is_empty_directory = key, True
            yield Difference(DifferenceKind.SAME, mine.path, "is there", mine, theirs)
            return
        if self._waiting and self._waiting[-1].directory == key:
            occupant = self._waiting.pop().difference.destination
            gives_way = None if occupant is None else self._rules.give_way(occupant)
            if gives_way is not None:
                yield from self._create_directory(key, mine, gives_way)
                return
            self._source.skip_below(key)
            yield _conflict(mine.path, mine, occupant)
            return
        yield from self._create_directory(key, mine, ())

    def _create_directory(
        self, key: str, directory: TreeEntry, gives_way: tuple[TreeEntry, ...]
    ) -> Iterator[Difference]:
        """The destination has nothing below ``key``: its listing has gone past it."""
        why = "is a directory now" if gives_way else "is new"
        source = self._source
        is_archive = isinstance(directory, ConvertedEntry) and directory.is_archive
        source.advance()
        below: list[TreeEntry] = []
        while source.entry is not None and source.key is not None and source.key.startswith(key):
            is_full = len(below) == self._rules.new_tree_entries_max and not is_archive
            if is_full or self._is_large(source.entry):
                source.go_back(below)
                large = Difference(DifferenceKind.ENSURE_DIRECTORY, directory.path, f"{why}, and large", directory)
                yield replace(large, gives_way=gives_way)
                return
            if self._names is not None:
                self._names.add(source.entry.path)
            below.append(source.entry)
            source.advance()
        for entry in below:
            if entry.kind in _UNCOPIED:
                yield self._skip(entry, None)
        kept = tuple(entry for entry in below if entry.kind not in _UNCOPIED)
        created = Difference(DifferenceKind.CREATE_TREE, directory.path, why, directory, below=kept)
        yield replace(created, gives_way=gives_way)

    def _is_large(self, entry: TreeEntry) -> bool:
        largest = self._rules.new_tree_file_bytes_max
        return largest is not None and entry.kind is EntryKind.FILE and entry.identity.size_bytes > largest

    def _meet_extra_directory(self, key: str, theirs: TreeEntry) -> Iterator[Difference]:
        """Directories are left; files below them follow."""
        if self._waiting and self._waiting[-1].directory == key:
            found = self._waiting[-1].difference
            if found.source is not None:
                self._waiting.pop()
                self._destination.skip_below(key)
                if found.kind is DifferenceKind.SKIP:
                    yield replace(found, destination=theirs)
                elif (gives_way := self._rules.give_way(theirs)) is not None:
                    yield replace(found, why="is a file now", gives_way=gives_way)
                else:
                    yield _conflict(found.path, found.source, theirs)
                return
        if not self._lost or not key.startswith(self._lost):
            self._lost, self._is_empty_directory = key, None
        yield Difference(DifferenceKind.EXTRA, theirs.path, "directories are left", None, theirs)

    def _settle(self, key: str | None) -> Iterator[Difference]:
        """The differences of names that ``key``, the next one, shows to have no directory."""
        waiting = self._waiting
        while waiting and (key is None or waiting[-1].directory < key):
            found = waiting.pop().difference
            if found.kind is DifferenceKind.EXTRA and found.destination is not None:
                found = self._judge_extra(found.destination)
            yield found

    def _judge_extra(self, extra: TreeEntry) -> Difference:
        rules = self._rules

        def left(why: str, kind: DifferenceKind = DifferenceKind.EXTRA) -> Difference:
            return Difference(kind, extra.path, why, None, extra)

        if rules.deletes is Deletes.OFF:
            return left("the source lacks it, and deletes are off")
        if rules.deletes is Deletes.OURS and (rules.is_ours is None or not rules.is_ours(extra)):
            return left("the source lacks it, and this job did not publish it")
        if extra.kind is not EntryKind.FILE:
            return left(f"the source lacks it, and {_WORDS[extra.kind]} is never deleted", DifferenceKind.CONFLICT)
        return replace(left("the source lacks it", DifferenceKind.DELETE), lost_with=self._find_lost(extra.path))

    def _find_lost(self, path: str) -> str | None:
        """The source is asked once for each directory, and only where a file would be deleted."""
        if not self._lost or not path.startswith(self._lost):
            return None
        directory = self._lost.removesuffix("/")
        if self._is_empty_directory is None:
            self._is_empty_directory = self._rules.is_empty_directory(directory)
        return directory if self._is_empty_directory else None

    def _skip(self, mine: TreeEntry, theirs: TreeEntry | None) -> Difference:
        """RejectedError unless the policy leaves links and special files out."""
        if self._rules.links is not LinkPolicy.SKIP:
            may_follow = self._rules.links is LinkPolicy.FAIL and mine.kind is EntryKind.LINK
            follow = ", `links: follow` to copy what they lead to" if may_follow else ""
            raise RejectedError(
                f"{mine.path!a} is {_WORDS[mine.kind]} in the source",
                field="links",
                hint=f"Write `links: skip` to leave such entries out{follow}, or exclude it.",
                path=mine.path,
            )
        return Difference(DifferenceKind.SKIP, mine.path, f"is {_WORDS[mine.kind]}", mine, theirs)

    def _refuse_empty_source(self) -> None:
        rules = self._rules
        has_file = self._source.has_file or bool(rules.skipped)
        if rules.deletes is not Deletes.OFF and not rules.empty_source and not has_file:
            raise RejectedError(
                "the source has no file, and files that it lacks would be deleted",
                field="deletes",
                hint="Look at the source's path and filters; to empty the destination, do it by hand.",
            )


_UNCOPIED: Final = frozenset({EntryKind.LINK, EntryKind.SPECIAL})


def _conflict(path: str, mine: TreeEntry, theirs: TreeEntry | None) -> Difference:
    occupant = "something else" if theirs is None else _WORDS[theirs.kind]
    why = f"is {_WORDS[mine.kind]} in the source and {occupant} at the destination"
    return Difference(DifferenceKind.CONFLICT, path, why, mine, theirs)


def _first(one: str | None, other: str | None) -> str | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


@dataclass(frozen=True, slots=True)
class GivingWay:
    """The search for what may give way at the destination. ``tree`` and ``root``: of the destination. ``is_ours``:
    whether the job published an entry below it.
    """

    tree: Tree
    root: str
    deletes: Deletes
    is_ours: Callable[[TreeEntry], bool] | None

    def find(self, occupant: TreeEntry) -> tuple[TreeEntry, ...] | None:
        """``occupant`` with all that is below it, if all of this may give way; filters do not count."""
        if occupant.kind is not EntryKind.DIRECTORY:
            return (occupant,) if self._may_go(occupant) else None
        found = [occupant]
        for entry in self.tree.list_tree(f"{self.root}/{occupant.path}"):
            below = replace(entry, path=f"{occupant.path}/{entry.path}")
            if entry.kind is not EntryKind.DIRECTORY and not self._may_go(below):
                return None
            found.append(below)
        return tuple(found)

    def _may_go(self, entry: TreeEntry) -> bool:
        if entry.kind is not EntryKind.FILE or self.deletes is Deletes.OFF:
            return False
        return self.deletes is Deletes.ALL or (self.is_ours is not None and self.is_ours(entry))
