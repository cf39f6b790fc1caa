"""Setting aside: what a lost history left goes out of readers' sight, and what it had ended is ended in the log.

Files and markers that the log does not know are moved, and nothing is deleted (``set_aside``). Steps that publish no
files are undone before anything is moved.

A publication at given names that the log has open was ended in the lost history, if that history sealed another one
after it. How it ended can't be told, and what stands at its names now is newer. So it is given up without being
undone: its attempts are moved, with all that lies in their slots, and the next run compares source and destination. A
process of the lost history that wakes up finds no place any more, wherever it had captured the attempts.

Order. Attempts first, from the lowest fence to the highest, because such a process may still be moving one up. Then
files. Then what is open is ended, without its markers, since the next publication has its version. The markers of
what the log forgot go last: until they are gone, the dataset stays stopped, and the same command goes on.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from gobblin_assets.commit.attempts import captured_directory
from gobblin_assets.commit.examination import Examination, LogFinding
from gobblin_assets.commit.markers import list_markers
from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.commit.sequence import SequenceRecord
from gobblin_assets.commit.set_aside import disarm_attempt, move_aside
from gobblin_assets.commit.step_calls import directories_to_sync, undo_steps, verify_steps
from gobblin_assets.commit.step_world import StepPorts, StepWorld
from gobblin_assets.commit.steps import CapturedStaging, StepVerdict
from gobblin_assets.errors import ConflictError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.path_names import list_upwards
from gobblin_assets.model.state import DatasetId, SequenceId

ENDED: Final = "ended in the history that was lost"


@dataclass(frozen=True, slots=True)
class SettingAside:
    """The setting aside of one dataset, under ``fence``. ``require`` raises FencedError when its lease is too old.

    ``job_directory``: what is below it keeps its path below ``aside``, which is new with each fence. ``moved``: the
    names that were moved; ``ended``: what the log had open.
    """

    operations: LogOperations
    examination: Examination
    finding: LogFinding
    dataset_id: DatasetId
    fence: int
    require: Callable[[], None]
    job_directory: str
    aside: str
    moved: list[str] = field(default_factory=list)
    ended: list[SequenceId] = field(default_factory=list)

    def carry_out(self) -> None:
        self._undo_what_has_no_files()
        open_ = self._begin_to_end()
        forgotten = self.finding.forgotten
        # First of all, a paused process of the lost history must find nothing to publish when it wakes up.
        for sealed in (each.sealed for each in forgotten):
            if sealed is not None:
                stagings = [attempt.staging_path for attempt in sealed.attempts]
                self._move_attempts(stagings, sealed.order.fence if sealed.is_at_given_names else None)
        for sequence in open_:
            attempts = self.operations.store.list_attempts(sequence.sequence_id)
            for attempt in attempts:
                self.operations.interrupt(attempt)
            self._move_attempts([attempt.staging_path for attempt in attempts], sequence.fence)
        # Looked for again: until now, such a process may have published more.
        published = self.examination.list_directories(self.finding.urn)
        directories = {path for each in forgotten for path in published.get(each.sequence_id, ())}
        self._move(sorted(directories), Failpoint.LOST_DIRECTORY_MOVED)
        reach(Failpoint.LOST_FILES_MOVED)
        for sequence in open_:
            self._end(sequence)
        self._move([marker.path for each in forgotten for marker in each.markers], Failpoint.LOST_MARKER_MOVED)

    def _begin_to_end(self) -> list[SequenceRecord]:
        if not self.finding.forgotten:
            return []
        store = self.operations.store
        unfinished = store.find_unfinished(self.dataset_id)
        found = [each for each in unfinished if each.state.is_open and each.is_at_given_names]
        for sequence in found:
            store.begin_abandon(sequence.sequence_id, fence=self.fence, reason=ENDED)
        return found

    def _end(self, sequence: SequenceRecord) -> None:
        examination = self.examination
        markers = list_markers(examination.fs, examination.root, examination.job, self.finding.urn)
        mine = [marker.path for marker in markers if marker.sequence_id == sequence.sequence_id]
        self._move(mine, Failpoint.LOST_MARKER_MOVED)
        self.operations.store.end_abandon(sequence.sequence_id, fence=self.fence)
        self.ended.append(sequence.sequence_id)
        reach(Failpoint.OPEN_SEQUENCE_ENDED)

    def _move_attempts(self, stagings: Sequence[str], sealed_by: int | None) -> None:
        """Their directories; with ``sealed_by``, under the names of all captures since."""
        for staging in stagings:
            self.require()
            disarm_attempt(self.examination.fs, staging)
        fences = () if sealed_by is None else range(sealed_by, self.fence)
        names = (name for staging in stagings for name in self._names_of(staging, fences))
        self._move(names, Failpoint.LOST_DIRECTORY_MOVED)

    def _names_of(self, staging: str, fences: Iterable[int]) -> Iterator[str]:
        """Each is looked at when those before it were moved."""
        yield staging
        for fence in fences:
            name = captured_directory(staging, fence)
            if self.examination.fs.is_directory(name):
                yield name

    def _undo_what_has_no_files(self) -> None:
        """Undo steps with effects outside the dataset's files, newest first, since these effects can't be moved."""
        fs, root = self.examination.fs, self.examination.root
        with StepPorts(self.operations.open_file_system) as ports:
            self._refuse_loaded(ports)
            for each in reversed(self.finding.forgotten):
                if each.sealed is not None and each.sealed.is_at_given_names:
                    # What it removed or replaced stays in its slots; the next run compares both sides again.
                    continue
                captured = CapturedStaging(each.sequence_id, self.fence, {})
                for segment in () if each.sealed is None else each.sealed.segments():
                    steps = decode_segment(segment.payload, segment.digest)
                    elsewhere = [step for step in steps if next(iter(step.published()), None) is None]
                    if elsewhere:
                        undo_steps(elsewhere, StepWorld(fs, ports), captured)
                        fs.sync_directories(directories_to_sync(elsewhere, root, {}, captured))

    def _refuse_loaded(self, ports: StepPorts) -> None:
        """Before anything is undone: rows that were loaded stay, and would be read and loaded again."""
        for each in self.finding.forgotten:
            for segment in () if each.sealed is None else each.sealed.segments():
                if segment.file_count or not segment.row_count:
                    continue
                steps = decode_segment(segment.payload, segment.digest)
                verdicts = verify_steps(steps, StepWorld(self.examination.fs, ports))
                if StepVerdict.DONE in verdicts:
                    raise ConflictError(
                        f"the rows of sequence {each.sequence_id} are loaded, and are not taken back",
                        hint="Take it back into the log: `gobblin-assets reconcile --adopt`.",
                        sequence_id=str(each.sequence_id),
                    )

    def _move(self, paths: Iterable[str], point: Failpoint) -> None:
        fs, root = self.examination.fs, self.examination.root
        touched: set[str] = set()
        for path in paths:
            self.require()
            target = self.aside + path.removeprefix(self.job_directory)
            if move_aside(fs, path, target):
                self.moved.append(path)
                reach(point)
            touched |= {str(PurePosixPath(each).parent) for each in (path, target)}
        fs.sync_directories(list_upwards(touched, root))
