"""Names of copied content: of a file as it was planned, and of what a copy of it makes. Pure.

A guid is a SHA-1 in hexadecimal, over a word with a version and then fields. Each field stands behind its length of 8
bytes, the highest first; the length of a field that is missing is 2⁶⁴ - 1, so it differs from an empty one. Numbers are
decimal ASCII. Equal guids mean equal fields in equal places. The versions change with anything of this.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from gobblin_assets.jobs.copy.copyable import Attributes
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
            *(file_guid, str(len(transforms)), *transforms),
            *map(_number, numbers),
            *(str(len(desired.xattrs)), *extended),
            *map(_number, (None, None) if split is None else split),
        ),
    )


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def _digest(version: bytes, fields: Iterable[str | bytes | None]) -> str:
    """In one piece: each planned file has two guids, and many small calls would take as long as its copy."""
    parts = [version]
    for field in fields:
        if field is None:
            parts.append(_MISSING)
        else:
            data = field.encode() if isinstance(field, str) else field
            parts += (len(data).to_bytes(8, "big"), data)
    # Not for security: whoever may write the source's files may write what is copied.
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).hexdigest()
