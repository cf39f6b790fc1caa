"""Files that prove themselves: their path, their version and all of their bytes.

A part of a file, a mixture of two versions, and a file at another's name are all noticed by looking at the bytes alone.
"""

import hashlib
import random
from dataclasses import dataclass
from typing import Final

_PROOF_BYTES: Final = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What a version of a file had at the source besides its content.

    Only those that a stranger wrote in place have the ``mtime_ns`` of another version: of the one before.
    """

    size: int
    mtime_ns: int
    mode: int


def make_content(path: str, version: int, length: int) -> bytes:
    """A head, ``length`` bytes that no other version has, and the digest of both."""
    whole = f"{version:08d} {path}\n".encode() + random.Random(f"{path}/{version}").randbytes(length)
    return whole + hashlib.sha256(whole).digest()


def read_version(path: str, content: bytes) -> int | None:
    """The version that the content proves to be; None if it is no whole version of this path."""
    whole, proof = content[:-_PROOF_BYTES], content[-_PROOF_BYTES:]
    number, _, rest = whole.partition(b" ")
    if hashlib.sha256(whole).digest() != proof or not rest.startswith(f"{path}\n".encode()):
        return None
    return int(number)
