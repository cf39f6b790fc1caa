"""The three shapes of converters, and the streams by which they read and write bytes in bounded memory.

Bytes are decoded or encoded as they are read: a bomb fills no memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol, runtime_checkable

from pydantic import Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.spec_model import SpecModel

_LOOK: Final[ContextVar[Callable[[], object] | None]] = ContextVar("look_for_stop", default=None)

CHUNK_BYTES: Final = 1 << 18


def look_for_stop() -> None:
    """Raises in the thread of a writer whose work was stopped. A converter that waits for others looks now and then."""
    look = _LOOK.get()
    if look is not None:
        look()


@contextmanager
def looking_for_stop(look: Callable[[], object]) -> Iterator[None]:
    """Let ``look_for_stop`` call ``look`` in the block, and in the contexts that it copies."""
    token = _LOOK.set(look)
    try:
        yield
    finally:
        _LOOK.reset(token)


class ByteSource(Protocol):
    """Bytes in order. Nothing is held but what is under way."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes, one at least, and none only at the end. ``size`` is 1 or more."""
        ...


@runtime_checkable
class StreamConverter(Protocol):
    """A converter that makes one file of one file. Its state is its options: it is used by many writers at once."""

    def rename(self, name: str) -> str | None:
        """The file's name after conversion, from its name without directories; None: the file stays as it is."""
        ...

    def prepare(self) -> None:
        """RejectedError if this machine lacks what the converter needs. Called before a plan is made."""
        ...

    def convert(self, source: ByteSource, path: str) -> AbstractContextManager[ByteSource]:
        """The converted bytes. The last read, which gives none, raises unless all of the source was good.

        ``path`` is for errors. RejectedError: the bytes are not what the converter takes. Errors of the source pass.
        """
        ...


@dataclass(frozen=True, slots=True)
class Member:
    """An entry of an archive as its header describes it, before any check. ``kind``: file, directory, or a refusal.

    ``mode``: permission bits, None where the archive has none.
    """

    path: str
    size_bytes: int = 0
    kind: str = "file"
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class Archive:
    """The archive that is read. ``file``: the archive itself, where no step changed its bytes: it may be read at any
    place. ``path``: for errors.

    ``members_max``: more members are refused, so that an unpacker need hold no more.
    """

    source: ByteSource
    file: BinaryIO | None
    path: str
    members_max: int


class ArchiveLimits(SpecModel):
    """Limits of what one archive may hold: more is refused.

    ``members_max``: files and directories. ``bytes_max``: of all members. ``ratio_max``: the members' bytes for each
    byte of the archive. ``depth_max``: names of a member's path.
    """

    members_max: int = Field(100_000, ge=1, le=1_000_000)
    bytes_max: int = Field(100 << 30, ge=1)
    ratio_max: int = Field(200, ge=1)
    depth_max: int = Field(32, ge=1, le=256)


@runtime_checkable
class Unpacker(Protocol):
    """A converter that makes a directory of one file. ``needs_places``: it reads the file at many places, so that it
    comes first.
    """

    @property
    def needs_places(self) -> bool: ...

    @property
    def limits(self) -> ArchiveLimits: ...

    def rename(self, name: str) -> str | None:
        """The directory's name; None: the file is no archive of this kind, and stays as it is."""
        ...

    def unpack(self, archive: Archive) -> Iterator[tuple[Member, ByteSource]]:
        """Each member with its bytes, which are read, if at all, before the next member.

        The end raises unless all of the archive was good. Names and sizes are checked by the caller.
        """
        ...


@dataclass(frozen=True, slots=True)
class PackedEntry:
    """A file or directory that goes into an archive. ``mode``: permission bits; ``mtime_ns``: since 1970."""

    path: str
    is_directory: bool
    size_bytes: int
    mode: int
    mtime_ns: int


OpenEntry = Callable[[PackedEntry], AbstractContextManager[ByteSource]]


@runtime_checkable
class Packer(Protocol):
    """A converter that makes one file of all files of a file set. The same entries and bytes give the same archive."""

    @property
    def name(self) -> str:
        """The name of the archive, in the file set's directory."""
        ...

    def pack(self, entries: Sequence[PackedEntry], open_entry: OpenEntry) -> Iterator[bytes]:
        """The archive's bytes. ``entries`` are in byte order, directories before what is below them."""
        ...


Converter = StreamConverter | Unpacker | Packer

OpenConverter = Callable[[Mapping[str, object]], Converter]
"""Options as they were written, without the kind's name, to a converter; RejectedError names the option."""


def refuse_content(path: str, message: str, hint: str = "Make the file again, or exclude it.") -> RejectedError:
    """The error for bytes that can't be converted."""
    return RejectedError(f"{path}: {message}", field="converters", hint=hint, path=path)


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
    """As many bytes; fewer only at the end."""
    content = b""
    while len(content) < size_bytes and (more := source.read(size_bytes - len(content))):
        content += more
    return content
