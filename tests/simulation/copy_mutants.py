"""Small named changes that break the protocol at given names; the world of copies must notice each of them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

from gobblin_assets.commit import attempt_capture, cleanup, execution, steps
from gobblin_assets.commit.attempt_capture import capture_chain
from gobblin_assets.commit.attempts import SLOTS, captured_directory
from gobblin_assets.commit.segment import find_phase
from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.fixed_names import named_steps
from gobblin_assets.destinations.fixed_names.named_decisions import Act, Found, decide_replace
from gobblin_assets.destinations.fixed_names.named_directory_steps import ModeStep, OpenDirectory, PlaceDirectory
from gobblin_assets.destinations.fixed_names.named_steps import NamedStep, Phase, PlaceFile, RemoveFile, ReplaceFile
from gobblin_assets.fs.file_system import RenameOutcome
from gobblin_assets.jobs.copy import worker
from gobblin_assets.jobs.copy.copy_plan import CopyPlanner
from gobblin_assets.jobs.copy.sameness import Sameness
from tests.simulation import world
from tests.simulation.copy_world import PLACE
from tests.simulation.file_system import SimFileSystem
from tests.simulation.guards import Guard
from tests.simulation.mutant import Mutant, patched

_CARRY_OUT = NamedStep.carry_out
_COPY = CopyPlanner._copy
_TOUCHES = NamedStep.touches
_JUDGE = named_steps.judge_file
_CHANGE = ModeStep._change
_RENAME = SimFileSystem.rename_no_replace


def _carried_out_by(carry_out: Any) -> AbstractContextManager[Any]:
    return mock.patch.object(NamedStep, "carry_out", carry_out)


# Captures ----------------------------------------------------------------------------------------------------


@contextmanager
def _nothing_is_captured() -> Iterator[None]:
    """The attempt's directory keeps its first name, and everybody works in it under that name."""

    def stay(fs: Any, staging: str, *_fences: Any) -> bool:
        return bool(fs.is_directory(staging))

    with ExitStack() as stack:
        for module in (execution, attempt_capture):
            stack.enter_context(mock.patch.object(module, "capture_chain", stay))
        for module in (execution, steps, cleanup):
            stack.enter_context(mock.patch.object(module, "captured_directory", lambda staging, _fence: staging))
        yield


def _captured_before_it_is_recorded() -> AbstractContextManager[Any]:
    def mutant(self: execution.Executor, fs: Any, found: execution.Execution) -> None:
        sealed, fence = found.sealed, found.lease.fence
        if fence == sealed.order.fence:
            return
        for attempt in self.store.list_attempts(found.sequence_id):
            capture_chain(fs, attempt.staging_path, attempt.cleanup_fences, fence)
            found.captured[attempt.staging_path] = captured_directory(attempt.staging_path, fence)
        fs.sync_directories({path.rpartition("/")[0] for path in found.captured})
        self.store.claim(found.sequence_id, fence=fence)

    return mock.patch.object(execution.Executor, "_capture", mutant)


def _slots_are_made_again() -> AbstractContextManager[Any]:
    def mutant(self: NamedStep, files: Any, attempt: str, act: Act) -> None:
        files.make_directories(f"{attempt}/{SLOTS}")
        _CARRY_OUT(self, files, attempt, act)

    return _carried_out_by(mutant)


# Acts by name ------------------------------------------------------------------------------------------------


@contextmanager
def _unlinked_by_name() -> Iterator[None]:
    def decide(self: RemoveFile, files: Any, _attempt: str) -> Act:
        return Act.AWAY if files.find_entry(self.target) else Act.DONE

    def mutant(self: NamedStep, files: Any, attempt: str, act: Act) -> None:
        if isinstance(self, RemoveFile):
            files.remove_file(self.target, files.find_identity(self.target))
        else:
            _CARRY_OUT(self, files, attempt, act)

    with mock.patch.object(RemoveFile, "decide", decide), _carried_out_by(mutant):
        yield


@contextmanager
def _removed_after_a_look_at_its_name() -> Iterator[None]:
    """The old version is copied to its slot, and then its name is unlinked: a slot alone is not enough."""

    def mutant(self: NamedStep, files: Any, attempt: str, act: Act) -> None:
        if isinstance(self, RemoveFile) and act is Act.AWAY:
            files.link_aside(self.target, self.slot_in(attempt))
            files.unlink(self.target)
        else:
            _CARRY_OUT(self, files, attempt, act)

    def link_aside(self: SimFileSystem, source: str, target: str) -> None:
        if self.disk.exists(source) and not self.disk.exists(target):
            self.disk.link(source, target)

    def unlink(self: SimFileSystem, path: str) -> None:
        if self.disk.exists(path):
            self.disk.remove(path)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(SimFileSystem, "link_aside", link_aside, create=True))
        stack.enter_context(mock.patch.object(SimFileSystem, "unlink", unlink, create=True))
        stack.enter_context(_carried_out_by(mutant))
        yield


@contextmanager
def _replaced_by_a_rename() -> Iterator[None]:
    def decide(self: ReplaceFile, files: Any, _attempt: str, **_options: Any) -> Act:
        found = files.find_entry(self.target)
        return Act.DONE if found is not None and found.identity == self.identity else Act.PUBLISH

    def mutant(self: NamedStep, files: Any, attempt: str, act: Act) -> None:
        if isinstance(self, ReplaceFile):
            files.rename_over(self.source_in(attempt), self.target)
        else:
            _CARRY_OUT(self, files, attempt, act)

    def rename_over(self: SimFileSystem, source: str, target: str) -> RenameOutcome:
        if not self.disk.exists(source):
            return RenameOutcome.SOURCE_MISSING
        if self.disk.exists(target):
            self.disk.remove(target)
        self.disk.rename(source, target)
        return RenameOutcome.RENAMED

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(SimFileSystem, "rename_over", rename_over, create=True))
        stack.enter_context(mock.patch.object(ReplaceFile, "decide", decide))
        stack.enter_context(_carried_out_by(mutant))
        yield


@contextmanager
def _attributes_set_by_name() -> Iterator[None]:
    def mutant(self: NamedStep, files: Any, attempt: str, act: Act) -> None:
        _CARRY_OUT(self, files, attempt, act)
        if isinstance(self, PlaceFile | ReplaceFile) and act in (Act.PUBLISH, Act.EXCHANGE):
            files.set_time(self.target, self.identity.mtime_ns)

    def set_time(self: SimFileSystem, path: str, mtime_ns: int) -> None:
        if self.disk.exists(path):
            self.disk.write_file(path, self.disk.read(path), mtime_ns=mtime_ns)
            self.disk.sync_content(path)

    with mock.patch.object(SimFileSystem, "set_time", set_time, create=True), _carried_out_by(mutant):
        yield


# Looks and order ---------------------------------------------------------------------------------------------


def _verified_by_existence() -> AbstractContextManager[Any]:
    def mutant(self: NamedStep, step_world: Any) -> StepVerdict:
        is_there = step_world.fs.find_entry(self.target) is not None
        return StepVerdict.DO if is_there is isinstance(self, RemoveFile) else StepVerdict.DONE

    return mock.patch.object(NamedStep, "verify", mutant)


def _removals_first() -> AbstractContextManager[Any]:
    def mutant(payload: bytes) -> int:
        phase = find_phase(payload)
        return Phase.DIRECTORIES if phase == Phase.REMOVALS else phase

    return mock.patch.object(execution, "find_phase", mutant)


def _new_directories_come_first() -> AbstractContextManager[Any]:
    return mock.patch.object(PlaceDirectory, "phase", Phase.NEW)


def _only_names_are_synced() -> AbstractContextManager[Any]:
    def mutant(self: NamedStep, captured: Any = None) -> tuple[str, ...]:
        return tuple(_TOUCHES(self, captured))[:1]

    return mock.patch.object(NamedStep, "touches", mutant)


# Modes of directories -----------------------------------------------------------------------------------------


def _modes_changed_without_the_attempt() -> AbstractContextManager[Any]:
    def mutant(self: ModeStep, files: Any, act: Act, while_there: str | None) -> None:
        del while_there
        _CHANGE(self, files, act, None)

    return mock.patch.object(ModeStep, "_change", mutant)


def _planned_twice() -> AbstractContextManager[Any]:
    """Two tasks write one planned name."""

    def mutant(self: CopyPlanner, found: Any) -> None:
        _COPY(self, found)
        _COPY(self, found)

    return mock.patch.object(CopyPlanner, "_copy", mutant)


def _claims_record_nothing() -> AbstractContextManager[Any]:
    return mock.patch.object(world, "guards_off", frozenset({Guard.CLAIM_MARKS_FOR_CAPTURE}))


# Strangers ---------------------------------------------------------------------------------------------------


def _any_file_is_the_old_one() -> AbstractContextManager[Any]:
    def mutant(entry: Any, new: Any, old: Any) -> Found:
        found = _JUDGE(entry, new, old)
        return Found.OLD if found is Found.OTHER and old is not None else found

    return mock.patch.object(named_steps, "judge_file", mutant)


def _exchanged_for_good() -> AbstractContextManager[Any]:
    """What an exchange took along stays in the attempt."""

    def mutant(source: Found, slot: Found, name: Found, *, exchanges: bool) -> Act:
        act = decide_replace(source, slot, name, exchanges=exchanges)
        return Act.DONE if act is Act.EXCHANGE and source is Found.OTHER else act

    return mock.patch.object(named_steps, "decide_replace", mutant)


def _placed_over_anything() -> AbstractContextManager[Any]:
    def mutant(self: SimFileSystem, source: str, target: str) -> RenameOutcome:
        if target.startswith(f"{PLACE}/") and self.disk.exists(source) and self.disk.exists(target):
            self.disk.remove(target)
        return _RENAME(self, source, target)

    def decide(source: Found, name: Found) -> Act:
        return Act.DONE if name is Found.NEW else Act.PUBLISH

    @contextmanager
    def change() -> Iterator[None]:
        with (
            mock.patch.object(SimFileSystem, "rename_no_replace", mutant),
            mock.patch.object(named_steps, "decide_place", decide),
        ):
            yield

    return change()


@contextmanager
def _trusted_within_its_tick() -> Iterator[None]:
    with (
        mock.patch.object(worker, "wait_for_ticks", return_value=()),
        mock.patch.object(worker, "wait_for_tick"),
        mock.patch.object(Sameness, "is_over", return_value=True),
    ):
        yield


IN_COPY_HISTORIES = (
    Mutant("any file counts as the old one", _any_file_is_the_old_one),
    Mutant("an exchange keeps what it took along", _exchanged_for_good),
    Mutant("a file is placed over anything", _placed_over_anything),
    Mutant("a time is trusted within its tick", _trusted_within_its_tick),
)
"""Only strangers notice these, and files that are written again at once."""

IN_THE_COPY_WORLD = (
    Mutant("nothing is captured", _nothing_is_captured),
    Mutant("a capture is recorded after its rename", _captured_before_it_is_recorded),
    Mutant("a claim records no fence", _claims_record_nothing),
    Mutant("slots are made again", _slots_are_made_again),
    Mutant("a file is unlinked by its name", _unlinked_by_name),
    Mutant("a file is linked to its slot, and unlinked by its name", _removed_after_a_look_at_its_name),
    Mutant("a rename replaces", _replaced_by_a_rename),
    Mutant("attributes are set by name", _attributes_set_by_name),
    Mutant("verified by existence", _verified_by_existence),
    Mutant("removals come first", _removals_first),
    Mutant("new directories come first, also of metadata", _new_directories_come_first),
    Mutant("slots are not synced", _only_names_are_synced),
    Mutant("two tasks write one name", _planned_twice),
    Mutant("modes are changed without the attempt", _modes_changed_without_the_attempt),
    Mutant("modes are not synced", patched(ModeStep, "touches", lambda _self, _captured=None: ())),
    Mutant(
        "a directory is left open when its sequence is taken back",
        patched(OpenDirectory, "decide_back_by_mode", lambda _self, _mode: Act.DONE),
    ),
)
