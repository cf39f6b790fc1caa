"""Small named changes that break the protocol: a proof that does not notice them proves nothing.

``change`` is in force inside of its block. A mutant must be noticed in the simulated world, or by the tests of an
adapter in ``suite``, which run in a process of their own (a world of fakes can't show code of an adapter).
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from gobblin_assets.commit import abandonment, cleanup, driver, execution, folding, recovery
from gobblin_assets.commit.named_folding import fold_names
from gobblin_assets.commit.postgres import (
    building,
    cleaning,
    finishing,
    fold_members,
    forgetting,
    guards,
    sealing,
)
from gobblin_assets.commit.postgres import folding as log_folding
from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.files import rename_steps, rooted
from gobblin_assets.fs import posix
from gobblin_assets.fs.file_system import RenameOutcome
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.policy import Decision, KeyAdvance, UnitResult
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.rows import late_rows
from gobblin_assets.run import publisher, seal_decision, task
from gobblin_assets.run import round as run_round
from gobblin_assets.state.postgres import leases as lease_store
from tests.simulation.file_system import SimFileSystem
from tests.simulation.guards import Guard
from tests.simulation.history_mutants import OF_HISTORIES
from tests.simulation.lane_mutants import OF_LANES
from tests.simulation.mutant import Mutant, patched, with_sql, without
from tests.simulation.storage_changes import (
    bound_to_no_root,
    forgets_a_file,
    loses_a_file,
    lost_and_not_counted,
    never_looked,
    remove_by_name,
)
from tests.simulation.turn_mutants import OF_TURNS

# The driver, recovery, cleanup and abandonment --------------------------------------------------------------


@contextmanager
def _finished_before_the_renames() -> Iterator[None]:
    execute = execution.Executor._execute

    def mutant(self: execution.Executor, root_uri: Any, executions: Any) -> None:
        self.store.finish_all({each.sequence_id: each.lease.fence for each in executions})
        execute(self, root_uri, executions)

    with mock.patch.object(execution.Executor, "_execute", mutant):
        yield


def _only_leaf_directories(steps: Any, _root: str, _located: Any) -> list[str]:
    return sorted({directory for step in steps for directory in step.touches()})


@contextmanager
def _recovery_deletes_by_name() -> Iterator[None]:
    publish = driver.Driver.publish

    def mutant(self: driver.Driver, sequence_id: Any, lease: Any) -> Any:
        record = self.store.get(sequence_id)
        if record.fence != lease.fence:
            fs, _root = self.open_file_system(record.root_uri)
            for segment in self.store.read_segments(sequence_id):
                for step in decode_segment(segment.payload, segment.digest):
                    if isinstance(step, rename_steps.RenameDirectory):
                        fs.remove_tree(step.target)
        return publish(self, sequence_id, lease)

    with mock.patch.object(driver.Driver, "publish", mutant):
        yield


@contextmanager
def _steps_taken_as_done_when_refused() -> Iterator[None]:
    """A rename that found something else counts as done, without a second look."""
    with (
        mock.patch.object(rename_steps, "_expect_renamed", _nothing),
        mock.patch.object(execution.Executor, "_pending", _pending_once(execution.Executor._pending)),
    ):
        yield


def _pending_once(pending: Any) -> Any:
    """The second look at each segment finds nothing to do, whatever there is."""
    looked: set[tuple[int, Any]] = set()

    def mutant(self: execution.Executor, part: Any, place: Any) -> Any:
        key = (id(part.steps), part.execution.lease)
        if key in looked:
            looked.discard(key)
            return []
        looked.add(key)
        return pending(self, part, place)

    return mutant


@contextmanager
def _extracted_before_recovery() -> Iterator[None]:
    def mutant(self: Any, leases: Mapping[Any, Any]) -> Any:
        return [], dict(leases)

    with mock.patch.object(run_round.Round, "recover", mutant):
        yield


def _rolled_back(found: SequenceState) -> Any:
    """Recovery aborts a sealed sequence; it may abort only an unsealed one."""
    if found is SequenceState.PREPARED:
        return recovery.RecoveryAction.ABORT
    return _DECIDE_RECOVERY(found)


def _blocked_is_done(found: SequenceState) -> Any:
    if found is SequenceState.BLOCKED:
        return recovery.RecoveryAction.NOTHING
    return _DECIDE_RECOVERY(found)


_DECIDE_RECOVERY = recovery.decide_recovery


@contextmanager
def _cleanup_removes_without_marking() -> Iterator[None]:
    """Marked as clean at once: files that a paused writer makes again are never found."""

    def mutant(self: Any, fs: Any, attempt: Any, lease: Any) -> bool:
        clear(self, fs, attempt, lease)
        return False

    clear = cleanup.Cleanup._clear
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(cleanup.Cleanup, "_clear", mutant))
        stack.enter_context(without(Guard.CLEANED_WAITS_FOR_WRITERS)())
        yield


# A run -------------------------------------------------------------------------------------------------------


def _staging_of_the_try(directory: str, attempt_id: Any) -> str:
    """The same directory for the same try in another process."""
    return _STAGING_DIRECTORY(directory, uuid.UUID(int=attempt_id.int & (2**64 - 1)))  # type: ignore[arg-type]  # an id


_STAGING_DIRECTORY = rooted.staging_directory


class _Late:
    """The log, except for the record of an attempt: that is held back until ``catch_up``."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._waiting: list[Any] = []

    def register_attempt(self, *attempts: Any) -> None:
        self._waiting.append(attempts)

    def catch_up(self) -> None:
        for attempts in self._waiting:
            self._store.register_attempt(*attempts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@contextmanager
def _written_before_registered() -> Iterator[None]:
    register, make_durable = task.TaskRunner._register, task.TaskRunner._make_durable
    late: list[_Late] = []

    def later(self: Any, *arguments: Any) -> Any:
        late.append(_Late(self.store))
        return register(replace(self, store=late[-1]), *arguments)

    def first(self: Any, *arguments: Any) -> Any:
        late.pop().catch_up()
        return make_durable(self, *arguments)

    with (
        mock.patch.object(task.TaskRunner, "_register", later),
        mock.patch.object(task.TaskRunner, "_make_durable", first),
    ):
        yield


def _with_the_suffix(policy: Any, results: Any, *, replaces: bool) -> Decision:
    """All rows that were read are published, also behind a WorkUnit that failed."""
    good: list[UnitResult] = [each for each in results if each.succeeded]
    decision = _DECIDE_COMMIT(policy, good, replaces=replaces)
    last = max(good, key=lambda each: each.unit.number, default=None)
    if last is None or last.unit.interval is None or not decision.advances:
        return decision
    advance = decision.advances[0]
    reached = Interval(advance.intervals[0].low, last.unit.interval.high)
    return replace(decision, advances=(KeyAdvance(advance.key, reached.high, (reached,), advance.reread_from),))


def _with_incomplete_refreshes(policy: Any, results: Any, *, replaces: bool) -> Decision:
    return _DECIDE_COMMIT(policy, results, replaces=False)


_DECIDE_COMMIT = seal_decision.decide_commit


@contextmanager
def _told_before_sent() -> Iterator[None]:
    def mutant(store: Any, reports: Any, send: Any) -> None:
        for report in reports:
            store.mark_announced(report.publication.sequence_id)
            send(report)

    with mock.patch.object(run_round, "announce", mutant), mock.patch.object(publisher, "announce", mutant):
        yield


# Storage -----------------------------------------------------------------------------------------------------


def _nothing(*_arguments: Any, **_options: Any) -> None:
    """Does nothing, whatever it promises."""


def _replacing(self: Any, source: str, target: str) -> RenameOutcome:
    if not Path(source).exists():
        return RenameOutcome.SOURCE_MISSING
    Path(source).replace(target)
    return RenameOutcome.RENAMED


def _by_existence(self: Any, step_world: Any) -> StepVerdict:
    if step_world.fs.is_directory(self.target):
        return StepVerdict.DONE
    present = step_world.list_directory(self.source)
    return StepVerdict.DO if present else StepVerdict.LOST


IN_THE_SIMULATED_WORLD = (
    Mutant("the watermark moves before the last rename", _finished_before_the_renames),
    Mutant("files are not synced before they are staged", patched(SimFileSystem, "make_durable", _nothing)),
    Mutant("directories are not synced", patched(SimFileSystem, "sync_directories", _nothing)),
    Mutant("only leaf directories are synced", patched(execution, "directories_to_sync", _only_leaf_directories)),
    Mutant("a destination that a run made is not synced", patched(SimFileSystem, "make_destination", _nothing)),
    Mutant("recovery deletes what it finds under a final name", _recovery_deletes_by_name),
    Mutant("recovery rolls back what is sealed", patched(recovery, "decide_recovery", _rolled_back)),
    Mutant("extract before recovery", _extracted_before_recovery),
    Mutant("a refused rename counts as done", _steps_taken_as_done_when_refused),
    Mutant("abandon without capture", patched(abandonment, "capture_attempt", lambda *_arguments: False)),
    Mutant("staging that a paused writer made again is not looked at", _cleanup_removes_without_marking),
    Mutant("staging is reused by a retry", patched(rooted, "staging_directory", _staging_of_the_try)),
    Mutant("an attempt is recorded after it was written", _written_before_registered),
    Mutant("a suffix is published after a failed WorkUnit", patched(seal_decision, "decide_commit", _with_the_suffix)),
    Mutant("a refresh is sealed incomplete", patched(seal_decision, "decide_commit", _with_incomplete_refreshes)),
    Mutant("an event counts as sent before it is", _told_before_sent),
    Mutant("a write loses a file, and nobody counts", lost_and_not_counted),
    Mutant("each write loses a file", loses_a_file),
    Mutant("a fold forgets one of the files that it joins", patched(folding, "_join", forgets_a_file)),
    Mutant("a fold takes what a refresh replaced", without(Guard.FOLD_LEAVES_RETIRED_ALONE)),
    Mutant("a lease is taken while it lives", without(Guard.TAKE_REFUSES_LIVE_LEASE)),
    Mutant("taking a lease raises no fence", without(Guard.TAKE_RAISES_FENCE)),
    Mutant(
        "neither fence nor state nor version is checked at the seal",
        without(
            Guard.SEAL_CHECKS_FENCE,
            Guard.SEAL_CHECKS_SEQUENCE_FENCE,
            Guard.SEAL_CHECKS_BUILDING,
            Guard.SEAL_CHECKS_VERSION,
        ),
    ),
    Mutant("what was sealed can be aborted", without(Guard.ABORT_CHECKS_BUILDING)),
    Mutant("a repeated T1 stores its steps twice", without(Guard.STAGE_KNOWS_ITS_OWN)),
    Mutant("a refresh retires nothing", without(Guard.FINISH_RETIRES_OLD_GENERATION)),
    Mutant("cleanup takes the staging of what is not over", without(Guard.CLEANUP_LEAVES_UNFINISHED_ALONE)),
    Mutant("a capture is not in the log before it happens", without(Guard.ABANDON_MARKS_FOR_CAPTURE)),
)

_FINISH = ("tests/contracts/test_commit_store_finish.py",)
_BUILD = ("tests/contracts/test_commit_store.py",)
_LEASES = ("tests/contracts/test_lease_store.py",)
_FOLDS = ("tests/contracts/test_commit_store_folding.py",)
_NAMED_FOLDS = ("tests/contracts/test_commit_store_named_folding.py",)
_INTERLEAVED = ("tests/contracts/test_interleaving.py",)
_FILES = ("tests/contracts/test_file_system.py",)
_SYNCS = ("tests/contracts/test_posix.py",)


def _without_removals(parts: Any, *, version: int, keeps_removed: bool) -> Any:
    del keeps_removed
    return fold_names(parts, version=version, keeps_removed=False)


@contextmanager
def _no_fence_is_held() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (guards, building, sealing, cleaning, log_folding, forgetting):
            stack.enter_context(mock.patch.object(module, "hold_fences", _nothing))
        yield


def _by_key_alone(frame: Any, published: Any, *, key: Any, **_others: Any) -> Any:
    return frame.join(published.select(*key), list(key), "left_anti")


IN_AN_ADAPTER = (
    *OF_LANES,
    *OF_HISTORIES,
    *OF_TURNS,
    Mutant("the fence is read without a lock", with_sql(guards, "_HOLD_FENCE", "FOR KEY SHARE", ""), _INTERLEAVED),
    Mutant("the sequence is read without a lock", with_sql(guards, "_LOCK_SEQUENCE", "FOR UPDATE", ""), _INTERLEAVED),
    Mutant("T1 reads its sequence without a lock", with_sql(guards, "_SHARE_SEQUENCE", "FOR SHARE", ""), _INTERLEAVED),
    Mutant("the fence is not checked at all", _no_fence_is_held, (*_BUILD, *_FINISH)),
    Mutant("a fold is not fenced", patched(log_folding, "hold_fences", _nothing), _FOLDS),
    Mutant(
        "a fold takes the newest publications too",
        with_sql(fold_members, "_MEMBERS", "AND s.result_version <= d.version - :keep", "AND 0 <= :keep"),
        _FOLDS,
    ),
    Mutant(
        "a fold at given names takes what is kept for the trash",
        with_sql(fold_members, "_NAMED_MEMBERS", "a.cleaned_at IS NULL", "a.cleaned_at > now()"),
        _NAMED_FOLDS,
    ),
    Mutant(
        "a fold at given names leaves out one that is not due",
        patched(log_folding, "bound_named_fold", lambda members: [each for each in members if each.is_due]),
        _NAMED_FOLDS,
    ),
    Mutant(
        "a fold at given names forgets removals", patched(log_folding, "fold_names", _without_removals), _NAMED_FOLDS
    ),
    Mutant("T1 is accepted after the seal", patched(building, "share_building", _nothing), _BUILD),
    Mutant("a winner need not be staged", with_sql(sealing, "_STAGED_WINNERS", "AND state = 'STAGED'", ""), _BUILD),
    Mutant(
        "watermarks move without being compared",
        with_sql(finishing, "_MOVE_WATERMARKS", "AND k.watermark_bytes IS NOT DISTINCT FROM m.old_bytes", ""),
        _FINISH,
    ),
    Mutant(
        "leases end by another clock than the database's",
        with_sql(lease_store, "_LOCK_WHOLE", "clock_timestamp()", "(clock_timestamp() + interval '1 hour')"),
        _LEASES,
    ),
    Mutant("the fence does not grow", with_sql(lease_store, "_TAKE_WHOLE", "fence + 1", "fence"), _LEASES),
    Mutant(
        "verify by existence alone",
        patched(rename_steps.RenameDirectory, "verify", _by_existence),
        ("tests/contracts/test_steps.py",),
    ),
    Mutant("a rename that replaces", patched(posix.PosixFileSystem, "rename_no_replace", _replacing), _FILES),
    Mutant(
        "a file is removed by its name alone", patched(posix.PosixFileSystem, "remove_file", remove_by_name), _FILES
    ),
    Mutant("fsync of files is left out", patched(posix, "sync_file", _nothing), _SYNCS),
    Mutant("fsync of directories is left out", patched(posix, "sync_directory", _nothing), _SYNCS),
    Mutant(
        "BLOCKED is treated as done",
        patched(recovery, "decide_recovery", _blocked_is_done),
        ("tests/crash/test_kills.py", "-k", "keeps_failing"),
    ),
    Mutant(
        "late rows are told by their key alone",
        patched(late_rows, "without_published", _by_key_alone),
        ("tests/integration/test_late_rows.py",),
    ),
    Mutant(
        "nobody looks whether the destination is mounted",
        never_looked,
        ("tests/crash/test_destinations.py", "-k", "mount or unmounted or middle"),
    ),
    Mutant(
        "a job is bound to no root",
        bound_to_no_root,
        ("tests/crash/test_moves.py", "-k", "another_root"),
    ),
    Mutant(
        "the rows of a write are not counted",
        patched(task, "require_whole", _nothing),
        ("tests/integration/test_whole_writes.py", "-k", "never_sealed"),
    ),
)

BY_A_PROMISE = tuple(Guard)
"""Each guard of the log left out by itself: a promise of the contract suites must break."""
