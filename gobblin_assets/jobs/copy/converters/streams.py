"""Bytes that are decoded or encoded as they are read, in bounded memory: a bomb fills no memory."""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from gobblin_assets.jobs.copy.converters.converter_port import ByteSource, refuse_content

CHUNK_BYTES: Final = 1 << 18


class Decompressor(Protocol):
    """One member of a compressed file, as the decompressors of Python's own ``bz2`` are used."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class DecodedSource:
    """All members of a compressed file, one behind the other.

    ``faults``: what ``decompress`` raises for broken bytes. ``pads``: zeros may stand behind a member.
    """

    def __init__(
        self,
        source: ByteSource,
        path: str,
        make: Callable[[], Decompressor],
        *,
        format_name: str,
        faults: tuple[type[Exception], ...],
        pads: bool = False,
    ) -> None:
        self._source, self._path = source, path
        self._make, self._format, self._faults, self._pads = make, format_name, faults, pads
        self._decoder: Decompressor | None = None
        self._rest = b""
        self._is_first = True

    def read(self, size: int, /) -> bytes:
        while True:
            decoder = self._decoder or self._begin_member()
            if decoder is None:
                return b""
            if decoder.needs_input and not self._rest:
                self._rest = self._source.read(CHUNK_BYTES)
                if not self._rest:
                    raise refuse_content(self._path, f"the {self._format} data end in the middle")
            content, self._rest = self._rest, b""
            try:
                found = decoder.decompress(content, max_length=size)
            except self._faults as error:
                raise refuse_content(self._path, f"the {self._format} data are broken: {error}") from error
            if decoder.eof:
                self._rest, self._decoder = decoder.unused_data, None
            if found:
                return found

    def _begin_member(self) -> Decompressor | None:
        """None at the end of the file. A file without any member is broken."""
        while True:
            if self._pads and not self._is_first:
                self._rest = self._rest.lstrip(b"\0")
            if self._rest:
                break
            self._rest = self._source.read(CHUNK_BYTES)
            if not self._rest:
                if self._is_first:
                    raise refuse_content(self._path, f"expected {self._format} data, found an empty file")
                return None
        self._is_first = False
        self._decoder = self._make()
        return self._decoder


class LimitedSource:
    """Bytes up to a limit: RejectedError once there are more than ``bytes_max``; None: there may be any number."""

    def __init__(self, source: ByteSource, path: str, bytes_max: int | None) -> None:
        self._source, self._path, self._bytes_max = source, path, bytes_max
        self._total_bytes = 0

    def read(self, size: int, /) -> bytes:
        content = self._source.read(size)
        self._total_bytes += len(content)
        if self._bytes_max is not None and self._total_bytes > self._bytes_max:
            raise refuse_content(
                self._path,
                f"it becomes more than {self._bytes_max:,} bytes",
                "If you trust the file, raise bytes_max; else exclude it.",
            )
        return content


class PulledSource:
    """The pieces of an iterator as bytes to read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def read(self, size: int, /) -> bytes:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = memoryview(piece)
        found, self._rest = self._rest[:size], self._rest[size:]
        return bytes(found)


def compress_pieces(source: ByteSource, encoder: Compressor) -> Iterator[bytes]:
    """The encoded pieces, some of them empty."""
    while content := source.read(CHUNK_BYTES):
        yield encoder.compress(content)
    yield encoder.flush()


def read_to_end(source: ByteSource) -> None:
    """Let the source prove its end: checksums are compared there, and programs say whether all was good."""
    while source.read(CHUNK_BYTES):
        pass


def read_up_to(source: ByteSource, size_bytes: int) -> bytes:
    """So many bytes; fewer only at the end."""
    content = b""
    while len(content) < size_bytes and (more := source.read(size_bytes - len(content))):
        content += more
    return content
