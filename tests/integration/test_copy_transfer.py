"""Copies of real files into an attempt's directory: bytes, attributes, and sources that change meanwhile."""

import os
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

from gobblin_assets.errors import ConflictError, ErrorFamily, RetryableError
from gobblin_assets.jobs.copy.copyable import Attributes, CopyItem, PlannedFile
from gobblin_assets.jobs.copy.transfer.file_copy import CopyOptions, copy_file
from gobblin_assets.jobs.copy.transfer.moving import CHUNK_BYTES, KERNEL_CHUNK_BYTES
from gobblin_assets.jobs.copy.transfer.preserve import NOTHING_PRESERVED, parse_preserve
from tests.support.copying import (
    access_list,
    copy_all,
    directory_item,
    divide,
    entry_of,
    file_items,
    fill,
    identity_of,
    order_of,
    plan_file,
    staged,
)
from tests.support.mounts import tmpfs

GIB = 1 << 30
PLAIN = CopyOptions(checksum=False, access_lists=False, extended=False)
CHECKED = PLAIN._replace(checksum=True)

SIZES = [0, 1, 4_096, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 7, KERNEL_CHUNK_BYTES + 1]


def planned(root: Path, path: str) -> PlannedFile:
    return PlannedFile.of(path, entry_of(root, path))


def unheard(_count: int) -> None:
    return


# --- bytes


@pytest.mark.parametrize("checksum", [True, False])
def test_files_of_all_sizes_are_copied_whole(tmp_path: Path, checksum: bool) -> None:
    root = tmp_path / "source"
    contents = {f"f{size}": os.urandom(size) for size in SIZES}
    for name, content in contents.items():
        fill(root / name, content)
    order = order_of(root, tmp_path / "attempt", divide(file_items(root), 3), checksum=checksum)
    results = copy_all(order)
    assert results.keys() == contents.keys()
    for name, content in contents.items():
        result = results[name]
        assert result.failure is None
        assert staged(order, result).read_bytes() == content
        assert result.identity == identity_of(staged(order, result))
        assert result.checksum == (google_crc32c.value(content) if checksum else None)


def test_the_checksum_is_the_published_one_of_crc32c(tmp_path: Path) -> None:
    fill(tmp_path / "source/digits", b"123456789")
    order = order_of(tmp_path / "source", tmp_path / "attempt", divide(file_items(tmp_path / "source"), 1))
    assert copy_all(order)["digits"].checksum == 0xE3069283


@pytest.mark.parametrize("options", [PLAIN, CHECKED])
def test_holes_stay_holes(tmp_path: Path, options: CopyOptions) -> None:
    source, target = tmp_path / "sparse", tmp_path / "target"
    pieces = {4 * CHUNK_BYTES: b"begin" * 1_000, 3 * GIB + 12_345: os.urandom(2 * CHUNK_BYTES), 5 * GIB - 9: b"the end"}
    with source.open("wb") as out:
        for position, piece in pieces.items():
            out.seek(position)
            out.write(piece)
        out.truncate(5 * GIB)
    heard: list[int] = []
    size_bytes, _inode, _mtime_ns, checksum = copy_file(
        str(source), planned(tmp_path, "sparse"), str(target), options, heard.append
    )
    assert size_bytes == target.stat().st_size == 5 * GIB
    assert target.stat().st_blocks <= source.stat().st_blocks + 64
    assert sum(heard) < 4 * CHUNK_BYTES
    with target.open("rb") as copied:
        for position, piece in pieces.items():
            copied.seek(position)
            assert copied.read(len(piece)) == piece
    if options.checksum:
        assert checksum == checksum_of_sparse(pieces, 5 * GIB)


def checksum_of_sparse(pieces: dict[int, bytes], size_bytes: int) -> int:
    zeros, crc, position = bytes(64 << 20), 0, 0
    for begin, piece in [*pieces.items(), (size_bytes, b"")]:
        while position < begin:
            count = min(len(zeros), begin - position)
            crc = google_crc32c.extend(crc, zeros[:count])
            position += count
        crc = google_crc32c.extend(crc, piece)
        position += len(piece)
    return crc


# --- sources that change


def vanish(path: Path) -> None:
    path.unlink()


def shrink(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def grow(path: Path) -> None:
    with path.open("ab") as out:
        out.write(b"more")


def rewrite(path: Path) -> None:
    """The same size, another moment."""
    before = path.stat()
    with path.open("r+b") as out:
        out.write(b"?")
    os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns + 1))


def rewrite_unseen(path: Path) -> None:
    """The same size and mtime, in place."""
    before = path.stat()
    with path.open("r+b") as out:
        out.write(b"?" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(path: Path) -> None:
    """The same size and mtime, another inode."""
    before = path.stat()
    other = path.with_name("other")
    other.write_bytes(b"?" * before.st_size)
    os.utime(other, ns=(before.st_mtime_ns, before.st_mtime_ns))
    other.replace(path)


def become_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def become_link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def become_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


CHANGES = [vanish, shrink, grow, rewrite, rewrite_unseen, replace, become_pipe, become_link, become_directory]


@pytest.mark.parametrize("size", [10, CHUNK_BYTES + 10])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_since_it_was_planned_fails_alone(
    tmp_path: Path, change: Callable[[Path], None], size: int
) -> None:
    root = tmp_path / "source"
    for name in ("a", "b", "c"):
        fill(root / name, os.urandom(size))
    order = order_of(root, tmp_path / "attempt", divide(file_items(root), 1))
    change(root / "b")
    results = copy_all(order)
    failure = results["b"].failure
    assert failure is not None
    assert failure.family is ErrorFamily.RETRYABLE
    assert str(root / "b") in failure.message
    assert results["b"].identity is None
    assert [results[name].failure for name in ("a", "c")] == [None, None]


@pytest.mark.parametrize("options", [PLAIN, CHECKED])
@pytest.mark.parametrize("change", [shrink, grow, rewrite, rewrite_unseen])
def test_a_file_that_changes_while_it_is_read_fails(
    tmp_path: Path, change: Callable[[Path], None], options: CopyOptions
) -> None:
    source = fill(tmp_path / "source", bytes(range(256)) * (3 * KERNEL_CHUNK_BYTES // 256))
    plan, heard = planned(tmp_path, "source"), list[int]()

    def disturb(count: int) -> None:
        if not heard:
            change(source)
        heard.append(count)

    with pytest.raises(RetryableError, match="changed while it was read"):
        copy_file(str(source), plan, str(tmp_path / "target"), options, disturb)
    assert heard
    assert (tmp_path / "target").stat().st_size == 0


@pytest.mark.parametrize("size", [10, CHUNK_BYTES + 10])
def test_a_name_that_is_taken_is_left_alone(tmp_path: Path, size: int) -> None:
    fill(tmp_path / "source", os.urandom(size))
    taken = fill(tmp_path / "target", b"of somebody else")
    with pytest.raises(ConflictError, match="there already"):
        copy_file(str(tmp_path / "source"), planned(tmp_path, "source"), str(taken), PLAIN, unheard)
    assert taken.read_bytes() == b"of somebody else"


def test_a_full_destination_fails_what_does_not_fit(tmp_path: Path) -> None:
    root = tmp_path / "source"
    fill(root / "large", os.urandom(3 * CHUNK_BYTES))
    for n in range(4):
        fill(root / f"small{n}", os.urandom(1_000))
    with tmpfs(tmp_path / "full", options=f"size={2 * CHUNK_BYTES},mode=755") as full:
        results = copy_all(order_of(root, full / "attempt", divide(file_items(root), 1)))
    failure = results.pop("large").failure
    assert failure is not None
    assert (failure.family, "ENOSPC" in failure.message) == (ErrorFamily.RETRYABLE, True)
    # The space of what failed is free again.
    assert [result.failure for result in results.values()] == [None] * 4


# --- attributes


@pytest.mark.parametrize("mode", [0o600, 0o444, 0o4755, 0o2775, 0o000])
def test_mode_owner_and_mtime_are_kept(tmp_path: Path, mode: int) -> None:
    root = tmp_path / "source"
    small, large = fill(root / "small"), fill(root / "large", bytes(2 * CHUNK_BYTES))
    for path in (small, large):
        if os.geteuid() == 0:
            os.chown(path, 1234, 4321)
        path.chmod(mode)
        os.utime(path, ns=(1, 1_500_000_000_123_456_789))
    order = order_of(root, tmp_path / "attempt", divide(file_items(root), 1))
    for name, result in copy_all(order).items():
        was, now = (root / name).stat(), staged(order, result).stat()
        assert (was.st_mode, was.st_uid, was.st_gid, was.st_mtime_ns) == (
            now.st_mode,
            now.st_uid,
            now.st_gid,
            now.st_mtime_ns,
        )


def test_nothing_is_kept_that_nobody_asked_for(tmp_path: Path) -> None:
    root = tmp_path / "source"
    fill(root / "file").chmod(0o700)
    os.utime(root / "file", ns=(1, 1))
    order = order_of(root, tmp_path / "attempt", divide(file_items(root, NOTHING_PRESERVED), 1))
    found = staged(order, copy_all(order)["file"]).stat()
    umask = os.umask(0)
    os.umask(umask)
    assert found.st_mode & 0o777 == 0o666 & ~umask
    assert found.st_mtime_ns > 1


@pytest.mark.parametrize("letters", ["pt", "ptx", "pta", "ptxa"])
def test_extended_attributes_and_access_lists_are_read_from_the_source(tmp_path: Path, letters: str) -> None:
    root, preserve = tmp_path / "source", parse_preserve(letters)
    with tmpfs(tmp_path / "volume") as volume:
        for path in (fill(root / "small"), fill(root / "large", bytes(2 * CHUNK_BYTES))):
            os.setxattr(path, "user.origin", b"\0\1 here")
            os.setxattr(path, "system.posix_acl_access", access_list(1234))
        order = order_of(root, volume / "attempt", divide(file_items(root, preserve), 1), preserve=preserve)
        for name, result in copy_all(order).items():
            assert result.failure is None
            copied = staged(order, result)
            names = set(os.listxattr(copied))
            assert ("user.origin" in names, "system.posix_acl_access" in names) == ("x" in letters, "a" in letters)
            assert copied.stat().st_mode == (root / name).stat().st_mode
            assert copied.stat().st_mtime_ns == (root / name).stat().st_mtime_ns
            assert all(os.getxattr(copied, each) == os.getxattr(root / name, each) for each in names)


# --- directories


def test_a_directory_is_staged_whole_with_its_attributes(tmp_path: Path) -> None:
    root = tmp_path / "source"
    fill(root / "top/file", b"1")
    fill(root / "top/deep/er/file", b"22")
    (root / "top/empty").mkdir()
    for number, path in enumerate(["top/deep/er", "top/deep", "top/empty", "top"]):
        (root / path).chmod(0o555)
        os.utime(root / path, ns=(1, 1_000_000_000 * (number + 1)))
    order = order_of(root, tmp_path / "attempt", divide([directory_item(7, root, "top")], 1))
    results = copy_all(order)
    assert results.keys() == {"top", "top/file", "top/deep/er/file"}
    assert all(result.failure is None for result in results.values())
    top = staged(order, results["top"])
    assert top == tmp_path / "attempt/w000/7"
    assert results["top"].is_directory
    assert results["top"].identity == identity_of(top)
    assert staged(order, results["top/deep/er/file"]).read_bytes() == b"22"
    for path in ("", "deep", "deep/er", "empty"):
        was, now = (root / "top" / path).stat(), (top / path).stat()
        assert (was.st_mode, was.st_mtime_ns) == (now.st_mode, now.st_mtime_ns)


def test_a_directory_fails_with_any_of_its_files(tmp_path: Path) -> None:
    root = tmp_path / "source"
    fill(root / "top/good")
    fill(root / "top/gone")
    fill(root / "other/good")
    items = [directory_item(1, root, "top"), directory_item(2, root, "other")]
    order = order_of(root, tmp_path / "attempt", divide(items, 1))
    (root / "top/gone").unlink()
    results = copy_all(order)
    failed = {path for path, result in results.items() if result.failure is not None}
    assert failed == {"top", "top/gone"}
    failure = results["top"].failure
    assert failure is not None
    assert "1 of its files" in failure.message


def test_the_destination_itself_can_be_an_item(tmp_path: Path) -> None:
    root = tmp_path / "source"
    fill(root / "a/b", b"bytes")
    item = CopyItem(5, "", (plan_file(root, "a/b"),), True, (("a", Attributes()),))
    order = order_of(root, tmp_path / "attempt", divide([item], 1))
    results = copy_all(order)
    assert results.keys() == {"", "a/b"}
    assert staged(order, results["a/b"]) == tmp_path / "attempt/w000/5/a/b"


def test_a_file_can_have_another_place_than_its_source(tmp_path: Path) -> None:
    root = tmp_path / "source"
    origin = entry_of(root, str(fill(root / "here/it", b"bytes").relative_to(root)))
    item = CopyItem(1, "there", (PlannedFile.of("there/that", origin),), True)
    order = order_of(root, tmp_path / "attempt", divide([item], 1))
    assert staged(order, copy_all(order)["there/that"]).read_bytes() == b"bytes"
