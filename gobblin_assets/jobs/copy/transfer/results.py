"""Results of the rows of a bin, and of files that several writers fill.

    <attempt>/splits/<number>      the staged file of an item, made with its whole size before the first writer begins

A part is written once: two writers of one part could write different bytes, one of them after the other was checked.
A part that fails, or whose writer is lost, fails its file.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gobblin_assets.errors import ErrorFamily, GobblinError, RetryableError
from gobblin_assets.jobs.copy.checksums import combine_all
from gobblin_assets.jobs.copy.copyable import CopyItem, PlannedFile
from gobblin_assets.jobs.copy.transfer.bins import Bin, SplitPart
from gobblin_assets.jobs.copy.transfer.file_copy import (
    CopyOptions,
    StagedFile,
    finish_parts,
    make_sized,
    missing_or_translated,
)
from gobblin_assets.jobs.copy.transfer.transfer_port import CopyFailure, FileResult
from gobblin_assets.jobs.copy.transfer.writing import ITEM_ITSELF, FailureText, ResultRow, text_of
from gobblin_assets.model.files import FileIdentity

SPLITS: Final = "splits"
"""Below the attempt; it plays the writer's directory of these files."""


@dataclass(slots=True)
class _SplitFile:
    item: CopyItem
    parts: list[SplitPart] = field(default_factory=list)
    reported: dict[int, StagedFile] = field(default_factory=dict)
    failure: FailureText | None = None
    left: int = 0

    @property
    def planned(self) -> PlannedFile:
        return self.item.files[0]


class SplitFiles:
    """The files of one order that several writers fill, kept by the driver's thread that takes its results."""

    def __init__(self, source_root: str, attempt: str, options: CopyOptions, bins: Iterable[Bin]) -> None:
        self._source_root = source_root
        self._attempt = attempt
        self._options = options
        self._files: dict[int, _SplitFile] = {}
        for part in sorted((part for found in bins for part in found.parts), key=lambda each: each.number):
            file = self._files.setdefault(part.item.number, _SplitFile(part.item))
            file.parts.append(part)
            file.left += 1

    def make(self) -> None:
        """Make the files. What goes wrong with one of them fails it; its writers find nothing."""
        if not self._files:
            return
        folder = f"{self._attempt}/{SPLITS}"
        try:
            Path(folder).mkdir()
        except OSError as error:
            raise missing_or_translated(error, "make", folder) from error
        for number, file in self._files.items():
            try:
                make_sized(self._source_of(file), file.planned, staged_split(self._attempt, number))
            except GobblinError as error:
                file.failure = text_of(error)

    def take(
        self, part: SplitPart, staged: StagedFile | None, failure: FailureText | None
    ) -> tuple[StagedFile | None, FailureText | None] | None:
        """Hear of one part; returns what became of the whole file if it was the last, else None."""
        file = self._files[part.item.number]
        file.left -= 1
        if staged is not None:
            file.reported[part.number] = staged
        file.failure = file.failure or failure
        if file.left:
            return None
        if file.failure is not None:
            return None, file.failure
        try:
            return self._finish(file), None
        except GobblinError as error:
            return None, text_of(error)

    def _finish(self, file: _SplitFile) -> StagedFile:
        target = staged_split(self._attempt, file.item.number)
        found = [file.reported[part.number] for part in file.parts]
        for part, (size_bytes, inode, _mtime_ns, _checksum) in zip(file.parts, found, strict=True):
            if size_bytes != part.size_bytes or inode != found[0][1]:
                raise RetryableError(
                    f"part {part.number} of {target} has {size_bytes:,} bytes in another file, or not "
                    f"{part.size_bytes:,}",
                    path=target,
                )
        sums = [(checksum, size_bytes) for size_bytes, _inode, _mtime_ns, checksum in found if checksum is not None]
        checksum = combine_all(sums) if self._options.checksum else None
        if self._options.checksum and len(sums) != len(found):
            raise RetryableError(f"a part of {target} was reported without its checksum", path=target)
        return finish_parts(self._source_of(file), file.planned, target, checksum, self._options)

    def _source_of(self, file: _SplitFile) -> str:
        return f"{self._source_root}/{file.planned.origin}"


def staged_split(attempt: str, number: int) -> str:
    """The staged file of the item ``number``."""
    return f"{attempt}/{SPLITS}/{number}"


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
    """The number of results, without those about subdirectories, which exist only for failures."""
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
    """The place below the destination, that below the attempt, and whether it is a directory."""
    top = f"{writer}/{item.number}"
    if not item.is_directory:
        return item.path, top, False
    if entry == ITEM_ITSELF:
        return item.path, top, True
    if entry < ITEM_ITSELF:
        place = item.directories[ITEM_ITSELF - 1 - entry][0]
        return f"{item.path}/{place}" if item.path else place, f"{top}/{place}", True
    file = item.files[entry]
    return file.path, f"{top}/{item.place_of(file)}", False
