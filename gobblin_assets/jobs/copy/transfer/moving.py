"""Bytes from one descriptor to another: all of them, checksummed on the way or moved inside the kernel, holes kept."""

import errno
import os
from collections.abc import Callable, Iterator
from typing import Final

import google_crc32c

CHUNK_BYTES: Final = 1 << 20
"""Read at once where bytes pass through this process."""

KERNEL_CHUNK_BYTES: Final = 16 << 20
"""Moved by one call of the kernel: even a slow disk does it in a fraction of a second, so that a stop is prompt."""

Moved = Callable[[int], None]
"""Hears of each number of bytes that was moved. It may raise, to end the copy."""

_STAT_BLOCK_BYTES: Final = 512
_ZEROS: Final = bytes(CHUNK_BYTES)
_UNSUPPORTED: Final = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM})

# Source, target, offset in both, bytes at most: the bytes that were moved.
_Mover = Callable[[int, int, int, int], int]


class ShrunkError(Exception):
    """The source ended before the size that it had."""


def read_whole(descriptor: int, size_bytes: int) -> bytes:
    """All bytes of a file of ``size_bytes``: fewer if it ends before, and one more if it goes on.

    Network file systems may give less than was asked at a time, so that only an empty answer is the end.
    """
    content = os.read(descriptor, size_bytes + 1)
    while len(content) <= size_bytes and (more := os.read(descriptor, size_bytes + 1 - len(content))):
        content += more
    return content


def write_all(descriptor: int, content: bytes) -> None:
    written = os.write(descriptor, content)
    while written < len(content):
        written += os.write(descriptor, memoryview(content)[written:])


def move_bytes(source: int, out: int, found: os.stat_result, moved: Moved, *, checksum: bool) -> int | None:
    """Move ``found.st_size`` bytes into the empty file ``out``; returns their CRC32C if ``checksum``.

    Parts that a sparse source does not hold stay holes. ShrunkError if the source ends early.
    """
    crc = move_range(source, out, found, (0, found.st_size), moved, checksum=checksum)
    if found.st_blocks * _STAT_BLOCK_BYTES < found.st_size:
        # The end may be a hole, which nothing was written to.
        os.ftruncate(out, found.st_size)
    return crc


def move_range(
    source: int, out: int, found: os.stat_result, bounds: tuple[int, int], moved: Moved, *, checksum: bool
) -> int | None:
    """Move the bytes from ``bounds[0]`` to before ``bounds[1]`` to the same place; ``out`` has zeros there."""
    position, stop = bounds
    is_sparse = found.st_blocks * _STAT_BLOCK_BYTES < found.st_size
    crc = 0
    os.posix_fadvise(source, position, stop - position, os.POSIX_FADV_SEQUENTIAL)
    for begin, end in _find_data(source, position, stop) if is_sparse else [bounds]:
        if checksum:
            crc = _add_zeros(crc, begin - position)
            crc = _move_checked(source, out, begin, end, crc, moved)
        else:
            _move_by_kernel(source, out, begin, end, moved)
        position = end
    return _add_zeros(crc, stop - position) if checksum else None


def _find_data(source: int, position: int, stop: int) -> Iterator[tuple[int, int]]:
    """The parts that are not holes. Where a file system does not tell, all is one part."""
    while position < stop:
        try:
            begin = os.lseek(source, position, os.SEEK_DATA)
            end = os.lseek(source, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            begin, end = position, stop
        if begin >= stop:
            return
        yield begin, min(end, stop)
        position = end


def _move_checked(source: int, out: int, begin: int, end: int, crc: int, moved: Moved) -> int:
    while begin < end:
        content = os.pread(source, min(CHUNK_BYTES, end - begin), begin)
        if not content:
            raise ShrunkError
        crc = google_crc32c.extend(crc, content)
        written = os.pwrite(out, content, begin)
        while written < len(content):
            written += os.pwrite(out, memoryview(content)[written:], begin + written)
        begin += len(content)
        moved(len(content))
    return crc


def _move_by_kernel(source: int, out: int, begin: int, end: int, moved: Moved) -> None:
    movers: list[_Mover] = [_copy_range, _send, _read_and_write]
    while begin < end:
        try:
            count = movers[0](source, out, begin, min(KERNEL_CHUNK_BYTES, end - begin))
        except OSError as error:
            if error.errno not in _UNSUPPORTED or len(movers) == 1:
                raise
            movers.pop(0)
            continue
        if count:
            begin += count
            moved(count)
        elif len(movers) == 1:
            raise ShrunkError
        else:
            # Some file systems say 0 where they mean that they can't.
            movers.pop(0)


def _copy_range(source: int, out: int, position: int, count: int) -> int:
    """The file system may share the blocks, or let its server copy them."""
    return os.copy_file_range(source, out, count, position, position)


def _send(source: int, out: int, position: int, count: int) -> int:
    os.lseek(out, position, os.SEEK_SET)
    return os.sendfile(out, source, position, count)


def _read_and_write(source: int, out: int, position: int, count: int) -> int:
    content = os.pread(source, min(CHUNK_BYTES, count), position)
    return os.pwrite(out, content, position) if content else 0


def _add_zeros(crc: int, count: int) -> int:
    while count > 0:
        crc = google_crc32c.extend(crc, _ZEROS if count >= CHUNK_BYTES else _ZEROS[:count])
        count -= CHUNK_BYTES
    return crc
