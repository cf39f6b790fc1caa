"""Does the plans of copies to an object store: stages each file as an upload that has all of its parts."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from gobblin_assets.commit.object_attempts import ID_KEY, MTIME_KEY, discard_attempt
from gobblin_assets.commit.object_steps import object_id
from gobblin_assets.commit.object_undo import make_mark
from gobblin_assets.destinations.object_outputs import NamedObject, ObjectAtName, ObjectToRemove, StagedUpload
from gobblin_assets.errors import ErrorFamily, GobblinError
from gobblin_assets.fs.objects import ObjectFiles
from gobblin_assets.fs.posix_ranged import open_posix_ranged
from gobblin_assets.fs.source_trees import open_ranged
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import CopyItem, PlannedFile
from gobblin_assets.jobs.copy.tick_waits import wait_for_ticks
from gobblin_assets.jobs.copy.transfer.pacing import ThreadPace
from gobblin_assets.jobs.copy.transfer.port import CopyFailure, FileResult, TransferProgress
from gobblin_assets.jobs.copy.transfer.rates import SharedCopyRate
from gobblin_assets.jobs.copy.uploading import OpenedFile, Pace, Uploading, UploadOrder, UploadResult, unlimited_pace
from gobblin_assets.jobs.copy.worker import (
    CopyLines,
    copy_plan_of,
    describe_changed_files,
    failure_of_files,
    find_changed,
)
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.job_kind import Output, Staged, UnitPlan, WorkOrder

OpenPlanned = Callable[[str, PlannedFile], OpenedFile]
"""The file at a full path of the source, as it was planned; links are followed if they were planned to be."""

REQUESTS_PER_WORKER: Final = 4
"""Requests that are under way at once, for each worker of the job: most of the time they wait for the store."""


def open_planned(plan: CopyPlan) -> OpenPlanned:
    """How the files of a plan are read: by ranges, from a local disk or from a store."""
    if plan.source_root.startswith("/"):
        return partial(_open_local, plan.follows_links)
    return partial(_open_remote, plan.follows_links)


def _open_local(follow_links: bool, path: str, planned: PlannedFile) -> OpenedFile:  # noqa: FBT001  bound by its caller
    return open_posix_ranged(path, planned.identity, planned.changed_ns, follow_links=follow_links)


def _open_remote(follow_links: bool, uri: str, planned: PlannedFile) -> OpenedFile:  # noqa: FBT001  bound by its caller
    files, path = open_ranged(uri, "source", follow_links=follow_links)
    return files.open_ranged(path, planned.identity)


@dataclass(frozen=True, slots=True)
class UploadWorker:
    """``Worker``. ``place_of``: a dataset's place in the store. ``open_planned`` makes the way to read a plan's files.

    ``requests``: how many are under way at once. ``rate``: of which each copy takes a share; None: no limit.
    """

    files: ObjectFiles
    place_of: Callable[[DatasetUrn], str]
    open_planned: Callable[[CopyPlan], OpenPlanned]
    clock: Clock
    say: Callable[[str], None]
    requests: int
    rate: SharedCopyRate | None = None
    _cancelled: set[str] = field(default_factory=set)

    def describe_interruption(self, tag: str, plans: Sequence[UnitPlan]) -> Mapping[str, object] | None:
        """The threads end with this process."""
        del tag, plans
        return None

    def cancel(self, tag: str) -> None:
        if self.rate is not None:
            self.rate.cancel(tag)
        self._cancelled.add(tag)

    def do_together(self, orders: Sequence[WorkOrder]) -> Sequence[Staged]:
        return [self.do(order) for order in orders]

    def do(self, order: WorkOrder) -> Staged:
        plan = copy_plan_of(order.plan)
        if not order.units:
            return Staged((), rows_read=0)
        notes = wait_for_ticks(plan, self.clock, self.say, lambda: 1)
        with self._pacing(order.tag) as pace:
            results, left_out = self._upload(order, plan, pace)
        degraded = describe_changed_files(left_out.values())
        for line in degraded:
            self.say(f"{order.plan.urn}: {line}")
        outputs = tuple(_describe(plan, results, left_out))
        staged = (Output(Role.DATA, order.directory, "", (), outputs),) if outputs else ()
        return Staged(staged, rows_read=0, notes=notes, degraded=degraded)

    @contextmanager
    def _pacing(self, tag: str) -> Iterator[Pace]:
        if self.rate is None:
            yield unlimited_pace
            return
        with self.rate.share(tag, partial(self._cancelled.add, tag)) as rate:
            yield ThreadPace(rate, partial(self._cancelled.__contains__, tag)).spend

    def _upload(
        self, order: WorkOrder, plan: CopyPlan, pace: Pace
    ) -> tuple[Mapping[int, UploadResult], Mapping[int, str]]:
        """What was uploaded by number, and the paths of what was left out, by number."""
        uploading = Uploading(
            self.files,
            order.directory,
            self.requests,
            _Moved(CopyLines(order.plan.urn, plan, self.clock, self.say)).add,
            partial(self._cancelled.__contains__, order.tag),
            pace,
        )
        try:
            results = uploading.run([*self._list_files(order, plan), *self._list_marks(order, plan)])
            left_out = _require_whole(plan, results)
        except GobblinError:
            # The store keeps the bytes of uploads until somebody aborts them; cleanup does, should this fail.
            with suppress(GobblinError):
                discard_attempt(self.files, order.directory, self.requests)
            raise
        return results, left_out

    def _list_files(self, order: WorkOrder, plan: CopyPlan) -> list[UploadOrder]:
        root, open_planned = self.place_of(order.plan.urn), self.open_planned(plan)
        return [
            UploadOrder(
                item.number,
                f"{root}/{item.path}",
                file.size_bytes,
                _metadata_of(order.directory, item),
                partial(open_planned, f"{plan.source_root}/{file.origin}", file),
            )
            for item in plan.items
            for file in item.files
        ]

    def _list_marks(self, order: WorkOrder, plan: CopyPlan) -> list[UploadOrder]:
        root = self.place_of(order.plan.urn)
        orders = []
        for number, path, _identity in plan.removals:
            mark = make_mark(f"{root}/{path}")
            metadata = {ID_KEY: object_id(order.directory, str(number))}
            orders.append(UploadOrder(number, f"{root}/{path}", len(mark), metadata, partial(_Bytes, mark)))
        return orders


@dataclass(frozen=True, slots=True)
class _Bytes:
    """``OpenedFile`` of bytes in memory."""

    content: bytes

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        return self.content[offset : offset + size_bytes]

    def close(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class _Moved:
    """Counts the bytes of all threads, and tells them. A small file is one part."""

    lines: CopyLines
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _moved_bytes: int = 0
    _parts: int = 0

    def add(self, size_bytes: int) -> None:
        with self._lock:
            self._moved_bytes += size_bytes
            self._parts += 1
            self.lines.tell(TransferProgress(self._parts, 0, self._moved_bytes))


def _metadata_of(staging: str, item: CopyItem) -> dict[str, str]:
    metadata = {ID_KEY: object_id(staging, str(item.number))}
    mtime_ns = item.files[0].desired.mtime_ns
    if mtime_ns is not None:
        metadata[MTIME_KEY] = str(mtime_ns)
    return metadata


def _require_whole(plan: CopyPlan, results: Mapping[int, UploadResult]) -> Mapping[int, str]:
    """The paths of items that are left out, by number."""
    paths = {item.number: item.path for item in plan.items} | {number: path for number, path, _ in plan.removals}
    missing = CopyFailure(ErrorFamily.RETRYABLE, "it was not reported")
    failed = []
    for number, path in paths.items():
        found = results.get(number, missing)
        if isinstance(found, CopyFailure):
            failed.append(FileResult(number, path, "", failure=found))
    left_out = find_changed(plan, failed)
    failed = [each for each in failed if each.item not in left_out]
    if failed:
        raise failure_of_files(failed)
    return left_out


def _describe(plan: CopyPlan, results: Mapping[int, UploadResult], left_out: Mapping[int, str]) -> list[NamedObject]:
    outputs: list[NamedObject] = []
    for item in plan.items:
        staged = results[item.number]
        if left_out and item.number in plan.metadata:
            continue
        if isinstance(staged, StagedUpload):
            file = item.files[0]
            identity = FileIdentity(file.size_bytes, None, file.desired.mtime_ns)
            replaced, is_metadata = plan.replaced.get(item.number), item.number in plan.metadata
            outputs.append(ObjectAtName(item.path, staged, identity, replaced, is_metadata))
    for number, path, identity in () if left_out else plan.removals:
        staged = results[number]
        if isinstance(staged, StagedUpload):
            outputs.append(ObjectToRemove(path, staged, identity))
    return outputs
