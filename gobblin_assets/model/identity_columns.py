"""The identities of many files, column by column: a copy may have a million of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from gobblin_assets.model.files import FileIdentity


@dataclass(frozen=True, slots=True)
class IdentityColumns:
    """The fields of ``FileIdentity``; the same place of each column is the same file."""

    sizes_bytes: Sequence[int]
    inodes: Sequence[int | None]
    mtimes_ns: Sequence[int | None]
    tags: Sequence[str | None]

    @classmethod
    def of(cls, identities: Sequence[FileIdentity]) -> Self:
        return cls(
            [each.size_bytes for each in identities],
            [each.inode for each in identities],
            [each.mtime_ns for each in identities],
            [each.tag for each in identities],
        )
