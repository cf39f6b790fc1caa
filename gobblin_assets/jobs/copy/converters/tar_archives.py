"""Tar: members are read in one pass, and archives are written so that the same files give the same bytes.

Headers are read here, block by block, because Python's ``tarfile`` takes a broken header in the middle for the end, and
reads a long name's whole content, however long its header says it is.

Source: POSIX.1-2017, ``pax``, "ustar Interchange Format" and "pax Extended Header"; the GNU tar manual, "Basic Tar
Format".
"""

import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.converters.compression import rename_by
from gobblin_assets.jobs.copy.converters.converter_port import (
    CHUNK_BYTES,
    Archive,
    ArchiveLimits,
    ByteSource,
    Member,
    OpenEntry,
    PackedEntry,
    read_up_to,
    refuse_content,
)
from gobblin_assets.spec.spec_errors import read_extension_options
from gobblin_assets.spec.spec_model import SpecModel

BLOCK_BYTES: Final = tarfile.BLOCKSIZE
EXTENDED_BYTES_MAX: Final = 1 << 20
"""Of all extended headers and long names before one member."""

EXTENDED_HEADERS_MAX: Final = 32
"""Before one member; honest archives have up to four."""

_DIGITS_MAX: Final = 7
_END_BLOCKS: Final = 2
_S_NS: Final = 1_000_000_000
_FILES: Final = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE})
_KINDS: Final = {
    tarfile.DIRTYPE: "directory",
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


@dataclass(frozen=True, slots=True)
class Untar:
    """The Unpacker of tar."""

    limits: ArchiveLimits
    needs_places: bool = False

    def rename(self, name: str) -> str | None:
        return rename_by(((".tar", ""),), name)

    def unpack(self, archive: Archive) -> Iterator[tuple[Member, ByteSource]]:
        reading = _Reading(archive)
        while (member := reading.next_member()) is not None:
            content = _Content(archive, member.size_bytes)
            yield member, content
            content.skip_rest()
        reading.require_end()


@dataclass(slots=True)
class _Reading:
    """The headers of one archive, and how much stood before the member under way."""

    archive: Archive
    _extended_count: int = 0
    _extended_bytes: int = 0

    def next_member(self) -> Member | None:
        """The next one with its long name; None at the end, for which an archive has a block of zeros."""
        records: dict[str, bytes] = {}
        self._extended_count = self._extended_bytes = 0
        while True:
            block = read_up_to(self.archive.source, BLOCK_BYTES)
            if len(block) < BLOCK_BYTES:
                raise self._broken("it ends in the middle")
            if not block.strip(b"\0"):
                return None
            try:
                header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.TarError as error:
                raise self._broken(f"a header is broken ({error})") from error
            match header.type:
                case tarfile.XHDTYPE | tarfile.SOLARIS_XHDTYPE:
                    records.update(self._parse_records(self._read_extended(header)))
                case tarfile.XGLTYPE:
                    self._refuse_common(self._parse_records(self._read_extended(header)))
                case tarfile.GNUTYPE_LONGNAME:
                    records["path"] = self._read_extended(header).rstrip(b"\0")
                case tarfile.GNUTYPE_LONGLINK:
                    self._read_extended(header)
                case _:
                    return self._member_of(header, records)

    def require_end(self) -> None:
        """RejectedError unless nothing but zeros follows: other bytes may be members, which must not be lost."""
        while content := self.archive.source.read(CHUNK_BYTES):
            if content.strip(b"\0"):
                raise refuse_content(
                    self.archive.path,
                    "the tar archive goes on behind its end",
                    "If it is several archives, one behind the other, unpack and pack them as one.",
                )

    def _member_of(self, header: tarfile.TarInfo, records: Mapping[str, bytes]) -> Member:
        path = header.name
        if "path" in records:
            path = records["path"].decode("utf-8", "surrogateescape")
        size_bytes = self._parse_size(records["size"]) if "size" in records else header.size
        if any(name.startswith("GNU.sparse.") for name in records):
            return Member(path, kind="a sparse file")
        kind = "file" if header.type in _FILES else _KINDS.get(header.type, f"of the unknown type {header.type!r}")
        if kind == "file" and path.endswith("/"):
            kind = "directory"
        if size_bytes < 0:
            raise self._broken(f"the size of {path!a} is {size_bytes}")
        return Member(path, size_bytes if kind == "file" else 0, kind, header.mode & 0o777)

    def _read_extended(self, header: tarfile.TarInfo) -> bytes:
        self._extended_count += 1
        self._extended_bytes += header.size
        if header.size < 0 or self._extended_bytes > EXTENDED_BYTES_MAX or self._extended_count > EXTENDED_HEADERS_MAX:
            raise self._broken(
                f"the extended headers before one member have {self._extended_bytes:,} bytes or are more than "
                f"{EXTENDED_HEADERS_MAX}, and {EXTENDED_BYTES_MAX:,} bytes are taken"
            )
        content = read_up_to(self.archive.source, _padded(header.size))
        if len(content) < header.size:
            raise self._broken("it ends in the middle")
        return content[: header.size]

    def _parse_records(self, content: bytes) -> dict[str, bytes]:
        """Each is ``<its length> <name>=<value>`` and a line's end."""
        found: dict[str, bytes] = {}
        begin, all_bytes = 0, len(content.rstrip(b"\0"))
        while begin < all_bytes:
            digits, _space, _rest = content[begin : begin + _DIGITS_MAX + 1].partition(b" ")
            length = int(digits) if digits.isdigit() and len(digits) <= _DIGITS_MAX else 0
            end = begin + length
            name, equals, value = content[begin + len(digits) + 1 : end - 1].partition(b"=")
            if not equals or not name or content[end - 1 : end] != b"\n":
                raise self._broken("an extended header is broken")
            found[name.decode("utf-8", "replace")] = value
            begin = end
        return found

    def _refuse_common(self, records: Mapping[str, bytes]) -> None:
        """A name or a size for all members is no honest archive's; git writes a comment."""
        if records.keys() & {"path", "size", "linkpath"}:
            raise self._broken("a global header gives all members one name or size")

    def _parse_size(self, value: bytes) -> int:
        if not value.isdigit() or len(value) > 18:
            raise self._broken(f"an extended header gives the size {value[:20]!r}")
        return int(value)

    def _broken(self, message: str) -> RejectedError:
        return refuse_content(self.archive.path, f"the tar archive can't be read: {message}")


class _Content:
    """The bytes of one member, with the padding behind them."""

    def __init__(self, archive: Archive, size_bytes: int) -> None:
        self._archive = archive
        self._left, self._padding = size_bytes, _padded(size_bytes) - size_bytes

    def read(self, size: int, /) -> bytes:
        if not self._left:
            return b""
        content = self._archive.source.read(min(size, self._left))
        if not content:
            raise refuse_content(self._archive.path, "the tar archive can't be read: it ends in the middle")
        self._left -= len(content)
        return content

    def skip_rest(self) -> None:
        while self.read(CHUNK_BYTES):
            pass
        read_up_to(self._archive.source, self._padding)


class TarOptions(SpecModel):
    """Options of tar. ``name``: the archive's, in the file set's directory."""

    name: str = Field(pattern=r"^[^/\x00]+\.tar$")


@dataclass(frozen=True, slots=True)
class Tar:
    """The Packer of tar: pax headers, no owner, times in whole seconds."""

    name: str

    def pack(self, entries: Sequence[PackedEntry], open_entry: OpenEntry) -> Iterator[bytes]:
        for entry in entries:
            yield _header_of(entry)
            if entry.is_directory:
                continue
            with open_entry(entry) as source:
                while content := source.read(CHUNK_BYTES):
                    yield content
            yield bytes(_padded(entry.size_bytes) - entry.size_bytes)
        yield bytes(_END_BLOCKS * BLOCK_BYTES)


def _header_of(entry: PackedEntry) -> bytes:
    header = tarfile.TarInfo(f"{entry.path}/" if entry.is_directory else entry.path)
    header.type = tarfile.DIRTYPE if entry.is_directory else tarfile.REGTYPE
    header.size = 0 if entry.is_directory else entry.size_bytes
    header.mode = entry.mode
    header.mtime = entry.mtime_ns // _S_NS
    return header.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def open_untar(options: Mapping[str, object]) -> Untar:
    return Untar(read_extension_options(ArchiveLimits, options))


def open_tar(options: Mapping[str, object]) -> Tar:
    return Tar(read_extension_options(TarOptions, options).name)
