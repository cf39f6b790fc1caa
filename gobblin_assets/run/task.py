"""One task: attempts at the WorkUnits of one MultiWorkUnit for one slice, until one is staged.

Tasks of several slices whose plans share are attempted by one read. If a shared read fails, it is tried again in
halves, so that one slice can't keep the others from being published; each slice still has an attempt of its own.

Each attempt writes to a directory of its own that no other attempt ever gets. It is recorded before its
first byte, made durable before it is staged, and staged in one transaction with its steps.

Attempts are delayed so that the average rate of rows stays below the job's limit (``RateLimit``). An attempt itself is
not slowed down, so smaller WorkUnits and MultiWorkUnits give a smoother rate. (Gobblin's extract.limit with type rate
waits before each record instead.)
"""

import threading
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from gobblin_assets.commit.attempt_capture import LEFTOVERS_MAX, Leftovers
from gobblin_assets.commit.batches import in_bounds
from gobblin_assets.commit.segment import Segment, encode_empty, encode_segments
from gobblin_assets.commit.sequence import LeftoverRequest, NewAttempt, StagedAttempt
from gobblin_assets.commit.store import SequenceBuilder
from gobblin_assets.errors import FencedError, GobblinError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.defects import explain_exception, traceback_of
from gobblin_assets.model.state import AttemptId, SequenceId
from gobblin_assets.model.urn import JobName, Role
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.model.work_unit import MultiWorkUnit, WorkUnit, WorkUnitId, sum_bytes, sum_rows
from gobblin_assets.run.destination import Destination, Target
from gobblin_assets.run.job_kind import Staged, Worker, WorkOrder
from gobblin_assets.run.job_rules import RetryRules
from gobblin_assets.run.slices import Slice, StagedTask, partition_text
from gobblin_assets.state.leases import Lease

_ERROR_TEXT_MAX: Final = 4_000
_REASON_SHOWN_MAX: Final = 300
_NAMED_MAX: Final = 3

# Datasets that are read together fail together, and their records may all be in memory.
ROWS_MAX: Final = 200_000
BYTES_MAX: Final = 64 * 1024 * 1024
# The first publications, and the run's first figures, would wait for all of them.
ORDERS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """The order of one task.

    ``number`` is the MultiWorkUnit's; it also names the directory that a winning attempt publishes. Without ``units``
    nothing is read: the attempt determines which columns rows would have.
    """

    slice: Slice
    number: int
    units: tuple[WorkUnit, ...]


@dataclass(slots=True)
class RateLimit:
    """Shared by all threads of a run. ``wait`` waits for seconds; True if the run is stopping."""

    clock: Clock
    rows_per_s_max: float | None
    wait: Callable[[float], bool]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _free_at_s: float = 0.0

    def acquire(self, rows: int) -> None:
        """Return when an attempt at this many rows may begin. FencedError if the run stops meanwhile."""
        if self.rows_per_s_max is None:
            return
        with self._lock:
            now = self.clock.monotonic()
            begins_at_s = max(now, self._free_at_s)
            self._free_at_s = begins_at_s + rows / self.rows_per_s_max
        if begins_at_s > now and self.wait(begins_at_s - now):
            raise FencedError("the run is stopping")


TaskResult = StagedTask | GobblinError


@dataclass(frozen=True, slots=True)
class TaskRunner:
    """Runs tasks, from the threads of the run's pool."""

    job: JobName
    store: SequenceBuilder
    destination: Destination
    leftovers: Leftovers
    worker: Worker
    clock: Clock
    retry: RetryRules
    require: Callable[[Lease], None]
    say: Callable[[str], None]
    wait: Callable[[float], bool]
    rate_limit: RateLimit
    running: dict[str, tuple[Lease, ...]] = field(default_factory=dict)

    def cancel_all(self) -> None:
        """End the work of all attempts that are being read now. The run must have been told to stop before."""
        for tag in self.running.copy():
            self.worker.cancel(tag)

    def cancel_lost(self, is_lost: Callable[[Lease], bool]) -> None:
        """End the work of attempts that nobody may publish any more: each of their leases is lost."""
        for tag, leases in self.running.copy().items():
            if all(map(is_lost, leases)):
                try:
                    self.worker.cancel(tag)
                except GobblinError as error:
                    # It is read to its end for nothing.
                    self.running.pop(tag, None)
                    self.say(f"{tag} could not be ended: {error}")

    def run_together(self, orders: Sequence[TaskOrder]) -> list[TaskResult]:
        """One order for each slice; their results are in the same order."""
        if len(orders) == 1:
            return [self._run_one(orders[0])]
        try:
            return self._attempt_together(orders)
        except GobblinError as error:
            half = len(orders) // 2
            if self.wait(0):
                return [FencedError("the run is stopping")] * len(orders)
            self.say(
                f"{len(orders)} datasets that are read together failed, and are read in two halves: "
                f"{' '.join(str(error).split())[:_REASON_SHOWN_MAX]}"
            )
            return [*self.run_together(orders[:half]), *self.run_together(orders[half:])]

    def _run_one(self, order: TaskOrder) -> TaskResult:
        try:
            return self.run(order)
        except GobblinError as error:
            return error

    def run(self, order: TaskOrder) -> StagedTask:
        """Try until an attempt is staged; raise the family of the last failure otherwise."""
        for try_number in range(1, self.retry.task_tries_max + 1):
            try:
                return self._attempt(order, try_number)
            except RetryableError as error:
                if try_number == self.retry.task_tries_max or self.wait(0):
                    raise
                delay_s = min(self.retry.back_off_max_s, self.retry.back_off_s * 2 ** (try_number - 1))
                self.say(f"{order.slice.label}: try {try_number} failed, next in {delay_s:.0f} s: {error}")
                if self.wait(delay_s):
                    raise FencedError("the run is stopping") from error
        raise AssertionError("unreachable: the last try returns or raises")

    def _attempt(self, order: TaskOrder, try_number: int) -> StagedTask:
        self.rate_limit.acquire(_count_rows([order]))
        attempt_id = AttemptId(self.clock.new_id())
        tag = task_tag(attempt_id)
        started_s = self.clock.monotonic()
        with self._recording_failure([order], [attempt_id]):
            (work,) = self._register([order], [attempt_id], try_number, tag)
            with self._running(tag, [order]):
                work = self._with_leftovers(order, work)
                extracted = [self.worker.do(work)]
                self._make_durable([work], extracted)
                (staged,) = self._stage([order], [work], extracted, started_s)
        return staged

    def _attempt_together(self, orders: Sequence[TaskOrder]) -> list[TaskResult]:
        """Attempt the orders by one read. Raises an error of all of them; the error of one order is its result."""
        self.rate_limit.acquire(_count_rows(orders))
        ids = [AttemptId(self.clock.new_id()) for _order in orders]
        tag = task_tag(ids[0])
        started_s = self.clock.monotonic()
        with self._recording_failure(orders, ids):
            works = self._register(orders, ids, 1, tag)
            with self._running(tag, orders):
                extracted = self.worker.do_together(works)
                self._make_durable(works, extracted)
        try:
            return [*self._stage(orders, works, extracted, started_s)]
        except Exception:  # noqa: BLE001  explained as the failure of each
            # One attempt failed, or all: stage each by itself. An attempt that is staged already is found staged.
            return [
                self._stage_one(order, work, each, started_s)
                for order, work, each in zip(orders, works, extracted, strict=True)
            ]

    def _stage_one(self, order: TaskOrder, work: WorkOrder, extracted: Staged, started_s: float) -> TaskResult:
        try:
            with self._recording_failure([order], [work.attempt_id]):
                (staged,) = self._stage([order], [work], [extracted], started_s)
        except RetryableError as error:
            self.say(f"{order.slice.label}: is read again by itself: {error}")
            return self._run_one(order)
        except GobblinError as error:
            return error
        return staged

    @contextmanager
    def _running(self, tag: str, orders: Sequence[TaskOrder]) -> Iterator[None]:
        self.running[tag] = tuple(order.slice.lease for order in orders)
        try:
            # Whoever stops the run says so first, and then looks at what is running.
            if self.wait(0):
                raise FencedError("the run is stopping")
            yield
        finally:
            self.running.pop(tag, None)

    @contextmanager
    def _recording_failure(self, orders: Sequence[TaskOrder], ids: Sequence[AttemptId]) -> Iterator[None]:
        try:
            yield
        except GobblinError as error:
            self._record_failure(ids, error)
            raise
        except Exception as error:
            failure = explain_exception(_name_some(orders), error, self.say)
            self._record_failure(ids, failure)
            raise failure from error

    def _register(
        self, orders: Sequence[TaskOrder], ids: Sequence[AttemptId], try_number: int, tag: str
    ) -> list[WorkOrder]:
        """Record the attempts before their first byte; returns their work orders."""
        self.destination.require()
        interruption = self.worker.describe_interruption(tag, [order.slice.plan for order in orders])
        attempts = [
            NewAttempt(
                attempt_id=attempt_id,
                sequence_id=order.slice.sequence_id,
                dataset_id=order.slice.state.dataset_id,
                fence=order.slice.lease.fence,
                multi_work_unit=order.number,
                try_number=try_number,
                staging_path=self.destination.stage(attempt_id),
                tag=tag,
                interruption=interruption,
            )
            for order, attempt_id in zip(orders, ids, strict=True)
        ]
        for order in orders:
            self.require(order.slice.lease)
        for some in in_bounds(attempts):
            self.store.register_attempt(*some)
        started_at = self.clock.now()
        return [
            WorkOrder(
                job=self.job,
                dataset_id=attempt.dataset_id,
                plan=order.slice.plan,
                units=order.units,
                attempt_id=attempt.attempt_id,
                directory=attempt.staging_path,
                started_at=started_at,
                tag=tag,
                schemas_beside=order.slice.schemas_beside(),
                names=self.destination.names_for(_target_of(order)),
            )
            for order, attempt in zip(orders, attempts, strict=True)
        ]

    def _with_leftovers(self, order: TaskOrder, work: WorkOrder) -> WorkOrder:
        """The order with what failed attempts left, if the destination keeps it."""
        keep_s = self.destination.reuse_keep_s
        if keep_s is None or not order.units:
            return work
        slice_ = order.slice
        request = LeftoverRequest(
            slice_.sequence_id,
            slice_.state.dataset_id,
            partition_text(slice_.partition),
            slice_.lease.fence,
            keep_s,
            LEFTOVERS_MAX,
        )
        found = self.leftovers.capture(request, self.destination.root_uri)
        return replace(work, leftovers=found)

    def _make_durable(self, works: Sequence[WorkOrder], extracted: Sequence[Staged]) -> None:
        """Make outputs durable, once only: if that fails, the attempt fails, and new attempts read again."""
        reach(Failpoint.ATTEMPT_WRITTEN)
        self.destination.make_durable(
            {work.directory: written.outputs for work, written in zip(works, extracted, strict=True)}
        )
        reach(Failpoint.ATTEMPT_DURABLE)

    def _stage(
        self,
        orders: Sequence[TaskOrder],
        works: Sequence[WorkOrder],
        extracted: Sequence[Staged],
        started_s: float,
    ) -> list[StagedTask]:
        """Stage all attempts, or raise; attempts that are staged already may be staged again."""
        self.destination.require()
        for order in orders:
            self.require(order.slice.lease)
        segments = [self._segments(order, written) for order, written in zip(orders, extracted, strict=True)]
        for order, written, each in zip(orders, extracted, segments, strict=True):
            loaded = written.row_count(Role.DATA) if self.destination.loads_rows else 0
            require_whole(order.slice.label, rows_read=written.rows_read, segments=each, loaded_rows=loaded)
        staged = [
            StagedAttempt(
                attempt_id=work.attempt_id,
                sequence_id=order.slice.sequence_id,
                fence=order.slice.lease.fence,
                segments=each,
                segment_ids=tuple(self.clock.new_id() for _segment in each),
                actual_highs=_actual_highs(order, written),
            )
            for order, work, written, each in zip(orders, works, extracted, segments, strict=True)
        ]
        for some in in_bounds(staged):
            self.store.stage(*some)
        duration_s = self.clock.monotonic() - started_s
        return [
            StagedTask(work.attempt_id, written, each, duration_s)
            for work, written, each in zip(works, extracted, segments, strict=True)
        ]

    def _segments(self, order: TaskOrder, extracted: Staged) -> tuple[Segment, ...]:
        slice_, target = order.slice, _target_of(order)
        segments: list[Segment] = []
        for role in Role:
            outputs = [each for each in extracted.outputs if each.role is role]
            segments += encode_segments(
                self.destination.steps_for(outputs, target),
                role=role,
                partition=partition_text(slice_.partition),
                file_schema=extracted.file_schemas.get(role),
            )
        schema = extracted.file_schemas.get(Role.DATA)
        has_rows = extracted.row_count(Role.DATA) > 0 or any(each.role is Role.DATA for each in segments)
        if schema is not None and slice_.lacks_schema() and not has_rows:
            segments.append(
                encode_empty(role=Role.DATA, partition=partition_text(slice_.partition), file_schema=schema)
            )
        return tuple(segments)

    def _record_failure(self, ids: Sequence[AttemptId], error: GobblinError) -> None:
        lines = (f"{type(error).__name__}: {error}", traceback_of(error))
        text = "\n".join(filter(None, lines))[:_ERROR_TEXT_MAX]
        try:
            self.store.fail_attempt(*ids, error=text, cancelled=isinstance(error, FencedError))
        except Exception as second:  # noqa: BLE001  nothing waits for it
            # They stay RUNNING in the log; the next owner aborts their sequences all the same.
            self.say(f"the failure of an attempt could not be recorded: {second}")


def require_whole(label: str, *, rows_read: int, segments: Sequence[Segment], loaded_rows: int = 0) -> None:
    """Refuse to stage an attempt whose files (data, quarantine, dead letters) hold fewer or more rows than were read.

    ``loaded_rows``: of staged files that a step of the whole sequence loads.

    RetryableError: another attempt reads the rows again, whatever lost rows between the source and the log.
    """
    counts = {role: sum(each.row_count for each in segments if each.role is role) for role in Role}
    counts[Role.DATA] += loaded_rows
    rows_written = sum(counts.values())
    if rows_written == rows_read:
        return
    held = ", ".join(f"{count:,} in {role.value}" for role, count in counts.items() if count or role is Role.DATA)
    raise RetryableError(
        f"{label}: {rows_read:,} rows were read, and the files that were written hold {rows_written:,} ({held})",
        hint="Nothing of this attempt is published. If every try says so, check whether something removes files from "
        "the staging, and whether the source changes while it is read.",
        rows_read=rows_read,
        rows_written=rows_written,
    )


def _name_some(orders: Sequence[TaskOrder]) -> str:
    return ", ".join(order.slice.label for order in orders[:_NAMED_MAX])


def _target_of(order: TaskOrder) -> Target:
    slice_ = order.slice
    return Target(slice_.urn, partition_text(slice_.partition), slice_.sequence_id, order.number)


def _count_rows(orders: Sequence[TaskOrder]) -> int:
    """The planned number of rows. A source that does not know it gives none, and is not slowed down."""
    return sum(sum_rows(order.units) for order in orders)


def task_tag(attempt_id: AttemptId) -> str:
    """The name of the attempt's work."""
    return f"gobblin-{attempt_id.hex}"


def _actual_highs(order: TaskOrder, extracted: Staged) -> dict[uuid.UUID, Watermark | None]:
    """A WorkUnit that succeeded reached its pinned end, whatever the last row's position was."""
    return {
        unit.id: extracted.actual_highs.get(unit.id) or (None if unit.interval is None else unit.interval.high)
        for unit in order.units
    }


def make_orders(multi: MultiWorkUnit, owners: Mapping[WorkUnitId, Slice]) -> list[TaskOrder]:
    """One order for each slice that has WorkUnits in this MultiWorkUnit."""
    by_sequence: dict[SequenceId, list[WorkUnit]] = {}
    for unit in multi.work_units:
        if unit.id in owners:
            by_sequence.setdefault(owners[unit.id].sequence_id, []).append(unit)
    return [TaskOrder(owners[units[0].id], multi.number, tuple(units)) for units in by_sequence.values()]


def group_orders(orders: Sequence[TaskOrder]) -> list[list[TaskOrder]]:
    """The orders of one MultiWorkUnit, grouped by plans that share. A group has each name at most once."""
    groups: list[_Together] = []
    open_groups: dict[Hashable, _Together] = {}
    for order in orders:
        sharing = order.slice.plan.sharing
        group = None if sharing is None else open_groups.get(sharing.key)
        if group is None or not group.has_room_for(order):
            groups.append(group := _Together())
            if sharing is not None:
                open_groups[sharing.key] = group
        group.add(order)
    return [group.orders for group in groups]


@dataclass(slots=True)
class _Together:
    orders: list[TaskOrder] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    row_count: int = 0
    size_bytes: int = 0

    def has_room_for(self, order: TaskOrder) -> bool:
        return (
            _name_of(order) not in self.names
            and len(self.orders) < ORDERS_MAX
            and self.row_count + sum_rows(order.units) <= ROWS_MAX
            and self.size_bytes + sum_bytes(order.units) <= BYTES_MAX
        )

    def add(self, order: TaskOrder) -> None:
        self.orders.append(order)
        self.names.add(_name_of(order))
        self.row_count += sum_rows(order.units)
        self.size_bytes += sum_bytes(order.units)


def _name_of(order: TaskOrder) -> str:
    return "" if order.slice.plan.sharing is None else order.slice.plan.sharing.name
