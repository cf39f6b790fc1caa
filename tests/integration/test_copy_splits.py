"""Large files that several writers fill: the same bytes, checksum and attributes, or a failed file."""

import os
from pathlib import Path

import google_crc32c
import pytest

from gobblin_assets.errors import ErrorFamily, RetryableError
from gobblin_assets.jobs.copy.transfer.bins import Bin, plan_bins
from gobblin_assets.jobs.copy.transfer.local import LocalTransfer
from gobblin_assets.jobs.copy.transfer.moving import CHUNK_BYTES
from gobblin_assets.jobs.copy.transfer.transfer_port import TransferProgress
from tests.support.copying import copy_all, file_items, fill, identity_of, order_of, staged

MIB = 1 << 20


def split(root: Path, part_bytes: int) -> tuple[Bin, ...]:
    return plan_bins(file_items(root), 8, part_bytes)


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize(
    ("size_bytes", "part_bytes"), [(12, 4), (13, 4), (3 * CHUNK_BYTES + 7, CHUNK_BYTES), (40 * MIB, 18 * MIB)]
)
def test_a_file_in_parts_is_the_file(tmp_path: Path, size_bytes: int, part_bytes: int, checksum: bool) -> None:
    root, content = tmp_path / "source", os.urandom(size_bytes)
    fill(root / "large", content).chmod(0o440)
    fill(root / "small", b"tiny")
    heard: list[TransferProgress] = []
    order = order_of(root, tmp_path / "attempt", split(root, part_bytes), checksum=checksum, on_progress=heard.append)
    assert len([part for found in order.bins for part in found.parts]) == -(-size_bytes // part_bytes)

    results = copy_all(order)

    large = results["large"]
    assert large.failure is None
    assert large.staged_path == "splits/1"
    copied = staged(order, large)
    assert copied.read_bytes() == content
    assert large.identity == identity_of(copied)
    assert large.checksum == (google_crc32c.value(content) if checksum else None)
    assert copied.stat().st_mode == (root / "large").stat().st_mode
    assert copied.stat().st_mtime_ns == (root / "large").stat().st_mtime_ns
    assert results["small"].failure is None
    assert heard[-1] == TransferProgress(2, 0, size_bytes + 4)


@pytest.mark.parametrize("checksum", [True, False])
def test_holes_between_and_within_parts_stay_holes(tmp_path: Path, checksum: bool) -> None:
    root = tmp_path / "source"
    source = fill(root / "sparse", b"")
    pieces = {3 * MIB + 5: os.urandom(MIB), 17 * MIB: b"over the edge" * MIB, 61 * MIB: b"late"}
    with source.open("r+b") as out:
        for position, piece in pieces.items():
            out.seek(position)
            out.write(piece)
        out.truncate(90 * MIB)
    order = order_of(root, tmp_path / "attempt", split(root, 7 * MIB), checksum=checksum)

    found = copy_all(order)["sparse"]

    assert found.failure is None
    copied = staged(order, found)
    assert copied.read_bytes() == source.read_bytes()
    assert copied.stat().st_blocks <= source.stat().st_blocks + 64
    assert found.checksum == (google_crc32c.value(source.read_bytes()) if checksum else None)


def test_a_source_that_changes_fails_the_whole_file(tmp_path: Path) -> None:
    root = tmp_path / "source"
    for name in ("changes", "stays"):
        fill(root / name, os.urandom(12))
    order = order_of(root, tmp_path / "attempt", split(root, 4))
    os.utime(root / "changes")

    results = copy_all(order)

    failure = results["changes"].failure
    assert failure is not None
    assert failure.family is ErrorFamily.RETRYABLE
    assert "changed since it was planned" in failure.message
    assert results["stays"].failure is None


@pytest.mark.parametrize("later", [0, 1])
def test_a_source_that_changes_behind_the_last_part_fails_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    """Also if it keeps its time."""
    root = tmp_path / "source"
    fill(root / "changes", os.urandom(12))
    order = order_of(root, tmp_path / "attempt", split(root, 4))
    finish = "gobblin_assets.jobs.copy.transfer.results.combine_all"

    mtime_ns = (root / "changes").stat().st_mtime_ns

    def combine_and_change(_parts: object) -> int:
        os.utime(root / "changes", ns=(0, mtime_ns + later))
        return 0

    monkeypatch.setattr(finish, combine_and_change)
    failure = copy_all(order)["changes"].failure
    assert failure is not None
    assert "changed while it was read" in failure.message


def test_a_source_that_is_rewritten_between_two_parts_fails_though_it_keeps_its_time(tmp_path: Path) -> None:
    root = tmp_path / "source"
    path = fill(root / "large", b"1" * 12)
    before = path.stat()

    def rewrite(_progress: TransferProgress) -> None:
        with path.open("r+b") as out:
            out.write(b"2" * 12)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    order = order_of(root, tmp_path / "attempt", split(root, 4), workers=1, on_progress=rewrite)
    failure = copy_all(order)["large"].failure

    assert failure is not None
    assert failure.family is ErrorFamily.RETRYABLE
    assert "and kept its length and time" in failure.message


def test_an_attempt_where_parts_were_copied_before_is_not_used_again(tmp_path: Path) -> None:
    root = tmp_path / "source"
    fill(root / "large", os.urandom(12))
    order = order_of(root, tmp_path / "attempt", split(root, 4))
    (tmp_path / "attempt/splits").mkdir()
    with LocalTransfer() as transfer, pytest.raises(RetryableError, match="EEXIST"):
        list(transfer.copy(order))
