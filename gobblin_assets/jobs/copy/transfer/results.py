"""Results of rows: what the numbers of a row stand for in its bin."""

from collections.abc import Iterable

from gobblin_assets.errors import ErrorFamily
from gobblin_assets.jobs.copy.copyable import CopyItem
from gobblin_assets.jobs.copy.transfer.bins import Bin
from gobblin_assets.jobs.copy.transfer.file_copy import StagedFile
from gobblin_assets.jobs.copy.transfer.port import CopyFailure, FileResult
from gobblin_assets.jobs.copy.transfer.splits import SPLITS, SplitFiles
from gobblin_assets.jobs.copy.transfer.writing import ITEM_ITSELF, FailureText, ResultRow
from gobblin_assets.model.files import FileIdentity


def list_results(found: Bin, rows: Iterable[ResultRow], splits: SplitFiles) -> tuple[FileResult, ...]:
    """The results of the rows. Of a file that several writers fill: when its last part was reported."""
    writer, count = found.writer, len(found.items)
    if not found.parts:
        return tuple(
            [_result_of(writer, found.items[item], entry, staged, failure) for item, entry, staged, failure in rows]
        )
    results = []
    for item, entry, staged, failure in rows:
        if item < count:
            results.append(_result_of(writer, found.items[item], entry, staged, failure))
            continue
        part = found.parts[item - count]
        whole = splits.take(part, staged, failure)
        if whole is not None:
            results.append(_result_of(SPLITS, part.item, 0, *whole))
    return tuple(results)


def count_reported(rows: Iterable[ResultRow]) -> int:
    """Without those about subdirectories, which exist only for failures."""
    return sum(entry >= ITEM_ITSELF for _item, entry, _staged, _failure in rows)


def list_lost(found: Bin, reported: int, reason: str) -> list[ResultRow]:
    """A row of failure for each file, directory item and part of the bin but the first ``reported``, in their order."""
    failure = (ErrorFamily.RETRYABLE.value, reason)
    owed = [(number, entry) for number, item in enumerate(found.items) for entry in _entries_of(item)]
    owed += [(number, 0) for number in range(len(found.items), len(found.items) + len(found.parts))]
    return [(number, entry, None, failure) for number, entry in owed[reported:]]


def _entries_of(item: CopyItem) -> Iterable[int]:
    return (*range(len(item.files)), ITEM_ITSELF) if item.is_directory else (0,)


def _result_of(
    writer: str, item: CopyItem, entry: int, staged: StagedFile | None, failure: FailureText | None
) -> FileResult:
    path, staged_path, is_directory = _place_of(writer, item, entry)
    if staged is not None:
        size_bytes, inode, mtime_ns, checksum = staged
        identity = FileIdentity(size_bytes, inode, mtime_ns)
        return FileResult(item.number, path, staged_path, is_directory, identity, checksum)
    family, message = failure or (ErrorFamily.RETRYABLE.value, "its writer gave no reason")
    return FileResult(item.number, path, staged_path, is_directory, failure=CopyFailure(ErrorFamily(family), message))


def _place_of(writer: str, item: CopyItem, entry: int) -> tuple[str, str, bool]:
    """Below the destination, below the attempt, and whether it is a directory."""
    top = f"{writer}/{item.number}"
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
