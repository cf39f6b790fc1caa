"""Rehearses one publication with files of a few bytes, so that a bad destination is refused before a run writes."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from gobblin_assets.errors import ConflictError, GobblinError, RejectedError
from gobblin_assets.fs.file_system import FileSystem, RenameOutcome
from gobblin_assets.fs.posix_errors import families

PROBE_PREFIX: Final = ".gobblin-probe-"
"""Hidden from readers; a killed probe leaves a few bytes under such a name, and a later probe removes them."""

LEFT_BEHIND_S: Final = 3_600.0
"""A probe takes seconds, so older files belong to no living probe."""

_KINDS: Final = {"file": "", "directory": "/inside"}

PROBE_TRIES_MAX: Final = 5
"""Tries, since two first runs may probe one destination at once, and one removes the directories that it made."""


def prove_publication(file_system: FileSystem, staging_root: str, final_root: str) -> None:
    """Make both roots, write, sync and rename a file and a directory, and see that neither is ever replaced.

    Removes files that killed probes left in the roots more than ``LEFT_BEHIND_S`` ago by the file system's clock.
    The probe leaves nothing behind, and removes the directories that it made, unless another probe uses them at that
    moment: then they may stay, empty. RejectedError names the destination.
    """
    roots = (staging_root, final_root)
    for tries in range(1, PROBE_TRIES_MAX + 1):
        missing = [path for root in roots for path in _missing_directories(root)]
        name = PROBE_PREFIX + uuid4().hex
        probes = [f"{root}/{name}-{kind}" for root in roots for kind in _KINDS]
        try:
            for root in roots:
                _make_root(file_system, root)
            _prove(file_system, Path(staging_root, name), Path(final_root, name))
            for root in dict.fromkeys(roots):
                _remove_left_behind(file_system, Path(root), now_s=_moment_of(root))
        except BaseException as error:
            # The other probe may have made the roots again by now, so a look at the roots alone is not enough.
            vanished = isinstance(error, GobblinError) and (
                error.fields.get("errno") == "ENOENT" or not all(Path(root).is_dir() for root in roots)
            )
            # A person needs the error that stopped the probe, not the error of the removal after it.
            with suppress(GobblinError):
                _clean_up(file_system, probes, missing)
            if tries == PROBE_TRIES_MAX or not vanished:
                raise
        else:
            _clean_up(file_system, probes, missing)
            return


def _make_root(file_system: FileSystem, root: str) -> None:
    try:
        file_system.make_directories(root)
    except ConflictError as error:
        raise RejectedError(
            f"can't make {root}: ENOTDIR ({error.fields['path']} is not a directory)",
            field="destination",
            hint="Correct the path: something on the way to it is a file.",
        ) from error


def _prove(file_system: FileSystem, staged: Path, final: Path) -> None:
    for kind, written in _KINDS.items():
        source, target = f"{staged}-{kind}", f"{final}-{kind}"
        for expected in (RenameOutcome.RENAMED, RenameOutcome.TARGET_EXISTS):
            if kind == "directory":
                file_system.make_directories(source)
            with families("write", source):
                Path(source + written).write_bytes(b"probe\n")
            file_system.make_durable([source + written])
            found = file_system.rename_no_replace(source, target)
            if found is not expected:
                raise RejectedError(
                    f"expected a rename to {target} to answer {expected.value!r}, it answered {found.value!r}",
                    field="destination",
                    hint="Use a file system that keeps POSIX's rules for rename and link.",
                )
            file_system.sync_directories([str(final.parent), str(staged.parent)])


def _moment_of(directory: str) -> float:
    """Now, by the clock of the file system: the probe has just changed the directory."""
    with families("look at", directory):
        return Path(directory).stat().st_mtime


def _remove_left_behind(file_system: FileSystem, root: Path, *, now_s: float) -> None:
    """Files that can't be read or removed stay: another probe may be removing them, and no probe needs them gone."""
    with suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith(PROBE_PREFIX):
                with suppress(OSError, GobblinError):
                    if now_s - entry.stat(follow_symlinks=False).st_mtime > LEFT_BEHIND_S:
                        _remove(file_system, entry)


def _remove(file_system: FileSystem, entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        file_system.remove_tree(entry.path)
    else:
        Path(entry.path).unlink(missing_ok=True)


def _missing_directories(root: str) -> list[str]:
    path = Path(root)
    with families("look at", root):
        return [str(ancestor) for ancestor in (path, *path.parents) if not ancestor.exists()]


def _clean_up(file_system: FileSystem, probes: list[str], made: list[str]) -> None:
    for path in probes:
        if Path(path).is_dir():
            file_system.remove_tree(path)
        else:
            with families("remove", path):
                Path(path).unlink(missing_ok=True)
    for path in sorted(made, key=len, reverse=True):
        file_system.remove_empty_directory(path)
