"""The execution of sealed sequences: first their markers, then their steps, until all steps are found done.

Each pass lists, verifies, executes the steps that are not done, makes the directories durable, and verifies again with
listings that are newer than the syncs. A step that is found done is not executed again. A step that is found lost or
contradicted counts only if it is found so twice and the log still says "open, and ours". Phases of steps follow each
other: all steps of one are durable and verified before a step of the next is executed.

A sequence at given names whose fence is not ours any more is captured first (``attempt_capture``), so that no earlier
owner can move anything afterwards.

A store may not say what became of a write. That is no contradiction: the next pass looks, after a while, and what is
still not done after the last pass is left to another try.

Sequences of one destination wait for the disk together, since this wait is most of the cost of a small sequence. A
fault of one sequence stays that sequence's error. A failure of the disk is the error of all sequences that waited: a
sync is never repeated in the hope that it succeeds, since an operating system may report a lost write only once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final

from gobblin_assets.commit.attempt_capture import capture_chain
from gobblin_assets.commit.attempts import captured_directory
from gobblin_assets.commit.batches import in_weight
from gobblin_assets.commit.destination import require_identity
from gobblin_assets.commit.markers import put_markers, sync_markers
from gobblin_assets.commit.segment import Segment, decode_segment, find_phase
from gobblin_assets.commit.sequence import SealedSequence
from gobblin_assets.commit.step_calls import directories_to_sync, execute_steps, find_fault, verify_steps
from gobblin_assets.commit.step_world import OpenFileSystem, StepPorts, StepWorld
from gobblin_assets.commit.steps import CommitStep, StepVerdict
from gobblin_assets.commit.store import SequenceFinisher
from gobblin_assets.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
)
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.objects import HoldsObjects
from gobblin_assets.model.defects import find_family
from gobblin_assets.model.state import SequenceId
from gobblin_assets.state.leases import Lease

NO_ANSWER_WAITS_S: Final = (0.5, 2.0, 8.0)
"""Before each further pass, if a store did not say what became of a write.

There are further passes also because a step may lose a race with a zombie of the same sequence; each then finds more
steps done.
"""

STEPS_TOGETHER_MAX: Final = 1_000
"""Steps that wait for the disk together, so that the memory for them is bounded."""

_PUBLISHING: Final = "publishing failed"
_IMPOSSIBLE: Final = frozenset({StepVerdict.LOST, StepVerdict.CONFLICT})


@dataclass(slots=True)
class Execution:
    """A sealed sequence under our lease. ``error``: why it can't be finished, or None.

    ``captured``: the directories of its attempts that were captured, with the names that they have now.
    """

    sealed: SealedSequence
    lease: Lease
    error: GobblinError | None = None
    captured: dict[str, str] = field(default_factory=dict)

    @property
    def sequence_id(self) -> SequenceId:
        return self.sealed.order.sequence_id


@dataclass(slots=True)
class _Part:
    """One segment's steps. ``no_answer``: a store did not say what became of a write of the last pass."""

    execution: Execution
    steps: Sequence[CommitStep]
    no_answer: OutcomeUnknownError | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """The destination in which the steps are executed."""

    fs: FileSystem
    root: str
    ports: StepPorts

    def new_world(self, execution: Execution) -> StepWorld:
        return StepWorld(self.fs, self.ports, execution.captured)


@dataclass(frozen=True, slots=True)
class Executor:
    """The executor of sealed sequences.

    ``require`` raises FencedError when the lease is too old to start another piece of work.
    """

    store: SequenceFinisher
    open_file_system: OpenFileSystem
    require: Callable[[Lease], None]
    sleep: Callable[[float], None]

    def execute_all(self, executions: Sequence[Execution]) -> None:
        """Execute each sequence, or set its ``error``."""
        by_root: dict[str, list[Execution]] = {}
        for each in executions:
            by_root.setdefault(each.sealed.root_uri, []).append(each)
        for root_uri, some in by_root.items():
            error = _try(partial(self._execute, root_uri, some))
            if error is not None:
                for each in _without_error(some):
                    each.error = error

    def _execute(self, root_uri: str, executions: Sequence[Execution]) -> None:
        fs, root = self.open_file_system(root_uri)
        for each in executions:
            each.error = _try(partial(self.require, each.lease))
        # Before a directory is made: nobody would find files that are published into an empty mount point.
        for identity in {each.sealed.destination for each in executions}:
            require_identity(fs, root, identity)
        # Before anything is visible: a log restored from before the seal must find the sequence on storage.
        _do_for_all(
            executions, lambda ready: put_markers(fs, root, ((each.sealed, each.lease.fence) for each in ready))
        )
        _do_for_all(executions, lambda ready: sync_markers(fs, root, (each.sealed for each in ready)))
        reach(Failpoint.MARKER_WRITTEN)
        for each in _without_error(executions):
            each.error = _try(partial(self._capture, fs, each))
        with StepPorts(self.open_file_system) as ports:
            for segments in _list_together(executions):
                self._execute_segments(segments, _Place(fs, root, ports))
        reach(Failpoint.VERIFIED_BEFORE_FINISH)

    def _capture(self, fs: FileSystem, execution: Execution) -> None:
        """Take the directories of the winners away from earlier owners, if names are not always new."""
        sealed, fence = execution.sealed, execution.lease.fence
        if not sealed.is_at_given_names or fence == sealed.order.fence or isinstance(fs, HoldsObjects):
            return
        winners = {attempt.staging_path for attempt in sealed.attempts}
        claimed = [
            each for each in self.store.claim(execution.sequence_id, fence=fence) if each.staging_path in winners
        ]
        reach(Failpoint.ATTEMPTS_CLAIMED)
        for attempt in claimed:
            capture_chain(fs, attempt.staging_path, attempt.cleanup_fences, fence, sealed.order.fence)
            execution.captured[attempt.staging_path] = captured_directory(attempt.staging_path, fence)
        fs.sync_directories({path.rpartition("/")[0] for path in execution.captured})
        reach(Failpoint.ATTEMPTS_CAPTURED)

    def _execute_segments(self, segments: Sequence[tuple[Execution, Segment]], place: _Place) -> None:
        parts: list[_Part] = []
        for execution, segment in segments:
            if execution.error is None:
                execution.error = _try(partial(_decode, execution, segment, parts))
        for wait_s in (0.0, *NO_ANSWER_WAITS_S):
            if any(part.no_answer for part in parts):
                self.sleep(wait_s)
            for part in parts:
                if part.execution.error is None:
                    part.execution.error = _try(partial(self._execute_pending, part, place))
            reach(Failpoint.EXECUTED_BEFORE_SYNC)
            # Also steps that were found done: the process that renamed them may have died before syncing.
            _do_for_all([part.execution for part in parts], partial(_sync, parts, place))
            reach(Failpoint.SYNCED_BEFORE_VERIFY)
            parts = [part for part in parts if self._is_pending(part, place)]
            if not parts:
                return
        for part in parts:
            part.execution.error = _not_done(part)

    def _execute_pending(self, part: _Part, place: _Place) -> None:
        self.require(part.execution.lease)
        pending = self._pending(part, place)
        part.no_answer = None
        try:
            execute_steps(pending, place.new_world(part.execution))
        except ConflictError:
            # The storage changed between the verification and the rename; the next pass verifies again.
            return
        except OutcomeUnknownError as error:
            if not isinstance(place.fs, HoldsObjects):
                raise
            # What stands in a store is durable. So a look tells what happened.
            part.no_answer = error

    def _is_pending(self, part: _Part, place: _Place) -> bool:
        """Whether the sequence needs another pass. False if it has an error, or one is found."""
        execution = part.execution
        left: list[CommitStep] = []
        if execution.error is None:
            execution.error = _try(lambda: left.extend(self._pending(part, place)))
        return execution.error is None and bool(left)

    def _pending(self, part: _Part, place: _Place) -> list[CommitStep]:
        """The steps that are not done. ConflictError, confirmed by the log, for the first impossible one."""
        sealed, fence = part.execution.sealed, part.execution.lease.fence
        pending = []
        for step, verdict in _verify(part, place):
            if verdict in _IMPOSSIBLE:
                # A zombie sees LOST if the new owner has finished and the file was moved since.
                if not self.store.is_open_and_held(sealed.order.sequence_id, fence=fence):
                    raise FencedError("the sequence was taken over while it was executed")
                # A destination that is not mounted has lost nothing.
                require_identity(*self.open_file_system(sealed.root_uri), sealed.destination)
                raise _impossible(sealed, step, verdict, place.new_world(part.execution))
            if verdict is not StepVerdict.DONE:
                pending.append(step)
        return pending


def _verify(part: _Part, place: _Place) -> Iterator[tuple[CommitStep, StepVerdict]]:
    """Each step with its verdict. One that is found impossible is looked at again: an owner looks at the target, a
    zombie renames, the owner looks at the source, and both are empty. No zombie renames a step twice.
    """
    look = partial(place.new_world, part.execution)
    for step, verdict in zip(part.steps, verify_steps(part.steps, look()), strict=True):
        yield step, verify_steps([step], look())[0] if verdict in _IMPOSSIBLE else verdict


def _without_error(executions: Iterable[Execution]) -> list[Execution]:
    return [each for each in executions if each.error is None]


def _do_for_all(executions: Iterable[Execution], act: Callable[[Sequence[Execution]], None]) -> None:
    """Act on all sequences without an error at once. A fault that a person must correct is found one by one."""
    ready = list({each.sequence_id: each for each in _without_error(executions)}.values())
    error = _try(partial(act, ready)) if ready else None
    if error is None:
        return
    is_of_one = isinstance(error, RejectedError | ConflictError | CorruptionError) and len(ready) > 1
    for each in ready:
        each.error = _try(partial(act, [each])) if is_of_one else error


def _try(act: Callable[[], None]) -> GobblinError | None:
    try:
        act()
    except Exception as error:  # noqa: BLE001  the failure of these sequences; others go on
        return find_family(_PUBLISHING, error)
    return None


def _list_together(executions: Iterable[Execution]) -> Iterator[list[tuple[Execution, Segment]]]:
    """The segments of all, phase by phase, in groups that wait for the disk together."""
    found = [(execution, segment) for execution in executions for segment in execution.sealed.segments()]
    phases = {segment.digest: find_phase(segment.payload) for _execution, segment in found}
    in_order = sorted(found, key=lambda entry: phases[entry[1].digest])
    for _phase, of_phase in groupby(in_order, key=lambda entry: phases[entry[1].digest]):
        yield from in_weight(of_phase, lambda entry: entry[1].step_count, STEPS_TOGETHER_MAX)


def _decode(execution: Execution, segment: Segment, parts: list[_Part]) -> None:
    parts.append(_Part(execution, decode_segment(segment.payload, segment.digest)))


def _sync(parts: Iterable[_Part], place: _Place, executions: Sequence[Execution]) -> None:
    wanted = {each.sequence_id for each in executions}
    captured = {staging: now for each in executions for staging, now in each.captured.items()}
    steps = (step for part in parts if part.execution.sequence_id in wanted for step in part.steps)
    place.fs.sync_directories(directories_to_sync(steps, place.root, captured))


def _not_done(part: _Part) -> GobblinError:
    """After the last pass."""
    if part.no_answer is None:
        return ConflictError(
            f"the steps of sequence {part.execution.sequence_id} do not stay done",
            hint="Something else moves files below the destination.",
        )
    failure = RetryableError(
        f"{_PUBLISHING}: {part.no_answer.message}", passes=True, hint="The publication goes on at the next try."
    )
    failure.__cause__ = part.no_answer
    return failure


def _impossible(sealed: SealedSequence, step: CommitStep, verdict: StepVerdict, world: StepWorld) -> ConflictError:
    fault = find_fault(step, world, verdict)
    hint = fault.hint or "Put the file back and resume, or abandon: the next run does the work of the sequence again."
    return ConflictError(
        f"{fault.place} {fault.found}; sequence {sealed.order.sequence_id} of {sealed.urn} can't go on",
        hint=hint,
        path=fault.place,
        verdict=verdict.value,
        step=step.kind,
    )
