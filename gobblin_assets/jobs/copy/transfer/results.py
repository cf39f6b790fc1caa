"""Results of rows: what the numbers of a row stand for in its bin."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from gobblin_assets.errors import ErrorFamily
from gobblin_assets.jobs.copy.copyable import CopyItem
from gobblin_assets.jobs.copy.transfer.bins import Bin
from gobblin_assets.jobs.copy.transfer.port import CopyFailure, FileResult
from gobblin_assets.jobs.copy.transfer.writing import ITEM_ITSELF, ResultRow
from gobblin_assets.model.files import FileIdentity


def result_of(found: Bin, row: ResultRow) -> FileResult:
    item = found.items[row.item]
    path, staged_path, is_directory = _place_of(found, item, row.entry)
    if row.failure is not None or row.staged is None:
        family, message = row.failure or (ErrorFamily.RETRYABLE, "the writer told nothing about it")
        return FileResult(
            item.number, path, staged_path, is_directory, failure=CopyFailure(ErrorFamily(family), message)
        )
    size_bytes, inode, mtime_ns, checksum = row.staged
    return FileResult(item.number, path, staged_path, is_directory, FileIdentity(size_bytes, inode, mtime_ns), checksum)


def list_lost(found: Bin, reported: AbstractSet[tuple[int, int]], reason: str) -> Iterator[FileResult]:
    """A failed result for each file and directory item of the bin that its writer, which is gone, has not reported."""
    failure = CopyFailure(ErrorFamily.RETRYABLE, reason)
    for number, item in enumerate(found.items):
        for entry in (*range(len(item.files)), *[ITEM_ITSELF] * item.is_directory):
            if (number, entry) not in reported:
                path, staged_path, is_directory = _place_of(found, item, entry)
                yield FileResult(item.number, path, staged_path, is_directory, failure=failure)


def _place_of(found: Bin, item: CopyItem, entry: int) -> tuple[str, str, bool]:
    top = f"{found.writer}/{item.number}"
    if not item.is_directory:
        return item.path, top, False
    if entry == ITEM_ITSELF:
        return item.path, top, True
    prefix = f"{item.path}/" if item.path else ""
    if entry < ITEM_ITSELF:
        place = item.directories[ITEM_ITSELF - 1 - entry][0]
        return f"{prefix}{place}", f"{top}/{place}", True
    path = item.files[entry].path
    return path, f"{top}/{path[len(prefix) :]}", False
