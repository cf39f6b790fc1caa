"""A whole job kind in memory: a row's position is its number. The crash suite and the simulated world run it.

It knows only the engine's ports. ``Rows`` gives it its world: real or simulated files.
"""

import datetime as dt
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.partition import WHOLE, AssetPartition
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from gobblin_assets.run.job_kind import (
    DefaultSplit,
    Output,
    PlanRequest,
    Rewriter,
    Session,
    Sharing,
    Staged,
    UnitPlan,
    Worker,
    WorkOrder,
)  # fmt: skip


class Rows(Protocol):
    """The world: rows by position, and files. ``write`` gives a step too, where each file has one of its own."""

    def count(self, request: PlanRequest) -> int: ...
    def read(self, urn: DatasetUrn, number: int, low: int, high: int) -> Sequence[Any]: ...
    def file_rows(self, count: int) -> int: ...
    def make_directory(self, path: str) -> None: ...
    def write(self, order: WorkOrder, path: str, rows: Sequence[Any]) -> tuple[DataFile, Any]: ...
    def move(self, source: str, target: str) -> None: ...


@dataclass(frozen=True)
class NumberedRows:
    """Kind, session, worker in one. ``refreshes_published``: in the mode auto, by hand. ``shares``: reads together."""

    key: str
    rows: Rows
    list_names: Callable[[], Sequence[str]]
    new_id: Callable[[], uuid.UUID]
    units: int = 1
    columns: Mapping[str, str] = field(default_factory=lambda: {"number": "bigint"})
    refreshes_published: bool = False
    shares: bool = False
    make_rewriter: Callable[[], Rewriter] | None = None

    @property
    def urns(self) -> Collection[DatasetUrn]:
        return [DatasetUrn(name) for name in self.list_names()]

    @contextmanager
    def open(self, say: Callable[[str], None], requests: Sequence[PlanRequest]) -> Iterator[Session]:
        yield self

    def prepare(self) -> None:
        pass

    def current_partition(self, urn: DatasetUrn, now: dt.datetime) -> AssetPartition:
        return WHOLE

    @property
    def can_rewrite(self) -> bool:
        return self.make_rewriter is not None

    def open_rewriter(self) -> Rewriter:
        assert self.make_rewriter is not None
        return self.make_rewriter()

    def open_worker(self) -> Worker:
        return self

    def plan(self, request: PlanRequest) -> UnitPlan:
        partition = request.partition.key or ""
        by_hand = self.refreshes_published and request.mode is Mode.AUTO and request.by_hand
        refresh = request.mode is Mode.REFRESH or (by_hand and partition in request.state.published)
        before = request.state.find_watermark(self.key, partition)
        low = 0 if refresh or before is None else int(str(before))
        high = max(low, self.rows.count(request))
        cuts = [low + (high - low) * i // self.units for i in range(self.units + 1)]
        units = tuple(
            WorkUnit(
                id=WorkUnitId(self.new_id()),
                dataset=request.urn,
                partition=request.partition,
                key=self.key,
                number=number,
                interval=Interval(long_watermark(start), long_watermark(end)),
                # One for each MultiWorkUnit, so that a run has as many attempts for each dataset.
                estimated_bytes=0 if self.shares else 1 << 40,
            )
            for number, (start, end) in enumerate(pairwise(cuts))
        )
        return UnitPlan(
            urn=request.urn,
            partition=request.partition,
            mode=Mode.REFRESH if refresh else Mode.APPEND,
            replaces=refresh,
            is_snapshot=False,
            work_units=units,
            split=DefaultSplit(max_multi_work_units=1 if self.shares else 8, task_rows_min=1),
            sharing=Sharing("all", request.urn) if self.shares else None,
        )

    def describe_interruption(self, tag: str, plans: Sequence[UnitPlan]) -> Mapping[str, object] | None:
        return None

    def cancel(self, tag: str) -> None:
        pass

    def do(self, order: WorkOrder) -> Staged:
        leaf = f"{order.directory}/data"
        return self._describe(leaf, *self._write(order, leaf))

    def do_together(self, orders: Sequence[WorkOrder]) -> Sequence[Staged]:
        """Like Spark's worker: write all rows for the first order, which then hands out the others' shares."""
        if orders[0].names is not None:
            return [self.do(order) for order in orders]
        shared = [f"{orders[0].directory}/shared/{number}" for number in range(len(orders))]
        written = [self._write(order, leaf) for order, leaf in zip(orders, shared, strict=True)]
        for order, leaf in zip(orders, shared, strict=True):
            self.rows.move(leaf, f"{order.directory}/data")
        return [self._describe(f"{each.directory}/data", *found) for each, found in zip(orders, written, strict=True)]

    def _write(self, order: WorkOrder, leaf: str) -> tuple[list[tuple[DataFile, Any]], int]:
        if order.names is None:
            self.rows.make_directory(leaf)
        files, rows_read = list[tuple[DataFile, Any]](), 0
        for unit in order.units:
            assert unit.interval is not None
            low, high = int(str(unit.interval.low)), int(str(unit.interval.high))
            rows = self.rows.read(order.plan.urn, unit.number, low, high)
            rows_read += len(rows)
            size = self.rows.file_rows(len(rows))
            for start in range(0, len(rows), size):
                path = f"{leaf}/part-{low + start:05d}.parquet"
                files.append(self.rows.write(order, path, rows[start : start + size]))
        return files, rows_read

    def _describe(self, leaf: str, found: Sequence[tuple[DataFile, Any]], rows_read: int) -> Staged:
        files, steps = tuple(file for file, _step in found), [step for _file, step in found]
        outputs = (Output(Role.DATA, leaf, "", files, steps),) if files else ()
        return Staged(outputs, rows_read=rows_read, columns=self.columns)
