"""One file, copied into a new file of a staging directory: exact bytes, attributes, and proof that nothing changed.

The source must be the planned file (size, inode, mtime and ctime) when the last byte has been read: a change at any
earlier moment since it was planned would show then. A large file is also looked at before, so that nothing is read for
nothing. A file is read to its end, which must be where its length says.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import chain
from typing import Final, NamedTuple

import google_crc32c

from gobblin_assets.errors import ConflictError, GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.network_files import RangedFile
from gobblin_assets.fs.posix_errors import translate_error
from gobblin_assets.fs.tree import require_length, wrong_length
from gobblin_assets.jobs.copy.copyable import PackedOrigin, PlannedFile
from gobblin_assets.jobs.copy.transfer.attributes import ExtendedAttributes, apply_attributes, read_extended
from gobblin_assets.jobs.copy.transfer.moving import (
    CHUNK_BYTES,
    Moved,
    ShrunkError,
    move_bytes,
    move_range,
    read_whole,
    write_all,
)
from gobblin_assets.model.files import FileIdentity

# Without O_NONBLOCK, opening a pipe that took the file's name would wait for a writer.
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILL: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE_OF_NEW: Final = 0o666
_MODE_OF_FILLED: Final = 0o600
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ELOOP, errno.ENXIO})
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM})


_SINCE_PLANNED: Final = "since it was planned"
_WHILE_READ: Final = "while it was read"

PlannedEntry = tuple[tuple[int, int], PlannedFile, str]
"""Numbers that its row will have, the file, and the full path of what is staged."""

StagedFile = tuple[int, int, int, int | None]
"""Size in bytes, inode, mtime in nanoseconds of what is staged, after its attributes; the CRC32C, if it is wanted."""

RANGE_BYTES: Final = 8 << 20
"""Read by one request, and held in memory by each writer: a smaller file is one request."""


class CopyOptions(NamedTuple):
    """Options of a copy: what is wanted of each file besides its bytes. ``follows_links``: a link is as good as what it
    leads to.
    """

    checksum: bool
    access_lists: bool
    extended: bool
    follows_links: bool = False

    @property
    def read_flags(self) -> int:
        return _READ if self.follows_links else _READ | os.O_NOFOLLOW


def copy_file(source: str, file: PlannedFile, target: str, options: CopyOptions, moved: Moved) -> StagedFile:
    """Copy the planned file at ``source``, a full path or a store's URI, to the new name ``target``, a full path.

    RetryableError: the source is gone or has changed, space is missing, or the writer's directory is gone.
    RejectedError: a right is missing, or the source has another length than it says. ConflictError: something is at
    ``target``. What an error leaves at ``target`` does not count. Errors of ``moved`` pass through.
    """
    if source[0] != "/":
        return _copy_ranged(source, file, target, options, moved)
    if file.size_bytes <= CHUNK_BYTES:
        return _copy_small(source, file, target, options, moved)
    return _copy_large(source, file, target, options, moved)


def _copy_ranged(source: str, file: PlannedFile, target: str, options: CopyOptions, moved: Moved) -> StagedFile:
    """The first bytes are read before anything is made."""
    checksum, follows_links = options.checksum, options.follows_links
    with opened_ranges(source, file.identity, moved, checksum=checksum, follow_links=follows_links) as write:
        return make_file(source, file, target, (), write)


def _copy_small(source: str, file: PlannedFile, target: str, options: CopyOptions, moved: Moved) -> StagedFile:
    """The source is read, and proved, before anything is made."""
    with _opened_source(source, options) as descriptor:
        content = read_whole(descriptor, file.size_bytes)
        extended = _read_extended(descriptor, options)
        require_planned(os.fstat(descriptor), file, source, _SINCE_PLANNED)
    if len(content) != file.size_bytes:
        raise wrong_length(source, file.size_bytes, has_more=len(content) > file.size_bytes)

    def write(out: int) -> int | None:
        write_all(out, content)
        return google_crc32c.value(content) if options.checksum else None

    staged = make_file(source, file, target, extended, write)
    moved(file.size_bytes)
    return staged


def _copy_large(source: str, file: PlannedFile, target: str, options: CopyOptions, moved: Moved) -> StagedFile:
    with _opened_source(source, options) as descriptor:
        before = os.fstat(descriptor)
        require_planned(before, file, source, _SINCE_PLANNED)
        extended = _read_extended(descriptor, options)

        def write(out: int) -> int | None:
            with _read_to(file.size_bytes, descriptor, file, source):
                return move_bytes(descriptor, out, before, moved, checksum=options.checksum)

        return make_file(source, file, target, extended, write)


def copy_part(
    source: str, file: PlannedFile, target: str, bounds: tuple[int, int], options: CopyOptions, moved: Moved
) -> StagedFile:
    """Copy the bytes of ``bounds`` into the file ``target``, which is there with its whole size and zeros.

    Others write to other parts. Returns the part's size and CRC32C, and the inode of ``target``; errors as
    ``copy_file``.
    """
    with _opened_source(source, options) as descriptor:
        before = os.fstat(descriptor)
        require_planned(before, file, source, _SINCE_PLANNED)
        with _read_to(bounds[1], descriptor, file, source), _opened_target(source, target, _FILL) as out:
            checksum = move_range(descriptor, out, before, bounds, moved, checksum=options.checksum)
            found = os.fstat(out)
    return bounds[1] - bounds[0], found.st_ino, found.st_mtime_ns, checksum


def make_sized(source: str, file: PlannedFile, target: str) -> None:
    """Make the file that parts are copied into. Only its owner may open it until ``finish_parts``."""
    mode = _MODE_OF_NEW if file.desired.mode is None else _MODE_OF_FILLED
    with _opened_target(source, target, _CREATE, mode) as out:
        os.ftruncate(out, file.size_bytes)


def finish_parts(source: str, file: PlannedFile, target: str, checksum: int | None, options: CopyOptions) -> StagedFile:
    """Set the attributes of a file of which all parts were copied, and look once more at its source."""
    with _opened_source(source, options) as descriptor:
        extended = _read_extended(descriptor, options)
        require_planned(os.fstat(descriptor), file, source, _WHILE_READ)
    with _opened_target(source, target, _FILL) as out:
        found = apply_attributes(out, target, file.desired, extended)
    if found.st_size != file.size_bytes:
        raise RetryableError(f"wrote {file.size_bytes:,} bytes to {target}, which has {found.st_size:,}", path=target)
    return found.st_size, found.st_ino, found.st_mtime_ns, checksum


def make_file(
    source: str, file: PlannedFile, target: str, extended: ExtendedAttributes, write: Callable[[int], int | None]
) -> StagedFile:
    """Make the file, let ``write`` fill it, and set its attributes. The name must be free, and its parent be there.

    A file that is converted has the size that ``write`` gave it.
    """
    desired = file.desired
    mode = _MODE_OF_NEW if desired.mode is None else desired.mode & 0o777
    with _opened_target(source, target, _CREATE, mode) as out:
        try:
            checksum = write(out)
            found = apply_attributes(out, target, desired, extended)
        except BaseException:
            # Gives the space back without a name: under this name may lie what is another owner's by now.
            with suppress(OSError):
                os.ftruncate(out, 0)
            raise
    if file.conversion is None and found.st_size != file.size_bytes:
        raise RetryableError(f"wrote {file.size_bytes:,} bytes to {target}, which has {found.st_size:,}", path=target)
    return found.st_size, found.st_ino, found.st_mtime_ns, checksum


@contextmanager
def _opened_source(source: str, options: CopyOptions) -> Iterator[int]:
    """The file's descriptor. Errors of the system in the block are those of reading the source."""
    try:
        descriptor = os.open(source, options.read_flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        raise source_error(error, source) from error


@contextmanager
def _opened_target(source: str, target: str, flags: int, mode: int = 0) -> Iterator[int]:
    """The same, of writing the target. ``mode``: of one that is made."""
    try:
        descriptor = os.open(target, flags, mode)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _target_error(error, source, target) from error


def _read_extended(descriptor: int, options: CopyOptions) -> ExtendedAttributes:
    if options.access_lists or options.extended:
        return read_extended(descriptor, access_lists=options.access_lists, extended=options.extended)
    return ()


@contextmanager
def _read_to(stop: int, descriptor: int, file: PlannedFile, source: str) -> Iterator[None]:
    """The block read the bytes before ``stop`` of the planned file, which ends there if it says so."""
    try:
        yield
    except ShrunkError as error:
        require_planned(os.fstat(descriptor), file, source, _WHILE_READ)
        raise wrong_length(source, file.size_bytes, has_more=False) from error
    require_planned(os.fstat(descriptor), file, source, _WHILE_READ)
    if stop == file.size_bytes:
        # Behind the end of a file that says more, the system tells of a hole.
        require_length(descriptor, source, stop)


def require_planned(found: os.stat_result, file: PlannedFile | PackedOrigin, source: str, when: str) -> None:
    if (
        found.st_size != file.size_bytes
        or (file.inode is not None and found.st_ino != file.inode)
        or (file.mtime_ns is not None and found.st_mtime_ns != file.mtime_ns)
        or not stat.S_ISREG(found.st_mode)
    ):
        raise _changed(source, when)
    if file.changed_ns is not None and found.st_ctime_ns != file.changed_ns:
        raise _changed(source, f"{when}, and kept its length and time")


def _changed(source: str, when: str) -> RetryableError:
    return RetryableError(f"{source} changed {when}", hint="The next plan sees it as it is then.", path=source)


def source_error(error: OSError, source: str) -> GobblinError:
    if error.errno in _GONE:
        return RetryableError(f"{source} is gone since it was planned", hint="The next plan sees that.", path=source)
    if error.errno in _FORBIDDEN:
        return RejectedError(
            f"can't read {source}: {errno.errorcode[error.errno]} ({error.strerror})",
            field="source",
            hint="Give the user that runs this the right to read it.",
            path=source,
        )
    return translate_error(error, action="read", path=source, changes=False)


def _target_error(error: OSError, source: str, target: str) -> GobblinError:
    if error.errno == errno.EEXIST:
        return ConflictError(f"{target} is there already", hint="Each staged name is written once.", path=target)
    return missing_or_translated(error, f"copy {source} to", target)


def missing_or_translated(error: OSError, action: str, path: str) -> GobblinError:
    """The family of a failed change of the attempt's directory; one that is missing was taken by a new owner."""
    if error.errno == errno.ENOENT:
        return RetryableError(
            f"can't {action} {path}: the writer's directory is gone",
            hint="Another run took the attempt over, or somebody removed it.",
            path=path,
        )
    return translate_error(error, action=action, path=path, changes=False)


@contextmanager
def opened_ranges(
    source: str, identity: FileIdentity, moved: Moved, *, checksum: bool, follow_links: bool
) -> Iterator[Callable[[int], int | None]]:
    """Gives what writes all bytes of the URI ``source`` into an open file; it returns their CRC32C if ``checksum``.

    The first range is read before the block begins. All ranges are of one version.
    """
    from gobblin_assets.fs.registry import open_ranged  # noqa: PLC0415  copying processes wait for imports

    files, path = open_ranged(source, "source", follow_links=follow_links)

    with closing(files.open_ranged(path, identity)) as opened:
        ranges = read_in_ranges(opened, source, identity.size_bytes, RANGE_BYTES)
        first = next(ranges)

        def write(out: int) -> int | None:
            crc = 0
            for content in chain((first,), ranges):
                write_all(out, content)
                crc = google_crc32c.extend(crc, content) if checksum else crc
                moved(len(content))
            return crc if checksum else None

        yield write


def read_in_ranges(opened: RangedFile, source: str, size_bytes: int, range_bytes: int) -> Iterator[bytes]:
    """All bytes of the file, a range at a time; of an empty file, one empty range."""
    position = 0
    while True:
        count = min(range_bytes, size_bytes - position)
        content = opened.read_at(position, count) if count else b""
        if len(content) != count:
            raise RetryableError(f"{source} changed while it was read", hint="The next plan sees it as it is then.")
        yield content
        position += count
        if position >= size_bytes:
            return
