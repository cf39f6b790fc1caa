"""A large file for sources that are read by ranges, and such a reading."""

import os
from contextlib import closing
from pathlib import Path
from typing import Final

from gobblin_assets.fs.network_files import RangedFiles
from gobblin_assets.model.files import FileIdentity

TIME_NS: Final = 1_700_000_000_000_000_000
LARGE_BYTES: Final = 20 << 20
RANGE_BYTES: Final = 8 << 20


def make_large(root: Path, name: str = "large") -> tuple[str, FileIdentity, bytes]:
    """The full path, the identity that a listing gives, and the bytes."""
    content = os.urandom(1 << 20) * (LARGE_BYTES >> 20)
    (root / name).write_bytes(content)
    os.utime(root / name, ns=(TIME_NS, TIME_NS))
    return str(root / name), FileIdentity(len(content), None, TIME_NS), content


def read_all(tree: RangedFiles, path: str, identity: FileIdentity) -> bytes:
    with closing(tree.open_ranged(path, identity)) as opened:
        return b"".join(
            opened.read_at(place, min(RANGE_BYTES, identity.size_bytes - place))
            for place in range(0, identity.size_bytes, RANGE_BYTES)
        )
