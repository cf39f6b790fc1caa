"""One bin, by one writer: each file is copied or fails by itself, and each directory item is made and filled.

Threads, copying processes and executors run the same code: packed work and rows are plain values, fit to be sent. This
module imports little, since each copying process waits for it.
"""

import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from gobblin_assets.errors import GobblinError, family_of
from gobblin_assets.jobs.copy.copyable import Attributes
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

PackedWork = tuple[Any, ...]
"""Nested tuples of numbers and texts: pickling the dataclasses of a plan takes as long as copying small files."""

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
    """The work of one writer: ``directory`` is its own one, which exists, as a full path."""

    source_root: str
    directory: str
    options: CopyOptions
    items: tuple[PlannedItem, ...]


class RowSink(Protocol):
    """Where a writer reports. What a method raises ends the writer's work."""

    def moved(self, count: int) -> None:
        """So many more bytes were moved."""
        ...

    def ended(self, row: ResultRow) -> None: ...


def unpack_work(packed: PackedWork) -> BinWork:
    source_root, directory, options, items = packed
    return BinWork(source_root, directory, CopyOptions(*options), tuple([_unpack_item(item) for item in items]))


def _unpack_item(packed: PackedWork) -> PlannedItem:
    number, is_directory, files, directories, desired = packed
    return PlannedItem(
        number,
        is_directory,
        tuple(
            [
                PlannedFile(place, path, size_bytes, inode, mtime_ns, Attributes(*wanted))
                for place, path, size_bytes, inode, mtime_ns, wanted in files
            ]
        ),
        tuple([(place, Attributes(*wanted)) for place, wanted in directories]),
        Attributes(*desired),
    )


def copy_bin(work: BinWork, sink: RowSink) -> None:
    """Copy all items. The sink gets a row for each file, then one for its directory item; a failure is a row."""
    for number, item in enumerate(work.items):
        if item.is_directory:
            _copy_directory(work, number, item, sink)
        else:
            _copy_entry(work, (number, 0), item.files[0], f"{work.directory}/{item.number}", sink)


def _copy_entry(
    work: BinWork, place: tuple[int, int], file: PlannedFile, target: str, sink: RowSink
) -> FailureText | None:
    try:
        staged = copy_file(f"{work.source_root}/{file.path}", file, target, work.options, sink.moved)
    except GobblinError as error:
        reason = _text_of(error)
        sink.ended((*place, None, reason))
        return reason
    sink.ended((*place, staged, None))
    return None


def _copy_directory(work: BinWork, number: int, item: PlannedItem, sink: RowSink) -> None:
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
        if (failure := _copy_entry(work, (number, entry), file, f"{top}/{file.place}", sink)) is not None
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
