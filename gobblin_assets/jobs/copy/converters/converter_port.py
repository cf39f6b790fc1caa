"""The three shapes of converters, and what they read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol, runtime_checkable

from pydantic import Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.spec_model import SpecModel

_LOOK: Final[ContextVar[Callable[[], object] | None]] = ContextVar("look_for_stop", default=None)


def look_for_stop() -> None:
    """Raises in the thread of a writer whose work was stopped. A converter that waits for others looks now and then."""
    look = _LOOK.get()
    if look is not None:
        look()


@contextmanager
def looking_for_stop(look: Callable[[], object]) -> Iterator[None]:
    """In the block, and in the contexts that it copies, ``look`` is what ``look_for_stop`` calls."""
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
        """Of the archive, in the file set's directory."""
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
