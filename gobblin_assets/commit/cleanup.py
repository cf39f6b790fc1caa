"""Cleanup: removes the staging of attempts whose sequence is over, and the files of retired generations; then folds.

The order is always the same: an attempt is marked in the log under our fence, then captured (renamed to a name
that only the fence knows), then removed. Nothing is found by pattern: every name follows from a row. An attempt
counts as clean only when a pass found nothing of it and its writer has ended. A paused process that wakes up may
make the directory again (tests saw this), so an attempt that never reported its end is looked at for a day.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from typing import Final

from gobblin_assets.commit.attempt_capture import capture_attempt
from gobblin_assets.commit.attempts import captured_directory
from gobblin_assets.commit.batches import do_together
from gobblin_assets.commit.folding import DEFAULT_FOLD, FoldBounds
from gobblin_assets.commit.object_attempts import discard_attempt
from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.commit.step_kinds import StepKindMissingError
from gobblin_assets.commit.step_world import OpenFileSystem
from gobblin_assets.commit.store import SequenceFolder, StoredSegment
from gobblin_assets.errors import CorruptionError, GobblinError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.objects import HoldsObjects, UploadId, call_side_by_side
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import AttemptId, LaneId
from gobblin_assets.state.leases import Lease

# Shared by all datasets that are cleaned at once; each gets its part, so that files of one that can't be removed do not
# use up the limit of the others.
ATTEMPTS_PER_PASS_MAX: Final = 1_000
SEGMENTS_PER_PASS_MAX: Final = 200
# The first pass removes; the second checks that nothing came back.
PASSES_MAX: Final = 2
SEQUENCES_PER_FOLD_MAX: Final = 200
# Of one sequence. What comes beyond costs a request each, and no memory.
USED_UP_MAX: Final = 100_000
# Retired files that are removed before the lease is looked at again.
REMOVED_TOGETHER: Final = 100
# Of one dataset in one cleanup; the rest is left to the next.
FOLDS_PER_CLEANUP_MAX: Final = 50


@dataclass(slots=True)
class Cleaned:
    """The result of a dataset's cleanup. ``remaining`` attempts still had files at the last pass.

    ``folded`` publications became a part of others; ``forgotten`` publications were older than the log keeps history.
    """

    attempt_count: int = 0
    removed_file_count: int = 0
    remaining: int = 0
    folded: int = 0
    forgotten: int = 0


@dataclass(frozen=True, slots=True)
class Cleanup:
    """The cleanup of leased datasets.

    ``interrupt`` ends any work that still writes into an attempt's staging, as far as that is possible.
    """

    store: SequenceFolder
    open_file_system: OpenFileSystem
    interrupt: Callable[[AttemptRecord], None]
    require: Callable[[Lease], None]

    def clean(self, lease: Lease, *, root_uri: str, retire_grace_s: float, fold: FoldBounds = DEFAULT_FOLD) -> Cleaned:
        """Clean one leased dataset. An interruption at any point only leaves work for the next call."""
        (outcome,) = self.clean_all([lease], root_uri=root_uri, retire_grace_s=retire_grace_s, fold=fold)
        if isinstance(outcome, GobblinError):
            raise outcome
        return outcome

    def clean_all(
        self, leases: Sequence[Lease], *, root_uri: str, retire_grace_s: float, fold: FoldBounds = DEFAULT_FOLD
    ) -> list[Cleaned | GobblinError]:
        """The same for several datasets: the result or error of ``clean`` for each, in their order.

        An error that concerns all datasets is raised.
        """
        fs, _root = self.open_file_system(root_uri)
        outcomes: dict[LaneId, Cleaned | GobblinError] = {lease.lane_id: Cleaned() for lease in leases}
        left = list(leases)
        for _pass in range(PASSES_MAX):
            attempts = self._mark(left, outcomes)
            if not attempts:
                break
            self._clear_all(fs, attempts, {lease.lane_id: lease for lease in left}, outcomes)
            marked = {attempt.lane_id for attempt in attempts}
            left = [lease for lease in left if lease.lane_id in marked]
        self._remove_retired(leases, retire_grace_s, outcomes)
        self._fold_all(leases, fold, outcomes)
        return [outcomes[lease.lane_id] for lease in leases]

    def _mark(self, leases: Sequence[Lease], outcomes: dict[LaneId, Cleaned | GobblinError]) -> list[AttemptRecord]:
        marked: list[AttemptRecord] = []

        def mark(some: Sequence[Lease]) -> None:
            fences = {lease.lane_id: lease.fence for lease in some}
            marked.extend(self.store.mark_for_cleanup(fences, limit=_share(ATTEMPTS_PER_PASS_MAX, len(fences))))

        ours = [lease for lease in leases if isinstance(outcomes[lease.lane_id], Cleaned)]
        for lease, error in zip(ours, do_together(ours, mark), strict=True):
            if error is not None:
                outcomes[lease.lane_id] = error
        return marked

    def _clear_all(
        self,
        fs: FileSystem,
        attempts: Sequence[AttemptRecord],
        leases: Mapping[LaneId, Lease],
        outcomes: dict[LaneId, Cleaned | GobblinError],
    ) -> None:
        empty: dict[AttemptId, int] = {}
        for lane_id in {attempt.lane_id for attempt in attempts}:
            outcome = outcomes[lane_id]
            if isinstance(outcome, Cleaned):
                outcome.remaining = 0
        for attempt in attempts:
            outcome = outcomes[attempt.lane_id]
            if not isinstance(outcome, Cleaned):
                continue
            try:
                found = self._clear(fs, attempt, leases[attempt.lane_id])
            except GobblinError as error:
                outcomes[attempt.lane_id] = error
                continue
            if found:
                outcome.remaining += 1
            else:
                outcome.attempt_count += 1
                empty[attempt.attempt_id] = leases[attempt.lane_id].fence
        fs.sync_directories({str(PurePosixPath(attempt.staging_path).parent) for attempt in attempts})
        self.store.mark_cleaned(empty)

    def _clear(self, fs: FileSystem, attempt: AttemptRecord, lease: Lease) -> bool:
        """Remove all files of an attempt; True if there were any."""
        self.require(lease)
        self.interrupt(attempt)
        found = capture_attempt(fs, attempt, lease.fence)
        reach(Failpoint.CLEANUP_CAPTURED)
        if isinstance(fs, HoldsObjects):
            discard_attempt(
                fs.objects,
                attempt.staging_path,
                fs.calls_at_once,
                partial(self.require, lease),
                partial(self._find_used_up, attempt),
            )
            reach(Failpoint.CLEANUP_REMOVED)
            return found
        for fence in {lease.fence} if attempt.is_at_given_names else {*attempt.cleanup_fences, lease.fence}:
            captured = captured_directory(attempt.staging_path, fence)
            if fs.is_directory(captured):
                found = True
                fs.remove_tree(captured)
        reach(Failpoint.CLEANUP_REMOVED)
        return found

    def _find_used_up(self, attempt: AttemptRecord) -> list[UploadId]:
        """Uploads of its sequence that became objects: each step of what is DONE was verified. Any other upload of the
        attempt is of a task that failed or had a twin.
        """
        if attempt.sequence_state is not SequenceState.DONE:
            return []
        used_up = (
            upload
            for segment in self.store.read_segments(attempt.sequence_id)
            for step in decode_segment(segment.payload, segment.digest)
            for upload in step.uploads()
        )
        try:
            return list(islice(used_up, USED_UP_MAX))
        except (CorruptionError, StepKindMissingError):
            # All of them are aborted then, with a request for each.
            return []

    def _remove_retired(
        self, leases: Sequence[Lease], grace_s: float, outcomes: dict[LaneId, Cleaned | GobblinError]
    ) -> None:
        ours = {lease.lane_id: lease for lease in leases if isinstance(outcomes[lease.lane_id], Cleaned)}
        if not ours:
            return
        limit = _share(SEGMENTS_PER_PASS_MAX, len(ours))
        for segment in self.store.list_removable(*ours, grace_s=grace_s, limit=limit):
            outcome = outcomes[segment.dataset_id]
            if not isinstance(outcome, Cleaned):
                continue
            try:
                lease = ours[segment.dataset_id]
                self.require(lease)
                reach(Failpoint.RETIRE_MARKED)
                outcome.removed_file_count += self._remove_files(segment, lease)
                reach(Failpoint.RETIRE_REMOVED)
                self.store.mark_removed([segment.segment_id])
            except GobblinError as error:
                outcomes[segment.dataset_id] = error

    def _fold_all(
        self, leases: Sequence[Lease], bounds: FoldBounds, outcomes: dict[LaneId, Cleaned | GobblinError]
    ) -> None:
        ours = {lease.lane_id: lease for lease in leases if isinstance(outcomes[lease.lane_id], Cleaned)}
        for lane_id in self.store.find_foldable(*ours, bounds=bounds) if ours else ():
            outcome = outcomes[lane_id]
            try:
                if isinstance(outcome, Cleaned):
                    self._fold(ours[lane_id], bounds, outcome)
            except GobblinError as error:
                outcomes[lane_id] = error

    def _fold(self, lease: Lease, bounds: FoldBounds, outcome: Cleaned) -> None:
        lane_id, limit = lease.lane_id, SEQUENCES_PER_FOLD_MAX
        for _fold in range(FOLDS_PER_CLEANUP_MAX):
            self.require(lease)
            folded = self.store.fold(lane_id, fence=lease.fence, bounds=bounds, limit=limit)
            outcome.folded += folded
            if not folded:
                break
        else:
            return
        for _forgetting in range(FOLDS_PER_CLEANUP_MAX):
            self.require(lease)
            forgotten = self.store.forget(lane_id, fence=lease.fence, bounds=bounds, limit=limit)
            outcome.forgotten += forgotten
            if forgotten < limit:
                self.store.mark_folded(lane_id, fence=lease.fence, bounds=bounds)
                return

    def _remove_files(self, segment: StoredSegment, lease: Lease) -> int:
        """The lease was looked at just now."""
        fs, root = self.open_file_system(segment.root_uri)
        files = [(path, identity) for path, identity, _rows in segment.files()]
        removed = 0
        for start in range(0, len(files), REMOVED_TOGETHER):
            if start:
                self.require(lease)
            removed += sum(call_side_by_side(fs, partial(_remove_file, fs), files[start : start + REMOVED_TOGETHER]))
        directories = {str(PurePosixPath(path).parent) for path, _identity in files}
        gone = [directory for directory in sorted(directories) if _remove_if_empty(fs, directory, root)]
        # Synced before the log forgets them: a power cut could bring them back, and nobody would look for them again.
        fs.sync_directories({*directories, *(str(PurePosixPath(directory).parent) for directory in gone)})
        return removed


def _remove_file(fs: FileSystem, file: tuple[str, FileIdentity]) -> bool:
    """The only deletion of a published file: ``remove_file`` compares its identity once more."""
    path, identity = file
    if fs.find_identity(path) is None:
        return False
    fs.remove_file(path, identity)
    return True


def _share(all_of_them: int, count: int) -> int:
    return max(1, all_of_them // count)


def _remove_if_empty(fs: FileSystem, directory: str, root: str) -> bool:
    """Remove the directory of a retired sequence; its parents belong to the dataset and stay."""
    return directory.startswith(f"{root}/") and fs.remove_empty_directory(directory)
