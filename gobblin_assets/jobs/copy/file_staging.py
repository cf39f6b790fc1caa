"""Staging of copies in an attempt's directories, by a transfer: on a disk, a mounted file system, or HDFS."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from gobblin_assets.commit.named_steps import DIRECTORIES, RETURNED, SLOTS
from gobblin_assets.errors import GobblinError, RetryableError
from gobblin_assets.fs.named_files import ClosedDirectories, NamedFiles, SteppedTimes
from gobblin_assets.fs.network_files import StagingFiles
from gobblin_assets.fs.posix_errors import families
from gobblin_assets.jobs.copy.checksums import compute_checksum, compute_stream
from gobblin_assets.jobs.copy.closed_directories import list_closed, open_closed
from gobblin_assets.jobs.copy.copied_files import CopiedFiles
from gobblin_assets.jobs.copy.copyable import NO_ATTRIBUTES, Attributes, CopyItem
from gobblin_assets.jobs.copy.transfer.bins import plan_bins
from gobblin_assets.jobs.copy.transfer.journal import JOURNAL_NAME, FinishedFile, read_lines
from gobblin_assets.jobs.copy.transfer.local import bins_max_of
from gobblin_assets.jobs.copy.transfer.spark_orders import ORDERS
from gobblin_assets.jobs.copy.transfer.transfer_port import FileResult, Transfer, TransferOrder
from gobblin_assets.jobs.copy.transfer.writing import finish_directory
from gobblin_assets.jobs.copy.worker import CopyTask
from gobblin_assets.model.files import FileIdentity


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
            on_progress=task.show_progress().tell,
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
    """By work guid. ``directories``: the newest first; a newer attempt took what it could from those before it.

    A directory that can't be read, or whose writes were lost, gives nothing.
    """
    found: dict[str, FinishedFile] = {}
    for directory in reversed(directories):
        try:
            found.update(_read_attempt(files, directory))
        except GobblinError as error:
            say(f"what an earlier attempt wrote is copied again: {error}")
    return found


def _read_attempt(files: NamedFiles, directory: str) -> Iterator[tuple[str, FinishedFile]]:
    standing = {each.path: each.identity for each in files.list_files(directory)}
    # A writer that died had synced nothing. After this, whoever reads a file from the disk reads what stays there.
    with files.durable_tree(directory, file_count=len(standing)):
        pass
    for journal in standing:
        writer, _, name = journal.rpartition("/")
        # Tries of Spark's tasks that the driver had not taken yet are writers too.
        if name != JOURNAL_NAME or writer.rpartition("/")[0] not in {directory, f"{directory}/{ORDERS}"}:
            continue
        with families("read", journal), files.open_input(journal) as stream:
            content = stream.read()
        for guid, line in read_lines(content):
            path = f"{writer}/{line.path}"
            if standing.get(path) == FileIdentity(line.size_bytes, line.inode, line.mtime_ns):
                yield guid, line._replace(path=path)
