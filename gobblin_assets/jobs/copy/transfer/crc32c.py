"""The CRC32C of bytes that were read in parts, from the CRC32C of each part.

To append n zero bytes to what a CRC has seen is a linear map of its 32 bits over GF(2), whose power for n comes by
squaring. The method is Mark Adler's, from ``crc32_combine`` of zlib 1.2 (crc32.c, zlib licence); the polynomial here is
Castagnoli's, with its bits reversed.
"""

from collections.abc import Iterable
from typing import Final

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
