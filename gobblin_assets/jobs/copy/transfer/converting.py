"""Files whose bytes a dataset's converters change on the way, in bounded memory.

One source gives one file, the files of a directory, or a part of an archive that is made of many. Nothing counts before
the last byte of the source was read and proved: a file that ends too early, or whose checksum is wrong, fails.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Final

import google_crc32c

from gobblin_assets.errors import ConflictError, CorruptionError, GobblinError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.fs.posix_errors import translate_error
from gobblin_assets.fs.tree import require_length
from gobblin_assets.jobs.copy.converters.chain import Chain, read_chain
from gobblin_assets.jobs.copy.converters.converter_port import ByteSource, PackedEntry, PulledSource, looking_for_stop
from gobblin_assets.jobs.copy.copyable import Conversion, PackedOrigin, PlannedFile
from gobblin_assets.jobs.copy.transfer.attributes import ExtendedAttributes, read_extended
from gobblin_assets.jobs.copy.transfer.file_copy import (
    CopyOptions,
    PlannedEntry,
    StagedFile,
    copy_file,
    make_file,
    require_planned,
    source_error,
)
from gobblin_assets.jobs.copy.transfer.moving import CHUNK_BYTES, Moved, write_all

Place = tuple[int, int]
Outcome = tuple[Place, StagedFile | None, GobblinError | None]

_WHILE_READ: Final = "while it was read"
_SINCE_PLANNED: Final = "since it was planned"
_MODE_OF_FILE: Final = 0o644
_MODE_OF_DIRECTORY: Final = 0o755


def convert_entries(
    source_root: str, converters: str, options: CopyOptions, entries: Sequence[PlannedEntry], moved: Moved
) -> Iterator[Outcome]:
    """The outcome of each entry, in their order. Entries of one archive, if they come together, are read in one pass.

    ``converters``: the chain of the conversions. An entry without a conversion is copied as it is.
    """
    chain = read_chain(converters)
    moved = _one_at_a_time(moved)
    for (source, _archive), group in groupby(entries, key=lambda entry: (entry[1].origin, _archive_of(entry))):
        together = list(group)
        try:
            with looking_for_stop(partial(moved, 0)):
                staged = _convert(f"{source_root}/{source}", source_root, together, chain, options, moved)
        except GobblinError as error:
            yield from ((place, None, error) for place, _file, _target in together)
        else:
            yield from ((place, each, None) for (place, _file, _target), each in zip(together, staged, strict=True))


def _one_at_a_time(moved: Moved) -> Moved:
    """A converter reads its source in a thread of its own, while another looks for the stop."""
    lock = threading.Lock()

    def call(count: int) -> None:
        with lock:
            moved(count)

    return call


def _archive_of(entry: PlannedEntry) -> Place | None:
    """What keeps entries apart that are of no archive."""
    place, file, _target = entry
    return None if file.archive is not None else place


def _convert(
    source: str, source_root: str, entries: Sequence[PlannedEntry], chain: Chain, options: CopyOptions, moved: Moved
) -> list[StagedFile]:
    _place, file, target = entries[0]
    if file.conversion is None:
        return [copy_file(source, file, target, options, moved)]
    if file.conversion.parts:
        return [_pack(source_root, file, target, chain, options, moved)]
    if not file.conversion.member:
        return [_convert_file(source, file, target, chain, options, moved)]
    return _unpack(source, entries, chain, options, moved)


def _convert_file(
    source: str, file: PlannedFile, target: str, chain: Chain, options: CopyOptions, moved: Moved
) -> StagedFile:
    steps = _conversion_of(file).steps
    with _opened(source, file, options) as descriptor:
        extended: ExtendedAttributes = ()
        if options.access_lists or options.extended:
            with _reading(source):
                extended = read_extended(descriptor, access_lists=options.access_lists, extended=options.extended)

        def write(out: int) -> int | None:
            raw = _FileSource(descriptor, source, moved)
            with _proved(descriptor, file, source), chain.convert(raw, steps, source) as content:
                return _write(content, out, checksum=options.checksum)

        return make_file(source, file, target, extended, write)


def _unpack(
    source: str, entries: Sequence[PlannedEntry], chain: Chain, options: CopyOptions, moved: Moved
) -> list[StagedFile]:
    """All of them or none: the end of an archive proves its beginning."""
    first = entries[0][1]
    steps = _conversion_of(first).steps
    wanted = {_conversion_of(file).member: number for number, (_place, file, _target) in enumerate(entries)}
    staged: dict[int, StagedFile] = {}
    with _opened(source, first, options) as descriptor, _proved(descriptor, first, source):
        raw = _FileSource(descriptor, source, _unheard)
        with os.fdopen(os.dup(descriptor), "rb") as places:
            for member, content in chain.read_members(raw, places, source, first.size_bytes, steps):
                number = wanted.get(member.path)
                if number is not None and member.kind == "file":
                    _place, file, target = entries[number]
                    staged[number] = _write_member(source, file, target, content, chain, options, moved)
    if len(staged) != len(entries):
        raise RetryableError(f"{source} lacks {len(entries) - len(staged)} members that were planned", path=source)
    return [staged[number] for number in range(len(entries))]


def _write_member(
    source: str,
    file: PlannedFile,
    target: str,
    content: ByteSource,
    chain: Chain,
    options: CopyOptions,
    moved: Moved,
) -> StagedFile:
    conversion = _conversion_of(file)

    def write(out: int) -> int | None:
        with chain.convert(content, conversion.member_steps, f"{source}: {conversion.member}") as converted:
            return _write(converted, out, checksum=options.checksum, moved=moved)

    return make_file(source, file, target, (), write)


def _pack(
    source_root: str, file: PlannedFile, target: str, chain: Chain, options: CopyOptions, moved: Moved
) -> StagedFile:
    conversion = _conversion_of(file)
    if chain.packer is None:
        raise CorruptionError(f"{file.origin} was planned as an archive, and no converter packs")
    planned = {each.path: each for each in conversion.parts}

    @contextmanager
    def open_part(entry: PackedEntry) -> Iterator[ByteSource]:
        part = planned[entry.path]
        full = f"{source_root}/{part.path}"
        with _opened(full, part, options) as descriptor, _proved(descriptor, part, full):
            yield _FileSource(descriptor, full, moved, part.size_bytes)

    entries = [_entry_of(each) for each in conversion.parts]
    pieces = chain.packer.pack(entries, open_part)

    def write(out: int) -> int | None:
        with chain.convert(PulledSource(pieces), conversion.steps, file.origin) as content:
            return _write(content, out, checksum=options.checksum)

    return make_file(source_root, file, target, (), write)


def _entry_of(part: PackedOrigin) -> PackedEntry:
    usual = _MODE_OF_DIRECTORY if part.is_directory else _MODE_OF_FILE
    mode = usual if part.mode is None else part.mode & 0o777
    return PackedEntry(part.path, part.is_directory, part.size_bytes, mode, part.mtime_ns or 0)


def _conversion_of(file: PlannedFile) -> Conversion:
    if file.conversion is None:
        raise CorruptionError(f"{file.origin} was planned without a conversion")
    return file.conversion


def _write(content: ByteSource, out: int, *, checksum: bool, moved: Moved | None = None) -> int | None:
    """Write all bytes into the empty file ``out``; their CRC32C if ``checksum``."""
    crc, count = 0, 0
    while piece := content.read(CHUNK_BYTES):
        write_all(out, piece)
        count += len(piece)
        if checksum:
            crc = google_crc32c.extend(crc, piece)
        if moved is not None:
            moved(len(piece))
        reach(Failpoint.CONVERSION_BEGUN)
    size_bytes = os.fstat(out).st_size
    if size_bytes != count:
        raise RetryableError(f"wrote {count:,} converted bytes to a file that has {size_bytes:,}")
    return crc if checksum else None


class _FileSource:
    """The bytes of an open file. ``size_bytes``: more, or fewer, is a file that changed."""

    def __init__(self, descriptor: int, path: str, moved: Moved, size_bytes: int | None = None) -> None:
        self._descriptor, self._path, self._moved = descriptor, path, moved
        self._left = size_bytes

    def read(self, size: int, /) -> bytes:
        try:
            content = os.read(self._descriptor, size if self._left is None else min(size, self._left))
        except OSError as error:
            raise translate_error(error, action="read", path=self._path, changes=False) from error
        if self._left is not None:
            if not content and self._left:
                raise RetryableError(f"{self._path} changed {_WHILE_READ}", path=self._path)
            self._left -= len(content)
        if content:
            self._moved(len(content))
        return content


def _unheard(_count: int) -> None:
    """An archive's own bytes: its members' are counted."""


@contextmanager
def _opened(source: str, file: PlannedFile | PackedOrigin, options: CopyOptions) -> Iterator[int]:
    """The source, which is the planned file. What the block raises passes."""
    with _reading(source):
        descriptor = os.open(source, options.read_flags)
    try:
        with _reading(source):
            require_planned(os.fstat(descriptor), file, source, _SINCE_PLANNED)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _proved(descriptor: int, file: PlannedFile | PackedOrigin, source: str) -> Iterator[None]:
    """The block read the planned file, and no other. If that changed meanwhile, the change explains any error; so does
    a file that ends elsewhere than it says.
    """
    with _reading(source):
        try:
            yield
        except ConflictError:
            raise
        except GobblinError:
            _require_whole(descriptor, file, source)
            raise
        _require_whole(descriptor, file, source)


def _require_whole(descriptor: int, file: PlannedFile | PackedOrigin, source: str) -> None:
    require_planned(os.fstat(descriptor), file, source, _WHILE_READ)
    require_length(descriptor, source, file.size_bytes)


@contextmanager
def _reading(source: str) -> Iterator[None]:
    """An OSError of the block is the source's, and fails it alone."""
    try:
        yield
    except OSError as error:
        raise source_error(error, source) from error
