"""Compressed files: decompression by the name's ending, of any number of members, and compression."""

import bz2
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast

from backports import zstd
from isal import igzip_lib
from lz4 import frame as lz4_frame
from pydantic import Field

from gobblin_assets.jobs.copy.converters.converter_port import (
    ByteSource,
    Compressor,
    DecodedSource,
    Decompressor,
    LimitedSource,
    PulledSource,
    compress_pieces,
)
from gobblin_assets.spec.spec_errors import read_extension_options
from gobblin_assets.spec.spec_model import SpecModel

_GZIP_WINDOW_BITS: Final = 31
# The stubs of isal say that it is an error, not a type of errors.
_GUNZIP_FAULTS: Final = (cast("type[Exception]", igzip_lib.error),)


class DecompressionOptions(SpecModel):
    """Options of decompression. ``bytes_max``: a larger file is refused; without it, it may fill the disk."""

    bytes_max: int | None = Field(None, ge=1)


class GzipOptions(SpecModel):
    """Options of gzip. ``level``: 1 is the fastest, 9 gives the smallest files."""

    level: int = Field(6, ge=1, le=9)


class ZstdOptions(SpecModel):
    """Options of zstd. ``level``: 1 is the fastest, 19 gives the smallest files."""

    level: int = Field(3, ge=1, le=19)


@dataclass(frozen=True, slots=True)
class Decompression:
    """The StreamConverter of one format that decompresses. ``endings``: a file whose name has the first of a pair is
    decompressed; the second takes the ending's place.
    """

    format_name: str
    endings: tuple[tuple[str, str], ...]
    make: Callable[[], Decompressor]
    faults: tuple[type[Exception], ...]
    bytes_max: int | None
    pads: bool = False

    def rename(self, name: str) -> str | None:
        return rename_by(self.endings, name)

    def prepare(self) -> None:
        """Nothing is needed that is not installed with the package."""

    @contextmanager
    def convert(self, source: ByteSource, path: str) -> Iterator[ByteSource]:
        decoded = DecodedSource(
            source, path, self.make, format_name=self.format_name, faults=self.faults, pads=self.pads
        )
        yield LimitedSource(decoded, path, self.bytes_max)


@dataclass(frozen=True, slots=True)
class Compression:
    """The StreamConverter of one format that compresses every file, whatever its name."""

    ending: str
    make: Callable[[], Compressor]

    def rename(self, name: str) -> str | None:
        return f"{name}{self.ending}"

    def prepare(self) -> None:
        """Nothing is needed that is not installed with the package."""

    @contextmanager
    def convert(self, source: ByteSource, path: str) -> Iterator[ByteSource]:  # noqa: ARG002  any bytes can be encoded
        yield PulledSource(compress_pieces(source, self.make()))


def rename_by(endings: tuple[tuple[str, str], ...], name: str) -> str | None:
    """The name with its ending replaced; None without one of the endings, or where no name would be left."""
    for ending, other in endings:
        if name.endswith(ending):
            stem = name[: -len(ending)]
            return None if stem.strip(".") == "" else f"{stem}{other}"
    return None


def open_gunzip(options: Mapping[str, object]) -> Decompression:
    bytes_max = read_extension_options(DecompressionOptions, options).bytes_max
    return Decompression(
        "gzip",
        ((".gz", ""), (".tgz", ".tar")),
        _make_gunzip,
        _GUNZIP_FAULTS,
        bytes_max,
        pads=True,
    )


def open_bunzip2(options: Mapping[str, object]) -> Decompression:
    bytes_max = read_extension_options(DecompressionOptions, options).bytes_max
    return Decompression(
        "bzip2", ((".bz2", ""), (".tbz2", ".tar")), bz2.BZ2Decompressor, (OSError, ValueError), bytes_max
    )


def open_unzstd(options: Mapping[str, object]) -> Decompression:
    bytes_max = read_extension_options(DecompressionOptions, options).bytes_max
    return Decompression("zstd", ((".zst", ""), (".tzst", ".tar")), zstd.ZstdDecompressor, (zstd.ZstdError,), bytes_max)


def open_unlz4(options: Mapping[str, object]) -> Decompression:
    bytes_max = read_extension_options(DecompressionOptions, options).bytes_max
    return Decompression("lz4", ((".lz4", ""),), lz4_frame.LZ4FrameDecompressor, (RuntimeError, ValueError), bytes_max)


def open_gzip(options: Mapping[str, object]) -> Compression:
    level = read_extension_options(GzipOptions, options).level
    return Compression(".gz", lambda: zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW_BITS))


def open_zstd(options: Mapping[str, object]) -> Compression:
    level = read_extension_options(ZstdOptions, options).level
    checked: dict[int, int] = {
        zstd.CompressionParameter.compression_level: level,
        zstd.CompressionParameter.checksum_flag: 1,
    }
    return Compression(".zst", lambda: zstd.ZstdCompressor(options=checked))


def _make_gunzip() -> Decompressor:
    """It compares the length and the CRC at each member's end."""
    made: Decompressor = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    return made
