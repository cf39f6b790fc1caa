"""One bin, by one writer: each file is copied or fails by itself, and each directory item is made and filled.

Threads, copying processes and executors run the same code: packed work and rows are plain values, fit to be sent. Rows
are handed on some at a time: one by one, the handing on would take longer than the copies. This module imports little,
since each copying process waits for it.
"""

import marshal
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from gobblin_assets.errors import GobblinError, family_of
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.fs.tree import make_placement
from gobblin_assets.jobs.copy.copyable import NO_ATTRIBUTES, Attributes, Conversion, CopyItem, PackedOrigin, PlannedFile
from gobblin_assets.jobs.copy.transfer.attributes import apply_attributes
from gobblin_assets.jobs.copy.transfer.bins import SplitPart
from gobblin_assets.jobs.copy.transfer.file_copy import (
    CopyOptions,
    PlannedEntry,
    StagedFile,
    copy_file,
    copy_part,
    missing_or_translated,
)
from gobblin_assets.jobs.copy.transfer.journal import FinishedFile, Journal, take_file, work_guid_of

ITEM_ITSELF: Final = -1
"""The entry of a row about a directory item; a row about its n-th subdirectory has the entry ``-2 - n``."""

_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE_OF_NEW: Final = 0o777
_OWN_RIGHTS: Final = 0o700

FailureText = tuple[str, str]
"""The name of the error's family, and its message."""

ResultRow = tuple[int, int, StagedFile | None, FailureText | None]
"""The number of the item in its bin, the entry (a file's number in the item, or see above), and what became of it."""


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
    """The place to which a writer reports. An exception from a method ends the writer's work."""

    def moved(self, count: int) -> None:
        """So many more bytes were moved."""
        ...

    def ended(self, row: ResultRow) -> None: ...


def pack_item(item: CopyItem) -> bytes:
    """Plain values: pickling would take as long as copying small files. ``unpack_item`` gives an equal item."""
    files = [_pack_file(file) for file in item.files]
    directories = [(place, _pack_attributes(desired)) for place, desired in item.directories]
    desired = _pack_attributes(item.desired)
    return marshal.dumps((item.number, item.path, files, item.is_directory, directories, desired))


def unpack_item(packed: bytes) -> CopyItem:
    number, path, files, is_directory, directories, desired = marshal.loads(packed)  # noqa: S302  our own process wrote it
    return CopyItem(
        number,
        path,
        tuple(map(_unpack_file, files)),
        is_directory,
        tuple((place, _unpack_attributes(wanted)) for place, wanted in directories),
        _unpack_attributes(desired),
    )


def pack_part(part: SplitPart, target: str) -> bytes:
    """``target``: the staged file, as a full path."""
    return marshal.dumps((pack_item(part.item), part.number, part.offset, part.size_bytes, target))


def unpack_part(packed: bytes) -> tuple[SplitPart, str]:
    """The part that ``pack_part`` packed."""
    item, number, offset, size_bytes, target = marshal.loads(packed)  # noqa: S302  our own process wrote it
    return SplitPart(unpack_item(item), number, offset, size_bytes), target


def _pack_file(file: PlannedFile) -> tuple[Any, ...]:
    *origin, desired, conversion = file
    packed = None if conversion is None else (*conversion[:-1], tuple(map(tuple, conversion.parts)))
    return (*origin, _pack_attributes(desired), packed)


def _unpack_file(packed: tuple[Any, ...]) -> PlannedFile:
    *origin, desired, conversion = packed
    if conversion is not None:
        *how, parts = conversion
        conversion = Conversion._make((*how, tuple(map(PackedOrigin._make, parts))))
    return PlannedFile._make((*origin, _unpack_attributes(desired), conversion))


def _pack_attributes(desired: Attributes) -> tuple[Any, ...]:
    *others, place = desired
    placement = None if place is None else (place.owner, place.group, place.replication, place.block_bytes)
    return (*others, placement)


def _unpack_attributes(packed: tuple[Any, ...]) -> Attributes:
    *others, placement = packed
    return Attributes._make((*others, None if placement is None else make_placement(*placement)))


def copy_bin(work: BinWork, sink: RowSink) -> None:
    """Copy all items, then all parts, into a directory of this machine.

    The sink gets a row for each file, then one for its directory item; and one for each part, whose item's number goes
    on from those of the items. A failure is a row.
    """
    with Journal(work.directory, work.source_root, is_kept=work.journals) as journal:
        writer = _LocalWriter(work, journal, sink)
        waiting: list[PlannedEntry] = []
        for number, packed in enumerate(work.items):
            item = unpack_item(packed)
            if item.is_directory:
                writer.copy_entries(waiting)
                waiting.clear()
                copy_directory(writer, number, item)
                continue
            entry = ((number, 0), item.files[0], f"{work.directory}/{item.number}")
            if work.converters:
                waiting.append(entry)
            else:
                writer.copy_entry(*entry)
        writer.copy_entries(waiting)
    for number, packed in enumerate(work.parts, start=len(work.items)):
        _copy_part(work, number, *unpack_part(packed), sink)


def _copy_part(work: BinWork, number: int, part: SplitPart, target: str, sink: RowSink) -> None:
    options, file = CopyOptions(*work.options), part.item.files[0]
    bounds = (part.offset, part.offset + part.size_bytes)
    try:
        staged = copy_part(f"{work.source_root}/{file.origin}", file, target, bounds, options, sink.moved)
    except GobblinError as error:
        sink.ended((number, 0, None, text_of(error)))
    else:
        sink.ended((number, 0, staged, None))


class BinWriter(Protocol):
    """The writer of one bin into its own directory: on this machine, or over a network."""

    @property
    def directory(self) -> str:
        """A full path."""
        ...

    def copy_entries(self, entries: Iterable[PlannedEntry]) -> list[FailureText]:
        """The failures. Each entry ends with a row."""
        ...

    def make_directory(self, path: str, desired: Attributes) -> None:
        """The writer needs all rights until the content is there."""
        ...

    def finish_directory(self, path: str, desired: Attributes) -> StagedFile:
        """Set the attributes, after the content, which sets the mtime."""
        ...

    def end(self, row: ResultRow) -> None: ...


def copy_directory(writer: BinWriter, number: int, item: CopyItem) -> None:
    """Copy a directory item, the bin's item ``number``: a row for each of its files, and one for itself."""
    top = f"{writer.directory}/{item.number}"
    try:
        writer.make_directory(top, item.desired)
        for place, desired in item.directories:
            writer.make_directory(f"{top}/{place}", desired)
    except GobblinError as error:
        reason = text_of(error)
        for entry in (*range(len(item.files)), ITEM_ITSELF):
            writer.end((number, entry, None, reason))
        return
    failures = writer.copy_entries(
        ((number, entry), file, f"{top}/{item.place_of(file)}") for entry, file in enumerate(item.files)
    )
    failures += _finish_subdirectories(writer, top, number, item.directories)
    if failures:
        family, message = failures[0]
        text = f"{len(failures):,} of its files and directories failed, the first: {message}"
        writer.end((number, ITEM_ITSELF, None, (family, text)))
        return
    try:
        staged = writer.finish_directory(top, item.desired)
    except GobblinError as error:
        writer.end((number, ITEM_ITSELF, None, text_of(error)))
    else:
        writer.end((number, ITEM_ITSELF, staged, None))


def _finish_subdirectories(
    writer: BinWriter, top: str, number: int, directories: Sequence[tuple[str, Attributes]]
) -> list[FailureText]:
    """The deepest first: a mode without the right to write would close the way to those below."""
    failures = []
    for entry, (place, desired) in reversed(list(enumerate(directories))):
        if desired == NO_ATTRIBUTES:
            continue
        try:
            writer.finish_directory(f"{top}/{place}", desired)
        except GobblinError as error:
            failures.append(text_of(error))
            writer.end((number, ITEM_ITSELF - 1 - entry, None, failures[-1]))
    return failures


class _LocalWriter:
    """``BinWriter`` on this machine, by descriptors."""

    def __init__(self, work: BinWork, journal: Journal, sink: RowSink) -> None:
        self.directory = work.directory
        self._work = work
        self._options = CopyOptions(*work.options)
        self._journal = journal
        self._sink = sink

    def end(self, row: ResultRow) -> None:
        self._sink.ended(row)

    def copy_entries(self, entries: Iterable[PlannedEntry]) -> list[FailureText]:
        """Files of one archive, which come one behind the other, are read in one pass."""
        if not self._work.converters:
            return [failure for each in entries if (failure := self.copy_entry(*each)) is not None]
        if not (together := list(entries)):
            return []
        from gobblin_assets.jobs.copy.transfer.converting import convert_entries  # noqa: PLC0415  copying processes wait for imports

        failures = []
        outcomes = convert_entries(
            self._work.source_root, self._work.converters, self._options, together, self._sink.moved
        )
        for place, staged, error in outcomes:
            if error is not None:
                failures.append(text_of(error))
            self._sink.ended((*place, staged, None if error is None else failures[-1]))
        return failures

    def copy_entry(self, place: tuple[int, int], file: PlannedFile, target: str) -> FailureText | None:
        try:
            staged = self._stage_file(file, target)
        except GobblinError as error:
            reason = text_of(error)
            self._sink.ended((*place, None, reason))
            return reason
        self._sink.ended((*place, staged, None))
        return None

    def _stage_file(self, file: PlannedFile, target: str) -> StagedFile:
        """Take the file from an earlier attempt, or copy it; then say in the journal that it is finished."""
        work, journal, sink = self._work, self._journal, self._sink
        finished = _find_finished(work, file) if work.finished else None
        staged = None if finished is None else take_file(finished, file.desired, target)
        if staged is None:
            staged = copy_file(f"{work.source_root}/{file.origin}", file, target, self._options, sink.moved)
        else:
            sink.moved(file.size_bytes)
        if journal.is_open:
            reach(Failpoint.FILE_STAGED)
            journal.add(file, target, staged)
            reach(Failpoint.FILE_JOURNALED)
        return staged

    def make_directory(self, path: str, desired: Attributes) -> None:
        """Make one directory, and never its parents: one that is missing was captured."""
        mode = _MODE_OF_NEW if desired.mode is None else desired.mode & _MODE_OF_NEW | _OWN_RIGHTS
        try:
            os.mkdir(path, mode)  # noqa: PTH102  no object for each of a million directories
        except OSError as error:
            raise missing_or_translated(error, "make", path) from error

    def finish_directory(self, path: str, desired: Attributes) -> StagedFile:
        return finish_directory(path, desired)


def _find_finished(work: BinWork, file: PlannedFile) -> FinishedFile | None:
    guid = work_guid_of(work.source_root, file.origin, file.identity, file.changed_ns, file.desired)
    found = None if guid is None else work.finished.get(guid)
    return None if found is None else FinishedFile(*found)


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


BATCH_ROWS: Final = 256

BATCH_EVERY_S: Final = 0.2
"""Large files come slowly; so often, at least, a writer that gets on says so."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """A report of the order's bin ``bin``: rows, and the bytes that were moved, since the batch before.

    ``is_last``: the writer is done with the bin.
    """

    bin: int
    moved_bytes: int
    rows: tuple[ResultRow, ...]
    is_last: bool

    def pack(self) -> tuple[Any, ...]:
        """The batch as a value that ``marshal`` takes; ``RowBatch(*packed)`` is this batch again."""
        return self.bin, self.moved_bytes, self.rows, self.is_last


class BatchingSink:
    """The RowSink of one bin's writer. ``send`` may raise, to end the work."""

    def __init__(self, number: int, send: Callable[[RowBatch], None]) -> None:
        self._number = number
        self._send = send
        self._moved_bytes = 0
        self._rows: list[ResultRow] = []
        self._sent_at = time.monotonic()

    def moved(self, count: int) -> None:
        self._moved_bytes += count
        if time.monotonic() - self._sent_at > BATCH_EVERY_S:
            self._flush()

    def ended(self, row: ResultRow) -> None:
        self._rows.append(row)
        if len(self._rows) >= BATCH_ROWS:
            self._flush()

    def finish(self) -> None:
        self._flush(is_last=True)

    def _flush(self, *, is_last: bool = False) -> None:
        self._send(RowBatch(self._number, self._moved_bytes, tuple(self._rows), is_last))
        self._rows, self._moved_bytes = [], 0
        self._sent_at = time.monotonic()
