"""The worker of copies: it waits for ticks, has a plan's files staged at a rate, and reports what became of them.

The port ``CopyStaging`` stages them: in directories by a transfer (``file_staging``), or in an object store as uploads
(``uploading``).
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from gobblin_assets.errors import CorruptionError, ErrorFamily, GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.posix_tree import entry_of
from gobblin_assets.fs.registry import open_ranged
from gobblin_assets.fs.tree import EntryKind
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import CopyItem, PackedOrigin, PlannedFile
from gobblin_assets.jobs.copy.sameness import (
    AHEAD_NS_MAX,
    PRECISION_NS_MAX,
    TICK_NS_MAX,
    is_tick_over,
    nanoseconds_of,
    tick_end,
)
from gobblin_assets.jobs.copy.transfer.rates import SharedCopyRate
from gobblin_assets.jobs.copy.transfer.transfer_port import UNLIMITED, FileResult, Rate, TransferProgress
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.urn import Role
from gobblin_assets.model.wording import PassingLine, count_of
from gobblin_assets.run.job_kind import Output, Staged, UnitPlan, WorkOrder
from gobblin_assets.run.progress import LINE_EVERY_S, MIB

FAILURES_NAMED_MAX: Final = 5

_MAY_BE_TRIED_AGAIN: Final = frozenset({ErrorFamily.RETRYABLE, ErrorFamily.OUTCOME_UNKNOWN})
_S_NS: Final = 1_000_000_000


class CopyTask:
    """A copy that is under way: its order and plan, and what is to be reported of it.

    ``notes``: sentences for the run's log. ``left_out``: items that changed while they were copied, by number with
    their paths.
    """

    def __init__(
        self, order: WorkOrder, plan: CopyPlan, clock: Clock, say: Callable[[str], None], rate: SharedCopyRate | None
    ) -> None:
        self.order = order
        self.plan = plan
        self.notes: list[str] = []
        self.left_out: dict[int, str] = {}
        self.say = say
        self._clock = clock
        self._rate = rate

    @property
    def degraded(self) -> tuple[str, ...]:
        return _describe_changed_files(self.left_out.values())

    def say_named(self, line: str) -> None:
        """A line for people, behind the dataset's name."""
        self.say(f"{self.order.plan.urn}: {line}")

    def show_progress(self) -> "CopyLines":
        return CopyLines(self.order.plan.urn, self.plan, self._clock, self.say)

    def wait_for_ticks(self, find_step: Callable[[], int]) -> None:
        """Wait until the times of the plan's files are over, and note whose clock is ahead. ``find_step``: as below."""
        self.notes += wait_for_ticks(self.plan, self._clock, self.say, find_step)

    def wait_for_tick(self, time_ns: int) -> None:
        wait_for_tick(time_ns, self._clock)

    @contextmanager
    def share_rate(self, stop: Callable[[], None]) -> Iterator[Rate]:
        """The rate of this copy for the block. ``stop`` is called from another thread if the share is lost."""
        if self._rate is None:
            yield UNLIMITED
            return
        with self._rate.share(self.order.tag, stop) as rate:
            yield rate

    def settle(self, failed: Sequence[FileResult]) -> None:
        """Leave out what changed meanwhile, if the plan allows it, and say so. Raises for all others that failed."""
        self.left_out = _find_changed(self.plan, failed)
        others = [each for each in failed if each.item not in self.left_out]
        if others:
            raise failure_of_files(others)
        for line in self.degraded:
            self.say_named(line)


class CopyStaging(Protocol):
    """The place where copies are staged: directories of a file system, or uploads to an object store."""

    def stage(self, task: CopyTask) -> Iterable[object] | None:
        """Stage all that the task's plan publishes, and settle what failed; returns what the destination publishes.

        None: there is nothing to publish.
        """
        ...

    def describe_interruption(self, tag: str, items: Sequence[CopyItem]) -> Mapping[str, object] | None:
        """As of a ``Transfer``."""
        ...

    def cancel(self, tag: str) -> None:
        """As of a ``Transfer``."""
        ...


class CopyWorker:
    """``Worker`` of copies. ``rate``: each copy takes a share of it; None: no limit."""

    def __init__(
        self, staging: CopyStaging, clock: Clock, say: Callable[[str], None], rate: SharedCopyRate | None = None
    ) -> None:
        self._staging = staging
        self._clock = clock
        self._say = say
        self._rate = rate

    def describe_interruption(self, tag: str, plans: Sequence[UnitPlan]) -> Mapping[str, object] | None:
        items = [item for plan in plans for item in copy_plan_of(plan).items]
        return self._staging.describe_interruption(tag, items)

    def cancel(self, tag: str) -> None:
        if self._rate is not None:
            self._rate.cancel(tag)
        self._staging.cancel(tag)

    def do_together(self, orders: Sequence[WorkOrder]) -> Sequence[Staged]:
        return [self.do(order) for order in orders]

    def do(self, order: WorkOrder) -> Staged:
        if not order.units:
            return Staged((), rows_read=0)
        task = CopyTask(order, copy_plan_of(order.plan), self._clock, self._say, self._rate)
        outputs = self._staging.stage(task)
        staged = () if outputs is None else (Output(Role.DATA, order.directory, "", (), outputs),)
        return Staged(staged, rows_read=0, notes=tuple(task.notes), degraded=task.degraded)


def copy_plan_of(plan: UnitPlan) -> CopyPlan:
    """The payload of a copy's plan."""
    found: CopyPlan = plan.payload
    return found


def _find_changed(plan: CopyPlan, failed: Sequence[FileResult]) -> dict[int, str]:
    """The failed items, by number with their paths, that are left out because their origins changed meanwhile."""
    numbers = {each.item for each in failed} if plan.leaves_out_changed else set()
    items = [item for item in plan.items if item.number in numbers] if numbers else []
    return {item.number: item.path for item in items if not item.is_directory and _has_changed(plan, item)}


def _describe_changed_files(paths: Collection[str]) -> tuple[str, ...]:
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


def _has_changed(plan: CopyPlan, item: CopyItem) -> bool:
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


class CopyLines:
    """Progress of one copy, at most a line every few seconds."""

    def __init__(self, label: str, plan: CopyPlan, clock: Clock, say: Callable[[str], None]) -> None:
        self._label = label
        self._file_count, self._size_bytes = plan.file_count, plan.size_bytes
        self._clock = clock
        self._say = say
        self._started_s = self._said_s = clock.monotonic()

    def report(self, progress: TransferProgress) -> None:
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


@dataclass(slots=True)
class _Ticks:
    """The ticks of a plan's files, by the clock of one moment. ``end_ns``: when all are over that somebody may wait
    for.

    ``fresh_count``: the files that are waited for. ``ahead``: the path of one whose clock is far ahead, of so many.
    """

    now_ns: int
    precision_ns: int
    is_far: bool
    end_ns: int = 0
    fresh_count: int = 0
    ahead: str = ""
    ahead_count: int = 0

    def look(self, file: PlannedFile) -> None:
        parts = file.conversion.parts if file.conversion is not None else ()
        origins: tuple[PlannedFile | PackedOrigin, ...] = (file, *parts)
        ends = [end for each in origins for end in self._ends_of(each)]
        if ends and max(ends) > self.now_ns:
            self.end_ns = max(self.end_ns, *ends)
            self.fresh_count += 1
        if any(self._is_ahead(each) for each in parts or (file,)):
            self.ahead = self.ahead or file.path
            self.ahead_count += 1

    def _is_ahead(self, origin: PlannedFile | PackedOrigin) -> bool:
        """A person may set a time, and nobody sets a ctime."""
        clocked_ns = origin.mtime_ns if origin.changed_ns is None else origin.changed_ns
        return clocked_ns is not None and clocked_ns > self.now_ns + AHEAD_NS_MAX

    def _ends_of(self, origin: PlannedFile | PackedOrigin) -> Iterator[int]:
        """Only the mtime is compared with that of a copy."""
        for time_ns, precision_ns in ((origin.mtime_ns, self.precision_ns), (origin.changed_ns, 1)):
            if time_ns is not None and self.now_ns - TICK_NS_MAX < time_ns <= self.now_ns + AHEAD_NS_MAX:
                yield tick_end(time_ns, precision_ns, is_far=self.is_far)


def wait_for_ticks(
    plan: CopyPlan, clock: Clock, say: Callable[[str], None], find_step: Callable[[], int]
) -> tuple[str, ...]:
    """Sleep until the times of the plan's files are over: some seconds at most, where files were written just now.

    ``find_step`` gives the destination's steps, in nanoseconds, and is asked only then. Returns what is to be noted of
    files whose clock is far ahead.
    """
    files = [file for item in plan.items for file in item.files]
    found = _look_at_all(files, plan, clock, PRECISION_NS_MAX)
    if found.fresh_count:
        found = _look_at_all(files, plan, clock, max(plan.mtime_precision_ns, find_step()))
        if found.end_ns - found.now_ns >= _S_NS:
            wait_s = (found.end_ns - found.now_ns) / _S_NS
            count = count_of(found.fresh_count, "file was", "files were")
            say(f"{count} written just now: waiting {wait_s:.1f} s, until a later version has another time")
        _sleep_until(found.end_ns, nanoseconds_of(clock.now()), clock)
    if not found.ahead_count:
        return ()
    have = count_of(found.ahead_count, "file has a time", "files have times")
    note = f"{have} ahead of this machine's clock, such as {found.ahead!a}: set the clocks, or changes may stay unseen"
    say(note)
    return (note,)


def wait_for_tick(time_ns: int, clock: Clock) -> None:
    """The same of one time that this machine's destination gave."""
    now_ns = nanoseconds_of(clock.now())
    if not is_tick_over(time_ns, now_ns, 1, is_far=False):
        _sleep_until(tick_end(time_ns), now_ns, clock)


def _sleep_until(end_ns: int, now_ns: int, clock: Clock) -> None:
    """Clocks tell microseconds: the next look shall not see the one before the end."""
    if end_ns > now_ns:
        clock.sleep((end_ns - now_ns + 1_000) / _S_NS)


def _look_at_all(files: Sequence[PlannedFile], plan: CopyPlan, clock: Clock, precision_ns: int) -> _Ticks:
    is_far = not plan.source_root.startswith("/")
    ticks = _Ticks(nanoseconds_of(clock.now()), precision_ns, is_far)
    for each in files:
        ticks.look(each)
    return ticks
