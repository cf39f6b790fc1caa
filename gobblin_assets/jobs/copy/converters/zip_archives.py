"""Zip: members are read by the archive's directory, and archives are written in one pass.

Python's ``zipfile`` parses the headers, after the size of the archive's directory was looked at: it would read any.

Source: PKWARE's APPNOTE.TXT, sections 4.3 and 4.4.
"""

import datetime as dt
import errno
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, BinaryIO, Final

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
    refuse_content,
)
from gobblin_assets.spec.spec_errors import read_extension_options
from gobblin_assets.spec.spec_model import SpecModel

DIRECTORY_BYTES_A_MEMBER_MAX: Final = 4_096
"""On average; names, and what programs add to them, take some hundred."""

_FAULTS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    struct.error,
    ValueError,
    OverflowError,
)
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED: Final = 0x1
_UNIX: Final = 3
_KINDS: Final = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
_END: Final = struct.Struct("<4s4H2LH")
_END_64_PLACE: Final = struct.Struct("<4sLQL")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_COMMENT_BYTES_MAX: Final = 65_535
_TIMES: Final = (dt.datetime(1980, 1, 1, tzinfo=dt.UTC), dt.datetime(2107, 12, 31, tzinfo=dt.UTC))
_S_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Unzip:
    """The Unpacker of zip."""

    limits: ArchiveLimits
    needs_places: bool = True

    def rename(self, name: str) -> str | None:
        return rename_by(((".zip", ""),), name)

    def unpack(self, archive: Archive) -> Iterator[tuple[Member, ByteSource]]:
        if archive.file is None:
            raise ValueError("unzip comes first: the chain is checked for that")
        with _refusing(archive.path):
            _check_directory(archive, archive.file)
            opened = zipfile.ZipFile(archive.file)
        with opened:
            infos = sorted(opened.infolist(), key=lambda info: info.header_offset)
            _require_first_at_begin(archive, opened, infos)
            for info in infos:
                member = _member_of(archive, info)
                if member.kind != "file":
                    yield member, _NOTHING
                    continue
                with _refusing(archive.path):
                    content = opened.open(info)
                with content:
                    yield member, _Content(content, archive.path)


class _Content:
    """The bytes of one member, whose checksum is compared at its end."""

    def __init__(self, content: IO[bytes], path: str) -> None:
        self._content, self._path = content, path

    def read(self, size: int, /) -> bytes:
        with _refusing(self._path):
            return self._content.read(size)


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    """Whatever ``zipfile`` stumbles over is the archive's fault; only what the storage says is not."""
    try:
        yield
    except _FAULTS as error:
        raise _broken(path, error) from error
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # A header sent it to a place before the file's first byte.
        raise _broken(path, error) from error


def _broken(path: str, error: Exception) -> RejectedError:
    return refuse_content(path, f"the zip archive can't be read: {error}")


class _Nothing:
    def read(self, _size: int, /) -> bytes:
        return b""


_NOTHING: Final = _Nothing()


def _check_directory(archive: Archive, file: BinaryIO) -> None:
    """RejectedError if the archive's end announces more members, or more bytes about them, than are taken, or if it is
    not the end of the file.
    """
    size_bytes = file.seek(0, 2)
    start = file.seek(max(0, size_bytes - _COMMENT_BYTES_MAX - _END.size))
    tail = file.read()
    place = tail.rfind(b"PK\5\6", 0, len(tail) - _END.size + 4)
    if place < 0:
        raise zipfile.BadZipFile("it has no end of a zip archive")
    _mark, _disk, _first, _here, members, directory_bytes, _offset, comment_bytes = _END.unpack_from(tail, place)
    if place + _END.size + comment_bytes != len(tail):
        raise zipfile.BadZipFile("bytes follow behind its end")
    before = start + place - _END_64_PLACE.size
    if before >= 0:
        file.seek(before)
        mark, _disk, end_64, _disks = _END_64_PLACE.unpack(file.read(_END_64_PLACE.size))
        if mark == b"PK\6\7":
            # Python reads the record that stands before its locator, wherever that one says it is.
            if end_64 != before - _END_64.size:
                raise zipfile.BadZipFile("the record of its end is not where its locator says")
            file.seek(end_64)
            members, directory_bytes = _END_64.unpack(file.read(_END_64.size))[7:9]
    if members > archive.members_max or directory_bytes > archive.members_max * DIRECTORY_BYTES_A_MEMBER_MAX:
        raise RejectedError(
            f"{archive.path}: it has more than {archive.members_max:,} members, or very long entries for them",
            field="converters",
            hint="If you trust the archive, raise members_max; else exclude it.",
            path=archive.path,
        )
    file.seek(0)


def _require_first_at_begin(archive: Archive, opened: zipfile.ZipFile, infos: Sequence[zipfile.ZipInfo]) -> None:
    """RejectedError for bytes before the first member: they may be another archive, whose members would be lost."""
    begin = infos[0].header_offset if infos else opened.start_dir
    if begin:
        raise refuse_content(
            archive.path,
            f"the zip archive can't be read: {begin:,} bytes stand before its first member",
            "If it is several archives, one behind the other, unpack and pack them as one.",
        )


def _member_of(archive: Archive, info: zipfile.ZipInfo) -> Member:
    # ``filename`` ends at a NUL, and is not what the archive says.
    path = info.orig_filename
    unix_mode = info.external_attr >> 16 if info.create_system == _UNIX else 0
    kind = _KINDS.get(stat.S_IFMT(unix_mode), "file" if not stat.S_IFMT(unix_mode) else "of an unknown type")
    if path.endswith("/") and kind == "file":
        kind = "directory"
    if kind == "file" and info.flag_bits & _ENCRYPTED:
        raise refuse_content(archive.path, f"the member {path!a} is encrypted", "Encrypt whole files, by gpg.")
    if kind == "file" and info.compress_type not in _METHODS:
        raise refuse_content(
            archive.path,
            f"the member {path!a} is compressed by method {info.compress_type}, and only store and deflate are read",
            "Make the archive again by one of these.",
        )
    mode = stat.S_IMODE(unix_mode) & 0o777 if unix_mode else None
    return Member(path, info.file_size if kind == "file" else 0, kind, mode)


class ZipOptions(SpecModel):
    """Options of zip. ``name``: the archive's, in the file set's directory. ``level``: 0 stores, 9 gives the smallest
    files.
    """

    name: str = Field(pattern=r"^[^/\x00]+\.zip$")
    level: int = Field(6, ge=0, le=9)


@dataclass(frozen=True, slots=True)
class Zip:
    """The Packer of zip: no owner, times as UTC in steps of two seconds."""

    name: str
    level: int

    def pack(self, entries: Sequence[PackedEntry], open_entry: OpenEntry) -> Iterator[bytes]:
        sink = _Sink()
        with zipfile.ZipFile(sink, "w") as archive:
            for entry in entries:
                info = self._info_of(entry)
                if entry.is_directory:
                    archive.writestr(info, b"")
                    continue
                with archive.open(info, "w") as member, open_entry(entry) as source:
                    while content := source.read(CHUNK_BYTES):
                        member.write(content)
                        yield sink.take()
                yield sink.take()
        yield sink.take()

    def _info_of(self, entry: PackedEntry) -> zipfile.ZipInfo:
        moment = dt.datetime.fromtimestamp(entry.mtime_ns // _S_NS, dt.UTC)
        moment = min(max(moment, _TIMES[0]), _TIMES[1])
        info = zipfile.ZipInfo(f"{entry.path}/" if entry.is_directory else entry.path, moment.timetuple()[:6])
        info.create_system = _UNIX
        info.external_attr = (entry.mode | (stat.S_IFDIR if entry.is_directory else stat.S_IFREG)) << 16
        info.file_size = 0 if entry.is_directory else entry.size_bytes
        info.compress_type = zipfile.ZIP_DEFLATED if self.level and not entry.is_directory else zipfile.ZIP_STORED
        info._compresslevel = self.level  # type: ignore[attr-defined]  # noqa: SLF001  Python 3.13 names it without the underscore, and keeps this
        return info


class _Sink:
    """The bytes that were written, until they are taken."""

    def __init__(self) -> None:
        self._content = bytearray()

    def write(self, content: bytes, /) -> int:
        self._content += content
        return len(content)

    def flush(self) -> None:
        """Nothing waits anywhere."""

    def close(self) -> None:
        """Whoever made it takes the rest."""

    def take(self) -> bytes:
        content = bytes(self._content)
        self._content.clear()
        return content


def open_unzip(options: Mapping[str, object]) -> Unzip:
    return Unzip(read_extension_options(ArchiveLimits, options))


def open_zip(options: Mapping[str, object]) -> Zip:
    read = read_extension_options(ZipOptions, options)
    return Zip(read.name, read.level)
