"""One bin, by one writer: each file is copied or fails by itself, and each directory item is made and filled.

Threads, copying processes and executors run the same code: packed work and rows are plain values, fit to be sent. This
module imports little, since each copying process waits for it.
"""

import marshal
import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from gobblin_assets.errors import GobblinError, family_of
from gobblin_assets.jobs.copy.copyable import Attributes, CopyItem
from gobblin_assets.jobs.copy.transfer.attributes import apply_attributes
from gobblin_assets.jobs.copy.transfer.file_copy import (
    CopyOptions,
    PlannedFile,
    StagedFile,
    copy_file,
    missing_or_translated,
)

ITEM_ITSELF: Final = -1
"""The entry of a row about a directory item; a row about its n-th subdirectory has the entry ``-2 - n``."""

_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOTHING: Final = Attributes()
_MODE_OF_NEW: Final = 0o777
_OWN_RIGHTS: Final = 0o700

FailureText = tuple[str, str]
"""The name of the error's family, and its message."""

ResultRow = tuple[int, int, StagedFile | None, FailureText | None]
"""The number of the item in its bin, the entry (a file's number in the item, or see above), and what became of it."""


class PlannedItem(NamedTuple):
    """A CopyItem as its writer needs it. ``directories``: below the item, parents first."""

    number: int
    is_directory: bool
    files: tuple[PlannedFile, ...]
    directories: tuple[tuple[str, Attributes], ...]
    desired: Attributes


class BinWork(NamedTuple):
    """The work of one writer: ``directory`` is its own one, which exists, as a full path.

    ``options``: those of ``CopyOptions``. ``items``: each by itself, as ``pack_item`` makes it: a driver that holds a
    million small objects pays for them with each collection of garbage.
    """

    source_root: str
    directory: str
    options: tuple[bool, bool, bool, bool]
    items: tuple[bytes, ...]


class RowSink(Protocol):
    """Where a writer reports. What a method raises ends the writer's work."""

    def moved(self, count: int) -> None:
        """So many more bytes were moved."""
        ...

    def ended(self, row: ResultRow) -> None: ...


def pack_item(item: CopyItem) -> bytes:
    """Pickling the dataclasses of a plan would take as long as copying small files."""
    cut = len(item.path) + 1 if item.is_directory and item.path else 0
    files = [
        (
            file.path[cut:] if item.is_directory else "",
            file.origin.path,
            file.origin.identity.size_bytes,
            file.origin.identity.inode,
            file.origin.identity.mtime_ns,
            _pack_attributes(file.desired),
        )
        for file in item.files
    ]
    directories = [(place, _pack_attributes(desired)) for place, desired in item.directories]
    return marshal.dumps((item.number, item.is_directory, files, directories, _pack_attributes(item.desired)))


def _pack_attributes(desired: Attributes) -> tuple[Any, ...]:
    return desired.mode, desired.owner, desired.group, desired.mtime_ns, desired.xattrs


def _unpack_item(packed: bytes) -> PlannedItem:
    number, is_directory, files, directories, desired = marshal.loads(packed)  # noqa: S302  our own process wrote it
    return PlannedItem(
        number,
        is_directory,
        tuple(
            PlannedFile(place, path, size_bytes, inode, mtime_ns, Attributes(*wanted))
            for place, path, size_bytes, inode, mtime_ns, wanted in files
        ),
        tuple((place, Attributes(*wanted)) for place, wanted in directories),
        Attributes(*desired),
    )


def copy_bin(work: BinWork, sink: RowSink) -> None:
    """Copy all items. The sink gets a row for each file, then one for its directory item; a failure is a row."""
    options = CopyOptions(*work.options)
    for number, packed in enumerate(work.items):
        item = _unpack_item(packed)
        if item.is_directory:
            _copy_directory(work, options, number, item, sink)
        else:
            _copy_entry(work, options, (number, 0), item.files[0], f"{work.directory}/{item.number}", sink)


def _copy_entry(
    work: BinWork, options: CopyOptions, place: tuple[int, int], file: PlannedFile, target: str, sink: RowSink
) -> FailureText | None:
    try:
        staged = copy_file(f"{work.source_root}/{file.path}", file, target, options, sink.moved)
    except GobblinError as error:
        reason = _text_of(error)
        sink.ended((*place, None, reason))
        return reason
    sink.ended((*place, staged, None))
    return None


def _copy_directory(work: BinWork, options: CopyOptions, number: int, item: PlannedItem, sink: RowSink) -> None:
    top = f"{work.directory}/{item.number}"
    try:
        _make_directory(top, item.desired)
        for place, desired in item.directories:
            _make_directory(f"{top}/{place}", desired)
    except GobblinError as error:
        reason = _text_of(error)
        for entry in (*range(len(item.files)), ITEM_ITSELF):
            sink.ended((number, entry, None, reason))
        return
    failures = [
        failure
        for entry, file in enumerate(item.files)
        if (failure := _copy_entry(work, options, (number, entry), file, f"{top}/{file.place}", sink)) is not None
    ]
    failures += _finish_subdirectories(top, number, item.directories, sink)
    if failures:
        family, message = failures[0]
        text = f"{len(failures):,} of its files and directories failed, the first: {message}"
        sink.ended((number, ITEM_ITSELF, None, (family, text)))
        return
    try:
        staged = _finish_directory(top, item.desired)
    except GobblinError as error:
        sink.ended((number, ITEM_ITSELF, None, _text_of(error)))
    else:
        sink.ended((number, ITEM_ITSELF, staged, None))


def _finish_subdirectories(
    top: str, number: int, directories: Sequence[tuple[str, Attributes]], sink: RowSink
) -> list[FailureText]:
    """The deepest first: a mode without the right to write would close the way to those below."""
    failures = []
    for entry, (place, desired) in reversed(list(enumerate(directories))):
        if desired == _NOTHING:
            continue
        try:
            _finish_directory(f"{top}/{place}", desired)
        except GobblinError as error:
            failures.append(_text_of(error))
            sink.ended((number, ITEM_ITSELF - 1 - entry, None, failures[-1]))
    return failures


def _make_directory(path: str, desired: Attributes) -> None:
    """Never its parents: one that is missing was captured. The writer needs all rights until the content is there."""
    mode = _MODE_OF_NEW if desired.mode is None else desired.mode & _MODE_OF_NEW | _OWN_RIGHTS
    try:
        os.mkdir(path, mode)  # noqa: PTH102  no object for each of a million directories
    except OSError as error:
        raise missing_or_translated(error, "make", path) from error


def _finish_directory(path: str, desired: Attributes) -> StagedFile:
    """After its content, which sets the mtime of a directory."""
    try:
        descriptor = os.open(path, _OPEN_DIRECTORY)
        try:
            found = apply_attributes(descriptor, path, desired)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise missing_or_translated(error, "set the attributes of", path) from error
    return found.st_size, found.st_ino, found.st_mtime_ns, None


def _text_of(error: GobblinError) -> FailureText:
    return family_of(error).value, str(error)
