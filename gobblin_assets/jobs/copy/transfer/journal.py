"""The journal of a writer: a line for each file that is finished, for attempts that come after this one has failed.

A line is made once the file is whole, has its attributes, and is closed. Nobody opens it to write after that. So a
file with a line, whose directory was captured, changes no more, whatever a writer that was overtaken still does. A line
that a crash cut off can't be read, and its file is copied again; so is a file whose length, times or CRC32C differ from
its line. A journal that can't be written ends, and fails no copy. A later attempt takes a finished file instead of
copying it again.

A line has what the work guid is made of, and not the guid: that is computed when a journal is read, which is seldom.
Lines are written some at a time. A kill loses at most a thirty-second of those that the writer had made.

A guid names a file as it was planned, or what a copy of it makes. It is a SHA-1 in hexadecimal, over a word with a
version and then fields. Each field stands behind its length of 8 bytes, the highest first; the length of a field that
is missing is 2⁶⁴ - 1, so it differs from an empty one. Numbers are decimal ASCII. Equal guids mean equal fields in
equal places. The versions change with anything of this.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from json.encoder import encode_basestring_ascii
from typing import Final, NamedTuple, Self

import google_crc32c

from gobblin_assets.jobs.copy.copyable import Attributes, PlannedFile
from gobblin_assets.jobs.copy.transfer.file_copy import StagedFile
from gobblin_assets.jobs.copy.transfer.moving import CHUNK_BYTES
from gobblin_assets.model.files import FileIdentity

_FILE_VERSION: Final = b"gobblin-copy-file-1"
_WORK_VERSION: Final = b"gobblin-copy-work-1"
_MISSING: Final = b"\xff" * 8


def compute_file_guid(root_uri: str, path: str, identity: FileIdentity, checksum: str | None = None) -> str:
    """The guid of a source's file: its root's URI, its path below, length, modification time, and checksum or tag.

    ``checksum`` names its kind, such as ``crc32c:1a2b3c4d``. The tag is an ETag, a ctime, or the file id of HDFS.
    """
    content = checksum if checksum is not None else identity.tag
    kind = None if content is None else "tag" if checksum is None else "checksum"
    return _digest(_FILE_VERSION, (root_uri, path, str(identity.size_bytes), _number(identity.mtime_ns), kind, content))


def compute_work_guid(
    file_guid: str, *, desired: Attributes, transforms: Sequence[str] = (), split: tuple[int, int] | None = None
) -> str:
    """The guid of what one piece of work stages: the file's guid, its transforms, its attributes, and its split.

    ``transforms``: each with all options that change bytes, in the order in which they are applied. ``split``: the
    offset and the length of the part, in bytes; None: the whole file.
    """
    extended = [part for name, value in sorted(desired.xattrs) for part in (name, value)]
    numbers = (desired.mode, desired.owner, desired.group, desired.mtime_ns)
    return _digest(
        _WORK_VERSION,
        (
            file_guid,
            str(len(transforms)),
            *transforms,
            *map(_number, numbers),
            str(len(desired.xattrs)),
            *extended,
            *map(_number, (None, None) if split is None else split),
        ),
    )


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def _digest(version: bytes, fields: Iterable[str | bytes | None]) -> str:
    """The digest in one piece: each planned file has two guids, and many small calls would take as long as its copy."""
    parts = [version]
    for field in fields:
        if field is None:
            parts.append(_MISSING)
        else:
            data = field.encode() if isinstance(field, str) else field
            parts += (len(data).to_bytes(8, "big"), data)
    # Not for security: whoever may write the source's files may write what is copied.
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).hexdigest()


JOURNAL_NAME: Final = "journal"
"""In the writer's directory, where every other name is a number."""

WAITING_PART: Final = 32
WAITING_LINES_MAX: Final = 64
WAITING_FILE_BYTES_MAX: Final = 1 << 20
"""The files of lines that wait to be written; a large file's line never waits."""

_VERSION: Final = "gobblin-copy-journal-2"
_OPEN: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o600


class FinishedFile(NamedTuple):
    """A file that an attempt finished, and what it had after its attributes were set.

    ``path``: below the writer's directory as a journal has it; of a file that may be taken, its full path.
    """

    path: str
    size_bytes: int
    inode: int
    mtime_ns: int
    checksum: int


def work_guid_of(
    source_root: str, path: str, identity: FileIdentity, changed_ns: int | None, desired: Attributes
) -> str | None:
    """The work guid of a file below ``source_root``, a path or a URI; None if nothing tells its versions apart.

    ``changed_ns``: its ctime, which tells versions as the tag of others does.
    """
    if identity.mtime_ns is None and identity.tag is None:
        return None
    uri = f"file://{source_root}" if source_root.startswith("/") else source_root
    version = identity if changed_ns is None else replace(identity, tag=f"ctime {changed_ns}")
    return compute_work_guid(compute_file_guid(uri, path, version), desired=desired)


def encode_header(source_root: str) -> bytes:
    return f"{json.dumps((_VERSION, source_root))}\n".encode()


def encode_line(file: PlannedFile, place: str, staged: StagedFile) -> bytes | None:
    """One list as JSON; None for a file that no later attempt could tell from another.

    Only names need JSON's care. An encoder for all of it would take a tenth of the time of a small file's copy.
    """
    desired = file.desired
    if desired.xattrs or file.mtime_ns is None or staged[-1] is None:
        return None
    wanted = f"{desired.mode},{desired.owner},{desired.group},{desired.mtime_ns}".replace("None", "null")
    tag = "null" if file.tag is None else encode_basestring_ascii(file.tag)
    changed = "null" if file.changed_ns is None else file.changed_ns
    origin = f"{encode_basestring_ascii(file.origin)},{file.size_bytes},{file.mtime_ns},{tag},{changed}"
    size_bytes, inode, mtime_ns, checksum = staged
    found = f"{encode_basestring_ascii(place)},{size_bytes},{inode},{mtime_ns},{checksum}"
    return f"[{origin},{wanted},{found}]\n".encode()


_NUMBER: Final = (int,)
_NUMBER_OR_NONE: Final = (int, type(None))
_TEXT_OR_NONE: Final = (str, type(None))
_TYPES: Final = ((str,), *[_NUMBER] * 2, _TEXT_OR_NONE, *[_NUMBER_OR_NONE] * 5, (str,), *[_NUMBER] * 4)


def read_lines(content: bytes) -> Iterator[tuple[str, FinishedFile]]:
    """The lines that are whole, by work guid. Others are left out, wherever they stand."""
    first, *lines = content.split(b"\n")[:-1] or [b""]
    header = _decode(first)
    if not isinstance(header, list) or len(header) != 2 or header[0] != _VERSION or type(header[1]) is not str:
        return
    for text in lines:
        fields = _decode(text)
        if not isinstance(fields, list) or len(fields) != len(_TYPES):
            continue
        if not all(type(each) in types for each, types in zip(fields, _TYPES, strict=True)):
            continue
        path, size_bytes, mtime_ns, tag, changed_ns, mode, owner, group, desired_ns, place, *staged = fields
        desired = Attributes(mode, owner, group, desired_ns)
        identity = FileIdentity(size_bytes, mtime_ns=mtime_ns, tag=tag)
        guid = work_guid_of(header[1], path, identity, changed_ns, desired)
        # A place is below the writer's directory, as a writer says it.
        if guid is not None and not {"", ".", ".."}.intersection(place.split("/")):
            yield guid, FinishedFile(place, *staged)


def _decode(text: bytes) -> object:
    try:
        found: object = json.loads(text)
    except ValueError:
        return None
    return found


class Journal:
    """The journal of one writer, whose directory is ``directory``. ``is_kept`` False: nothing is written."""

    def __init__(self, directory: str, source_root: str, *, is_kept: bool) -> None:
        self._cut = len(directory) + 1
        self._made = 0
        self._waiting: list[bytes] = []
        self._waiting_file_bytes = 0
        self._descriptor: int | None = None
        if is_kept:
            try:
                self._descriptor = os.open(f"{directory}/{JOURNAL_NAME}", _OPEN, _MODE)
            except OSError:
                # Each file of the writer says why, if the directory is gone.
                return
            self._waiting.append(encode_header(source_root))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._write()
        self._end()

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def add(self, file: PlannedFile, target: str, staged: StagedFile) -> None:
        """Say that the file at the full path ``target`` is finished."""
        line = encode_line(file, target[self._cut :], staged)
        if line is None or self._descriptor is None:
            return
        self._waiting.append(line)
        self._waiting_file_bytes += file.size_bytes
        self._made += 1
        lines_max = min(self._made // WAITING_PART, WAITING_LINES_MAX)
        if len(self._waiting) > lines_max or self._waiting_file_bytes > WAITING_FILE_BYTES_MAX:
            self._write()

    def _write(self) -> None:
        content = b"".join(self._waiting)
        if self._descriptor is None or not content:
            return
        try:
            written = os.write(self._descriptor, content)
        except OSError:
            written = 0
        if written < len(content):
            self._end()
        self._waiting.clear()
        self._waiting_file_bytes = 0

    def _end(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_OPEN_FINISHED: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def take_file(finished: FinishedFile, desired: Attributes, target: str) -> StagedFile | None:
    """Move the file to the new name ``target``, if it is as it was finished. None: it is to be copied.

    It is read whole, and from the disk, as far as the system can be told so: pages in memory would hide what the disk
    has lost since. Its directory was synced before, so that no page has yet to be written.
    """
    try:
        descriptor = os.open(finished.path, _OPEN_FINISHED)
        try:
            found = os.fstat(descriptor)
            if not _is_as_finished(found, finished, desired) or _read_checksum(descriptor) != finished.checksum:
                return None
        finally:
            os.close(descriptor)
        _move(finished.path, target)
    except OSError:
        return None
    return found.st_size, found.st_ino, found.st_mtime_ns, finished.checksum


def _move(path: str, target: str) -> None:
    """The new name is this writer's alone, and free: it stands for one planned file."""
    try:
        os.rename(path, target)  # noqa: PTH104  no object for each of a million files
    except PermissionError:
        # A copied mode has taken the right to write in its directory, which is the attempt's own.
        os.chmod(path.rpartition("/")[0], stat.S_IRWXU)  # noqa: PTH101  the same
        os.rename(path, target)  # noqa: PTH104  the same


def _is_as_finished(found: os.stat_result, finished: FinishedFile, desired: Attributes) -> bool:
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_nlink == 1
        and (found.st_size, found.st_ino, found.st_mtime_ns) == finished[1:4]
        and (desired.mode is None or stat.S_IMODE(found.st_mode) == desired.mode)
        and (desired.owner is None or found.st_uid == desired.owner)
        and (desired.group is None or found.st_gid == desired.group)
    )


def _read_checksum(descriptor: int) -> int:
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    crc = 0
    while content := os.read(descriptor, CHUNK_BYTES):
        crc = google_crc32c.extend(crc, content)
    return crc
