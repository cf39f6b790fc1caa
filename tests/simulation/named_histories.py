"""Histories of one step at a given name: owners that overtake each other, a stranger, power cuts, and what must hold.

    history = History(replace_by_exchange())
    history.act(Deed(Verb.EXECUTE))                       the sealer
    history.act(Deed(Verb.TAKE_OVER))                     another owner, under the next fence
    history.act(Deed(Verb.EXECUTE, meanwhile=Deed(Verb.WRITE), at_call=3))
    history.act(Deed(Verb.EXECUTE, owner=1))              the sealer again, which was overtaken

A deed happens as a whole, except that another deed may fall before one of its calls of the file system. After each deed
the history is checked, and a deed that nothing falls into is compared with the model of ``tests.models``.
"""

import stat
import uuid
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final

from gobblin_assets.commit.attempt_capture import capture_chain
from gobblin_assets.commit.attempts import captured_directory
from gobblin_assets.commit.step_calls import directories_to_sync
from gobblin_assets.commit.step_world import StepPorts, StepWorld
from gobblin_assets.commit.steps import CapturedStaging, StepVerdict, UndoOutcome
from gobblin_assets.destinations.fixed_names.named_directory_steps import (
    ClearDirectory,
    EnsureDirectory,
    ModeStep,
    OpenDirectory,
    PlaceDirectory,
)
from gobblin_assets.destinations.fixed_names.named_steps import ReplaceFile
from gobblin_assets.errors import ConflictError, FencedError
from gobblin_assets.model.state import SequenceId
from tests.simulation.file_system import SimFileSystem
from tests.simulation.named_predictions import REFUSED, predict
from tests.simulation.named_subjects import (
    ROOT,
    STAGING,
    TARGET,
    Subject,
    find_mode,
    list_at_name,
    remove_name,
    write_at_name,
)
from tests.simulation.process import KilledError
from tests.simulation.racing_files import RacingFiles

SEALER: Final = 0
"""In the place of the sealer's fence: it knows the attempt's directory by its first name."""


class Verb(StrEnum):
    """TAKE_OVER: another owner's fence is in the log, to execute. ABANDON: the same, to undo. CUT: of the power. LOSE:
    somebody removes the attempt's directory.

    An owner captures the attempt's directory when it first acts, in the same deed.
    """

    VERIFY = "verify"
    EXECUTE = "execute"
    FINISH = "finish"
    TAKE_OVER = "take over"
    ABANDON = "abandon"
    UNDO = "undo"
    WRITE = "write"
    REMOVE = "remove"
    CUT = "cut"
    LOSE = "lose"


@dataclass(frozen=True)
class Deed:
    """``owner``: of those that can do it, the newest is 0. ``meanwhile`` falls before the call ``at_call``, from 0.

    ``kept``: bits for the changes that survive a power cut. Odd, at the name of a directory: WRITE makes an empty one,
    and REMOVE removes one of its files only.
    """

    verb: Verb
    owner: int = 0
    meanwhile: "Deed | None" = None
    at_call: int = 0
    kept: int = 0


class LoggedState(StrEnum):
    """What the log says of the sequence."""

    OPEN = "open"
    ABANDONING = "abandoning"
    DONE = "done"
    UNDONE = "undone"


@dataclass
class Owner:
    fence: int
    fs: RacingFiles
    undoes: bool = False
    has_captured: bool = False
    is_alive: bool = True
    is_acting: bool = False


@dataclass
class History:
    """``guests``: a stranger's files, by content, that nobody may lose. ``destroyed``: what the stranger replaced or
    removed. ``captured``: the newest fence whose capture has ended. ``captures`` False: captures rename nothing.
    ``is_lost``: somebody removed the attempt's directory. ``interruptions`` counts the deeds that fell into others.
    """

    subject: Subject
    captures: bool = True
    logged_state: LoggedState = LoggedState.OPEN
    guests: set[bytes] = field(default_factory=set)
    destroyed: set[bytes] = field(default_factory=set)
    is_disturbed: bool = False
    is_lost: bool = False
    captured: int = SEALER
    interruptions: int = 0

    def __post_init__(self) -> None:
        self.disk, self.step = self.subject.disk.copy(), self.subject.step
        self.owners = [Owner(SEALER, RacingFiles(self.disk), has_captured=True)]

    def act(self, deed: Deed) -> None:
        """Do it, as far as the log and the world allow it, then check."""
        match deed.verb:
            case Verb.WRITE | Verb.REMOVE:
                self._disturb(deed)
            case Verb.LOSE:
                self._lose_the_attempt()
            case Verb.CUT:
                self.disk.power_cut(lambda change: deed.kept >> change.number % 16 & 1 == 1)
                for owner in self.owners:
                    owner.is_alive = False
            case Verb.TAKE_OVER | Verb.ABANDON:
                self._take_over(undoes=deed.verb is Verb.ABANDON)
            case _:
                self._act_as_owner(deed)
        self.check()

    # --- deeds

    def _disturb(self, deed: Deed) -> None:
        self.is_disturbed = True
        if deed.verb is Verb.REMOVE:
            gone = remove_name(self.disk, one_file_only=deed.kept % 2 == 1)
        else:
            guest = f"guest {len(self.guests | self.destroyed)}".encode()
            gone = write_at_name(self.disk, guest, as_directory=deed.kept % 2 == 1 and self._is_of_directories)
            self.guests |= {guest} & list_at_name(self.disk)
        self.destroyed |= gone
        self.guests -= gone

    def _lose_the_attempt(self) -> None:
        self.is_disturbed = self.is_lost = True
        lost = {content for path, content in self.disk.files().items() if path.startswith(STAGING)}
        self.destroyed |= lost
        self.guests -= lost
        files = SimFileSystem(self.disk)
        for directory in (STAGING, *(captured_directory(STAGING, owner.fence) for owner in self.owners)):
            files.remove_tree(directory)
        files.sync_directories([STAGING.rpartition("/")[0]])

    def _take_over(self, *, undoes: bool) -> None:
        """Only an open sequence is executed, and one that is not over is abandoned."""
        if self.logged_state is LoggedState.OPEN or (undoes and self.logged_state is LoggedState.ABANDONING):
            self.owners.append(Owner(len(self.owners), RacingFiles(self.disk), undoes))
            if undoes:
                self.logged_state = LoggedState.ABANDONING

    def _act_as_owner(self, deed: Deed) -> None:
        undoes = deed.verb is Verb.UNDO
        able = [each for each in self.owners if each.is_alive and not each.is_acting and each.undoes == undoes]
        if not able:
            return
        owner = able[-1 - deed.owner % len(able)]
        before, mode, is_overtaken = self.disk.files(), find_mode(self.disk), owner.fence < self.captured
        is_foretold = owner.has_captured and deed.meanwhile is None
        attempt, is_held = self._attempt_of(owner), self._holder is owner
        foretold = predict(self.step, self.disk, attempt, deed.verb, is_held=is_held) if is_foretold else None
        answer = self._run(owner, deed)
        if deed.meanwhile is None:
            after = self.disk.files()
            has_acted = after != before or find_mode(self.disk) != mode
            assert not (is_overtaken and has_acted), f"an overtaken owner had an effect: {before}, {after}"
            assert foretold in (None, (answer, after)), f"the model foretells {foretold}, found {answer}, {after}"
            is_whole = answer != Verb.FINISH or self.subject.new <= list_at_name(self.disk)
            assert is_whole or is_overtaken, "a sequence was finished without its files"

    def _run(self, owner: Owner, deed: Deed) -> str:
        """One owner's deed, and another one in the middle of it. An owner that dies in it has no answer."""
        doing = {
            Verb.VERIFY: self._verify,
            Verb.EXECUTE: self._execute,
            Verb.FINISH: self._finish,
            Verb.UNDO: self._undo,
        }[deed.verb]
        meanwhile = deed.meanwhile
        owner.is_acting = True
        if meanwhile is not None:
            owner.fs.interrupt_at(deed.at_call, lambda: self._interrupt(owner, meanwhile))
        try:
            if not owner.has_captured:
                self._capture(owner)
            return doing(owner)
        except KilledError:
            return ""
        finally:
            owner.is_acting = False
            owner.fs.interrupt_at(0, None)

    def _interrupt(self, owner: Owner, deed: Deed) -> None:
        self.interruptions += 1
        self.act(deed)
        if not owner.is_alive:
            raise KilledError

    def _capture(self, owner: Owner) -> None:
        if self.captures:
            is_there = capture_chain(owner.fs, STAGING, range(1, len(self.owners)), owner.fence)
            assert is_there or self.is_lost or self._holder is not owner, (
                "the fences do not lead to the attempt's directory"
            )
        owner.fs.sync_directories([STAGING.rpartition("/")[0]])
        owner.has_captured = True
        self.captured = max(self.captured, owner.fence)

    def _attempt_of(self, owner: Owner) -> str:
        """The attempt's directory, by the name that this owner knows."""
        is_first_name = owner.fence == SEALER or not self.captures
        return STAGING if is_first_name else captured_directory(STAGING, owner.fence)

    def _verify(self, owner: Owner) -> str:
        return self.step.verify(self._new_world(owner))

    def _execute(self, owner: Owner) -> str:
        try:
            self.step.execute(self._new_world(owner))
        except ConflictError:
            return REFUSED
        return Verb.EXECUTE

    def _finish(self, owner: Owner) -> str:
        """Verified, synced, verified again; then a transaction that asks for the fence."""
        for _look in range(2):
            if self._verify(owner) != StepVerdict.DONE:
                return REFUSED
            owner.fs.sync_directories(directories_to_sync([self.step], ROOT, {STAGING: self._attempt_of(owner)}))
        if self._holder is owner and self.logged_state is LoggedState.OPEN:
            self.logged_state = LoggedState.DONE
        return Verb.FINISH

    def _undo(self, owner: Owner) -> str:
        fences = frozenset(range(1, len(self.owners)))
        held = partial(self._require_held, owner)
        captured = CapturedStaging(SequenceId(uuid.UUID(int=0)), owner.fence, {STAGING: fences}, held)
        try:
            outcome = self.step.undo(self._new_world(owner), captured)
        except (ConflictError, FencedError):
            return REFUSED
        if outcome is not UndoOutcome.STRANGER:
            owner.fs.sync_directories(directories_to_sync([self.step], ROOT, {}, captured))
            if self._holder is owner and self.logged_state is LoggedState.ABANDONING:
                self.logged_state = LoggedState.UNDONE
        return outcome

    def _require_held(self, owner: Owner) -> None:
        if self._holder is not owner:
            raise FencedError("another owner has the sequence")

    def _new_world(self, owner: Owner) -> StepWorld:
        return StepWorld(owner.fs, StepPorts(owner.fs.open), {STAGING: self._attempt_of(owner)})

    @property
    def _is_of_directories(self) -> bool:
        return isinstance(self.step, PlaceDirectory | EnsureDirectory | ClearDirectory | ModeStep)

    @property
    def _holder(self) -> Owner:
        return self.owners[-1]

    # --- what must hold

    def check(self) -> None:
        self._check_mode()
        counts, name = Counter(self.disk.files().values()), list_at_name(self.disk)
        subject, guests, destroyed = self.subject, self.guests, self.destroyed
        ours = subject.new | subject.old
        for content in ours | guests:
            is_lost = not counts[content] and content not in destroyed
            assert not is_lost, f"{content!r} is lost"
            assert counts[content] <= 1, f"{content!r} stands in {counts[content]} places"
        assert name <= ours | guests, f"a part of a file is visible: {name}"
        match self.logged_state:
            case LoggedState.OPEN | LoggedState.ABANDONING:
                for version in (subject.new, subject.old):
                    assert not version & name or version - name <= destroyed, f"part of a version is visible: {name}"
                is_gapless = isinstance(self.step, ReplaceFile) and self.step.exchanges and not self.is_disturbed
                assert name or not is_gapless or self.logged_state is LoggedState.ABANDONING, "a reader finds nothing"
            case LoggedState.DONE:
                self._check_name(name, subject.new)
                is_missing = isinstance(self.step, EnsureDirectory) and not self.disk.is_directory(TARGET)
                assert self.is_disturbed or not is_missing, "the directory is missing"
            case LoggedState.UNDONE:
                self._check_name(name, subject.old)

    def _check_mode(self) -> None:
        step, logged_state = self.step, self.logged_state
        if (
            isinstance(step, ModeStep)
            and not self.is_disturbed
            and logged_state in (LoggedState.DONE, LoggedState.UNDONE)
        ):
            is_open = isinstance(step, OpenDirectory) == (logged_state is LoggedState.DONE)
            mode = find_mode(self.disk)
            assert mode == step.mode | (stat.S_IWUSR if is_open else 0), f"the mode is {mode}, {logged_state}"

    def _check_name(self, name: frozenset[bytes], expected: frozenset[bytes]) -> None:
        is_strangers_work = name - expected <= self.guests and expected - name <= self.destroyed
        assert is_strangers_work, f"the name holds {name}, and the log says {expected}: {self.logged_state}"
        kept = {content for path, content in self.disk.files().items() if path.startswith(STAGING)}
        assert not kept & self.guests, "the cleanup of the attempt would remove a stranger's file"
