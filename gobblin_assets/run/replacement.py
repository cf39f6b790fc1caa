"""Publishes rows that were published before in another form, in place of all files of a partition.

The protocol is that of every sequence. The caller holds the dataset as a whole, and read the version of lane 0 before
it listed the files that it writes anew. The seal compares this version. An error before the seal aborts the sequence;
an error behind it leaves the sequence to recovery.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.segment import Segment, encode_empty, encode_segments
from gobblin_assets.commit.sequence import (
    COMPACTION,
    KeyMove,
    NewAttempt,
    NewSequence,
    Publication,
    SealOrder,
    StagedAttempt,
)
from gobblin_assets.commit.store import SequenceSealer
from gobblin_assets.errors import (
    ConflictError,
    FencedError,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
)
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.state import AttemptId, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import Destination, Target
from gobblin_assets.run.job_kind import Output
from gobblin_assets.run.job_rules import JobRules
from gobblin_assets.run.seal_decision import sum_segments
from gobblin_assets.state.leases import Lease

_ERROR_TEXT_MAX: Final = 4_000


@dataclass(frozen=True, slots=True)
class WrittenAnew:
    """Outputs of one role and schema. ``version`` as in ``Segment``."""

    role: Role
    file_schema: object
    outputs: Sequence[Output]
    version: int | None = None


class WritesAnew(Protocol):
    """The work of one replacement."""

    def describe_interruption(self, tag: str) -> Mapping[str, object] | None:
        """As of a ``Rewriter``."""
        ...

    def write(self, directory: str, tag: str) -> Sequence[WrittenAnew]:
        """Write below ``directory``, which does not exist yet; complete and not yet durable."""
        ...


@dataclass(frozen=True, slots=True)
class ReplacementOrder:
    """The order of a replacement. ``base_version``: of the dataset's lane 0, from before the rows were looked at.

    ``open_work`` is called once the sequence is begun. ``compaction``: kept with the publication under
    ``COMPACTION``, which says that its rows are not new. ``details``: kept beside it.
    """

    urn: DatasetUrn
    partition: str
    lease: Lease
    base_version: int
    moves: Sequence[KeyMove]
    open_work: Callable[[], WritesAnew]
    compaction: Mapping[str, object]
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Attempt:
    attempt_id: AttemptId
    directory: str
    tag: str


@dataclass(frozen=True, slots=True)
class Replacement:
    """A replacement of partitions by one run. ``driver`` and ``require`` are those of the caller's leases."""

    job: JobRules
    run_id: RunId
    store: SequenceSealer
    driver: Driver
    destination: Destination
    clock: Clock
    say: Callable[[str], None]
    require: Callable[[Lease], None]

    def require_directories(self, urn: DatasetUrn) -> None:
        """RejectedError where files are published one by one: Spark writes whole directories."""
        if self.destination.names_for(Target(urn, "", SequenceId(self.clock.new_id()), 0)) is not None:
            raise RejectedError(
                f"files at {self.destination.root_uri} can't be compacted: they are published one by one",
                field="destination",
                hint="Have fewer, larger files from the start: less often, or with larger `split.work_unit_rows`. A "
                "refresh of a partition writes it anew.",
                urn=urn,
            )

    def find_version(self, lease: Lease) -> int:
        """Of the lane whose fence the seal names: lane 0."""
        lanes = self.driver.store.look_at(JobName(self.job.job), [lease.dataset_id], []).lanes
        return next((lane.version for lane in lanes if lane.number == 0), 0)

    def publish(self, order: ReplacementOrder) -> Publication:
        """Raises ConflictError if another process published meanwhile, and what the work raises."""
        lease = order.lease
        new = NewSequence(
            sequence_id=SequenceId(self.clock.new_id()),
            dataset_id=lease.dataset_id,
            run_id=self.run_id,
            partition=order.partition,
            mode=Mode.REFRESH,
            replaces=True,
            fence=lease.fence,
            root_uri=self.destination.root_uri,
            lease_ttl_s=self.job.lease.ttl_s,
        )
        self.store.begin(new)
        with self._aborting(new.sequence_id, lease):
            seal = self._order_seal(order, self._stage(new, order))
            reach(Failpoint.STAGED_BEFORE_SEAL)
            self.require(lease)
            self.store.seal(seal)
        publication = self.driver.publish(new.sequence_id, lease)
        self.driver.store.mark_announced(new.sequence_id)
        return publication

    def _order_seal(self, order: ReplacementOrder, staged: StagedAttempt) -> SealOrder:
        return SealOrder(
            sequence_id=staged.sequence_id,
            dataset_id=order.lease.dataset_id,
            partition=order.partition,
            fence=order.lease.fence,
            base_version=order.base_version,
            winners=(staged.attempt_id,),
            moves=tuple(order.moves),
            complete=True,
            details={
                "uri": self.destination.uri_of(order.urn, Role.DATA),
                COMPACTION: order.compaction,
                **order.details,
            },
            **sum_segments(staged.segments),
        )

    def _stage(self, new: NewSequence, order: ReplacementOrder) -> StagedAttempt:
        work = order.open_work()
        attempt = self._register(new, work, order.lease)
        try:
            written = work.write(attempt.directory, attempt.tag)
            self._make_durable(attempt.directory, [each for group in written for each in group.outputs])
        except GobblinError as error:
            self._fail(attempt.attempt_id, error)
            raise
        except OSError as error:
            failure = RetryableError(f"{order.urn}: {error}", hint="The next compaction tries again.", urn=order.urn)
            self._fail(attempt.attempt_id, failure)
            raise failure from error
        segments = tuple(
            segment for number, group in enumerate(written) for segment in self._segments(new, order.urn, group, number)
        )
        staged = StagedAttempt(
            attempt_id=attempt.attempt_id,
            sequence_id=new.sequence_id,
            fence=order.lease.fence,
            segments=segments,
            segment_ids=tuple(self.clock.new_id() for _segment in segments),
        )
        self.require(order.lease)
        self.store.stage(staged)
        return staged

    def _register(self, new: NewSequence, work: WritesAnew, lease: Lease) -> _Attempt:
        """Record the attempt before its first byte, so that no staging is unknown."""
        attempt_id = AttemptId(self.clock.new_id())
        directory = self.destination.stage(attempt_id)
        tag = f"gobblin-{attempt_id.hex}"
        self.require(lease)
        self.store.register_attempt(
            NewAttempt(
                attempt_id=attempt_id,
                sequence_id=new.sequence_id,
                dataset_id=new.dataset_id,
                fence=new.fence,
                multi_work_unit=0,
                try_number=1,
                staging_path=directory,
                tag=tag,
                interruption=work.describe_interruption(tag),
            )
        )
        return _Attempt(attempt_id, directory, tag)

    def _make_durable(self, directory: str, written: Sequence[Output]) -> None:
        reach(Failpoint.ATTEMPT_WRITTEN)
        self.destination.make_durable({directory: written})
        reach(Failpoint.ATTEMPT_DURABLE)

    def _segments(self, new: NewSequence, urn: DatasetUrn, group: WrittenAnew, number: int) -> Iterator[Segment]:
        about: Any = {"role": group.role, "partition": new.partition, "file_schema": group.file_schema}
        steps = self.destination.steps_for(group.outputs, Target(urn, new.partition, new.sequence_id, number))
        # Without rows, a segment without steps says which columns there are.
        for segment in encode_segments(steps, **about) or [encode_empty(**about)]:
            yield replace(segment, version=group.version)

    @contextmanager
    def _aborting(self, sequence_id: SequenceId, lease: Lease) -> Iterator[None]:
        """Abort the sequence on an error if it was not sealed; leave it to recovery if it may have been sealed."""
        try:
            yield
        except (FencedError, OutcomeUnknownError):
            raise
        except GobblinError as error:
            try:
                self.driver.store.abort(sequence_id, fence=lease.fence, error=str(error)[:_ERROR_TEXT_MAX])
            except ConflictError:
                # It was sealed, and will be tried again.
                raise error from None
            except GobblinError as second:
                self.say(f"the compaction could not be aborted; the next run does it: {second}")
            raise

    def _fail(self, attempt_id: AttemptId, error: GobblinError) -> None:
        text = f"{type(error).__name__}: {error}"[:_ERROR_TEXT_MAX]
        try:
            self.store.fail_attempt(attempt_id, error=text, cancelled=isinstance(error, FencedError))
        except GobblinError as second:
            self.say(f"the failure of an attempt could not be recorded: {second}")
