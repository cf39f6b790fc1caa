"""Uploads: files that are staged in an object store by several threads, each begun, written down, and filled.

A small file takes two requests, its upload and one part; its completion, which publishes it, is the third. Uploads are
written down in the attempt before their parts are written, some hundred by one request, so that whoever cleans up after
a dead process finds and aborts them. A process aborts an upload that it can't write down. If it is killed before, each
of its threads may leave some hundred uploads without bytes; the store's own rule for unfinished uploads removes them.

A file that fails because of the store is uploaded once more after the others. If the store fails time after time, all
ends. Memory is bounded by one part for each thread, and by ``BYTES_WAITING_MAX`` for parts of large files.
"""

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Final, Protocol, TypeVar

import google_crc32c

from gobblin_assets.commit.object_attempts import (
    ID_KEY,
    MTIME_KEY,
    BegunUpload,
    aborted_on_error,
    discard_attempt,
    plan_parts,
    write_uploads,
)
from gobblin_assets.destinations.files.upload_step import object_id
from gobblin_assets.destinations.fixed_names.named_outputs import (
    NamedObject,
    ObjectAtName,
    ObjectToRemove,
    StagedUpload,
)
from gobblin_assets.destinations.fixed_names.object_steps import make_mark
from gobblin_assets.errors import ErrorFamily, GobblinError, RejectedError, RetryableError, family_of
from gobblin_assets.fs.objects import ObjectFiles, UploadId, UploadPart
from gobblin_assets.fs.posix_ranged import open_posix_ranged
from gobblin_assets.fs.registry import open_ranged
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import CopyItem, PlannedFile
from gobblin_assets.jobs.copy.transfer.pacing import ThreadPace
from gobblin_assets.jobs.copy.transfer.transfer_port import CopyFailure, FileResult, TransferProgress
from gobblin_assets.jobs.copy.worker import CopyLines, CopyTask
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import WorkOrder

T = TypeVar("T")

WRITTEN_DOWN_TOGETHER_MAX: Final = 100
"""Uploads in one object of the attempt."""

PARTS_WAITING_MAX: Final = 64
BYTES_WAITING_MAX: Final = 1 << 30
"""Parts of large files that are written side by side, but always one. A file of 5 TiB has parts of 525 MiB."""

FAILURES_PER_WORKER_MAX: Final = 2
"""After so many failures of the store, and no part that was written, it is out of reach."""


Pace = Callable[[int, int], None]
"""Takes bytes and files that were moved, and waits until they are paid for."""


def unlimited_pace(size_bytes: int, files: int) -> None:
    """No rate is to be kept."""
    del size_bytes, files


class OpenedFile(Protocol):
    """The bytes of one version of a file. RetryableError if it is another version by now."""

    def read_at(self, offset: int, size_bytes: int) -> bytes: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class UploadOrder:
    """One upload. ``path``: of the object that it becomes. ``open`` gives the file that is read, of ``size_bytes``."""

    number: int
    path: str
    size_bytes: int
    metadata: dict[str, str]
    open: Callable[[], OpenedFile]


WriteParts = Callable[[UploadOrder, UploadId, OpenedFile], Sequence[UploadPart]]
"""Writes all parts of a begun upload."""

UploadResult = StagedUpload | CopyFailure


@dataclass(slots=True)
class Uploading:
    """The uploads of one attempt, for one use. ``moved`` is called with the bytes of each part, by any thread, and then
    ``pace``, with the number of files that it began too: it may wait.

    ``is_stopped`` is asked before each request. ``_again``: what the store failed. ``_failures``: since a
    part was written; ``_said``: by the last.
    """

    files: ObjectFiles
    staging: str
    workers: int
    moved: Callable[[int], None]
    is_stopped: Callable[[], bool]
    pace: Pace = unlimited_pace
    _pool: ThreadPoolExecutor | None = field(default=None, init=False)
    _results: dict[int, UploadResult] = field(default_factory=dict, init=False)
    _again: dict[int, UploadOrder] = field(default_factory=dict, init=False)
    _failures: int = field(default=0, init=False)
    _said: str = field(default="", init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def run(self, orders: Sequence[UploadOrder]) -> dict[int, UploadResult]:
        """The result of each order, by its number. A file that can't be read or has changed is a result."""
        with ThreadPoolExecutor(self.workers, thread_name_prefix="upload") as pool:
            # One worker needs no thread.
            self._pool = pool if self.workers > 1 else None
            self._upload_all(orders)
            again, self._again = self._again, {}
            self._upload_all([*again.values()])
        return self._results

    def _upload_all(self, orders: Sequence[UploadOrder]) -> None:
        small = [each for each in orders if self._is_small(each)]
        self._do_all([partial(self._upload, some, self._write_whole) for some in _share_out(small, self.workers)])
        # One file after another, the parts of each side by side.
        for some in _share_out([each for each in orders if not self._is_small(each)], 1):
            self._upload(some, self._write_parts)

    def _do_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Raise the first error, after those that were begun have ended."""
        if self._pool is None:
            return [call() for call in calls]
        futures = [self._pool.submit(call) for call in calls]
        done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
        for each in waiting:
            each.cancel()
        wait(waiting)
        for each in done:
            each.result()
        return [each.result() for each in futures]

    def _is_small(self, order: UploadOrder) -> bool:
        return len(plan_parts(order.size_bytes, self.files.part_bytes_min)) == 1

    def _begin(self, orders: Sequence[UploadOrder]) -> list[tuple[UploadOrder, UploadId]]:
        """Their uploads, which are written down; none if the store fails."""
        begun: list[BegunUpload] = []
        try:
            with aborted_on_error(self.files, begun):
                for each in orders:
                    upload = self._ask(orders, partial(self.files.begin_upload, each.path, each.metadata))
                    begun.append((each.path, upload))
                self._ask(orders, partial(write_uploads, self.files, self.staging, uuid.uuid4().hex, begun))
        except RetryableError as error:
            if self.is_over():
                raise
            for each in orders:
                self.fail(each, error)
            return []
        return [(order, upload) for order, (_path, upload) in zip(orders, begun, strict=True)]

    def _upload(self, orders: Sequence[UploadOrder], write: WriteParts) -> None:
        for order, upload in self._begin(orders):
            with self._failing(order):
                file = order.open()
                try:
                    parts = write(order, upload, file)
                finally:
                    file.close()
                self._keep(order, StagedUpload(order.number, upload, tuple(parts)))

    def _write_whole(self, order: UploadOrder, upload: UploadId, file: OpenedFile) -> list[UploadPart]:
        return [self._write(order, upload, file, 1, 0, order.size_bytes)]

    def _write_parts(self, order: UploadOrder, upload: UploadId, file: OpenedFile) -> list[UploadPart]:
        parts: list[UploadPart] = []
        calls: list[Callable[[], UploadPart]] = []
        offset = 0
        sizes = plan_parts(order.size_bytes, self.files.part_bytes_min)
        waiting_max = max(1, min(PARTS_WAITING_MAX, BYTES_WAITING_MAX // sizes[0]))
        for number, size in enumerate(sizes, start=1):
            calls.append(partial(self._write, order, upload, file, number, offset, size))
            offset += size
            if len(calls) == waiting_max or offset == order.size_bytes:
                parts += self._do_all(calls)
                calls = []
        return parts

    def _write(
        self, order: UploadOrder, upload: UploadId, file: OpenedFile, number: int, offset: int, size: int
    ) -> UploadPart:
        self._require_going()
        content = file.read_at(offset, size) if size else b""
        crc32c = google_crc32c.value(content)
        part = self._ask([order], partial(self.files.write_part, order.path, upload, number, content, crc32c))
        self._failures = 0
        self.moved(size)
        self.pace(size, int(number == 1))
        return part

    def _ask(self, orders: Sequence[UploadOrder], request: Callable[[], T]) -> T:
        """A request to the store. If it fails, the files of ``orders`` may be uploaded again."""
        self._require_going()
        try:
            return request()
        except RetryableError as error:
            with self._lock:
                self._failures += 1
                self._said = error.message
                self._again.update((each.number, each) for each in orders)
            raise

    def is_over(self) -> bool:
        return self.is_stopped() or self._is_out_of_reach()

    def _is_out_of_reach(self) -> bool:
        return self._failures >= FAILURES_PER_WORKER_MAX * self.workers

    def _require_going(self) -> None:
        if self.is_stopped():
            raise RetryableError("the copy was cancelled")
        if self._is_out_of_reach():
            raise RetryableError(f"the store failed {self._failures} times in a row, at last so: {self._said}")

    def _keep(self, order: UploadOrder, result: UploadResult) -> None:
        with self._lock:
            self._results[order.number] = result

    def _failing(self, order: UploadOrder) -> "_Failing":
        return _Failing(self, order)

    def fail(self, order: UploadOrder, error: GobblinError) -> None:
        """The file fails, and the others go on."""
        self._keep(order, CopyFailure(family_of(error), str(error)))


@dataclass(frozen=True, slots=True)
class _Failing:
    """A block whose errors, if they concern one file, become its result. A cancelled copy ends all, and a store out of
    reach.
    """

    uploading: Uploading
    order: UploadOrder

    def __enter__(self) -> None:
        """Nothing is to be prepared."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, RetryableError | RejectedError) or self.uploading.is_over():
            return False
        self.uploading.fail(self.order, error)
        return True


def _share_out(orders: Sequence[UploadOrder], workers: int) -> list[Sequence[UploadOrder]]:
    """Batches that are written down together, and at least one for each thread."""
    size = max(1, min(WRITTEN_DOWN_TOGETHER_MAX, -(-len(orders) // workers)))
    return [orders[start : start + size] for start in range(0, len(orders), size)]


OpenPlanned = Callable[[str, PlannedFile], OpenedFile]
"""The file at a full path of the source, as it was planned; links are followed if they were planned to be."""

REQUESTS_PER_WORKER: Final = 4
"""Requests that are under way at once, for each worker of the job: most of the time they wait for the store."""


def open_planned(plan: CopyPlan) -> OpenPlanned:
    """The opener of a plan's files: by ranges, from a local disk or from a store."""
    if plan.source_root.startswith("/"):
        return partial(_open_local, plan.follows_links)
    return partial(_open_remote, plan.follows_links)


def _open_local(follow_links: bool, path: str, planned: PlannedFile) -> OpenedFile:  # noqa: FBT001  bound by its caller
    return open_posix_ranged(path, planned.identity, planned.changed_ns, follow_links=follow_links)


def _open_remote(follow_links: bool, uri: str, planned: PlannedFile) -> OpenedFile:  # noqa: FBT001  bound by its caller
    files, path = open_ranged(uri, "source", follow_links=follow_links)
    return files.open_ranged(path, planned.identity)


@dataclass(frozen=True, slots=True)
class ObjectStaging:
    """``CopyStaging`` as uploads that have all of their parts. ``place_of``: a dataset's place in the store.

    ``open_planned`` makes the way to read a plan's files. ``requests``: how many are under way at once.
    """

    files: ObjectFiles
    place_of: Callable[[DatasetUrn], str]
    open_planned: Callable[[CopyPlan], OpenPlanned]
    requests: int
    _cancelled: set[str] = field(default_factory=set)

    def describe_interruption(self, tag: str, items: Sequence[CopyItem]) -> None:
        """The threads end with this process."""

    def cancel(self, tag: str) -> None:
        self._cancelled.add(tag)

    def stage(self, task: CopyTask) -> Sequence[NamedObject] | None:
        order, tag = task.order, task.order.tag
        task.wait_for_ticks(lambda: 1)
        is_cancelled = partial(self._cancelled.__contains__, tag)
        with task.share_rate(partial(self._cancelled.add, tag)) as rate:
            uploading = Uploading(
                self.files,
                order.directory,
                self.requests,
                _Moved(task.show_progress()).add,
                is_cancelled,
                ThreadPace(rate, is_cancelled).spend,
            )
            try:
                results = uploading.run([*self._list_files(order, task.plan), *self._list_marks(order, task.plan)])
                task.settle(_list_failed(task.plan, results))
            except GobblinError:
                # The store keeps the bytes of uploads until somebody aborts them; cleanup does, should this fail.
                with suppress(GobblinError):
                    discard_attempt(self.files, order.directory, self.requests)
                raise
        return tuple(_describe(task.plan, results, task.left_out)) or None

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
    """The bytes that all threads have moved, which are reported. A small file is one part."""

    lines: CopyLines
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _moved_bytes: int = 0
    _parts: int = 0

    def add(self, size_bytes: int) -> None:
        with self._lock:
            self._moved_bytes += size_bytes
            self._parts += 1
            self.lines.report(TransferProgress(self._parts, 0, self._moved_bytes))


def _metadata_of(staging: str, item: CopyItem) -> dict[str, str]:
    metadata = {ID_KEY: object_id(staging, str(item.number))}
    mtime_ns = item.files[0].desired.mtime_ns
    if mtime_ns is not None:
        metadata[MTIME_KEY] = str(mtime_ns)
    return metadata


def _list_failed(plan: CopyPlan, results: Mapping[int, UploadResult]) -> list[FileResult]:
    paths = {item.number: item.path for item in plan.items} | {number: path for number, path, _ in plan.removals}
    missing = CopyFailure(ErrorFamily.RETRYABLE, "it was not reported")
    found = ((number, path, results.get(number, missing)) for number, path in paths.items())
    return [FileResult(number, path, "", failure=each) for number, path, each in found if isinstance(each, CopyFailure)]


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
