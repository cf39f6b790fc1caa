"""Publications of the cuts of a worker's lanes: each is a sequence of its own, and all go through the log together.
The order is that of every publication. The attempt is recorded before its first byte. At the cut, files are durable
before the attempt is staged, the sequence is sealed with the start and the end of each vnode, files are renamed and
verified, and the watermarks move at the end. A cut without rows is a sequence without steps.
"""

import datetime as dt
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from gobblin_assets.commit.batches import do_together
from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.segment import Segment, encode_segments
from gobblin_assets.commit.sequence import (
    KeyMove,
    NewAttempt,
    NewSequence,
    Publication,
    PublishedInterval,
    SealOrder,
    StagedAttempt,
)
from gobblin_assets.commit.store import SequenceSealer
from gobblin_assets.errors import GobblinError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.jobs.sink.dataset_sink import HeldLane, LaneAttempt, LaneCut, LaneDescription, RereadRows
from gobblin_assets.jobs.sink.lane_files import CutFile
from gobblin_assets.jobs.sink.lane_writer import Cut, VnodeSpan
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.defects import find_family
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.state import AttemptId, LaneId, RunId, SequenceId
from gobblin_assets.model.urn import Role
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.rows.attempt_files import open_role_files
from gobblin_assets.rows.new_files import FilesInDirectory, NewFiles
from gobblin_assets.run.destination import Destination, Target
from gobblin_assets.run.job_kind import Output
from gobblin_assets.run.seal_decision import sum_segments
from gobblin_assets.run.task import require_whole, task_tag

_NUMBER: Final = 0
"""Of the only MultiWorkUnit of a cut."""


@dataclass(slots=True, eq=False)
class PendingCut:
    """A cut on its way into the log, and what its lane wrote for it.

    ``attempt`` None: the lane never opened a file. ``reread``: what Spark made of the records, if it did.
    """

    lane: HeldLane
    cut: Cut
    sequence_id: SequenceId
    partition: str
    attempt: LaneAttempt | None
    reread: RereadRows | None = None
    description: LaneDescription | None = None
    segments: tuple[Segment, ...] = ()
    segment_ids: tuple[uuid.UUID, ...] = ()

    @property
    def row_counts(self) -> Mapping[Role, int]:
        if self.reread is None:
            return self.cut.row_counts
        return {role: count for role in Role if (count := self.reread.staged.row_count(role))}

    @property
    def rows_read(self) -> int:
        """The number of rows that the files must have; never counted in the files."""
        return sum(self.cut.row_counts.values()) if self.reread is None else self.reread.staged.rows_read

    @property
    def is_news(self) -> bool:
        """Whether it says more of the dataset than the lane's last publication."""
        return self.description is not None and self.description.has_news(self.lane.described)

    def list_outputs(self) -> list[Output]:
        if self.attempt is None:
            return []
        return list(self._list_files(self.attempt) if self.reread is None else self.reread.staged.outputs)

    def _list_files(self, attempt: LaneAttempt) -> list[Output]:
        def place(file: CutFile) -> tuple[str, str]:
            return file.role.value, file.partition_path

        outputs = []
        for (role, path), files in groupby(sorted(self.cut.files, key=place), key=place):
            found = [file.finished for file in files]
            outputs.append(
                Output(
                    role=Role(role),
                    path="/".join(filter(None, (attempt.staging, role, path))),
                    partition_path=path,
                    files=tuple(file.file for file in found),
                    details=tuple(file.step for file in found if file.step is not None),
                )
            )
        return outputs

    def list_moves(self) -> tuple[KeyMove, ...]:
        return tuple(_move_of(self.lane, vnode, span) for vnode, span in self.cut.spans.items())


def _move_of(lane: HeldLane, vnode: str, span: VnodeSpan) -> KeyMove:
    """The move from the vnode's published end to the cut's. What a rule of the log leaves out is in no interval."""
    published = lane.positions.get(vnode)
    return KeyMove(
        key=vnode,
        partition="",
        old=None if published is None else long_watermark(published),
        new=long_watermark(span.end, span.history),
        intervals=(PublishedInterval(Interval(long_watermark(span.start), long_watermark(span.end))),),
    )


@dataclass(frozen=True, slots=True)
class CutPublisher:
    """The publisher of a worker's cuts. ``fs``: the destination's file system, with the job's umask.

    ``reread`` has Spark make the rows of cuts whose records were only counted, in new attempts of their lanes; a lane's
    error is in the place of its rows.
    """

    run_id: RunId
    store: SequenceSealer
    destination: Destination
    fs: FileSystem
    driver: Driver
    clock: Clock
    lease_ttl_s: float
    reread: Callable[[Sequence[LaneCut]], Mapping[LaneId, RereadRows | GobblinError]]

    def open_attempts(self, lanes: Sequence[HeldLane]) -> Mapping[LaneId, GobblinError]:
        """Begin the next sequence of each lane that has none, before its first byte; the errors of those that fail."""
        ready = [lane for lane in lanes if lane.attempt is None]
        try:
            self.destination.require()
            pairs = [(lane, self._new_attempt(lane)) for lane in ready]
        except Exception as error:  # noqa: BLE001  the failure of these lanes
            failure = find_family("a publication could not be begun", error)
            return {lane.lane_id: failure for lane in ready}
        failed: dict[LaneId, GobblinError] = {}
        for (lane, attempt), refused in zip(pairs, do_together(pairs, self._begin), strict=True):
            if refused is None:
                lane.build(attempt)
            else:
                failed[lane.lane_id] = refused
        return failed

    def _begin(self, pairs: Sequence[tuple[HeldLane, LaneAttempt]]) -> None:
        self.store.begin(*(self._new_sequence(lane, each.sequence_id, each.partition) for lane, each in pairs))
        # Attempts of Spark's are registered at the cut, before it writes.
        written = [
            new_attempt(lane, each, tag=task_tag(each.attempt_id)) for lane, each in pairs if not lane.sink.is_reread
        ]
        if written:
            self.store.register_attempt(*written)

    def open_files(self, lane: HeldLane, role: Role) -> NewFiles:
        """New files of the lane's attempt, which is open."""
        attempt = lane.require_attempt()
        if role not in attempt.files:
            if attempt.names is not None:
                self.fs.make_directories(attempt.staging)
                attempt.files[role] = open_role_files(self.fs, attempt.staging, attempt.names, role)
            else:
                directory = f"{attempt.staging}/{role}"
                self.fs.make_directories(directory)
                attempt.files[role] = FilesInDirectory(self.fs, directory)
        return attempt.files[role]

    def close_attempts(self, lanes: Sequence[HeldLane], error: str | None = None) -> None:
        """End what was begun and not sealed, as far as possible; the lanes' next holders do the rest.

        Without an error nothing has failed: the lane changes hands, or has no rows.
        """
        for lane in lanes:
            attempt = lane.end_building()
            if attempt is not None:
                with suppress(Exception):
                    self.driver.store.abort(attempt.sequence_id, fence=lane.lease.fence, error=error)

    def publish(self, cuts: Sequence[LaneCut]) -> list[Publication | GobblinError]:
        """Publish each cut, or say why it is not published. Its lane must then be given up, and recovered.

        The lanes have no open attempt afterwards.
        """
        outcomes: dict[SequenceId, Publication | GobblinError] = {}
        pending = [self._pend(each) for each in cuts]
        self._reread(pending, outcomes)
        self._try_each(pending, outcomes, lambda each: each.lane.sink.judge(each.row_counts))
        self._do(pending, outcomes, self._begin_empty)
        self._make_durable(pending, outcomes)
        self._do(pending, outcomes, self._stage)
        self._try_each(pending, outcomes, lambda each: self.driver.require(each.lane.lease))
        reach(Failpoint.STAGED_BEFORE_SEAL)
        self._do(pending, outcomes, lambda some: self.store.seal(*(self._order(each) for each in some)))
        sealed = self._left(pending, outcomes)
        published = self.driver.publish_all([(each.sequence_id, each.lane.lease) for each in sealed])
        outcomes |= {each.sequence_id: outcome for each, outcome in zip(sealed, published, strict=True)}
        for each in pending:
            each.lane.end_building()
            if not isinstance(outcomes[each.sequence_id], GobblinError):
                each.lane.note_described(each.description)
        return [outcomes[each.sequence_id] for each in pending]

    def _reread(self, pending: Sequence[PendingCut], outcomes: dict[SequenceId, Publication | GobblinError]) -> None:
        """Positions that moved without a record are not read again."""
        wanted = {each.lane.lane_id: each for each in pending if each.lane.sink.is_reread and each.rows_read}
        if not wanted:
            return
        for lane_id, found in self.reread([LaneCut(each.lane, each.cut) for each in wanted.values()]).items():
            each = wanted[lane_id]
            each.attempt = each.lane.attempt
            if isinstance(found, GobblinError):
                outcomes[each.sequence_id] = found
            else:
                each.reread = found

    def _new_attempt(self, lane: HeldLane) -> LaneAttempt:
        sequence_id, attempt_id = SequenceId(self.clock.new_id()), AttemptId(self.clock.new_id())
        found = lane.sink.open_window(self.clock.now())
        partition = found.key or ""
        names = self.destination.names_for(Target(lane.urn, partition, sequence_id, _NUMBER))
        ends_at: dt.datetime | None = None if found.window is None else found.window.end
        staging = self.destination.stage(attempt_id)
        return LaneAttempt(
            sequence_id, attempt_id, partition, ends_at, staging, names, is_registered=not lane.sink.is_reread
        )

    def _new_sequence(self, lane: HeldLane, sequence_id: SequenceId, partition: str) -> NewSequence:
        return NewSequence(
            sequence_id=sequence_id,
            dataset_id=lane.dataset_id,
            run_id=self.run_id,
            partition=partition,
            mode=Mode.APPEND,
            replaces=False,
            fence=lane.lease.fence,
            root_uri=self.destination.root_uri,
            lease_ttl_s=self.lease_ttl_s,
            lane=lane.lease.lane,
        )

    def _pend(self, given: LaneCut) -> PendingCut:
        attempt = given.lane.attempt
        if attempt is None:
            partition = given.lane.sink.open_window(self.clock.now()).key or ""
            return PendingCut(given.lane, given.cut, SequenceId(self.clock.new_id()), partition, None)
        return PendingCut(given.lane, given.cut, attempt.sequence_id, attempt.partition, attempt)

    def _begin_empty(self, some: Sequence[PendingCut]) -> None:
        """The sequences of cuts without rows whose lanes never opened a file."""
        new = [self._new_sequence(each.lane, each.sequence_id, each.partition) for each in some if not each.attempt]
        if new:
            self.store.begin(*new)

    def _stage(self, some: Sequence[PendingCut]) -> None:
        self.destination.require()
        staged = [
            StagedAttempt(
                each.attempt.attempt_id, each.sequence_id, each.lane.lease.fence, each.segments, each.segment_ids
            )
            for each in some
            if each.attempt is not None and each.segments
        ]
        if staged:
            self.store.stage(*staged)
        unused = [
            each.attempt.attempt_id
            for each in some
            if each.attempt is not None and each.attempt.is_registered and not each.segments
        ]
        if unused:
            self.store.fail_attempt(*unused, error="nothing was written", cancelled=True)

    def _make_durable(
        self, pending: Sequence[PendingCut], outcomes: dict[SequenceId, Publication | GobblinError]
    ) -> None:
        """Make all files durable, once only: what a disk has failed to keep is read again, and never synced again."""
        left = self._left(pending, outcomes)
        outputs = {each.sequence_id: each.list_outputs() for each in left}
        reach(Failpoint.ATTEMPT_WRITTEN)
        try:
            given = {each.attempt.staging: outputs[each.sequence_id] for each in left if each.attempt is not None}
            with_files = {staging: found for staging, found in given.items() if found}
            if with_files:
                self.destination.make_durable(with_files)
        except Exception as error:  # noqa: BLE001  of a disk, for instance: it keeps none of these files
            outcomes |= dict.fromkeys(outputs, find_family("files could not be made durable", error))
            return
        reach(Failpoint.ATTEMPT_DURABLE)
        self._try_each(left, outcomes, lambda each: self._list_segments(each, outputs[each.sequence_id]))

    def _list_segments(self, each: PendingCut, outputs: Sequence[Output]) -> None:
        each.description = each.lane.sink.describe(each.reread)
        each.segments = self._segments(each, each.description, outputs)
        require_whole(each.lane.label, rows_read=each.rows_read, segments=each.segments)
        each.segment_ids = tuple(self.clock.new_id() for _segment in each.segments)

    def _segments(
        self, each: PendingCut, description: LaneDescription, outputs: Sequence[Output]
    ) -> tuple[Segment, ...]:
        lane = each.lane
        target = Target(lane.urn, each.partition, each.sequence_id, _NUMBER, lane.number, lane.version + 1)
        segments: list[Segment] = []
        for role in Role:
            mine = [output for output in outputs if output.role is role]
            if mine:
                segments += encode_segments(
                    self.destination.steps_for(mine, target),
                    role=role,
                    partition=each.partition,
                    file_schema=description.file_schemas.get(role),
                )
        return tuple(segments)

    def _order(self, each: PendingCut) -> SealOrder:
        lane, cut = each.lane, each.cut
        winners = (each.attempt.attempt_id,) if each.attempt is not None and each.segments else ()
        details = dict(each.description.details) if each.description is not None and each.is_news else {}
        return SealOrder(
            sequence_id=each.sequence_id,
            dataset_id=lane.dataset_id,
            partition=each.partition,
            fence=lane.lease.fence,
            base_version=lane.version,
            winners=winners,
            moves=each.list_moves(),
            complete=True,
            details={
                "uri": self.destination.uri_of(lane.urn, Role.DATA),
                "rows_read": each.rows_read,
                "epoch": cut.epoch,
                "barrier_at": cut.at.isoformat(),
                "duration_s": round((cut.at - cut.opened_at).total_seconds(), 3),
                **details,
            },
            lane=lane.lease.lane,
            **sum_segments(each.segments),
        )

    def _do(
        self,
        pending: Sequence[PendingCut],
        outcomes: dict[SequenceId, Publication | GobblinError],
        act: Callable[[Sequence[PendingCut]], None],
    ) -> None:
        left = self._left(pending, outcomes)
        for each, error in zip(left, do_together(left, act, lambda one: len(one.cut.spans)), strict=True):
            if error is not None:
                outcomes[each.sequence_id] = error

    def _try_each(
        self,
        pending: Sequence[PendingCut],
        outcomes: dict[SequenceId, Publication | GobblinError],
        act: Callable[[PendingCut], None],
    ) -> None:
        for each in self._left(pending, outcomes):
            try:
                act(each)
            except Exception as error:  # noqa: BLE001  the failure of this lane; others go on
                outcomes[each.sequence_id] = find_family(each.lane.label, error)

    @staticmethod
    def _left(
        pending: Sequence[PendingCut], outcomes: Mapping[SequenceId, Publication | GobblinError]
    ) -> list[PendingCut]:
        return [each for each in pending if each.sequence_id not in outcomes]


def new_attempt(
    lane: HeldLane,
    attempt: LaneAttempt,
    *,
    tag: str,
    try_number: int = 1,
    interruption: Mapping[str, object] | None = None,
) -> NewAttempt:
    """The attempt as the log registers it."""
    return NewAttempt(
        attempt_id=attempt.attempt_id,
        sequence_id=attempt.sequence_id,
        dataset_id=lane.dataset_id,
        fence=lane.lease.fence,
        multi_work_unit=_NUMBER,
        try_number=try_number,
        staging_path=attempt.staging,
        tag=tag,
        interruption=interruption,
        lane=lane.lease.lane,
    )
