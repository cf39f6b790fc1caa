"""CRC32C of whole files, for comparing both sides of a copy."""

from typing import Final

import google_crc32c

from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.tree import TreeEntry

_CHUNK_BYTES: Final = 1 << 20


def compute_checksum(path: str) -> int:
    """The CRC32C of a file's bytes. RetryableError if it can't be read."""
    crc = 0
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123  a path for each of a million files is slow
            while content := stream.read(_CHUNK_BYTES):
                crc = google_crc32c.extend(crc, content)
    except OSError as error:
        raise RetryableError(f"can't read {path} to compare it: {error.strerror}", path=path) from error
    return crc


def checksums_agree(source_root: str, target_root: str, source: TreeEntry, target: TreeEntry) -> bool:
    """Whether two files of one length have the same bytes, as far as 32 bits say. Both are read."""
    return compute_checksum(f"{source_root}/{source.path}") == compute_checksum(f"{target_root}/{target.path}")
