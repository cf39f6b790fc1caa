"""Staging of copies in an attempt's directories, by a transfer: on a disk, a mounted file system, or HDFS.

A plan may have a million files. So the facts of a file that is published by itself are elements of a few arrays.
Outputs are made when a destination asks for them, some thousands of files at a time.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from gobblin_assets.commit.attempts import SLOTS
from gobblin_assets.destinations.fixed_names.named_outputs import (
    ClosedDirectory,
    DirectoryAtName,
    DirectoryToClear,
    FilesAtNames,
    FilesToRemove,
    NamedOutput,
    ParentDirectory,
)
from gobblin_assets.destinations.fixed_names.named_steps import DIRECTORIES, RETURNED
from gobblin_assets.errors import GobblinError, RetryableError
from gobblin_assets.fs.named_files import ClosedDirectories, NamedFiles, SteppedTimes
from gobblin_assets.fs.network_files import StagingFiles
from gobblin_assets.fs.posix_errors import families
from gobblin_assets.jobs.copy.checksums import compute_checksum, compute_stream
from gobblin_assets.jobs.copy.closed_directories import list_closed, open_closed
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import NO_ATTRIBUTES, Attributes, CopyItem
from gobblin_assets.jobs.copy.transfer.bins import plan_bins
from gobblin_assets.jobs.copy.transfer.journal import JOURNAL_NAME, FinishedFile, read_lines
from gobblin_assets.jobs.copy.transfer.local import bins_max_of
from gobblin_assets.jobs.copy.transfer.spark_task import ORDERS
from gobblin_assets.jobs.copy.transfer.transfer_port import FileResult, Transfer, TransferOrder
from gobblin_assets.jobs.copy.transfer.writing import finish_directory
from gobblin_assets.jobs.copy.worker import CopyTask
from gobblin_assets.model.files import DataFile, FileIdentity, IdentityColumns

FILES_PER_OUTPUT_MAX: Final = 10_000
"""As many as a segment of the log has at most."""

_NOBODY: Final = -1


class CopiedFiles:
    """The staged files of one plan. Iterating gives the outputs, the same ones each time.

    ``latest_ns``: the latest time of what was staged, in nanoseconds. ``left_out``: items that changed while they were
    copied, by number with their paths. ``closed``: directories that are opened before all else, and closed behind it.
    """

    def __init__(self, plan: CopyPlan) -> None:
        self.latest_ns = 0
        self.left_out: dict[int, str] = {}
        self.closed: tuple[ClosedDirectory, ...] = ()
        self._plan = plan
        places = range(1 + max((item.number for item in plan.items), default=0))
        # By the number of the item: its writer, and what it staged.
        self._writer = array("i", [_NOBODY]) * len(places)
        self._size_bytes = array("q", [0]) * len(places)
        self._inode = array("Q", [0]) * len(places)
        self._mtime_ns = array("q", [0]) * len(places)
        self._checksum = array("q", [_NOBODY]) * len(places)
        self._writers: dict[str, int] = {}
        self._names: list[str] = []
        self._of_directories: dict[int, list[FileResult]] = {
            item.number: [] for item in plan.items if item.is_directory
        }

    def add(self, result: FileResult) -> None:
        """A file or directory that was copied. RetryableError if its identity is not known."""
        identity, number = result.identity, result.item
        if identity is None or identity.inode is None:
            raise _unreported(result.path)
        self.latest_ns = max(self.latest_ns, identity.mtime_ns or 0)
        if (found := self._of_directories.get(number)) is not None:
            found.append(result)
            return
        if identity.mtime_ns is None:
            raise _unreported(result.path)
        self._size_bytes[number] = identity.size_bytes
        self._inode[number] = identity.inode
        self._mtime_ns[number] = identity.mtime_ns
        self._checksum[number] = _NOBODY if result.checksum is None else result.checksum
        name = _writer_of(result)
        if name not in self._writers:
            self._writers[name] = len(self._names)
            self._names.append(name)
        self._writer[number] = self._writers[name]

    def require_all(self) -> None:
        """RetryableError unless every file of the plan was reported."""
        for item in self._plan.items:
            if item.is_directory:
                reported = self._of_directories[item.number]
                count = sum(not each.is_directory for each in reported)
                if count != len(item.files) or count == len(reported):
                    raise _missing(item, count)
            elif self._writer[item.number] == _NOBODY and item.number not in self.left_out:
                raise _missing(item, 0)

    def list_inodes(self) -> Iterator[int]:
        """The inodes of all files that were copied."""
        for results in self._of_directories.values():
            yield from (_identity_of(each).inode or 0 for each in results if not each.is_directory)
        for writer, inode in zip(self._writer, self._inode, strict=True):
            if writer != _NOBODY:
                yield inode

    def list_directories(self) -> Iterator[tuple[int, str]]:
        """The number of each item that is a directory, and its place below the attempt."""
        for number, results in self._of_directories.items():
            yield from ((number, each.staged_path) for each in results if each.is_directory)

    def list_checksums(self) -> Iterator[tuple[str, str, int | None]]:
        """The place below the destination, that below the attempt, and the CRC32C of each file."""
        for item in self._plan.items:
            if item.is_directory:
                yield from ((each.path, each.staged_path, each.checksum) for each in self._files_of(item))
            elif item.number not in self.left_out:
                checksum = self._checksum[item.number]
                staged_path = f"{self._names[self._writer[item.number]]}/{item.number}"
                yield item.path, staged_path, None if checksum == _NOBODY else checksum

    def __iter__(self) -> Iterator[NamedOutput]:
        plan = self._plan
        for number, path, _desired in plan.directories:
            yield ParentDirectory(number, path)
        for start in range(0, len(plan.items), FILES_PER_OUTPUT_MAX):
            yield from self._describe(plan.items[start : start + FILES_PER_OUTPUT_MAX])
        if not self.left_out:
            yield from _describe_removals(plan.removals, make_way=False)
        cleared = [each for each in plan.cleared_files if not self._is_kept(each[1])]
        yield from _describe_removals(cleared, make_way=True)
        for number, path in plan.cleared_directories:
            if not self._is_kept(path):
                yield DirectoryToClear(number, path)
        yield from self.closed

    def _is_kept(self, path: str) -> bool:
        """Whether what gives way at the path, or above it, is left out, so that nothing has to."""
        return any(path == name or path.startswith(f"{name}/") for name in self.left_out.values())

    def _describe(self, items: Sequence[CopyItem]) -> Iterator[NamedOutput]:
        replaced, metadata = self._plan.replaced, self._plan.metadata
        files = []
        for item in items:
            if item.is_directory:
                yield self._describe_directory(item)
            elif item.number not in self.left_out and not (self.left_out and item.number in metadata):
                files.append(item)
        for is_metadata in (False, True):
            some = [item for item in files if (item.number in metadata) is is_metadata]
            new = [item for item in some if item.number not in replaced]
            if new:
                yield self._describe_files(new, None, is_metadata=is_metadata)
            if len(some) > len(new):
                changed = [item for item in some if item.number in replaced]
                old = IdentityColumns.of([replaced[item.number] for item in changed])
                yield self._describe_files(changed, old, is_metadata=is_metadata)

    def _describe_files(
        self, items: Sequence[CopyItem], old: IdentityColumns | None, *, is_metadata: bool
    ) -> FilesAtNames:
        numbers = [item.number for item in items]
        identities = IdentityColumns(
            _choose(self._size_bytes, numbers),
            _choose(self._inode, numbers),
            _choose(self._mtime_ns, numbers),
            [None] * len(numbers),
        )
        names = self._names
        writers = [names[writer] for writer in _choose(self._writer, numbers)]
        return FilesAtNames(numbers, [item.path for item in items], writers, identities, old, is_metadata)

    def _describe_directory(self, item: CopyItem) -> DirectoryAtName:
        results = self._of_directories[item.number]
        (directory,) = [each for each in results if each.is_directory]
        writer = _writer_of(directory)
        start = len(f"{writer}/{item.number}/")
        names = sorted((each.staged_path[start:], _identity_of(each)) for each in self._files_of(item))
        inode = _identity_of(directory).inode
        if inode is None:
            raise _unreported(item.path)
        files = tuple(DataFile(name, identity, 0) for name, identity in names)
        is_metadata = item.number in self._plan.metadata
        return DirectoryAtName(item.number, item.path, writer, inode, files, is_metadata)

    def _files_of(self, item: CopyItem) -> list[FileResult]:
        return [each for each in self._of_directories[item.number] if not each.is_directory]


def _describe_removals(removals: Sequence[tuple[int, str, FileIdentity]], *, make_way: bool) -> Iterator[FilesToRemove]:
    for start in range(0, len(removals), FILES_PER_OUTPUT_MAX):
        some = removals[start : start + FILES_PER_OUTPUT_MAX]
        yield FilesToRemove(
            [number for number, _path, _identity in some],
            [path for _number, path, _identity in some],
            IdentityColumns.of([identity for _number, _path, identity in some]),
            make_way,
        )


def _choose(column: "array[int]", numbers: Sequence[int]) -> "array[int]":
    """Most often, all that follow each other."""
    first, end = numbers[0], numbers[-1] + 1
    if end - first == len(numbers) and numbers == list(range(first, end)):
        return column[first:end]
    return array(column.typecode, [column[number] for number in numbers])


def _writer_of(result: FileResult) -> str:
    return result.staged_path.partition("/")[0]


def _identity_of(result: FileResult) -> FileIdentity:
    if result.identity is None:
        raise _unreported(result.path)
    return result.identity


def _unreported(path: str) -> RetryableError:
    return RetryableError(f"{path} was reported without an identity")


def _missing(item: CopyItem, reported: int) -> RetryableError:
    return RetryableError(f"{item.path}: {len(item.files)} files were planned, and {reported} were reported")


class FileStaging:
    """``CopyStaging`` by any transfer.

    ``rereads``: whether each copy is read again and compared by its CRC32C. ``journals``: whether writers leave what a
    later attempt needs to use their files.
    """

    def __init__(
        self, files: NamedFiles, transfer: Transfer, *, workers: int, rereads: bool, journals: bool = False
    ) -> None:
        self._files = files
        self._transfer = transfer
        self._workers = workers
        self._rereads = rereads
        self._journals = journals

    def describe_interruption(self, tag: str, items: Sequence[CopyItem]) -> Mapping[str, object] | None:
        return self._transfer.describe_interruption(tag, items)

    def cancel(self, tag: str) -> None:
        self._transfer.cancel(tag)

    def stage(self, task: CopyTask) -> CopiedFiles | None:
        files, attempt, planned = self._files, task.order.directory, task.plan
        files.make_directories(attempt)
        made = files.find_entry(attempt) if planned.closed else None
        task.plan = plan = open_closed(planned, made, partial(self._can_change_closed, attempt))
        file_count = plan.file_count + len(plan.directories)
        with files.durable_tree(attempt, file_count=file_count):
            for name in (SLOTS, RETURNED, DIRECTORIES):
                files.make_directory(f"{attempt}/{name}")
            for number, _path, desired in plan.directories:
                _make_directory(files, f"{attempt}/{DIRECTORIES}/{number}", desired)
            copied = self._copy(task)
        if isinstance(files, ClosedDirectories):
            staged = {number: f"{attempt}/{DIRECTORIES}/{number}" for number, _path, _desired in plan.directories}
            staged |= {number: f"{attempt}/{place}" for number, place in copied.list_directories()}
            copied.closed = tuple(list_closed(planned, plan, files, staged))
        if self._rereads:
            # Only what was synced can be read from the disk.
            self._read_again(attempt, copied)
        return None if plan.is_empty else copied

    def _copy(self, task: CopyTask) -> CopiedFiles:
        """All files and directories. Raises if one of them failed, or was not reported."""
        order, plan = task.order, task.plan
        bins = plan_bins(plan.items, bins_max_of(self._workers), plan.split_bytes) if plan.items else ()
        for found in bins:
            self._files.make_directory(f"{order.directory}/{found.writer}")
        journals = self._journals and plan.may_be_reused
        finished = find_finished(self._files, order.leftovers, task.say) if plan.may_be_reused else {}
        transfer_order = TransferOrder(
            source_root=plan.source_root,
            attempt=self._files.to_uri(order.directory) if isinstance(self._files, StagingFiles) else order.directory,
            bins=bins,
            workers=self._workers,
            tag=order.tag,
            checksum=self._rereads or journals,
            preserve=plan.preserve,
            on_progress=task.show_progress().report,
            follows_links=plan.follows_links,
            split_bytes=plan.split_bytes,
            journals=journals,
            finished=finished,
            converters=plan.converters,
        )
        task.wait_for_ticks(partial(self._find_time_step, order.directory))
        copied = CopiedFiles(plan)
        failed: list[FileResult] = []
        for batch in self._transfer_at_rate(task, transfer_order) if bins else ():
            for each in batch:
                if each.failure is None:
                    copied.add(each)
                else:
                    failed.append(each)
        self._settle_taken(task, finished, copied)
        task.settle(failed)
        copied.left_out = task.left_out
        copied.require_all()
        task.wait_for_tick(copied.latest_ns)
        return copied

    def _transfer_at_rate(self, task: CopyTask, order: TransferOrder) -> Iterator[tuple[FileResult, ...]]:
        with task.share_rate(partial(self._transfer.cancel, order.tag)) as rate:
            yield from self._transfer.copy(replace(order, rate=rate))

    def _find_time_step(self, directory: str) -> int:
        return self._files.find_time_step(directory) if isinstance(self._files, SteppedTimes) else 1

    def _can_change_closed(self, directory: str) -> bool:
        return isinstance(self._files, ClosedDirectories) and self._files.can_change_closed(directory)

    def _settle_taken(self, task: CopyTask, finished: Mapping[str, FinishedFile], copied: CopiedFiles) -> None:
        """Say what was taken from earlier attempts, and make it durable that it is no longer there."""
        by_inode = {each.inode: each for each in finished.values()}
        taken = [by_inode[inode] for inode in copied.list_inodes() if inode in by_inode] if by_inode else []
        if taken:
            self._files.sync_directories({each.path.rpartition("/")[0] for each in taken})
            reused = f"{len(taken):,} of {task.plan.file_count:,} files were there from an earlier attempt"
            task.notes.append(reused)
            task.say_named(reused)

    def _read_again(self, attempt: str, copied: CopiedFiles) -> None:
        for path, staged_path, checksum in copied.list_checksums():
            if self._checksum_of(f"{attempt}/{staged_path}") != checksum:
                raise RetryableError(f"{path} was written, and reads differently", hint="Look at the disk.", path=path)

    def _checksum_of(self, path: str) -> int:
        if isinstance(self._files, StagingFiles):
            with self._files.open_input(path) as stream:
                return compute_stream(stream)
        return compute_checksum(path, from_disk=True)


def _make_directory(files: NamedFiles, path: str, desired: Attributes) -> None:
    """Nobody sees it before it is published, so its owner and mode may be set after it was made."""
    if not files.make_directory(path):
        raise RetryableError(f"{path} is there already, and only this attempt makes it", path=path)
    if isinstance(files, StagingFiles):
        files.set_attributes(path, desired.mode, None, desired.placement)
        return
    # What is published into it changes its time.
    kept = desired._replace(mtime_ns=None)
    if kept != NO_ATTRIBUTES:
        finish_directory(path, kept)


def find_finished(files: NamedFiles, directories: Sequence[str], say: Callable[[str], None]) -> dict[str, FinishedFile]:
    """The finished files by work guid.

    ``directories``: the newest first; a newer attempt took what it could from those before it. A directory that can't
    be read, or whose writes were lost, gives nothing.
    """
    found: dict[str, FinishedFile] = {}
    for directory in reversed(directories):
        try:
            found.update(_read_attempt(files, directory))
        except GobblinError as error:
            say(f"what an earlier attempt wrote is copied again: {error}")
    return found


def _read_attempt(files: NamedFiles, directory: str) -> Iterator[tuple[str, FinishedFile]]:
    listed = {each.path: each.identity for each in files.list_files(directory)}
    # A writer that died had synced nothing. After this, whoever reads a file from the disk reads what stays there.
    with files.durable_tree(directory, file_count=len(listed)):
        pass
    for journal in listed:
        writer, _, name = journal.rpartition("/")
        # Tries of Spark's tasks that the driver had not taken yet are writers too.
        if name != JOURNAL_NAME or writer.rpartition("/")[0] not in {directory, f"{directory}/{ORDERS}"}:
            continue
        with families("read", journal), files.open_input(journal) as stream:
            content = stream.read()
        for guid, line in read_lines(content):
            path = f"{writer}/{line.path}"
            if listed.get(path) == FileIdentity(line.size_bytes, line.inode, line.mtime_ns):
                yield guid, line._replace(path=path)
