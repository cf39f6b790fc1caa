"""Dataset finders, by the word under ``finder`` in a copy, and the patterns of directories that they look for.

A package offers a kind by an entry point of the group ``gobblin_assets.dataset_finders``.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.errors import RejectedError
from gobblin_assets.extensions import Extensions
from gobblin_assets.fs.tree import Descend, EntryKind, Tree, TreeEntry, list_without_files
from gobblin_assets.jobs.copy.copyable import WHOLE_TREE, CopyableDataset, DatasetFinder, FileSet
from gobblin_assets.jobs.copy.globs import Glob, parse_glob
from gobblin_assets.spec.spec_errors import read_extension_options
from gobblin_assets.spec.spec_model import SpecModel

_HAS_MEANING: Final = frozenset("*?[]{}\\")


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A pattern of directories. ``globs`` has one for each name. ``literal``: the leading names that match only
    themselves, joined by slashes.
    """

    globs: tuple[Glob, ...]
    literal: str

    def matches_start(self, names: Sequence[str]) -> bool:
        """Whether these names, from the root on, match the first globs; there may be fewer names than globs."""
        return len(names) <= len(self.globs) and all(
            glob.matches(name) for glob, name in zip(self.globs, names, strict=False)
        )

    def below_literal(self, path: str) -> str:
        """The path of a match, relative to the directory of the literal names."""
        return path[len(self.literal) :].lstrip("/")


def parse_name_pattern(text: str, *, field: str) -> NamePattern:
    """A pattern such as ``databases/*/tables/*``; empty for the root. RejectedError names ``field``."""
    names = text.split("/") if text else []
    for name in names:
        if name in ("", ".", "..") or "**" in name:
            raise RejectedError(
                f"expected directories' names and globs between single slashes, found {text!a}",
                field=field,
                hint="Write it relative to the root, as in `databases/*/tables/*`; ** would find datasets in datasets.",
            )
    globs = tuple(parse_glob(f"/{name}", field=field) for name in names)
    literal = []
    for name in names:
        if _HAS_MEANING.intersection(name):
            break
        literal.append(name)
    return NamePattern(globs, "/".join(literal))


def list_directories(tree: Tree, root: str, descend: Descend) -> Iterator[TreeEntry]:
    """The directories of a listing. Work directories are left out at any depth: nothing is copied from them."""

    def is_work(path: str) -> bool:
        return path.rpartition("/")[2] == WORK_NAME

    for entry in list_without_files(tree, root, lambda path: not is_work(path) and descend(path)):
        if entry.kind is EntryKind.DIRECTORY and not is_work(entry.path):
            yield entry


def list_matches(tree: Tree, root: str, pattern: NamePattern) -> Iterator[str]:
    """The paths of the directories that match; only directories on the way to them are listed.

    RejectedError where the directory of the literal names is missing.
    """
    depth = len(pattern.globs)
    if depth == 0:
        yield ""
        return
    start = LiteralStart(root, pattern)

    def descend(path: str) -> bool:
        names = path.split("/")
        return len(names) < depth and pattern.matches_start(names)

    for entry in list_directories(tree, root, descend):
        start.meet(entry)
        if entry.path.count("/") == depth - 1:
            names = entry.path.split("/")
            if pattern.matches_start(names):
                yield entry.path
    start.require()


@dataclass(slots=True)
class LiteralStart:
    """A lookout, among the directories below ``root``, for that of a pattern's literal names.

    Without it nothing can match: it was never there, or what is mounted in it is away.
    """

    root: str
    pattern: NamePattern
    is_met: bool = False

    def meet(self, directory: TreeEntry) -> None:
        if directory.path == self.pattern.literal:
            self.is_met = True

    def require(self) -> None:
        """RejectedError if the listing has ended without it."""
        if self.pattern.literal and not self.is_met:
            raise RejectedError(
                f"{self.root.rstrip('/')}/{self.pattern.literal} is missing, and every dataset would be below it",
                field="finder.pattern",
                hint="Look whether it is mounted, or correct the pattern.",
            )


@dataclass(slots=True)
class BoundedTree:
    """``Tree`` that gives at most ``entries_max`` entries in all of its listings together; then a RejectedError."""

    tree: Tree
    entries_max: int
    _given: int = field(default=0, init=False)

    @property
    def mtime_precision_ns(self) -> int:
        return self.tree.mtime_precision_ns

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        return self._count(root, self.tree.list_tree(root, descend))

    def list_without_files(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        return self._count(root, list_without_files(self.tree, root, descend))

    def _count(self, root: str, entries: Iterator[TreeEntry]) -> Iterator[TreeEntry]:
        for entry in entries:
            self._given += 1
            if self._given > self.entries_max:
                raise RejectedError(
                    f"the search for datasets has looked at {self.entries_max:,} entries of {root}, and is not over",
                    field="finder",
                    hint="Let the pattern begin with names that have no globs, or leave old dates out: lookback_s.",
                )
            yield entry


OpenFinder = Callable[[Mapping[str, object]], DatasetFinder]
"""Options as they were written, without the kind's name, to a finder; RejectedError names the option."""

DATASET_FINDERS: Final = Extensions[OpenFinder](
    group="gobblin_assets.dataset_finders",
    noun="dataset finder",
    option="finder.kind",
    accepts=callable,
    built_in={
        "glob": "gobblin_assets.jobs.copy.finders:open_glob_finder",
        "stream": "gobblin_assets.jobs.copy.stream_finder:open_stream_finder",
        "manifest": "gobblin_assets.jobs.copy.manifest:open_manifest_finder",
    },
)

DEFAULT_FINDER: Final = "glob"


def open_finder(options: Mapping[str, object]) -> DatasetFinder:
    """The finder of the options under ``finder``, among them its ``kind``. RejectedError for an unknown kind."""
    kind = options.get("kind", DEFAULT_FINDER)
    if not isinstance(kind, str):
        known = ", ".join(DATASET_FINDERS.list_names())
        raise RejectedError(
            f"expected a kind of dataset finder, found {kind!r}", field="finder.kind", hint=f"Known: {known}."
        )
    return DATASET_FINDERS.get(kind)({name: value for name, value in options.items() if name != "kind"})


class GlobFinderOptions(SpecModel):
    """Options of the finder ``glob``. ``pattern``: globs of directories' names; empty for the root itself."""

    pattern: str = ""


@dataclass(frozen=True, slots=True)
class CopyableGlobDatasetFinder:
    """The finder ``glob``: a dataset for each directory that matches, with all that is below it.

    The destination is the part of the path behind the pattern's leading names without a glob: ``raw/*`` publishes
    ``raw/orders`` as ``orders``. Links to directories are found where the tree follows links.
    """

    pattern: NamePattern

    def find_datasets(self, tree: Tree, root: str, now: dt.datetime) -> Sequence[CopyableDataset]:  # noqa: ARG002  the same at any time
        return [
            CopyableDataset(path or WHOLE_TREE, path, self.pattern.below_literal(path), (FileSet(""),))
            for path in sorted(list_matches(tree, root, self.pattern))
        ]


def open_glob_finder(options: Mapping[str, object]) -> CopyableGlobDatasetFinder:
    read = read_extension_options(GlobFinderOptions, options, within="finder.")
    return CopyableGlobDatasetFinder(parse_name_pattern(read.pattern, field="finder.pattern"))
