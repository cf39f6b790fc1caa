"""One task: attempts at the WorkUnits of one MultiWorkUnit for one slice, until one is staged.

Each attempt writes to a directory of its own that no other attempt ever gets. It is recorded before its
first byte, made durable before it is staged, and staged in one transaction with its steps.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.commit.attempts import final_name, staging_directory
from gobblin_assets.commit.segment import Segment, encode_segments
from gobblin_assets.commit.sequence import NewAttempt, StagedAttempt
from gobblin_assets.commit.steps import RenameDirectory
from gobblin_assets.commit.store import CommitStepStore
from gobblin_assets.errors import FencedError, GobblinError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.ingest.extraction import Extracted, Extractor, ExtractOrder
from gobblin_assets.ingest.job_spec import RetrySpec
from gobblin_assets.ingest.slices import Slice, StagedTask, partition_text
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.path_names import encode_segment, list_upwards, path_of
from gobblin_assets.model.state import AttemptId
from gobblin_assets.model.urn import JobName, Role
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.state.leases import Lease

_ERROR_TEXT_MAX: Final = 4_000


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """``number`` is the MultiWorkUnit's; it also names the directory that a winning attempt publishes."""

    slice: Slice
    number: int
    units: tuple[WorkUnit, ...]


@dataclass(frozen=True, slots=True)
class TaskRunner:
    """Runs tasks, from the threads of the run's pool."""

    job: JobName
    root: str
    store: CommitStepStore
    fs: FileSystem
    extractor: Extractor
    clock: Clock
    retry: RetrySpec
    require: Callable[[Lease], None]
    report: Callable[[str], None]
    wait: Callable[[float], bool]
    running: set[str] = field(default_factory=set)

    def cancel_all(self) -> None:
        """End the work of all attempts that are being read now."""
        for tag in tuple(self.running):
            self.extractor.cancel(tag)

    def run(self, order: TaskOrder) -> StagedTask:
        """Try until an attempt is staged; raise the family of the last failure otherwise."""
        for try_number in range(1, self.retry.task_tries_max + 1):
            try:
                return self._attempt(order, try_number)
            except RetryableError as error:
                if try_number == self.retry.task_tries_max:
                    raise
                delay_s = min(self.retry.back_off_max_s, self.retry.back_off_s * 2 ** (try_number - 1))
                self.report(f"{order.slice.label}: try {try_number} failed, next in {delay_s:.0f} s: {error}")
                if self.wait(delay_s):
                    raise FencedError("the run is stopping") from error
        raise AssertionError("unreachable: the last try returns or raises")

    def _attempt(self, order: TaskOrder, try_number: int) -> StagedTask:
        self.require(order.slice.lease)
        attempt_id = AttemptId(self.clock.new_id())
        directory = staging_directory(job_directory(self.root, self.job), attempt_id)
        self._register(order, attempt_id, directory, try_number)
        started_s = self.clock.monotonic()
        self.running.add(task_tag(attempt_id))
        try:
            extracted = self._extract(order, attempt_id, directory)
            self.require(order.slice.lease)
            return self._stage(order, attempt_id, extracted, started_s)
        except GobblinError as error:
            self._record_failure(attempt_id, error)
            raise
        except OSError as error:
            failure = RetryableError(f"{order.slice.label}: {error}")
            self._record_failure(attempt_id, failure)
            raise failure from error
        finally:
            self.running.discard(task_tag(attempt_id))

    def _register(self, order: TaskOrder, attempt_id: AttemptId, directory: str, try_number: int) -> None:
        facts = self.extractor.session_facts()
        self.store.register_attempt(
            NewAttempt(
                attempt_id=attempt_id,
                sequence_id=order.slice.sequence_id,
                dataset_id=order.slice.state.dataset_id,
                fence=order.slice.lease.fence,
                multi_work_unit=order.number,
                try_number=try_number,
                staging_path=directory,
                spark_session_id=facts.session_id,
                spark_user=facts.user,
                spark_tag=task_tag(attempt_id),
            )
        )

    def _extract(self, order: TaskOrder, attempt_id: AttemptId, directory: str) -> Extracted:
        part = order.slice
        extracted = self.extractor.extract(
            ExtractOrder(
                job=self.job,
                dataset_id=part.state.dataset_id,
                plan=part.plan,
                spec=part.spec,
                units=order.units,
                attempt_id=attempt_id,
                directory=directory,
                started_at=self.clock.now(),
                tag=task_tag(attempt_id),
            )
        )
        reach(Failpoint.ATTEMPT_WRITTEN)
        if extracted.directories:
            self.fs.apply_modes(directory)
        self.fs.make_durable(f"{d.path}/{f.name}" for d in extracted.directories for f in d.files)
        self.fs.sync_directories(list_upwards((directory, *(d.path for d in extracted.directories)), self.root))
        reach(Failpoint.ATTEMPT_DURABLE)
        return extracted

    def _stage(self, order: TaskOrder, attempt_id: AttemptId, extracted: Extracted, started_s: float) -> StagedTask:
        segments = self._segments(order, extracted)
        self.store.stage(
            StagedAttempt(
                attempt_id=attempt_id,
                sequence_id=order.slice.sequence_id,
                fence=order.slice.lease.fence,
                segments=segments,
                segment_ids=tuple(self.clock.new_id() for _segment in segments),
                actual_highs=_actual_highs(order, extracted),
            )
        )
        return StagedTask(attempt_id, extracted, segments, self.clock.monotonic() - started_s)

    def _segments(self, order: TaskOrder, extracted: Extracted) -> tuple[Segment, ...]:
        part = order.slice
        segments: list[Segment] = []
        for role in Role:
            steps = [
                RenameDirectory(
                    source=written.path,
                    target=target_directory(
                        path_of(self.root, self.job, part.urn, role),
                        partition_text(part.partition),
                        written.partition_path,
                        final_name(part.sequence_id, order.number),
                    ),
                    files=written.files,
                )
                for written in extracted.directories
                if written.role is role and written.files
            ]
            segments += encode_segments(
                steps,
                role=role,
                partition=partition_text(part.partition),
                file_schema=extracted.file_schemas.get(role),
            )
        return tuple(segments)

    def _record_failure(self, attempt_id: AttemptId, error: GobblinError) -> None:
        text = f"{type(error).__name__}: {error}"[:_ERROR_TEXT_MAX]
        try:
            self.store.fail_attempt(attempt_id, error=text, cancelled=isinstance(error, FencedError))
        except GobblinError as second:
            # The attempt stays RUNNING in the log; the next owner aborts its sequence all the same.
            self.report(f"the failure of an attempt could not be recorded: {second}")


def task_tag(attempt_id: AttemptId) -> str:
    """What the attempt's Spark work is tagged with."""
    return f"gobblin-{attempt_id.hex}"


def job_directory(root: str, job: JobName) -> str:
    """What all datasets of a job, and its staging, stand below."""
    return "/".join((root, *encode_segment(job)))


def target_directory(role_path: str, partition: str, partition_path: str, name: str) -> str:
    """``<role>/<asset partition>/<output partition>/<sequence>-<n>``, leaving out what there is none of."""
    parts = [role_path]
    if partition:
        parts += encode_segment(partition)
    if partition_path:
        parts.append(partition_path)
    return "/".join((*parts, name))


def _actual_highs(order: TaskOrder, extracted: Extracted) -> dict[uuid.UUID, Watermark | None]:
    """A WorkUnit that succeeded reached its pinned end, whatever the last row's position was."""
    return {
        unit.id: extracted.actual_highs.get(unit.id) or (None if unit.interval is None else unit.interval.high)
        for unit in order.units
    }
