"""The kinds of steps that publish files at given names, which earlier and later publications use too.

Names that are always new need no more than ``files.rename_steps``. At given names a paused process could move a later
version away. So every act also names a place inside the attempt's directory. A process that executes a sequence under
another fence than the sealing one first renames this directory (``attempt_capture``). Then the paths of all earlier
owners are gone. The attempt's directory is made with all its places before the attempt is staged, and nobody makes it
again.

    <attempt>/<writer>/<number>    the staged version, with its attributes
    <attempt>/slots/<number>       the place for the version that it replaces, or that is removed
    <attempt>/returned/<number>    the place for a version that an abandonment takes back
    <attempt>/directories/<number> a staged empty directory

Nothing is unlinked, replaced or changed by its published name. A file of a stranger, found at a name or taken along by
a race, is put back and stays; the sequence is then BLOCKED. ``named_decisions`` has the tables of what is done.

A step that can't go on, or can't be taken back, names its fault, with what a person can do. The hints are for both ways
out: a publication that is resumed, and one that is abandoned.
"""

import datetime as dt
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from gobblin_assets.commit.attempts import SLOTS
from gobblin_assets.commit.repair import Keep, NamedRepair, UnsettledName
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import (
    CapturedStaging,
    CommitStep,
    PublishedStepFile,
    StepFault,
    StepVerdict,
    UndoOutcome,
)
from gobblin_assets.destinations.fixed_names.named_decisions import (
    Act,
    Found,
    decide_place,
    decide_remove,
    decide_replace,
    decide_undo,
)
from gobblin_assets.errors import ConflictError, GobblinError
from gobblin_assets.fs.file_system import RenameOutcome
from gobblin_assets.fs.named_files import ExchangeOutcome, NamedFiles
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.model.files import FileIdentity

PUT_BACK: Final = "Put back what was there before. To abandon the publication, any file there will do."

_REPLACED: Final = "the next run replaces that file by the source's, and keeps it in the trash for trash_keep_s"
_COMPARED: Final = "the next run compares both sides again"
_ONLY_MOVED_BACK: Final = "resuming helps only if the planned file is moved back, which a copy of it is not"

STRANGER_AT_FREE_NAME: Final = f"Move that file elsewhere and resume. Or abandon: {_REPLACED}."
STRANGER_ON_THE_WAY: Final = f"Move that away and resume. Or abandon: {_COMPARED}."
STRANGER_IN_PLACE_OF_OLD: Final = f"Abandon: {_REPLACED}; {_ONLY_MOVED_BACK}."
OLD_IS_GONE: Final = f"Abandon: {_COMPARED}; {_ONLY_MOVED_BACK}."

_COPIED_AGAIN: Final = "the next run copies again"
_ABANDON: Final = f"Abandon the publication: {_COPIED_AGAIN}."
_KEPT: Final = {Found.OLD: "The version before", Found.OTHER: "Another file that was found there"}


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of a step's places, and what was found at each."""

    target: str
    source: str
    slot: str
    returned: str
    at_target: Found
    at_source: Found
    at_slot: Found
    at_returned: Found


def describe_fault(places: Places, verdict: StepVerdict, hint_of_stranger: str, *, has_old: bool) -> StepFault:
    """``has_old``: a version was planned to be at the name before."""
    if verdict is StepVerdict.LOST:
        return StepFault(places.target, "is neither staged nor published", _hint_of_kept(places) or _ABANDON)
    if places.at_target is Found.NOTHING:
        return StepFault(places.target, "is missing: something else removed it", _hint_of_kept(places) or PUT_BACK)
    if places.at_target is Found.NEW:
        # A directory with other files than were staged: to move away a part of it leads nowhere.
        whole = f"Move the whole directory {places.target} elsewhere, and abandon the publication: {_COPIED_AGAIN}."
        return StepFault(places.target, "is not as it was staged any more", _hint_of_kept(places) or whole)
    planned = "the file that was planned there" if has_old else "what was staged"
    found = f"is not {planned}: something else put it there"
    return StepFault(places.target, found, _hint_of_kept(places) or hint_of_stranger)


def describe_gone(attempt: str, target: str, verdict: StepVerdict, at_target: Found) -> StepFault:
    """The attempt's directory is not there, under any name."""
    if verdict is StepVerdict.LOST:
        hint = "Move it back, or abandon the publication: the next run copies again."
        return StepFault(attempt, "is gone, and with it what was staged", hint)
    if at_target is Found.NEW:
        found = f"was published, and can't be taken back: {attempt} is gone"
        return StepFault(target, found, is_repaired=True)
    return StepFault(target, f"is missing, and {attempt} is gone", is_repaired=True)


def _hint_of_kept(places: Places) -> str:
    """Where what was moved from the name lies now."""
    for place, found in ((places.slot, places.at_slot), (places.returned, places.at_returned)):
        if found in _KEPT:
            return f"Move away by hand what is there. {_KEPT[found]} is kept in {place}."
    if places.at_source in _KEPT:
        return f"{_KEPT[places.at_source]} is kept in {places.source}: move it to the name by hand."
    return ""


RETURNED: Final = "returned"
DIRECTORIES: Final = "directories"

_LOST: Final = "lost"

UNDO_ACTS_MAX: Final = 8
"""A replacement is undone by two renames; each stranger met on the way costs two more."""


class Phase(IntEnum):
    """The order in which a sequence's steps are carried out: each phase is durable and verified before the next."""

    OPENED = -3
    CLEARED_FILES = -2
    CLEARED_DIRECTORIES = -1
    DIRECTORIES = 0
    NEW = 1
    REPLACEMENTS = 2
    METADATA = 3
    REMOVALS = 4
    CLOSED = 5


@dataclass(frozen=True, slots=True)
class NamedStep(CommitStep):
    """The common part of the kinds.

    ``staging``: the attempt's directory as the log has it. ``number``: the name of the step's places inside of it.
    """

    staging: str
    target: str
    number: str

    @abstractmethod
    def source_in(self, attempt: str) -> str:
        """The staged version, in the attempt's directory as it is named now."""
        ...

    def slot_in(self, attempt: str) -> str:
        return f"{attempt}/{SLOTS}/{self.number}"

    def returned_in(self, attempt: str) -> str:
        return f"{attempt}/{RETURNED}/{self.number}"

    @abstractmethod
    def judge(self, entry: TreeEntry | None) -> Found:
        """What this is to the step."""
        ...

    @abstractmethod
    def decide(self, files: NamedFiles, attempt: str) -> Act:
        """What the step's places, looked at now, ask for."""
        ...

    def decide_again(self, files: NamedFiles, attempt: str) -> Act:
        """``decide``, just behind a ``decide`` that asked for an act, and just before the act."""
        return self.decide(files, attempt)

    def decide_back(self, files: NamedFiles, attempt: str) -> Act:
        look = files.find_entry
        return decide_undo(
            self.judge(look(self.source_in(attempt))),
            self.judge(look(self.slot_in(attempt))),
            self.judge(look(self.target)),
            self.judge(look(self.returned_in(attempt))),
            has_old=self.has_old,
        )

    @property
    def has_old(self) -> bool:
        """Whether a planned version was at the name before."""
        return False

    @property
    def is_left_when_undone(self) -> bool:
        """Whether what is at the name stays if the sequence is abandoned."""
        return False

    def verify(self, world: StepWorld) -> StepVerdict:
        files, attempt = world.named_files, world.locate(self.staging)
        if not files.is_directory(attempt):
            return StepVerdict.LOST
        act = self.decide(files, attempt)
        return StepVerdict(act.value) if act.is_answer else StepVerdict.DO

    def execute(self, world: StepWorld) -> None:
        files, attempt = world.named_files, world.locate(self.staging)
        act = self.decide_again(files, attempt)
        if act.is_answer:
            raise ConflictError(f"{self.target} changed since it was verified", path=self.target, found=act.value)
        self.carry_out(files, attempt, act)

    def carry_out(self, files: NamedFiles, attempt: str, act: Act) -> None:
        """The act's rename. ConflictError if what it moves, or where it moves it, is not as it was found."""
        source, slot, returned = self.source_in(attempt), self.slot_in(attempt), self.returned_in(attempt)
        try:
            if act is Act.EXCHANGE:
                done = files.exchange(source, self.target) is ExchangeOutcome.EXCHANGED
            else:
                moved, place = {
                    Act.PUBLISH: (source, self.target),
                    Act.AWAY: (self.target, slot),
                    Act.SETTLE: (source, slot),
                    Act.UNSETTLE: (slot, source),
                    Act.PUT_BACK: (slot, self.target),
                    Act.RETURN: (self.target, returned),
                    Act.UNRETURN: (returned, self.target),
                }[act]
                done = self.move(files, moved, place) is RenameOutcome.RENAMED
        except GobblinError as error:
            if files.is_directory(attempt):
                raise
            raise ConflictError(f"{attempt} was taken over", path=attempt) from error
        if not done:
            raise ConflictError(f"{self.target} changed since it was looked at", path=self.target)

    def move(self, files: NamedFiles, source: str, target: str) -> RenameOutcome:
        return files.rename_no_replace(source, target)

    def undo(self, world: StepWorld, captured: CapturedStaging) -> UndoOutcome:
        """By single renames, each after a new look; another abandoner goes on from wherever a crash stops this one.

        If the attempt's directory is gone, and no newer owner has it, then nobody has a place to move anything from or
        to, and the name alone decides.
        """
        files, attempt = world.named_files, captured.place_of(self.staging)
        if not files.is_directory(attempt):
            captured.require_held()
            is_free = self.decide_back(files, attempt) is Act.DONE
            return UndoOutcome.NEVER_HAPPENED if is_free else UndoOutcome.STRANGER
        for number in range(UNDO_ACTS_MAX):
            act = self.decide_back(files, attempt)
            if act is Act.DONE:
                return UndoOutcome.UNDONE if number else UndoOutcome.NEVER_HAPPENED
            if act.is_answer:
                break
            if act in (Act.PUBLISH, Act.PUT_BACK):
                # The directory of the name may be gone: with a power cut, by a stranger, or cleared by this sequence.
                files.make_directories(_parent(self.target))
            self.carry_out(files, attempt, act)
        return UndoOutcome.STRANGER

    def find_unsettled(self, world: StepWorld) -> UnsettledName | None:
        files, attempt = world.named_files, world.locate(self.staging)
        act = self.decide_back(files, attempt)
        if act is Act.DONE or not (act.is_answer or self._is_lost(files, attempt)):
            return None
        places = {
            "at its name": self.target,
            "staged": self.source_in(attempt),
            "in its slot": self.slot_in(attempt),
            "taken back": self.returned_in(attempt),
        }
        entries = {name: files.find_entry(path) for name, path in places.items()}
        kept = {self.judge(entry): f"{_show(entry)} {name}" for name, entry in reversed(entries.items())}
        there = entries["at its name"]
        words = {Found.OLD: "the old version", Found.NEW: "the new version"}
        return UnsettledName(
            self.target,
            kept.get(Found.OLD, _LOST) if self.has_old else "none",
            kept.get(Found.NEW, _LOST),
            words.get(self.judge(there), _show(there)),
        )

    def _is_lost(self, files: NamedFiles, attempt: str) -> bool:
        """Whether something is to be moved, and there is no directory to move it from or to."""
        return not self.is_left_when_undone and not files.is_directory(attempt)

    def settle(self, world: StepWorld, captured: CapturedStaging, repair: NamedRepair) -> None:
        files, attempt = world.named_files, captured.place_of(self.staging)
        repair.make_places(files, attempt, (SLOTS, RETURNED))
        if self.undo(world, captured) is UndoOutcome.STRANGER:
            captured.require_held()
            self._keep(files, attempt, repair)
            repair.unlogged += {self.target, *(path for path, _identity, _rows in self.published())}

    def _keep(self, files: NamedFiles, attempt: str, repair: NamedRepair) -> None:
        """Let the name have what the decision says, and put aside what is not the step's own in its places."""
        places = {
            "staged": self.source_in(attempt),
            "slot": self.slot_in(attempt),
            "returned": self.returned_in(attempt),
        }
        found = {name: files.find_entry(path) for name, path in places.items()}
        judged = {name: self.judge(entry) for name, entry in found.items()}
        at_name = self.judge(files.find_entry(self.target))
        wanted = None if repair.keep is Keep.THERE else {Keep.OLD: Found.OLD, Keep.NEW: Found.NEW}[repair.keep]
        origin = next((name for name, each in judged.items() if each is wanted), None)
        if self.is_left_when_undone:
            pass
        elif repair.keep is Keep.OLD and not self.has_old:
            repair.withdraw(files, self.target, "name", self.target)
        elif at_name is not wanted and origin is not None:
            repair.withdraw(files, self.target, "name", self.target)
            if self.move(files, places[origin], self.target) is not RenameOutcome.RENAMED:
                raise ConflictError(
                    f"{self.target} changed while it was repaired",
                    hint="Stop what else writes there, then do this again.",
                    path=self.target,
                )
            repair.touch(self.target, places[origin])
            del judged[origin]
        for name, each in judged.items():
            entry = found[name]
            # Of a new directory that is not at its name, somebody may have changed what is in it.
            is_changed = name in ("staged", "returned") and entry is not None and entry.kind is EntryKind.DIRECTORY
            if each in (Found.OLD, Found.OTHER) or is_changed:
                repair.withdraw(files, places[name], name, self.target)

    def touches(self, captured: CapturedStaging | None = None) -> Iterable[str]:
        attempt = self.staging if captured is None else captured.place_of(self.staging)
        inside = (self.source_in(attempt), self.slot_in(attempt), self.returned_in(attempt))
        return (_parent(self.target), *(_parent(path) for path in inside))

    def find_fault(self, world: StepWorld, verdict: StepVerdict) -> StepFault:
        files, attempt = world.named_files, world.locate(self.staging)
        at_target = self.judge(files.find_entry(self.target))
        if not files.is_directory(attempt):
            return describe_gone(attempt, self.target, verdict, at_target)
        paths = (self.source_in(attempt), self.slot_in(attempt), self.returned_in(attempt))
        found = (self.judge(files.find_entry(path)) for path in paths)
        places = Places(self.target, *paths, at_target, *found)
        return describe_fault(places, verdict, self.hint_of_stranger, has_old=self.has_old)

    @property
    def hint_of_stranger(self) -> str:
        """What a person can do about something else at the name."""
        return STRANGER_ON_THE_WAY


@dataclass(frozen=True, slots=True)
class WrittenStep(NamedStep):
    """A step with a staged version. ``writer``: the directory in the attempt that holds it."""

    writer: str

    def source_in(self, attempt: str) -> str:
        return f"{attempt}/{self.writer}/{self.number}"


@dataclass(frozen=True, slots=True)
class PlaceFile(WrittenStep):
    """The publication of a file at a name that is free."""

    identity: FileIdentity
    is_metadata: bool = False

    @property
    def kind(self) -> str:
        return "place_file"

    @property
    def phase(self) -> int:
        return Phase.METADATA if self.is_metadata else Phase.NEW

    @property
    def hint_of_stranger(self) -> str:
        return STRANGER_AT_FREE_NAME

    def judge(self, entry: TreeEntry | None) -> Found:
        return judge_file(entry, self.identity, None)

    def decide(self, files: NamedFiles, attempt: str) -> Act:
        look = files.find_entry
        return decide_place(self.judge(look(self.source_in(attempt))), self.judge(look(self.target)))

    def published(self) -> Iterable[PublishedStepFile]:
        return ((self.target, self.identity, 0),)


@dataclass(frozen=True, slots=True)
class ReplaceFile(WrittenStep):
    """The publication of a file in the place of another one, whose identity was planned.

    ``exchanges``: as in ``decide_replace``.
    """

    identity: FileIdentity
    old: FileIdentity
    exchanges: bool
    is_metadata: bool = False

    @property
    def kind(self) -> str:
        return "replace_file"

    @property
    def phase(self) -> int:
        return Phase.METADATA if self.is_metadata else Phase.REPLACEMENTS

    @property
    def has_old(self) -> bool:
        return True

    @property
    def hint_of_stranger(self) -> str:
        return STRANGER_IN_PLACE_OF_OLD

    def judge(self, entry: TreeEntry | None) -> Found:
        return judge_file(entry, self.identity, self.old)

    def decide(self, files: NamedFiles, attempt: str) -> Act:
        look = files.find_entry
        return decide_replace(
            self.judge(look(self.source_in(attempt))),
            self.judge(look(self.slot_in(attempt))),
            self.judge(look(self.target)),
            exchanges=self.exchanges,
        )

    def published(self) -> Iterable[PublishedStepFile]:
        return ((self.target, self.identity, 0),)


@dataclass(frozen=True, slots=True)
class RemoveFile(NamedStep):
    """The removal of a file of planned identity from its name, into its slot."""

    old: FileIdentity

    @property
    def kind(self) -> str:
        return "remove_file"

    @property
    def phase(self) -> int:
        return Phase.REMOVALS

    def source_in(self, attempt: str) -> str:
        """Nothing is staged: no such name is ever made."""
        return f"{attempt}/{SLOTS}/{self.number}.source"

    @property
    def has_old(self) -> bool:
        return True

    @property
    def hint_of_stranger(self) -> str:
        return OLD_IS_GONE

    def judge(self, entry: TreeEntry | None) -> Found:
        return judge_file(entry, None, self.old)

    def decide(self, files: NamedFiles, attempt: str) -> Act:
        look = files.find_entry
        return decide_remove(self.judge(look(self.slot_in(attempt))), self.judge(look(self.target)))


def judge_file(entry: TreeEntry | None, new: FileIdentity | None, old: FileIdentity | None) -> Found:
    """What an entry is to a step that plans files of these identities."""
    if entry is None:
        return Found.NOTHING
    if entry.kind is EntryKind.FILE:
        if new is not None and entry.identity.matches(new):
            return Found.NEW
        if old is not None and entry.identity.matches(old):
            return Found.OLD
    return Found.OTHER


def _show(entry: TreeEntry | None) -> str:
    if entry is None:
        return "nothing"
    if entry.kind is not EntryKind.FILE:
        return f"a {entry.kind.value}"
    mtime_ns = entry.identity.mtime_ns
    time = "" if mtime_ns is None else f" of {dt.datetime.fromtimestamp(mtime_ns // 10**9, dt.UTC):%Y-%m-%d %H:%M:%S}Z"
    return f"{entry.identity.size_bytes:,} bytes{time}"


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
