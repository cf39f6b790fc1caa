"""Rehearses one publication with files of a few bytes, so that a bad destination is refused before a run writes."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Final
from uuid import uuid4

from gobblin_assets.errors import ConflictError, GobblinError, RejectedError
from gobblin_assets.fs.file_system import FileSystem, RenameOutcome
from gobblin_assets.fs.tree import TreeEntry

PROBE_PREFIX: Final = ".gobblin-probe-"
"""Hidden from readers; a killed probe leaves a few bytes under such a name, and a later probe removes them."""

LEFT_BEHIND_S: Final = 3_600.0
"""A probe takes seconds, so what is older belongs to no living probe."""

ListDirectory = Callable[[str, str], Iterator[TreeEntry]]
"""The entries of a directory that are listed behind a name, by their full paths."""

S_NS: Final = 1_000_000_000

PROBE_TRIES_MAX: Final = 5
"""Two first runs may probe one destination at once, and one removes the directories that it made."""


def rehearse_publication(
    files: FileSystem, list_directory: ListDirectory, staging_root: str, final_root: str, option: str
) -> None:
    """Make both roots, write and rename a file and a directory, and see that neither is ever replaced.

    Removes what killed probes left in the roots more than ``LEFT_BEHIND_S`` ago by the cluster's clock. The directories
    that it made are removed, unless another probe uses them at that moment: then they may stay, empty.
    RejectedError names ``option``.
    """
    roots = (staging_root, final_root)
    for tries in range(1, PROBE_TRIES_MAX + 1):
        made = {path for root in roots for path in _list_missing(files, root)}
        name = PROBE_PREFIX + uuid4().hex
        staged, final = f"{staging_root}/{name}-staged", f"{final_root}/{name}-final"
        try:
            for root in roots:
                _make_root(files, root, option)
            _prove(files, staged, final, option)
            for root in dict.fromkeys(roots):
                _remove_left_behind(files, list_directory(root, PROBE_PREFIX))
        except GobblinError:
            # Where directories were missing, another first probe may have removed them: it takes what it made.
            if tries == PROBE_TRIES_MAX or not made:
                raise
        else:
            return
        finally:
            # A person needs the error that stopped the probe, not the error of the removal after it.
            with suppress(GobblinError):
                for place in (staged, final):
                    files.remove_tree(place)
                for path in sorted(made, key=len, reverse=True):
                    files.remove_empty_directory(path)


def _remove_left_behind(files: FileSystem, entries: Iterator[TreeEntry]) -> None:
    """What can't be listed or removed stays: another probe may be removing it, and no probe needs it gone."""
    with suppress(GobblinError):
        found = list(takewhile(lambda each: PurePosixPath(each.path).name.startswith(PROBE_PREFIX), entries))
        # The own probe is among them, and has just been written.
        now_ns = max((each.identity.mtime_ns or 0 for each in found), default=0)
        for each in found:
            if now_ns - (each.identity.mtime_ns or 0) > LEFT_BEHIND_S * S_NS:
                with suppress(GobblinError):
                    files.remove_tree(each.path)


def _make_root(files: FileSystem, root: str, option: str) -> None:
    try:
        files.make_directories(root)
    except ConflictError as error:
        hint = "Correct the path: something on the way to it is a file."
        raise RejectedError(error.message, field=option, hint=hint) from error


def _list_missing(files: FileSystem, root: str) -> Iterator[str]:
    """The directories on the way to ``root`` that are not there."""
    for path in (root, *(str(each) for each in PurePosixPath(root).parents)):
        try:
            if files.is_directory(path):
                return
        except GobblinError:
            # Whatever is wrong there is said when the directory is to be made.
            continue
        yield path


def _prove(files: FileSystem, staged: str, final: str, option: str) -> None:
    files.make_directories(final)
    for kind, inside in {"file": "", "directory": "/inside"}.items():
        target = f"{final}/{kind}"
        for number, expected in enumerate((RenameOutcome.RENAMED, RenameOutcome.TARGET_EXISTS)):
            source = f"{staged}/{kind}-{number}"
            files.make_directories(source if inside else staged)
            with files.create_file(source + inside) as stream:
                stream.write(b"probe\n")
            found = files.rename_no_replace(source, target)
            if found is not expected:
                raise RejectedError(
                    f"expected a rename to {target} to answer {expected.value!r}, it answered {found.value!r}",
                    field=option,
                    hint="Use a NameNode that keeps the rules of rename2.",
                )
