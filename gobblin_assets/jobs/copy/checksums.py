"""CRC32C of whole files: computed, combined from the CRC32C of parts, and compared on both sides of a copy.

To append n zero bytes to what a CRC has seen is a linear map of its 32 bits over GF(2), whose power for n comes by
squaring. The method is Mark Adler's, from ``crc32_combine`` of zlib 1.2 (crc32.c, zlib licence); the polynomial here is
Castagnoli's, with its bits reversed.
"""

import os
from collections.abc import Iterable
from contextlib import closing
from typing import Final, Protocol

import google_crc32c

from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.network_files import RangedFiles
from gobblin_assets.fs.tree import Tree, TreeEntry
from gobblin_assets.jobs.copy.copyable import ConvertedEntry
from gobblin_assets.model.files import FileIdentity

_POLYNOMIAL: Final = 0x82F63B78
_BITS: Final = 32

# Column n is the image of the bit n.
_Matrix = tuple[int, ...]


def combine(first: int, second: int, second_bytes: int) -> int:
    """The CRC32C of two parts in a row; ``second_bytes``: the length of the second."""
    matrix, crc = _ONE_ZERO_BYTE, first
    while second_bytes:
        if second_bytes & 1:
            crc = _apply(matrix, crc)
        matrix = _square(matrix)
        second_bytes >>= 1
    return crc ^ second


def combine_all(parts: Iterable[tuple[int, int]]) -> int:
    """The CRC32C of all parts in a row, each as its CRC32C and its length in bytes."""
    crc = 0
    for part, size_bytes in parts:
        crc = combine(crc, part, size_bytes)
    return crc


def _apply(matrix: _Matrix, vector: int) -> int:
    found, column = 0, 0
    while vector:
        if vector & 1:
            found ^= matrix[column]
        vector >>= 1
        column += 1
    return found


def _square(matrix: _Matrix) -> _Matrix:
    return tuple(_apply(matrix, column) for column in matrix)


def _of_zero_byte() -> _Matrix:
    matrix: _Matrix = (_POLYNOMIAL, *(1 << bit for bit in range(_BITS - 1)))
    for _ in range(3):
        matrix = _square(matrix)
    return matrix


_ONE_ZERO_BYTE: Final = _of_zero_byte()


_CHUNK_BYTES: Final = 1 << 20
_RANGE_BYTES: Final = 8 << 20


class Readable(Protocol):
    def read(self, size_bytes: int, /) -> bytes: ...


def compute_checksum(path: str, *, from_disk: bool = False) -> int:
    """The CRC32C of a file's bytes. RetryableError if it can't be read.

    ``from_disk``: as far as the system can be told so, and of a file that was synced: pages in memory would hide what
    the disk has instead.
    """
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123  a path for each of a million files is slow
            if from_disk:
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return compute_stream(stream)
    except OSError as error:
        raise RetryableError(f"can't read {path} to compare it: {error.strerror}", path=path) from error


def compute_stream(stream: Readable) -> int:
    """The CRC32C of all bytes that are left."""
    crc = 0
    while content := stream.read(_CHUNK_BYTES):
        crc = google_crc32c.extend(crc, content)
    return crc


def checksums_agree(
    source_tree: Tree, source_root: str, target_tree: Tree, target_root: str, source: TreeEntry, target: TreeEntry
) -> bool:
    """Whether two files of one length have the same bytes, as far as 32 bits say. Both are read."""
    origin = source.origin if isinstance(source, ConvertedEntry) else source
    mine = _compute_in(source_tree, f"{source_root}/{origin.path}", origin.identity)
    return mine == _compute_in(target_tree, f"{target_root}/{target.path}", target.identity)


def _compute_in(tree: Tree, path: str, identity: FileIdentity) -> int:
    return _compute_ranged(tree, path, identity) if isinstance(tree, RangedFiles) else compute_checksum(path)


def _compute_ranged(files: RangedFiles, path: str, identity: FileIdentity) -> int:
    crc, size_bytes = 0, identity.size_bytes
    with closing(files.open_ranged(path, identity)) as opened:
        for position in range(0, size_bytes, _RANGE_BYTES):
            crc = google_crc32c.extend(crc, opened.read_at(position, min(_RANGE_BYTES, size_bytes - position)))
    return crc
