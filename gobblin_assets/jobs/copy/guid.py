"""Names of copied content: of a file as it was planned, and of what a copy of it makes. Pure.

A guid is a SHA-1 in hexadecimal, over a word with a version and then fields. Each field stands behind its length of 8
bytes, the highest first; the length of a field that is missing is 2⁶⁴ - 1, so it differs from an empty one. Numbers are
decimal ASCII. Equal guids mean equal fields in equal places. The versions change with anything of this.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gobblin_assets.fs.tree import TreeEntry
from gobblin_assets.jobs.copy.copyable import Attributes

_FILE_VERSION: Final = b"gobblin-copy-file-1"
_WORK_VERSION: Final = b"gobblin-copy-work-1"
_MISSING: Final = b"\xff" * 8


def compute_file_guid(root_uri: str, origin: TreeEntry, checksum: str | None = None) -> str:
    """The guid of a source's file: its root's URI, path, length, modification time, and checksum, else its tag.

    ``checksum`` names its kind, such as ``crc32c:1a2b3c4d``. The tag is an ETag, or the file id of HDFS.
    """
    identity = origin.identity
    content = checksum if checksum is not None else identity.tag
    kind = None if content is None else "tag" if checksum is None else "checksum"
    return _digest(
        _FILE_VERSION, (root_uri, origin.path, str(identity.size_bytes), _number(identity.mtime_ns), kind, content)
    )


def compute_work_guid(
    file_guid: str, *, transforms: Sequence[str], desired: Attributes, split: tuple[int, int] | None = None
) -> str:
    """The guid of what one piece of work stages: the file's guid, its transforms, its attributes, and its split.

    ``transforms``: each with all options that change bytes, in the order in which they are applied. ``split``: the
    offset and the length of the part, in bytes; None: the whole file.
    """
    return _digest(_WORK_VERSION, _work_fields(file_guid, transforms, desired, split))


def _work_fields(
    file_guid: str, transforms: Sequence[str], desired: Attributes, split: tuple[int, int] | None
) -> Iterator[str | bytes | None]:
    yield file_guid
    yield str(len(transforms))
    yield from transforms
    for number in (desired.mode, desired.owner, desired.group, desired.mtime_ns):
        yield _number(number)
    yield str(len(desired.xattrs))
    for name, value in sorted(desired.xattrs):
        yield name
        yield value
    for number in (None, None) if split is None else split:
        yield _number(number)


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def _digest(version: bytes, fields: Iterable[str | bytes | None]) -> str:
    # Not for security: whoever may write the source's files may write what is copied.
    digest = hashlib.sha1(version, usedforsecurity=False)
    for field in fields:
        if field is None:
            digest.update(_MISSING)
        else:
            data = field.encode() if isinstance(field, str) else field
            digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
