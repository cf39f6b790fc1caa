"""The transfer by a Spark job, one task a bin: in this process, on a cluster, or on a Spark Connect server.

The tasks read and write the mounted file systems themselves; through Spark go only the numbers of bins and what became
of their files. The executors' Python needs this package.
"""

import marshal
import secrets
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import Row, SparkSession

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.posix_errors import families
from gobblin_assets.jobs.copy.copyable import CopyItem
from gobblin_assets.jobs.copy.transfer.bins import Bin, list_items, plan_bins
from gobblin_assets.jobs.copy.transfer.file_copy import missing_or_translated, source_error
from gobblin_assets.jobs.copy.transfer.local import BINS_A_WORKER, options_of, plan_work
from gobblin_assets.jobs.copy.transfer.results import SplitFiles, list_lost, list_results
from gobblin_assets.jobs.copy.transfer.spark_task import (
    ANSWER,
    ORDERS,
    SIGHT,
    TOKEN,
    BinOrder,
    copy_bins,
    find_version,
    name_file_system,
    probe_executor,
    sum_counts,
    write_plan,
)
from gobblin_assets.jobs.copy.transfer.transfer_port import Executors, FileResult, TransferOrder, TransferProgress
from gobblin_assets.jobs.copy.transfer.writing import ResultRow
from gobblin_assets.spark.cancellation import describe_interruption, find_session_identity, open_cancellation
from gobblin_assets.spark.errors import spark_families
from gobblin_assets.spark.python_workers import run_lightly

LOOK_EVERY_S: Final = 0.5
"""How often the driver looks how far the tasks have come."""

PART_UNIT_BYTES: Final = 1 << 20
"""Parts of large files begin at multiples of this."""

_PROBED_ROWS: Final = 100_000
_LOST: Final = "lost"


class SparkTransfer:
    """The Transfer port on ``session``. Safe to share between threads."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._cancellation = open_cancellation(session)
        self._identity = find_session_identity(session)
        self._cancelled: set[str] = set()
        self._lock = threading.Lock()

    def describe_interruption(self, tag: str, items: Sequence[CopyItem]) -> Mapping[str, object] | None:
        del items
        return describe_interruption(self._identity, tag)

    def probe(self, order: TransferOrder) -> Executors:
        """Let a task on each executor look for the attempt and for the source. Leaves nothing behind.

        RejectedError if the executors' Python lacks this package.
        """
        with _orders(order.attempt) as orders:
            token = secrets.token_hex(16)
            with families("write", f"{orders}/{TOKEN}"):
                Path(orders, TOKEN).write_text(token, encoding="ascii")
            inode = _inode_of(order.source_root)
            rows = self._run(order.tag, partial(probe_executor, orders, order.source_root), SIGHT, _PROBED_ROWS, None)
        blind = {row.host: _describe_blind(row, order, token, inode) for row in rows}
        return Executors(
            len({row.executor for row in rows}), len(rows), tuple(each for each in blind.values() if each is not None)
        )

    def copy(self, order: TransferOrder) -> Iterator[tuple[FileResult, ...]]:
        yield from self.copy_with(order, self.probe(order))

    def copy_with(self, order: TransferOrder, executors: Executors) -> Iterator[tuple[FileResult, ...]]:
        """``copy`` after a probe of this order. RejectedError if an executor does not see both sides."""
        if executors.blind:
            raise RejectedError(
                "; ".join(executors.blind),
                field="transfer",
                hint="Mount both sides at the same paths on every executor, or write `transfer: local`.",
            )
        # Of two tries of a task that run at once, both would write the same part of a file.
        split_bytes = None if self._speculates() else order.split_bytes
        planned = plan_for_slots(order, executors.slots, split_bytes)
        bins = planned.bins
        splits = SplitFiles(order.source_root, order.attempt, options_of(order), bins)
        with _orders(order.attempt) as orders:
            splits.make()
            _write_plans(orders, planned)
            rows = self._run_reporting(orders, order, len(bins))
            answers = defaultdict(list)
            for row in rows:
                answers[row.bin].append(row)
            progress = TransferProgress()
            for found in bins:
                results = _take(orders, order.attempt, found, answers[found.number], splits)
                progress = _count(progress, results)
                yield results
            order.on_progress(replace(progress, moved_bytes=sum_counts(orders).moved_bytes))

    def cancel(self, tag: str) -> None:
        with self._lock:
            self._cancelled.add(tag)
        self._cancellation.cancel(tag)

    def _speculates(self) -> bool:
        with spark_families("look at its configuration"):
            return str(self._session.conf.get("spark.speculation", "false")).lower() == "true"

    def _run_reporting(self, orders: str, order: TransferOrder, count: int) -> Sequence[Row]:
        """Run the job in a thread; this one reports how far it has come. Returns when no job runs any more."""
        job = partial(self._run, order.tag, partial(run_lightly, partial(copy_bins, orders)), ANSWER, count, count)
        with ThreadPoolExecutor(1, thread_name_prefix="spark-copy") as pool:
            running: Future[Sequence[Row]] = pool.submit(job)
            try:
                while not wait([running], LOOK_EVERY_S).done:
                    order.on_progress(sum_counts(orders))
            except BaseException:
                self._cancellation.cancel(order.tag)
                raise
            return running.result()

    def _run(
        self, tag: str, function: Callable[..., Iterator[object]], answer: str, count: int, partitions: int | None
    ) -> Sequence[Row]:
        numbers = self._session.range(0, count, 1, partitions)
        with self._cancellation.tagged(tag):
            self._require_wanted(tag)
            try:
                with spark_families("copy files"):
                    return numbers.mapInArrow(function, answer).collect()
            except (RejectedError, RetryableError):
                self._require_wanted(tag)
                raise

    def _require_wanted(self, tag: str) -> None:
        with self._lock:
            if tag in self._cancelled:
                raise RetryableError("the copy was cancelled", tag=tag)


def plan_for_slots(order: TransferOrder, slots: int, split_bytes: int | None) -> TransferOrder:
    """The order with bins for so many tasks at once.

    With a rate there is a bin a slot, each with its part of the rate: executors that come later may run all bins at
    once. ``split_bytes`` is rounded up: two machines that write to one page of a network file system would lose bytes.
    """
    part_bytes = None if split_bytes is None else -(-split_bytes // PART_UNIT_BYTES) * PART_UNIT_BYTES
    has_rate = order.rate.bytes_per_s is not None or order.rate.files_per_s is not None
    bins = plan_bins(list_items(order.bins), slots if has_rate else slots * BINS_A_WORKER, part_bytes)
    return replace(order, bins=bins, workers=len(bins) if has_rate else slots)


def _inode_of(source_root: str) -> int:
    try:
        return Path(source_root).stat().st_ino
    except OSError as error:
        raise source_error(error, source_root) from error


@contextmanager
def _orders(attempt: str) -> Iterator[str]:
    """The directory of orders, which is taken away at the end: tries that still write find nothing then."""
    orders = f"{attempt}/{ORDERS}"
    try:
        Path(orders).mkdir()
    except OSError as error:
        raise missing_or_translated(error, "make", orders) from error
    try:
        yield orders
    finally:
        away = f"{orders}-{secrets.token_hex(6)}"
        with suppress(OSError):
            # A new owner of the attempt may have taken all of it.
            Path(orders).rename(away)
        shutil.rmtree(away, ignore_errors=True)


def _write_plans(orders: str, order: TransferOrder) -> None:
    with families("write", orders):
        file_system = name_file_system(orders)
        for found in order.bins:
            write_plan(orders, found.number, BinOrder(found.writer, plan_work(order, found), file_system))


def _take(orders: str, attempt: str, found: Bin, answers: Sequence[Row], splits: SplitFiles) -> tuple[FileResult, ...]:
    """The results of a bin, of which the accepted try's directory becomes that of the bin's writer."""
    lost = next((row[_LOST] for row in answers if row[_LOST] is not None), None if answers else "no task reported it")
    if lost is not None:
        return list_results(found, list_lost(found, 0, lost), splits)
    own = f"{orders}/{answers[0]['try']}"
    try:
        # To the name of an empty directory, or to a free name.
        Path(own).rename(f"{attempt}/{found.writer}")
    except OSError as error:
        raise missing_or_translated(error, "take", own) from error
    rows = [row for answer in answers for row in _rows_of(answer)]
    return list_results(found, rows, splits)


def _rows_of(answer: Row) -> list[ResultRow]:
    rows: list[ResultRow] = marshal.loads(bytes(answer["rows"]))  # noqa: S302  our own task wrote it
    return rows


def _count(progress: TransferProgress, results: Sequence[FileResult]) -> TransferProgress:
    failed = sum(each.failure is not None for each in results)
    files = sum(each.failure is None and not each.is_directory for each in results)
    return TransferProgress(progress.files + files, progress.failed + failed, progress.moved_bytes)


def _describe_blind(row: Row, order: TransferOrder, token: str, inode: int) -> str | None:
    if row.version != find_version():
        return f"{row.host} has gobblin-assets {row.version or 'from source'}, and this process {find_version()}"
    if row.token != token:
        return f"{row.host} does not see {order.attempt}"
    if row.source != inode:
        return f"{row.host} does not see {order.source_root}"
    return None
