"""One bin, by one writer: each file is copied or fails by itself, and each directory item is made and filled.

Threads, copying processes and executors run the same code: packed work and rows are plain values, fit to be sent. This
module imports little, since each copying process waits for it.
"""

import marshal
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from gobblin_assets.errors import GobblinError, family_of
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.fs.placement import make_placement
from gobblin_assets.fs.tree import EntryKind
from gobblin_assets.jobs.copy.copyable import Attributes, Conversion, CopyableFile, CopyItem
from gobblin_assets.jobs.copy.transfer.attributes import apply_attributes
from gobblin_assets.jobs.copy.transfer.bins import SplitPart
from gobblin_assets.jobs.copy.transfer.file_copy import (
    CopyOptions,
    PackedConversion,
    PlannedFile,
    StagedFile,
    copy_file,
    copy_part,
    missing_or_translated,
)
from gobblin_assets.jobs.copy.transfer.journal import FinishedFile, Journal, work_guid_of
from gobblin_assets.jobs.copy.transfer.taking import take_file
from gobblin_assets.model.files import FileIdentity

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


PlannedEntry = tuple[tuple[int, int], PlannedFile, str]
"""The first two of a file's row, the file, and the full path of what is staged."""


class PlannedItem(NamedTuple):
    """A CopyItem as its writer needs it. ``directories``: below the item, parents first."""

    number: int
    is_directory: bool
    files: tuple[PlannedFile, ...]
    directories: tuple[tuple[str, Attributes], ...]
    desired: Attributes


class PlannedPart(NamedTuple):
    """Bytes of a file that several writers fill. ``target``: the staged file, as a full path."""

    file: PlannedFile
    target: str
    offset: int
    size_bytes: int


class BinWork(NamedTuple):
    """The work of one writer: ``directory`` is its own one, which exists, as a full path or as a URI.

    ``options``: those of ``CopyOptions``. ``items``: each by itself, as ``pack_item`` makes it: a driver that holds a
    million small objects pays for them with each collection of garbage. ``journals``: whether the writer keeps a
    journal. ``finished``: by work guid, what may be taken, as the fields of ``FinishedFile``. ``parts``: as
    ``pack_part`` makes them. ``rate``: bytes and files a second of this writer; None: as many as it can (``pacing``).
    ``converters``: the chain of the items' conversions.
    """

    source_root: str
    directory: str
    options: tuple[bool, bool, bool, bool]
    items: tuple[bytes, ...]
    journals: bool = False
    finished: Mapping[str, tuple[str, int, int, int, int]] = {}
    parts: tuple[bytes, ...] = ()
    rate: tuple[float | None, float | None] = (None, None)
    converters: str = ""


class RowSink(Protocol):
    """Where a writer reports. What a method raises ends the writer's work."""

    def moved(self, count: int) -> None:
        """So many more bytes were moved."""
        ...

    def ended(self, row: ResultRow) -> None: ...


def pack_item(item: CopyItem) -> bytes:
    """Pickling the dataclasses of a plan would take as long as copying small files."""
    cut = len(item.path) + 1 if item.is_directory and item.path else 0
    files = [_pack_file(file.path[cut:] if item.is_directory else "", file) for file in item.files]
    directories = [(place, _pack_attributes(desired)) for place, desired in item.directories]
    return marshal.dumps((item.number, item.is_directory, files, directories, _pack_attributes(item.desired)))


def pack_part(part: SplitPart, target: str) -> bytes:
    return marshal.dumps((_pack_file("", part.item.files[0]), target, part.offset, part.size_bytes))


def unpack_part(packed: bytes) -> PlannedPart:
    file, target, offset, size_bytes = marshal.loads(packed)  # noqa: S302  our own process wrote it
    return PlannedPart(_unpack_file(file), target, offset, size_bytes)


def _pack_file(place: str, file: CopyableFile) -> tuple[Any, ...]:
    identity = file.origin.identity
    desired = _pack_attributes(file.desired)
    conversion = None if file.conversion is None else _pack_conversion(file.conversion)
    found = (identity.size_bytes, identity.inode, identity.mtime_ns)
    return place, file.origin.path, *found, desired, identity.tag, conversion, file.origin.changed_ns


def _unpack_file(packed: tuple[Any, ...]) -> PlannedFile:
    place, path, size_bytes, inode, mtime_ns, wanted, *others = packed
    return PlannedFile(place, path, size_bytes, inode, mtime_ns, _unpack_attributes(wanted), *others)


def _pack_attributes(desired: Attributes) -> tuple[Any, ...]:
    place = desired.placement
    placement = None if place is None else (place.owner, place.group, place.replication, place.block_bytes)
    return desired.mode, desired.owner, desired.group, desired.mtime_ns, desired.xattrs, placement


def _unpack_attributes(packed: tuple[Any, ...]) -> Attributes:
    mode, owner, group, mtime_ns, xattrs, placement = packed
    placed = None if placement is None else make_placement(*placement)
    return Attributes(mode, owner, group, mtime_ns, xattrs, placed)


def _pack_conversion(conversion: Conversion) -> PackedConversion:
    parts = tuple(
        (
            each.path,
            each.kind is EntryKind.DIRECTORY,
            each.identity.size_bytes,
            each.identity.inode,
            each.identity.mtime_ns,
            each.mode,
            each.changed_ns,
        )
        for each in conversion.parts
    )
    return conversion.steps, conversion.member, conversion.member_steps, parts


def unpack_item(packed: bytes) -> PlannedItem:
    number, is_directory, files, directories, desired = marshal.loads(packed)  # noqa: S302  our own process wrote it
    return PlannedItem(
        number,
        is_directory,
        tuple(map(_unpack_file, files)),
        tuple((place, _unpack_attributes(wanted)) for place, wanted in directories),
        _unpack_attributes(desired),
    )


def copy_bin(work: BinWork, sink: RowSink) -> None:
    """Copy all items, then all parts, into a directory of this machine.

    The sink gets a row for each file, then one for its directory item; and one for each part, whose item's number goes
    on from those of the items. A failure is a row.
    """
    with Journal(work.directory, work.source_root, is_kept=work.journals) as journal:
        writer = _Writer(work, CopyOptions(*work.options), journal, sink)
        waiting: list[PlannedEntry] = []
        for number, packed in enumerate(work.items):
            item = unpack_item(packed)
            if item.is_directory:
                _copy_entries(writer, waiting)
                waiting.clear()
                _copy_directory(writer, number, item)
                continue
            entry = ((number, 0), item.files[0], f"{work.directory}/{item.number}")
            if work.converters:
                waiting.append(entry)
            else:
                _copy_entry(writer, *entry)
        _copy_entries(writer, waiting)
    for number, packed in enumerate(work.parts, start=len(work.items)):
        _copy_part(work, number, unpack_part(packed), sink)


def _copy_part(work: BinWork, number: int, part: PlannedPart, sink: RowSink) -> None:
    options = CopyOptions(*work.options)
    bounds = (part.offset, part.offset + part.size_bytes)
    try:
        staged = copy_part(f"{work.source_root}/{part.file.path}", part.file, part.target, bounds, options, sink.moved)
    except GobblinError as error:
        sink.ended((number, 0, None, text_of(error)))
    else:
        sink.ended((number, 0, staged, None))


class _Writer(NamedTuple):
    work: BinWork
    options: CopyOptions
    journal: Journal
    sink: RowSink


def _copy_entries(writer: _Writer, entries: Sequence[PlannedEntry]) -> list[FailureText]:
    """The failures. Files of one archive, which come one behind the other, are read in one pass."""
    work, options, _journal, sink = writer
    if not work.converters:
        return [failure for each in entries if (failure := _copy_entry(writer, *each)) is not None]
    if not entries:
        return []
    from gobblin_assets.jobs.copy.transfer.converting import convert_entries  # noqa: PLC0415  copying processes wait for imports

    failures = []
    for place, staged, error in convert_entries(work.source_root, work.converters, options, entries, sink.moved):
        if error is not None:
            failures.append(text_of(error))
        sink.ended((*place, staged, None if error is None else failures[-1]))
    return failures


def _copy_entry(writer: _Writer, place: tuple[int, int], file: PlannedFile, target: str) -> FailureText | None:
    try:
        staged = _stage_file(writer, file, target)
    except GobblinError as error:
        reason = text_of(error)
        writer.sink.ended((*place, None, reason))
        return reason
    writer.sink.ended((*place, staged, None))
    return None


def _stage_file(writer: _Writer, file: PlannedFile, target: str) -> StagedFile:
    """Take the file from an earlier attempt, or copy it; then say in the journal that it is finished."""
    work, _options, journal, sink = writer
    finished = _find_finished(work, file) if work.finished else None
    staged = None if finished is None else take_file(finished, file.desired, target)
    if staged is None:
        staged = copy_file(f"{work.source_root}/{file.path}", file, target, writer.options, sink.moved)
    else:
        sink.moved(file.size_bytes)
    if journal.is_open:
        reach(Failpoint.FILE_STAGED)
        journal.add(file, target, staged)
        reach(Failpoint.FILE_JOURNALED)
    return staged


def _find_finished(work: BinWork, file: PlannedFile) -> FinishedFile | None:
    identity = FileIdentity(file.size_bytes, file.inode, file.mtime_ns, file.tag)
    guid = work_guid_of(work.source_root, file.path, identity, file.changed_ns, file.desired)
    found = None if guid is None else work.finished.get(guid)
    return None if found is None else FinishedFile(*found)


def _copy_directory(writer: _Writer, number: int, item: PlannedItem) -> None:
    sink = writer.sink
    top = f"{writer.work.directory}/{item.number}"
    try:
        _make_directory(top, item.desired)
        for place, desired in item.directories:
            _make_directory(f"{top}/{place}", desired)
    except GobblinError as error:
        reason = text_of(error)
        for entry in (*range(len(item.files)), ITEM_ITSELF):
            sink.ended((number, entry, None, reason))
        return
    entries = [((number, entry), file, f"{top}/{file.place}") for entry, file in enumerate(item.files)]
    failures = _copy_entries(writer, entries)
    failures += _finish_subdirectories(top, number, item.directories, sink)
    if failures:
        family, message = failures[0]
        text = f"{len(failures):,} of its files and directories failed, the first: {message}"
        sink.ended((number, ITEM_ITSELF, None, (family, text)))
        return
    try:
        staged = finish_directory(top, item.desired)
    except GobblinError as error:
        sink.ended((number, ITEM_ITSELF, None, text_of(error)))
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
            finish_directory(f"{top}/{place}", desired)
        except GobblinError as error:
            failures.append(text_of(error))
            sink.ended((number, ITEM_ITSELF - 1 - entry, None, failures[-1]))
    return failures


def _make_directory(path: str, desired: Attributes) -> None:
    """Never its parents: one that is missing was captured. The writer needs all rights until the content is there."""
    mode = _MODE_OF_NEW if desired.mode is None else desired.mode & _MODE_OF_NEW | _OWN_RIGHTS
    try:
        os.mkdir(path, mode)  # noqa: PTH102  no object for each of a million directories
    except OSError as error:
        raise missing_or_translated(error, "make", path) from error


def finish_directory(path: str, desired: Attributes) -> StagedFile:
    """Set the attributes of a staged directory, after its content, which sets its mtime."""
    try:
        descriptor = os.open(path, _OPEN_DIRECTORY)
        try:
            found = apply_attributes(descriptor, path, desired)
            if desired.xattrs and desired.mode is not None:
                # Where an access list takes the owner's right to write, the directory could not be moved.
                os.fchmod(descriptor, desired.mode)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise missing_or_translated(error, "set the attributes of", path) from error
    return found.st_size, found.st_ino, found.st_mtime_ns, None


def text_of(error: GobblinError) -> FailureText:
    return family_of(error).value, str(error)
