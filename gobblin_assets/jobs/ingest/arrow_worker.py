"""Extraction in this process: a source's Arrow batches are written as they come, WorkUnits side by side.

Converters, row policies, directories by value, event time and the late window need Spark; ``find_spark_need`` finds
such a need before anything is read.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

from gobblin_assets.errors import CorruptionError, GobblinError, RetryableError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.jobs.ingest.attempt_checks import position_columns, require_below, require_readable
from gobblin_assets.model.urn import Role
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.rows.arrow_types import arrow_schema, schema_to_json
from gobblin_assets.rows.arrow_writer import HighestPosition, RollingWriter, highest_of, prefetching
from gobblin_assets.rows.attempt_files import open_role_files
from gobblin_assets.rows.new_files import FilesInDirectory, FinishedRows, NewFiles, plan_file_rows_max
from gobblin_assets.run.job_kind import Output, Staged, UnitPlan, WorkOrder
from gobblin_assets.sources.source_port import ArrowReader, find_asked_of_spark, read_plan_of
from gobblin_assets.spec.job_spec import WriterSpec

_DATA_DIRECTORY: Final = "files"
# Seconds between repeated interruptions of reads that should end.
_INTERRUPT_EVERY_S: Final = 0.5


def find_spark_need(plan: UnitPlan) -> str | None:
    """The first field of the plan that needs Spark; None: no field does."""
    rereads = any(unit.reread_from is not None for unit in plan.work_units)
    return find_asked_of_spark(read_plan_of(plan).spec, rereads=rereads)


class ArrowWorker:
    """``Worker`` of plans that have an ``ArrowReader``. All tasks of a run share its threads, one per processor."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="arrow-reader")
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        self._cancelled: set[str] = set()

    def describe_interruption(self, tag: str, plans: Sequence[UnitPlan]) -> Mapping[str, object] | None:  # noqa: ARG002  the port's
        """None: connections and threads end with this process."""
        return None

    def cancel(self, tag: str) -> None:
        with self._lock:
            self._cancelled.add(tag)
            found = self._running.get(tag)
        if found is not None:
            found.stop()

    def do(self, order: WorkOrder) -> Staged:
        return self.do_together([order])[0]

    def do_together(self, orders: Sequence[WorkOrder]) -> Sequence[Staged]:
        tasks = [_Task.of(order) for order in orders]
        for task in tasks:
            require_readable([task.order], [task.schema])
        running = _Running()
        tag = orders[0].tag
        with self._lock:
            self._running[tag] = running
            is_cancelled = tag in self._cancelled
        if is_cancelled:
            running.stop()
        try:
            written = self._write_all(tasks, running)
        finally:
            with self._lock:
                self._running.pop(tag, None)
        return [task.describe(each) for task, each in zip(tasks, written, strict=True)]

    def _write_all(self, tasks: Sequence["_Task"], running: "_Running") -> list[list["_Written"]]:
        units = [[unit for unit in task.order.units if not unit.is_empty] for task in tasks]
        for task, wanted in zip(tasks, units, strict=True):
            if wanted:
                self._fs.make_directories(task.directory if task.order.names is None else task.order.directory)
        futures = [
            [self._pool.submit(self._write, task, unit, running) for unit in wanted]
            for task, wanted in zip(tasks, units, strict=True)
        ]
        started = [each for some in futures for each in some]
        while wait(started, timeout=_INTERRUPT_EVERY_S).not_done:
            running.interrupt_again()
        # The first failure ended the other reads, and their errors say only that.
        failures = [error for each in started if (error := each.exception()) is not None]
        if failures:
            raise running.reason or failures[0]
        return [[each.result() for each in some] for some in futures]

    def _write(self, task: "_Task", unit: WorkUnit, running: "_Running") -> "_Written":
        position = HighestPosition(position_columns(task.order))
        row_count = 0
        try:
            running.require()
            with (
                task.reader.open(unit) as rows,
                running.interrupting(rows.interrupt),
                prefetching(rows.batches) as batches,
                RollingWriter(
                    self._open_files(task),
                    "",
                    f"part-{unit.number:05d}-{task.order.attempt_id}",
                    arrow_schema(task.reader.columns),
                    rows_max=task.file_rows_max,
                    compression=task.writer.compression,
                ) as writer,
            ):
                for batch in batches:
                    running.require()
                    row_count += batch.num_rows
                    position.add(batch)
                    writer.write(batch)
        except Exception as error:  # noqa: BLE001  a driver's error has no family
            known = error if isinstance(error, GobblinError) else task.reader.explain(error)
            running.fail(known)
            # Raised without its cause, whose text may hold a secret of the connection.
            raise known from None
        except BaseException as error:
            running.fail(error)
            raise
        return _Written(writer.files, row_count, position)

    def _open_files(self, task: "_Task") -> NewFiles:
        order = task.order
        if order.names is None:
            return FilesInDirectory(self._fs, task.directory)
        return open_role_files(self._fs, order.directory, order.names)


@dataclass(frozen=True, slots=True)
class _Written:
    """The files of an order. ``row_count``: the rows that the source gave, counted as they passed."""

    files: tuple[FinishedRows, ...]
    row_count: int
    position: HighestPosition


@dataclass(frozen=True, slots=True)
class _Task:
    """An order, with what all of its WorkUnits need."""

    order: WorkOrder
    reader: ArrowReader
    writer: WriterSpec
    schema: Mapping[str, object]

    @classmethod
    def of(cls, order: WorkOrder) -> Self:
        found = read_plan_of(order.plan)
        if found.arrow is None:
            raise CorruptionError(f"{order.plan.urn} is planned for Spark")
        return cls(order, found.arrow, found.spec.writer, schema_to_json(found.arrow.columns))

    @property
    def directory(self) -> str:
        return f"{self.order.directory}/{_DATA_DIRECTORY}"

    @property
    def file_rows_max(self) -> int:
        writer = self.writer
        return plan_file_rows_max(self.schema, file_bytes_max=writer.file_bytes_max, file_rows_max=writer.file_rows_max)

    def describe(self, written: Sequence[_Written]) -> Staged:
        high = highest_of([each.position for each in written])
        require_below(self.order, high)
        files = [file for each in written for file in each.files]
        steps = tuple(each.step for each in files if each.step is not None)
        output = Output(Role.DATA, self.directory, "", tuple(each.file for each in files), steps)
        return Staged(
            outputs=(output,) if files else (),
            rows_read=sum(each.row_count for each in written),
            file_schemas={Role.DATA: self.schema},
            columns=dict(self.reader.columns),
            observed_high=high,
        )


class _Running:
    """The reads under one tag. A cancellation, or the first read that fails, ends all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._interrupts: list[Callable[[], None]] = []
        self._is_stopped = False
        self.reason: BaseException | None = None

    def require(self) -> None:
        if self._is_stopped:
            raise RetryableError("the read was ended")

    def fail(self, error: BaseException) -> None:
        with self._lock:
            if not self._is_stopped:
                self.reason = error
        self.stop()

    def stop(self) -> None:
        self._is_stopped = True
        self.interrupt_again()

    def interrupt_again(self) -> None:
        """Interrupt the reads that still go on, if all of them should end.

        One interruption is not enough: it misses a query that is sent at the same moment.
        """
        # The lock keeps a read from being closed while it is interrupted.
        with self._lock:
            for each in self._interrupts if self._is_stopped else ():
                each()

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            self._interrupts.append(interrupt)
        try:
            self.require()
            yield
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)
