"""Guids of copied content: fixed digests, and each field makes a difference."""

import hashlib
from dataclasses import replace

import pytest

from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.copyable import Attributes
from gobblin_assets.jobs.copy.transfer.journal import compute_file_guid, compute_work_guid
from gobblin_assets.model.files import FileIdentity

ROOT = "file:///lake"
FILE = TreeEntry("a/é.csv", EntryKind.FILE, FileIdentity(12, inode=5, mtime_ns=1_760_000_000_000_000_001), 0o644, 1, 2)
TAGGED = replace(FILE, identity=FileIdentity(12, tag='"abc"'))
DESIRED = Attributes(0o640, 0, 100, 7, (("user.a", b"1"), ("user.b", b"\x00\xff")))


def prefixed(*fields: bytes | None) -> bytes:
    return b"".join(b"\xff" * 8 if field is None else len(field).to_bytes(8, "big") + field for field in fields)


def test_the_bytes_that_are_hashed_are_as_written_down() -> None:
    fields = prefixed(b"file:///lake", "a/é.csv".encode(), b"12", b"1760000000000000001", None, None)
    assert (
        compute_file_guid(ROOT, FILE.path, FILE.identity) == hashlib.sha1(b"gobblin-copy-file-1" + fields).hexdigest()
    )
    guid = "0" * 40
    fields = prefixed(
        guid.encode(), b"1", b"gunzip", b"416", b"0", b"100", b"7", b"2", b"user.a", b"1", b"user.b", b"\x00\xff",
        b"4", b"8",
    )  # fmt: skip
    found = compute_work_guid(guid, transforms=["gunzip"], desired=DESIRED, split=(4, 8))
    assert found == hashlib.sha1(b"gobblin-copy-work-1" + fields).hexdigest()


@pytest.mark.parametrize(
    ("entry", "checksum", "guid"),
    [
        (FILE, None, "28684dd5087f06be3f5ea8a21ada97b8eb671ee0"),
        (FILE, "crc32c:1a2b3c4d", "f896d5ea1447fe397f9041467bc0af0bf131a2c6"),
        (TAGGED, None, "cbb511d570e7ea966377155c572e6451719248a3"),
    ],
)
def test_a_files_guid_never_changes(entry: TreeEntry, checksum: str | None, guid: str) -> None:
    assert compute_file_guid(ROOT, entry.path, entry.identity, checksum) == guid


@pytest.mark.parametrize(
    ("transforms", "desired", "split", "guid"),
    [
        ((), Attributes(), None, "8c9b8ea0fdfa9acbd481bb7ceb14648226b6fd64"),
        (("gunzip", "gpg:decrypt"), DESIRED, (4, 8), "2665eda2b6ddf4bd8075b0083b0b442b96c05213"),
    ],
)
def test_a_works_guid_never_changes(
    transforms: tuple[str, ...], desired: Attributes, split: tuple[int, int] | None, guid: str
) -> None:
    assert compute_work_guid("0" * 40, transforms=transforms, desired=desired, split=split) == guid


def test_every_field_of_a_file_makes_a_difference() -> None:
    identity = FILE.identity
    found = [
        compute_file_guid(ROOT, FILE.path, FILE.identity),
        compute_file_guid("file:///lak", "ea/é.csv", identity),
        compute_file_guid(ROOT, "a/e.csv", identity),
        compute_file_guid(ROOT, FILE.path, replace(identity, size_bytes=13)),
        compute_file_guid(ROOT, FILE.path, replace(identity, mtime_ns=None)),
        compute_file_guid(ROOT, FILE.path, replace(identity, tag="x")),
        compute_file_guid(ROOT, FILE.path, identity, "x"),
        compute_file_guid(ROOT, FILE.path, identity, ""),
    ]
    assert len(set(found)) == len(found)
    assert compute_file_guid(ROOT, FILE.path, replace(identity, inode=9)) == found[0], "a restored backup has others"


def test_every_field_of_the_work_makes_a_difference() -> None:
    def guid(
        of: str = "g", transforms: tuple[str, ...] = (), split: tuple[int, int] | None = None, **changes: object
    ) -> str:
        desired = DESIRED._replace(**changes)  # type: ignore[arg-type]  # fields by name
        return compute_work_guid(of, transforms=transforms, desired=desired, split=split)

    found = [
        guid(),
        guid("h"),
        guid(transforms=("a", "b")),
        guid(transforms=("b", "a")),
        guid(transforms=("ab",)),
        guid(split=(0, 8)),
        guid(split=(8, 0)),
        guid(mode=None),
        guid(owner=100, group=0),
        guid(mtime_ns=8),
        guid(xattrs=()),
        guid(xattrs=(("user.a", b"1user.b"),)),
    ]
    assert len(set(found)) == len(found)
    assert guid(xattrs=tuple(reversed(DESIRED.xattrs))) == guid()
