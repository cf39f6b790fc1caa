"""The driver: carries a sealed sequence out and finishes it. Live runs and recovery use this same code.

Each pass lists, verifies, executes what is not done, makes the directories durable, and verifies again with
listings that are newer than the syncs. Only then is the sequence finished. A step that is found done is not
done again; one that is found lost or contradicted counts only if the log still says "open, and ours".
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Final

from gobblin_assets.commit.markers import put_marker
from gobblin_assets.commit.segment import Segment, decode_segment
from gobblin_assets.commit.sequence import Publication, SealedSequence
from gobblin_assets.commit.steps import CommitStep, RenameDirectory, StepVerdict, StepWorld, verify_all
from gobblin_assets.commit.store import CommitStepStore
from gobblin_assets.commit.together import do_together
from gobblin_assets.errors import (
    ConflictError,
    FencedError,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
)
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.model.path_names import list_upwards
from gobblin_assets.model.state import SequenceId
from gobblin_assets.state.leases import Lease

# A step may lose a race with a zombie of the same sequence; each pass then finds more of it done.
PASSES_MAX: Final = 4
PUBLISH_TRIES_MAX: Final = 5
BACK_OFF_S_FIRST: Final = 5.0
BACK_OFF_S_MAX: Final = 3600.0

OpenFileSystem = Callable[[str], tuple[FileSystem, str]]


@dataclass(frozen=True, slots=True)
class Driver:
    """``require`` raises FencedError when the lease is too old to start another piece of work.

    A sequence that failed ``tries_max`` times is BLOCKED.
    """

    store: CommitStepStore
    open_file_system: OpenFileSystem
    require: Callable[[Lease], None]
    tries_max: int = PUBLISH_TRIES_MAX

    def publish(self, sequence_id: SequenceId, lease: Lease) -> Publication:
        """Execute and finish a PREPARED sequence; count the try if it fails.

        Raises:
            FencedError: somebody else took the dataset over; nothing was counted.
            GobblinError: any other family; the try was counted, and the sequence may be BLOCKED now.

        """
        (outcome,) = self.publish_all([(sequence_id, lease)])
        if isinstance(outcome, GobblinError):
            raise outcome
        return outcome

    def publish_all(self, prepared: Sequence[tuple[SequenceId, Lease]]) -> list[Publication | GobblinError]:
        """The same for several, of different datasets: what ``publish`` gives or raises for each, in their order.

        Each is executed by itself; they are read and finished together.
        """
        reach(Failpoint.SEALED_BEFORE_EXECUTE)
        outcomes: dict[SequenceId, Publication | GobblinError] = {}
        executed: list[tuple[SealedSequence, Lease]] = []
        for sealed, lease in self._load(prepared, outcomes):
            error = _try(partial(self._execute, sealed, lease))
            if error is None:
                executed.append((sealed, lease))
            else:
                outcomes[sealed.order.sequence_id] = self._judge(sealed, lease, error)
        finished: list[SequenceId] = []
        for (sealed, lease), error in zip(executed, do_together(executed, self._finish), strict=True):
            if error is None:
                finished.append(sealed.order.sequence_id)
            else:
                outcomes[sealed.order.sequence_id] = self._judge(sealed, lease, error)
        self._load_publications(finished, outcomes)
        return [outcomes[sequence_id] for sequence_id, _lease in prepared]

    def _load(
        self,
        prepared: Sequence[tuple[SequenceId, Lease]],
        outcomes: dict[SequenceId, Publication | GobblinError],
    ) -> list[tuple[SealedSequence, Lease]]:
        loaded: dict[SequenceId, SealedSequence] = {}

        def load(some: Sequence[tuple[SequenceId, Lease]]) -> None:
            found = self.store.load_sealed(*(sequence_id for sequence_id, _lease in some))
            loaded.update({sealed.order.sequence_id: sealed for sealed in found})

        for (sequence_id, _lease), error in zip(prepared, do_together(prepared, load), strict=True):
            if error is not None:
                outcomes[sequence_id] = error
        return [(loaded[sequence_id], lease) for sequence_id, lease in prepared if sequence_id in loaded]

    def _load_publications(
        self, finished: Sequence[SequenceId], outcomes: dict[SequenceId, Publication | GobblinError]
    ) -> None:
        def load(some: Sequence[SequenceId]) -> None:
            outcomes.update({each.sequence_id: each for each in self.store.load_publications(*some)})

        errors = zip(finished, do_together(finished, load), strict=True)
        outcomes.update({sequence_id: error for sequence_id, error in errors if error is not None})

    def _finish(self, executed: Sequence[tuple[SealedSequence, Lease]]) -> None:
        self.store.finish_all({sealed.order.sequence_id: lease.fence for sealed, lease in executed})

    def _judge(self, sealed: SealedSequence, lease: Lease, error: GobblinError) -> GobblinError:
        """Count the try, unless whoever reads the log next knows more than we do."""
        if not isinstance(error, FencedError | OutcomeUnknownError):
            self._count_failure(sealed.order.sequence_id, lease, error)
        return error

    def _execute(self, sealed: SealedSequence, lease: Lease) -> None:
        fs, root = self.open_file_system(sealed.root_uri)
        self.require(lease)
        # Before anything is visible: a log that is restored from before the seal must learn of it from storage.
        put_marker(fs, root, sealed, fence=lease.fence)
        reach(Failpoint.MARKER_WRITTEN)
        for attempt in sealed.attempts:
            for segment in attempt.segments:
                self.require(lease)
                self._execute_segment(sealed, segment, fs, root, lease)
        reach(Failpoint.VERIFIED_BEFORE_FINISH)

    def _execute_segment(
        self, sealed: SealedSequence, segment: Segment, fs: FileSystem, root: str, lease: Lease
    ) -> None:
        steps = decode_segment(segment.payload, segment.digest)
        for _pass in range(PASSES_MAX):
            pending = self._pending(sealed, steps, StepWorld(fs), lease)
            try:
                _execute_steps(pending, fs)
            except ConflictError:
                # The rename found another world than the verification did: look again.
                continue
            reach(Failpoint.EXECUTED_BEFORE_SYNC)
            # Also those that were found done: whoever renamed them may have died before syncing.
            fs.sync_directories(directories_to_sync(steps, root))
            reach(Failpoint.SYNCED_BEFORE_VERIFY)
            if not self._pending(sealed, steps, StepWorld(fs), lease):
                return
        raise ConflictError(
            f"the steps of sequence {sealed.order.sequence_id} do not stay done",
            hint="Something else moves files below the destination.",
        )

    def _pending(
        self, sealed: SealedSequence, steps: Sequence[CommitStep], world: StepWorld, lease: Lease
    ) -> list[CommitStep]:
        """The steps that are not done. ConflictError, confirmed by the log, for the first impossible one."""
        pending = []
        for step, verdict in zip(steps, verify_all(steps, world), strict=True):
            if verdict in (StepVerdict.LOST, StepVerdict.CONFLICT):
                # A zombie sees LOST when the new owner has finished and consumers have moved the file on.
                if not self.store.is_open_and_held(sealed.order.sequence_id, fence=lease.fence):
                    raise FencedError("the sequence was taken over while it was carried out")
                raise _impossible(sealed, step, verdict, world.fs)
            if verdict is not StepVerdict.DONE:
                pending.append(step)
        return pending

    def _count_failure(self, sequence_id: SequenceId, lease: Lease, error: GobblinError) -> None:
        try:
            self._record_failure(sequence_id, lease, error)
        except (RetryableError, ConflictError, RejectedError):
            # The log is out of reach as well, or says that there is nothing to try (it may have gone back behind the
            # seal, or behind the sequence). The try is not counted; the error itself is what the caller needs.
            return

    def _record_failure(self, sequence_id: SequenceId, lease: Lease, error: GobblinError) -> None:
        failed_tries = self.store.get(sequence_id).failed_tries
        self.store.record_failure(
            sequence_id,
            fence=lease.fence,
            error=f"{type(error).__name__}: {error}",
            tries_max=self.tries_max,
            retry_in_s=min(BACK_OFF_S_MAX, BACK_OFF_S_FIRST * 2**failed_tries),
            # Repeating can't help against a contradiction: a person must look.
            block=isinstance(error, ConflictError),
        )


def _try(act: Callable[[], None]) -> GobblinError | None:
    try:
        act()
    except GobblinError as error:
        return error
    except OSError as error:
        failure = RetryableError(f"publishing failed: {error}", hint="It goes on at the next try.")
        failure.__cause__ = error
        return failure
    return None


def directories_to_sync(steps: Iterable[CommitStep], root: str) -> list[str]:
    """Every directory whose entries the steps changed, and its parents up to the destination's root."""
    return list_upwards((directory for step in steps for directory in step.touched_directories()), root)


def _execute_steps(pending: Sequence[CommitStep], fs: FileSystem) -> None:
    parents: set[str] = set()
    for step in pending:
        for path, _identity, _rows in step.published_files():
            parent = str(PurePosixPath(path).parent)
            if step.kind == "rename_directory":
                parent = str(PurePosixPath(parent).parent)
            if parent not in parents:
                fs.make_directories(parent)
                parents.add(parent)
    world = StepWorld(fs)
    for step in pending:
        reach(Failpoint.STEP_BEFORE)
        step.execute(world)
        reach(Failpoint.STEP_AFTER)


def _impossible(sealed: SealedSequence, step: CommitStep, verdict: StepVerdict, fs: FileSystem) -> ConflictError:
    path = next((path for path, _identity, _rows in step.published_files()), "")
    found = "is neither staged nor published" if verdict is StepVerdict.LOST else "is not the file that was staged"
    if isinstance(step, RenameDirectory) and verdict is StepVerdict.CONFLICT:
        path, found = _find_culprit(step, fs)
    return ConflictError(
        f"{path} {found}; sequence {sealed.order.sequence_id} of {sealed.urn} can't go on",
        hint="See `gobblin-assets commit show`; put the file back and resume, or abandon the sequence.",
        path=path,
        verdict=verdict.value,
        step=step.kind,
    )


def _find_culprit(step: RenameDirectory, fs: FileSystem) -> tuple[str, str]:
    """Of a directory's files the one that is not as it was staged, and what is wrong with it."""
    directory = step.target if fs.is_directory(step.target) else step.source
    found = StepWorld(fs).list_directory(directory)
    for file in step.files:
        if file.name not in found:
            return f"{directory}/{file.name}", "is missing from the directory that was staged"
        if not found.pop(file.name).matches(file.identity):
            return f"{directory}/{file.name}", "is not the file that was staged"
    return f"{directory}/{next(iter(found), '')}", "is none of the files that were staged"
