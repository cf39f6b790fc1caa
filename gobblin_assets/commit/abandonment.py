"""Abandoning: a person gives a sealed sequence up, and nothing of it may stay visible.

Listing what is visible and then writing ABORTED is not enough: a paused owner of the sequence may wake up
between the two and rename the rest. So the staging is captured first: every planned attempt directory gets
a name that only the new fence knows. From then on a zombie's renames find no source. What is visible
already is then renamed back into the capture, and only after that the sequence is ABORTED.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from gobblin_assets.commit.attempts import captured_directory
from gobblin_assets.commit.execution import OpenFileSystem, directories_to_sync
from gobblin_assets.commit.markers import remove_markers
from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.commit.sequence import AttemptRecord, SequenceRecord
from gobblin_assets.commit.steps import CommitStep, RenameDirectory, RenameFile, StepWorld
from gobblin_assets.commit.store import CommitStepStore
from gobblin_assets.errors import ConflictError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.fs.port import FileSystem, RenameOutcome
from gobblin_assets.model.path_names import list_upwards
from gobblin_assets.state.leases import Lease


@dataclass(frozen=True, slots=True)
class Abandonment:
    """``interrupt`` ends whatever still writes into an attempt's staging, as far as that is possible."""

    store: CommitStepStore
    open_file_system: OpenFileSystem
    interrupt: Callable[[AttemptRecord], None]

    def begin(self, sequence: SequenceRecord, lease: Lease, *, reason: str) -> None:
        """Record the decision, then carry it out."""
        self.store.begin_abandon(sequence.sequence_id, fence=lease.fence, reason=reason)
        self._capture_and_return(sequence, lease)

    def carry_out(self, sequence: SequenceRecord, lease: Lease) -> None:
        """Go on with an abandonment that another owner began. ConflictError leaves it ABANDONING."""
        self.store.begin_abandon(sequence.sequence_id, fence=lease.fence, reason=sequence.last_error or "")
        self._capture_and_return(sequence, lease)

    def _capture_and_return(self, sequence: SequenceRecord, lease: Lease) -> None:
        fs, root = self.open_file_system(sequence.root_uri)
        attempts = self.store.list_attempts(sequence.sequence_id)
        for attempt in attempts:
            self.interrupt(attempt)
            capture(fs, attempt, lease.fence)
        fs.sync_directories({str(PurePosixPath(attempt.staging_path).parent) for attempt in attempts})
        reach(Failpoint.ABANDON_CAPTURED)
        for segment in self.store.read_segments(sequence.sequence_id):
            steps = decode_segment(segment.payload, segment.digest)
            for step in steps:
                _take_back(fs, step, attempts, lease.fence)
            # Also where it was taken back to, and by earlier owners: else a power cut could make it visible again.
            places = _directories_of_places(steps, attempts, lease.fence)
            fs.sync_directories([*list_upwards(places, root), *directories_to_sync(steps, root)])
        reach(Failpoint.ABANDON_RETURNED)
        remove_markers(fs, root, sequence.job, sequence.urn, sequence.sequence_id)
        self.store.end_abandon(sequence.sequence_id, fence=lease.fence)


def capture(fs: FileSystem, attempt: AttemptRecord, fence: int) -> bool:
    """Move the attempt's directory, if it is there, to the name of ``fence``. True if it was there.

    Earlier captures of the same attempt keep their names: those were marked in the log before.
    """
    target = captured_directory(attempt.staging_path, fence)
    outcome = fs.rename_no_replace(attempt.staging_path, target)
    if outcome is RenameOutcome.TARGET_EXISTS:
        # Captured under this fence before, and made again since by a writer that did not know.
        return fs.is_directory(attempt.staging_path)
    return outcome is RenameOutcome.RENAMED


def _take_back(fs: FileSystem, step: CommitStep, attempts: Sequence[AttemptRecord], fence: int) -> None:
    """Undo one rename, if it happened; never a file that is not the one that was staged."""
    match step:
        case RenameDirectory():
            if not fs.is_directory(step.target):
                return
            found = StepWorld(fs).list_directory(step.target)
            same = len(found) == len(step.files) and all(
                file.name in found and found[file.name].matches(file.identity) for file in step.files
            )
        case RenameFile():
            identity = fs.find_identity(step.target)
            if identity is None:
                return
            same = identity.matches(step.identity)
        case _:
            raise ConflictError(
                f"a step of the kind {step.kind!r} can't be taken back",
                hint="Undo it by hand, or resume the sequence instead.",
                kind=step.kind,
            )
    if not same:
        raise ConflictError(
            f"{step.target} is not what this sequence published; it stays as it is",
            hint="Move the stranger away by hand, then abandon again.",
            path=step.target,
        )
    place = _place_for(step.source, attempts, fence)
    fs.make_directories(str(PurePosixPath(place).parent))
    outcome = fs.rename_no_replace(step.target, place)
    if outcome is RenameOutcome.TARGET_EXISTS:
        raise ConflictError(f"{place} is taken; {step.target} can't be taken back", path=step.target)


def _directories_of_places(steps: Sequence[CommitStep], attempts: Sequence[AttemptRecord], fence: int) -> Iterator[str]:
    """The directories into which any owner's capture may have put the steps' files."""
    sources = [step.source for step in steps if isinstance(step, RenameDirectory | RenameFile)]
    for attempt in attempts:
        for source in sources:
            if source.startswith(f"{attempt.staging_path}/"):
                for captured_by in {*attempt.cleanup_fences, fence}:
                    yield str(PurePosixPath(_place_for(source, [attempt], captured_by)).parent)


def _place_for(source: str, attempts: Sequence[AttemptRecord], fence: int) -> str:
    for attempt in attempts:
        if source.startswith(f"{attempt.staging_path}/"):
            inside = source[len(attempt.staging_path) + 1 :]
            return f"{captured_directory(attempt.staging_path, fence)}/returned/{inside}"
    raise ConflictError(f"{source} belongs to no attempt of this sequence", path=source)
