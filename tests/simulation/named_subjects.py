"""Steps of each kind at one given name, staged on a disk on which everything is durable, and a stranger beside them."""

import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gobblin_assets.commit.attempts import SLOTS
from gobblin_assets.destinations.fixed_names.named_directory_steps import (
    NO_PLACE,
    ClearDirectory,
    ClearFile,
    CloseDirectory,
    EnsureDirectory,
    OpenDirectory,
    PlaceDirectory,
)
from gobblin_assets.destinations.fixed_names.named_steps import (
    DIRECTORIES,
    RETURNED,
    NamedStep,
    PlaceFile,
    RemoveFile,
    ReplaceFile,
)
from gobblin_assets.model.files import DataFile, FileIdentity
from tests.simulation.file_system import SimDisk

ROOT: Final = "/lake"
STAGING: Final = f"{ROOT}/.staging/attempt"
TARGET: Final = f"{ROOT}/data/name"
WRITER: Final = "writer"

CLOSED: Final = 0o555

OLD_CONTENT: Final = b"old"
NEW_CONTENT: Final = b"new version"
_PARTS: Final = {"part-0": b"new first part", "deep/part-1": b"new second part"}


@dataclass(frozen=True)
class Subject:
    """A step, and the disk before it. ``new`` and ``old``: the contents of the files that it publishes or removes."""

    disk: SimDisk
    step: NamedStep
    new: frozenset[bytes] = frozenset()
    old: frozenset[bytes] = frozenset()


def place_file() -> Subject:
    disk = _new_disk()
    identity = _stage(disk, NEW_CONTENT)
    return Subject(_durable(disk), PlaceFile(STAGING, TARGET, "0", WRITER, identity), frozenset({NEW_CONTENT}))


def replace_by_exchange() -> Subject:
    return _replace_file(exchanges=True)


def replace_by_two_renames() -> Subject:
    return _replace_file(exchanges=False)


def remove_file() -> Subject:
    disk = _new_disk()
    old = _write(disk, TARGET, OLD_CONTENT)
    return Subject(_durable(disk), RemoveFile(STAGING, TARGET, "0", old), old=frozenset({OLD_CONTENT}))


def place_directory() -> Subject:
    disk = _new_disk()
    staged = f"{STAGING}/{WRITER}/0"
    files = [DataFile(name, _write(disk, f"{staged}/{name}", content), 0) for name, content in _PARTS.items()]
    step = PlaceDirectory(STAGING, TARGET, "0", WRITER, disk.find(staged) or 0, tuple(files))
    return Subject(_durable(disk), step, frozenset(_PARTS.values()))


def ensure_directory() -> Subject:
    disk = _new_disk()
    disk.mkdir(f"{STAGING}/{DIRECTORIES}/0")
    return Subject(_durable(disk), EnsureDirectory(STAGING, TARGET, "0"))


def clear_file() -> Subject:
    disk = _new_disk()
    old = _write(disk, TARGET, OLD_CONTENT)
    return Subject(_durable(disk), ClearFile(STAGING, TARGET, "0", old), old=frozenset({OLD_CONTENT}))


def clear_directory() -> Subject:
    disk = _new_disk()
    disk.mkdir(TARGET)
    return Subject(_durable(disk), ClearDirectory(STAGING, TARGET, "0"))


def open_directory() -> Subject:
    return _change_mode(OpenDirectory, CLOSED)


def close_directory() -> Subject:
    return _change_mode(CloseDirectory, CLOSED | stat.S_IWUSR)


FILES: Final[tuple[Callable[[], Subject], ...]] = (place_file, replace_by_exchange, replace_by_two_renames, remove_file)
SUBJECTS: Final[tuple[Callable[[], Subject], ...]] = (
    *FILES,
    place_directory,
    ensure_directory,
    clear_file,
    clear_directory,
    open_directory,
    close_directory,
)


def list_at_name(disk: SimDisk) -> frozenset[bytes]:
    """The contents of the file at the name, or of the files below it."""
    return frozenset(
        content for path, content in disk.files().items() if path == TARGET or path.startswith(f"{TARGET}/")
    )


def write_at_name(disk: SimDisk, content: bytes, *, as_directory: bool) -> frozenset[bytes]:
    """A stranger writes the name, or into the directory there, and syncs it; what was there and is not now.

    ``as_directory``: where nothing is, it makes an empty directory instead.
    """
    gone: frozenset[bytes] = frozenset()
    path = f"{TARGET}/{content.decode()}" if disk.is_directory(TARGET) else TARGET
    if as_directory and not disk.exists(TARGET):
        disk.mkdir(TARGET)
    else:
        if path == TARGET and disk.exists(TARGET):
            gone = list_at_name(disk)
            disk.remove(TARGET)
        disk.write_file(path, content)
        disk.sync_file(path)
    disk.sync_directory(TARGET.rpartition("/")[0])
    return gone


def remove_name(disk: SimDisk, *, one_file_only: bool) -> frozenset[bytes]:
    """A stranger removes whatever is at the name, or of a directory there only its first file; what was there."""
    before = list_at_name(disk)
    below = [path for path in disk.files() if path.startswith(f"{TARGET}/")] if one_file_only else []
    for path in below[:1] or [TARGET]:
        if disk.exists(path):
            disk.remove_tree(path)
            disk.sync_directory(path.rpartition("/")[0])
    return before - list_at_name(disk)


def _replace_file(*, exchanges: bool) -> Subject:
    disk = _new_disk()
    new, old = _stage(disk, NEW_CONTENT), _write(disk, TARGET, OLD_CONTENT)
    step = ReplaceFile(STAGING, TARGET, "0", WRITER, new, old, exchanges)
    return Subject(_durable(disk), step, frozenset({NEW_CONTENT}), frozenset({OLD_CONTENT}))


def find_mode(disk: SimDisk) -> int | None:
    """Of the directory at the name, if there is one."""
    return disk.find_mode(TARGET) if disk.is_directory(TARGET) else None


def _change_mode(kind: type[OpenDirectory | CloseDirectory], mode: int) -> Subject:
    disk = _new_disk()
    disk.mkdir(TARGET)
    disk.change_mode(TARGET, mode)
    return Subject(_durable(disk), kind(STAGING, TARGET, NO_PLACE, CLOSED, disk.find(TARGET)))


def _new_disk() -> SimDisk:
    disk = SimDisk()
    for directory in (TARGET.rpartition("/")[0], *(f"{STAGING}/{each}" for each in (WRITER, SLOTS, RETURNED))):
        disk.mkdir(directory)
    return disk


def _stage(disk: SimDisk, content: bytes) -> FileIdentity:
    return _write(disk, f"{STAGING}/{WRITER}/0", content)


def _write(disk: SimDisk, path: str, content: bytes) -> FileIdentity:
    disk.write_file(path, content)
    identity = disk.find_identity(path)
    if identity is None:
        raise AssertionError(f"{path} was just written")
    return identity


def _durable(disk: SimDisk) -> SimDisk:
    disk.power_cut(lambda _change: True)
    return disk
