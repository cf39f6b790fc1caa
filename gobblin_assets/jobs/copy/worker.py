"""Does the plans of copies: makes an attempt's places, lets the transfer write into them, and reports what is there."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from gobblin_assets.commit.named_steps import DIRECTORIES, RETURNED, SLOTS
from gobblin_assets.errors import CorruptionError, ErrorFamily, GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.named_files import ClosedDirectories, NamedFiles, SteppedTimes
from gobblin_assets.fs.posix_errors import families
from gobblin_assets.fs.posix_tree import entry_of
from gobblin_assets.fs.source_trees import open_ranged
from gobblin_assets.fs.staging import StagingFiles
from gobblin_assets.fs.tree import EntryKind
from gobblin_assets.jobs.copy.checksums import compute_checksum, compute_stream
from gobblin_assets.jobs.copy.closed_directories import list_closed, open_closed
from gobblin_assets.jobs.copy.copied_files import CopiedFiles
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import NO_ATTRIBUTES, Attributes, CopyItem
from gobblin_assets.jobs.copy.tick_waits import wait_for_tick, wait_for_ticks
from gobblin_assets.jobs.copy.transfer.bins import plan_bins
from gobblin_assets.jobs.copy.transfer.journal import JOURNAL_NAME, FinishedFile, read_lines
from gobblin_assets.jobs.copy.transfer.local import bins_max_of
from gobblin_assets.jobs.copy.transfer.port import FileResult, Transfer, TransferOrder, TransferProgress
from gobblin_assets.jobs.copy.transfer.rates import SharedCopyRate
from gobblin_assets.jobs.copy.transfer.spark_orders import ORDERS
from gobblin_assets.jobs.copy.transfer.writing import finish_directory
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.passing_lines import PassingLine
from gobblin_assets.model.urn import Role
from gobblin_assets.model.wording import count_of
from gobblin_assets.run.job_kind import Output, Staged, UnitPlan, WorkOrder
from gobblin_assets.run.progress import LINE_EVERY_S, MIB

FAILURES_NAMED_MAX: Final = 5

_MAY_BE_TRIED_AGAIN: Final = frozenset({ErrorFamily.RETRYABLE, ErrorFamily.OUTCOME_UNKNOWN})


class CopyWorker:
    """``Worker`` with any transfer.

    ``rereads``: whether each copy is read again and compared by its CRC32C. ``journals``: whether writers leave what a
    later attempt needs to use their files. ``rate``: of which each copy takes a share; None: no limit.
    """

    def __init__(
        self,
        files: NamedFiles,
        transfer: Transfer,
        clock: Clock,
        say: Callable[[str], None],
        *,
        workers: int,
        rereads: bool,
        rate: SharedCopyRate | None = None,
        journals: bool = False,
    ) -> None:
        self._files = files
        self._transfer = transfer
        self._clock = clock
        self._say = say
        self._workers = workers
        self._rereads = rereads
        self._rate = rate
        self._journals = journals

    def describe_interruption(self, tag: str, plans: Sequence[UnitPlan]) -> Mapping[str, object] | None:
        items = [item for plan in plans for item in copy_plan_of(plan).items]
        return self._transfer.describe_interruption(tag, items)

    def cancel(self, tag: str) -> None:
        if self._rate is not None:
            self._rate.cancel(tag)
        self._transfer.cancel(tag)

    def do_together(self, orders: Sequence[WorkOrder]) -> Sequence[Staged]:
        return [self.do(order) for order in orders]

    def do(self, order: WorkOrder) -> Staged:
        plan = copy_plan_of(order.plan)
        if not order.units:
            return Staged((), rows_read=0)
        files, attempt = self._files, order.directory
        files.make_directories(attempt)
        made = files.find_entry(attempt) if plan.closed else None
        planned, plan = plan, open_closed(plan, made, partial(self._can_change_closed, attempt))
        file_count = plan.file_count + len(plan.directories)
        with files.durable_tree(attempt, file_count=file_count):
            for name in (SLOTS, RETURNED, DIRECTORIES):
                files.make_directory(f"{attempt}/{name}")
            for number, _path, desired in plan.directories:
                _make_directory(files, f"{attempt}/{DIRECTORIES}/{number}", desired)
            copied = self._copy(order, plan)
        if isinstance(files, ClosedDirectories):
            staged = {number: f"{attempt}/{DIRECTORIES}/{number}" for number, _path, _desired in plan.directories}
            staged |= {number: f"{attempt}/{place}" for number, place in copied.list_directories()}
            copied.closed = tuple(list_closed(planned, plan, files, staged))
        if self._rereads:
            # Only what was synced can be read from the disk.
            self._read_again(attempt, copied)
        outputs = () if plan.is_empty else (Output(Role.DATA, attempt, "", (), copied),)
        degraded = describe_changed_files(copied.left_out.values())
        return Staged(outputs, rows_read=0, notes=tuple(copied.notes), degraded=degraded)

    def _copy(self, order: WorkOrder, plan: CopyPlan) -> CopiedFiles:
        """All files and directories. Raises if one of them failed, or was not reported."""
        bins = plan_bins(plan.items, bins_max_of(self._workers), plan.split_bytes) if plan.items else ()
        for found in bins:
            self._files.make_directory(f"{order.directory}/{found.writer}")
        journals = self._journals and plan.may_be_reused
        finished = find_finished(self._files, order.leftovers, self._say) if plan.may_be_reused else {}
        transfer_order = TransferOrder(
            source_root=plan.source_root,
            attempt=self._files.to_uri(order.directory) if isinstance(self._files, StagingFiles) else order.directory,
            bins=bins,
            workers=self._workers,
            tag=order.tag,
            checksum=self._rereads or journals,
            preserve=plan.preserve,
            on_progress=CopyLines(order.plan.urn, plan, self._clock, self._say).tell,
            follows_links=plan.follows_links,
            split_bytes=plan.split_bytes,
            journals=journals,
            finished=finished,
            converters=plan.converters,
        )
        ahead = wait_for_ticks(plan, self._clock, self._say, partial(self._find_time_step, order.directory))
        copied = CopiedFiles(plan, ahead)
        failed: list[FileResult] = []
        for batch in self._transfer_at_rate(transfer_order) if bins else ():
            for each in batch:
                if each.failure is None:
                    copied.add(each)
                else:
                    failed.append(each)
        self._settle_taken(order, plan, finished, copied)
        copied.left_out = find_changed(plan, failed)
        failed = [each for each in failed if each.item not in copied.left_out]
        if failed:
            raise failure_of_files(failed)
        for line in describe_changed_files(copied.left_out.values()):
            self._say(f"{order.plan.urn}: {line}")
        copied.require_all()
        wait_for_tick(copied.latest_ns, self._clock)
        return copied

    def _find_time_step(self, directory: str) -> int:
        return self._files.find_time_step(directory) if isinstance(self._files, SteppedTimes) else 1

    def _can_change_closed(self, directory: str) -> bool:
        return isinstance(self._files, ClosedDirectories) and self._files.can_change_closed(directory)

    def _transfer_at_rate(self, order: TransferOrder) -> Iterator[tuple[FileResult, ...]]:
        if self._rate is None:
            yield from self._transfer.copy(order)
            return
        with self._rate.share(order.tag, lambda: self._transfer.cancel(order.tag)) as rate:
            yield from self._transfer.copy(replace(order, rate=rate))

    def _settle_taken(
        self,
        order: WorkOrder,
        plan: CopyPlan,
        finished: Mapping[str, FinishedFile],
        copied: CopiedFiles,
    ) -> None:
        """Say what was taken from earlier attempts, and make it durable that it is no longer there."""
        by_inode = {each.inode: each for each in finished.values()}
        taken = [by_inode[inode] for inode in copied.list_inodes() if inode in by_inode] if by_inode else []
        if taken:
            self._files.sync_directories({each.path.rpartition("/")[0] for each in taken})
            reused = f"{len(taken):,} of {plan.file_count:,} files were there from an earlier attempt"
            copied.notes.append(reused)
            self._say(f"{order.plan.urn}: {reused}")

    def _read_again(self, attempt: str, copied: CopiedFiles) -> None:
        for path, staged_path, checksum in copied.list_checksums():
            if self._checksum_of(f"{attempt}/{staged_path}") != checksum:
                raise RetryableError(f"{path} was written, and reads differently", hint="Look at the disk.", path=path)

    def _checksum_of(self, path: str) -> int:
        if isinstance(self._files, StagingFiles):
            with self._files.open_input(path) as stream:
                return compute_stream(stream)
        return compute_checksum(path, from_disk=True)


def copy_plan_of(plan: UnitPlan) -> CopyPlan:
    """The payload of a copy's plan."""
    found: CopyPlan = plan.payload
    return found


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


def find_changed(plan: CopyPlan, failed: Sequence[FileResult]) -> dict[int, str]:
    """The failed items, by number with their paths, that are left out because their origins changed meanwhile."""
    numbers = {each.item for each in failed} if plan.leaves_out_changed else set()
    items = [item for item in plan.items if item.number in numbers] if numbers else []
    return {item.number: item.path for item in items if not item.is_directory and has_changed(plan, item)}


def describe_changed_files(paths: Collection[str]) -> tuple[str, ...]:
    """A sentence for people, if there are any."""
    if not paths:
        return ()
    shown = ", ".join(sorted(paths)[:FAILURES_NAMED_MAX])
    more = f" and {len(paths) - FAILURES_NAMED_MAX:,} more" if len(paths) > FAILURES_NAMED_MAX else ""
    files = count_of(len(paths), "file", "files")
    said = (
        f"{files} of the source changed while they were copied, and are left to a later run, with metadata and removals"
    )
    return (f"{said}: {shown}{more}",)


def failure_of_files(failed: Sequence[FileResult]) -> GobblinError:
    """One error for all files that failed: the gravest. What is only staged may be tried again, happened or not."""
    failures = [each.failure for each in failed if each.failure is not None]
    shown = "; ".join(f"{each.path}: {each.failure.message}" for each in failed[:FAILURES_NAMED_MAX] if each.failure)
    more = f" and {len(failures) - FAILURES_NAMED_MAX:,} more" if len(failures) > FAILURES_NAMED_MAX else ""
    message = f"{len(failures):,} files could not be copied: {shown}{more}"
    families = {failure.family for failure in failures}
    if ErrorFamily.CORRUPTION in families:
        return CorruptionError(message, hint="Nothing of this file set was published.")
    if families <= _MAY_BE_TRIED_AGAIN:
        return RetryableError(message, hint="Nothing of this file set was published.")
    return RejectedError(message, field="source", hint="Nothing of this file set was published. Correct these files.")


class CopyLines:
    """Progress of one copy, at most a line every few seconds."""

    def __init__(self, label: str, plan: CopyPlan, clock: Clock, say: Callable[[str], None]) -> None:
        self._label = label
        self._file_count, self._size_bytes = plan.file_count, plan.size_bytes
        self._clock = clock
        self._say = say
        self._started_s = self._said_s = clock.monotonic()

    def tell(self, progress: TransferProgress) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._said_s < LINE_EVERY_S:
            return
        self._said_s = now_s
        elapsed_s = now_s - self._started_s
        rate = progress.moved_bytes / elapsed_s
        left = f", about {(self._size_bytes - progress.moved_bytes) / rate:.0f} s left" if rate else ""
        files = f"{self._label}: {progress.files:,} of {self._file_count:,} files"
        moved = f"{progress.moved_bytes / MIB:,.1f} of {self._size_bytes / MIB:,.1f} MiB, {rate / MIB:,.1f} MiB/s"
        self._say(PassingLine(f"{files}, {moved}, {elapsed_s:.0f} s{left}"))


def has_changed(plan: CopyPlan, item: CopyItem) -> bool:
    """Whether the origin of an item of one file is gone, or another version now."""
    (file,) = item.files
    place = f"{plan.source_root}/{file.origin}"
    if not place.startswith("/"):
        files, path = open_ranged(place, "source", follow_links=plan.follows_links)
        found = files.find_file(path)
        return found is None or not found.matches(file.identity)
    try:
        entry = entry_of(file.origin, os.stat(place, follow_symlinks=plan.follows_links))  # noqa: PTH116  one call
    except (FileNotFoundError, NotADirectoryError):
        return True
    return entry.kind is not EntryKind.FILE or not entry.identity.matches(file.identity)


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
