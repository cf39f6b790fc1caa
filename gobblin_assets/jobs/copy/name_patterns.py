"""Patterns of directories: a glob for each name on the way, and the listing of what matches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import Descend, EntryKind, Tree, TreeEntry, list_without_files
from gobblin_assets.jobs.copy.globs import Glob, parse_glob

_HAS_MEANING: Final = frozenset("*?[]{}\\")


@dataclass(frozen=True, slots=True)
class NamePattern:
    """``globs`` has one for each name. ``literal``: the leading names that match only themselves, joined by slashes."""

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
    """Looks out, among the directories below ``root``, for that of a pattern's literal names.

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
