"""Mutants of a sink's worker, and of the guards of its log: random histories of sinks must notice each.

The model of lanes says which guards back each other: any one of them may be missing alone. They are left out together.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Final
from unittest import mock

from gobblin_assets.commit import abandonment
from gobblin_assets.commit.recovery import Recovered
from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.errors import GobblinError, OutcomeUnknownError, RetryableError
from gobblin_assets.jobs.sink import lane_holding
from gobblin_assets.jobs.sink.cut_publishing import CutPublisher
from gobblin_assets.jobs.sink.dataset_sink import LaneCut
from gobblin_assets.jobs.sink.sink_lanes import SinkLanes
from gobblin_assets.jobs.sink.sink_worker import SinkWorker
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.sources.log_port import Barrier, LogStart, VnodeStart
from tests.simulation import log_building
from tests.simulation.guards import Guard
from tests.simulation.mutant import Change, Mutant, patched, without
from tests.support.fake_log import STARTED_AT, FakeLog
from tests.support.random_logs import FakeEpochSource

# Recovery and publishing ------------------------------------------------------------------------------------


def _rewinds(driver: Any, abandonment: Any, leases: Any) -> list[Recovered | GobblinError]:
    """Recovery: files that are visible are taken for published, and any other row for never written."""
    found: dict[Any, Recovered | GobblinError] = {}
    for lease in leases:
        for each in driver.store.find_unfinished(lease.dataset_id):
            is_sealed = each.lane_id == lease.lane_id and each.state is SequenceState.PREPARED
            if is_sealed and not _is_visible(driver, each.sequence_id):
                driver.store.begin_abandon(each.sequence_id, fence=lease.fence, reason="not visible")
                driver.store.end_abandon(each.sequence_id, fence=lease.fence)
                found[lease] = RetryableError("rewound")
    others = [lease for lease in leases if lease not in found]
    found |= dict(zip(others, _RECOVER(driver, abandonment, others), strict=True))
    return [found[lease] for lease in leases]


def _is_visible(driver: Any, sequence_id: Any) -> bool:
    fs, _root = driver.open_file_system(driver.store.get(sequence_id).root_uri)
    parts = [*driver.store.read_segments(sequence_id)]
    steps: list[Any] = [step for each in parts for step in decode_segment(each.payload, each.digest)]
    return all(fs.is_directory(step.target) for step in steps)


_RECOVER: Final = lane_holding.recover_lanes


def _shows_before_the_row(self: CutPublisher, some: Sequence[Any]) -> None:
    _STAGE(self, some)
    for each in some:
        for segment in each.segments:
            steps: list[Any] = [*decode_segment(segment.payload, segment.digest)]
            for step in steps:
                self.fs.make_directories(str(PurePosixPath(step.target).parent))
                self.fs.rename_no_replace(step.source, step.target)


_STAGE: Final = CutPublisher._stage


@dataclass
class _Late:
    """A destination that makes files durable only when the driver is asked to publish them."""

    destination: Any
    driver: Any
    waiting: dict[str, Any]

    def make_durable(self, given: Mapping[str, Any]) -> None:
        self.waiting |= given

    def publish_all(self, prepared: Any) -> Any:
        if self.waiting:
            self.destination.make_durable(self.waiting)
        return self.driver.publish_all(prepared)

    def require(self, *lease: Any) -> None:
        """As the driver, of a lease; as the destination, of itself."""
        (self.driver if lease else self.destination).require(*lease)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.destination, name)


def _seals_before_it_is_durable(self: CutPublisher, cuts: Any) -> Any:
    late: Any = _Late(self.destination, self.driver, {})
    return _PUBLISH_CUTS(replace(self, destination=late, driver=late), cuts)


_PUBLISH_CUTS: Final = CutPublisher.publish


def _cuts_after_a_chunk(self: SinkWorker, log: Any, item: Any) -> None:
    """A cut whose position counts the records that came, in whatever order they came."""
    _TAKE(self, log, item)
    lane = log.owner_of(item.vnode)
    if lane is None or lane.attempt is None:
        return
    for each in lane.writer._vnodes.values():
        each.end, each.rows_past_end = each.seen + each.rows_in_epoch, 0
    lane.writer._checkpoint = lane.writer._checkpoint or Barrier(0, {}, is_checkpoint=True, at=STARTED_AT)
    cut = lane.writer.commit()
    if cut is not None:
        self._lanes.publish(log, [LaneCut(lane, cut)])


def _epoch_of(self: FakeLog, vnode: str, position: int) -> int:
    """A log that may be read from any position on."""
    return sum(each.ends[vnode] <= position for each in self._epochs)


_TAKE: Final = SinkWorker._take


# Truncating --------------------------------------------------------------------------------------------------


@dataclass
class _TruncatesFirst:
    driver: Any
    log: Any
    cuts: Any

    def publish_all(self, prepared: Any) -> Any:
        _truncate(self.log, self.cuts)
        return self.driver.publish_all(prepared)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driver, name)


def _truncate(log: Any, cuts: Any) -> None:
    if log.reader is not None:
        log.reader.truncate({vnode: span.end for given in cuts for vnode, span in given.cut.spans.items()})


def _truncates_at_the_seal(self: SinkLanes, log: Any, cuts: Any) -> Any:
    whole = self.publisher
    driver: Any = _TruncatesFirst(whole.driver, log, cuts)
    self.publisher = replace(whole, driver=driver)
    try:
        return _PUBLISH_ALL(self, log, cuts)
    finally:
        self.publisher = whole


def _passes_empty_cuts_over(self: SinkLanes, log: Any, cuts: Any) -> Any:
    empty = [each for each in cuts if not each.cut.files]
    _truncate(log, empty)
    return _PUBLISH_ALL(self, log, [each for each in cuts if each.cut.files])


_PUBLISH_ALL: Final = SinkLanes.publish


# Vnodes ------------------------------------------------------------------------------------------------------


def _copies_vnodes(self: SinkLanes, lane: Any) -> None:
    """The old lane goes on with what it gave away."""
    read_to, positions = dict(lane.read_to), dict(lane.positions)
    _MOVE(self, lane)
    lane.read_to, lane.positions = read_to, positions


_MOVE: Final = SinkLanes._move_vnodes


def _finds_one_start(self: FakeEpochSource, state: Any) -> LogStart:
    """All vnodes begin at the epoch of the one that is furthest behind, as if they were committed up to there."""
    found = _FIND_START(self, state).vnodes
    index = min(self.log.epoch_after(vnode, each.position) for vnode, each in found.items())
    before = self.log.find_epoch(index - 1) if index else None
    ends = dict.fromkeys(found, 0) if before is None else before.ends
    return LogStart({v: VnodeStart(ends[v], None if each.watermark is None else ends[v]) for v, each in found.items()})


_FIND_START: Final = FakeEpochSource.find_start


def _reads_before_recovery(driver: Any, abandonment: Any, leases: Any) -> list[Recovered | GobblinError]:
    """The next holder leaves a row open, and the one after it completes the row."""
    found: list[Recovered | GobblinError] = []
    for lease in leases:
        unfinished = [each for each in driver.store.find_unfinished(lease.dataset_id) if each.lane_id == lease.lane_id]
        is_left = any(each.state is SequenceState.PREPARED and each.fence == lease.fence - 1 for each in unfinished)
        found += [Recovered()] if is_left else _RECOVER(driver, abandonment, [lease])
    return found


def _reads_again(self: SinkLanes, lane: Any, error: Any) -> None:
    """A seal without an answer is taken for not done: its epochs are read, cut and sealed once more."""
    if not isinstance(error, OutcomeUnknownError) or None in lane.positions.values():
        _BACK_OFF(self, lane, error)
        return
    lane.writer.discard()
    lane.read_to = dict(lane.positions)
    lane.writer.assign(lane.read_to)


_BACK_OFF: Final = SinkLanes._back_off


# A library's exceptions ------------------------------------------------------------------------------------


def _knows_families_only(self: SinkLanes, label: str, error: Exception) -> GobblinError:
    """The read loop takes what libraries raise for the end of the worker."""
    if isinstance(error, GobblinError):
        return error
    raise error


# Together ----------------------------------------------------------------------------------------------------


def _all(*changes: Change) -> Change:
    @contextmanager
    def change() -> Iterator[None]:
        with ExitStack() as stack:
            for each in changes:
                stack.enter_context(each())
            yield

    return change


def _blind_to_other_lanes() -> AbstractContextManager[Any]:
    """The seal does not look whether a row of another lane has its vnodes."""
    return mock.patch.object(log_building, "_require_closed_elsewhere", return_value=None)


IN_SINK_HISTORIES = (
    Mutant("recovery rewinds what is not visible", patched(lane_holding, "recover_lanes", _rewinds)),
    Mutant("files become visible without a row", patched(CutPublisher, "_stage", _shows_before_the_row)),
    Mutant("a row stands before its data is durable", patched(CutPublisher, "publish", _seals_before_it_is_durable)),
    Mutant(
        "a cut inside of an epoch",
        _all(patched(SinkWorker, "_take", _cuts_after_a_chunk), patched(FakeLog, "epoch_after", _epoch_of)),
    ),
    Mutant(
        "a vnode is in two lanes",
        _all(
            patched(SinkLanes, "_move_vnodes", _copies_vnodes), without(Guard.SEAL_CHECKS_LANE), _blind_to_other_lanes
        ),
    ),
    Mutant("the log is truncated at the seal", patched(SinkLanes, "publish", _truncates_at_the_seal)),
    Mutant("an empty cut is not recorded", patched(SinkLanes, "publish", _passes_empty_cuts_over)),
    Mutant("a row is given up without capture", patched(abandonment, "capture_attempt", lambda *_given: False)),
    Mutant(
        "one start for all vnodes, which no seal compares",
        _all(
            patched(FakeEpochSource, "find_start", _finds_one_start),
            patched(FakeLog, "drop", lambda *_given: None),
            without(Guard.SEAL_COMPARES_WATERMARKS),
        ),
    ),
    Mutant(
        "two open rows a lane, of which one is not recovered before vnodes are read",
        _all(patched(lane_holding, "recover_lanes", _reads_before_recovery), without(Guard.ONE_OPEN_SEQUENCE)),
    ),
    Mutant(
        "two open rows a lane, and a seal without an answer is not done",
        _all(patched(SinkLanes, "_back_off", _reads_again), without(Guard.ONE_OPEN_SEQUENCE)),
    ),
    Mutant("a library's exception in the read loop", patched(SinkLanes, "explain", _knows_families_only)),
)

IN_SINK_MOVES = (
    Mutant(
        "a mover neither holds its lane nor looks for open rows",
        _all(without(Guard.MOVE_CHECKS_FENCE, Guard.MOVE_WAITS_FOR_OPEN), _blind_to_other_lanes),
    ),
    Mutant(
        "a mover does not hold its lane, and a seal is blind to whose the vnodes are",
        _all(without(Guard.MOVE_CHECKS_FENCE, Guard.SEAL_CHECKS_LANE), _blind_to_other_lanes),
    ),
)
"""For ``run_moves``. Where a row of another lane is open, our seal has one look more than the model: it goes, too."""
