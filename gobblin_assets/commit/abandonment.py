"""Abandoning: a person gives up a sealed sequence, and none of its files may stay visible.

It is not enough to list the visible files and then write ABORTED: a paused owner of the sequence may wake up
between the two and rename the rest. So the staging is captured first: every planned attempt directory gets
a name that only the new fence knows. From then on a zombie's renames find no source. Then each step undoes
itself, and only after that the sequence is ABORTED.

Steps that can't be undone are found before the decision is recorded, so that the sequence can still be resumed. So are
effects elsewhere than in files: the place that keeps them first gets a refusal of the sequence, and says if it is too
late.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

from gobblin_assets.commit.attempt_capture import capture_attempt
from gobblin_assets.commit.markers import remove_markers
from gobblin_assets.commit.repair import NamedRepair
from gobblin_assets.commit.segment import decode_segment, find_kinds, find_phase
from gobblin_assets.commit.sequence import AttemptRecord, SequenceRecord
from gobblin_assets.commit.step_calls import directories_to_sync, forbid_steps, settle_steps, undo_steps
from gobblin_assets.commit.step_world import OpenFileSystem, StepPorts, StepWorld
from gobblin_assets.commit.steps import CapturedStaging, StepKind
from gobblin_assets.commit.store import SequenceFinisher, StoredSegment
from gobblin_assets.errors import FencedError, RejectedError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import SequenceId
from gobblin_assets.state.leases import Lease


@dataclass(frozen=True, slots=True)
class Abandonment:
    """The abandonment of sequences that a person gave up.

    ``interrupt`` ends any work that still writes into an attempt's staging, as far as that is possible.
    """

    store: SequenceFinisher
    open_file_system: OpenFileSystem
    interrupt: Callable[[AttemptRecord], None]

    def begin(self, sequence: SequenceRecord, lease: Lease, *, reason: str, repair: NamedRepair | None = None) -> None:
        """Record the decision, then carry it out. ``repair``: goes on where a name can't be taken back.

        RejectedError for a step that can't be undone: nothing has begun. If an earlier release has begun, a person
        must undo the step by hand.
        """
        segments, kinds = self._read(sequence)
        for kind in kinds:
            if kind.irreversible and sequence.state is not SequenceState.ABANDONING:
                raise RejectedError(
                    f"a step of the kind {kind.name!r} can't be undone: {kind.irreversible}",
                    field="sequence",
                    hint=f"`gobblin-assets commit resume {sequence.sequence_id}` completes it instead.",
                    kind=kind.name,
                )
        if sequence.state is not SequenceState.ABANDONING:
            self._forbid(sequence, segments)
        self._carry_out(sequence, lease, segments, reason, repair)

    def _forbid(self, sequence: SequenceRecord, segments: Sequence[StoredSegment]) -> None:
        """What has happened elsewhere must be completed; what has not must not happen once the decision is recorded."""
        fs, _root = self.open_file_system(sequence.root_uri)
        with StepPorts(self.open_file_system) as ports:
            for segment in segments:
                steps = decode_segment(segment.payload, segment.digest)
                fault = forbid_steps(steps, StepWorld(fs, ports))
                if fault is not None:
                    raise RejectedError(
                        f"{fault.place} {fault.found}",
                        field="sequence",
                        hint=f"It can only be completed: `gobblin-assets commit resume {sequence.sequence_id}`.",
                    )

    def carry_out(self, sequence: SequenceRecord, lease: Lease) -> None:
        """Go on with an abandonment that another owner began. ConflictError leaves it ABANDONING."""
        segments, _kinds = self._read(sequence)
        self._carry_out(sequence, lease, segments, sequence.last_error or "")

    def _read(self, sequence: SequenceRecord) -> tuple[Sequence[StoredSegment], Sequence[StepKind]]:
        """The segments and the kinds of their steps. StepKindMissingError for one that this process does not know."""
        segments = tuple(self.store.read_segments(sequence.sequence_id))
        kinds = {kind.name: kind for each in segments for kind in find_kinds(each.payload, each.digest)}
        return segments, tuple(kinds.values())

    def _carry_out(
        self,
        sequence: SequenceRecord,
        lease: Lease,
        segments: Sequence[StoredSegment],
        reason: str,
        repair: NamedRepair | None = None,
    ) -> None:
        self.store.begin_abandon(sequence.sequence_id, fence=lease.fence, reason=reason)
        fs, root = self.open_file_system(sequence.root_uri)
        attempts = self.store.list_attempts(sequence.sequence_id)
        for attempt in attempts:
            self.interrupt(attempt)
            capture_attempt(fs, attempt, lease.fence, sequence.fence)
        fs.sync_directories({str(PurePosixPath(attempt.staging_path).parent) for attempt in attempts})
        reach(Failpoint.ABANDON_CAPTURED)
        fences = {attempt.staging_path: frozenset({*attempt.cleanup_fences, lease.fence}) for attempt in attempts}
        captured = CapturedStaging(
            sequence.sequence_id, lease.fence, fences, partial(self._require_held, sequence.sequence_id, lease.fence)
        )
        located = {staging: captured.place_of(staging) for staging in fences}
        with StepPorts(self.open_file_system) as ports:
            for segment in sorted(segments, key=lambda segment: -find_phase(segment.payload)):
                steps = decode_segment(segment.payload, segment.digest)
                undo = undo_steps if repair is None else partial(settle_steps, repair)
                undo(steps, StepWorld(fs, ports, located), captured)
                fs.sync_directories(directories_to_sync(steps, root, {}, captured))
        reach(Failpoint.ABANDON_RETURNED)
        remove_markers(fs, root, sequence)
        unlogged = () if repair is None else repair.names
        self.store.end_abandon(sequence.sequence_id, fence=lease.fence, unlogged=unlogged)

    def _require_held(self, sequence_id: SequenceId, fence: int) -> None:
        if not self.store.is_open_and_held(sequence_id, fence=fence):
            raise FencedError("the sequence was taken over while it was abandoned")
