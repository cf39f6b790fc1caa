"""Steps at given names for directories: new ones with all their files, those on the way to files, and closed ones.

An entry may give way to an entry of another kind: files to a directory, or a directory to a file. The entry that gives
way is moved into its slot, as a removed file is; a directory only if it is empty. These steps are executed before all
others but the opening of directories, and are taken back after the others.

A closed directory is one whose mode takes the right to write from its owner. For a user who may not write everywhere,
no name in it can change, and it can't be moved. So it is opened before all other steps, and closed after them. Each of
the two steps is the other's undo, so a sequence that is taken back leaves the directory closed, too. A new directory
has both steps as well: it is open when it is moved to its name.

No rename moves a mode. In its place, the change of the mode and the look for the attempt's directory are one act
(``ClosedDirectories.change_mode``), so that an overtaken owner changes no mode either. Nothing but the owner's right to
write is ever changed, and only between the two modes that were sealed: any other mode is a stranger's, and stays.
"""

import stat
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gobblin_assets.commit.attempts import SLOTS
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import CapturedStaging, PublishedStepFile, StepFault, StepVerdict, UndoOutcome
from gobblin_assets.destinations.fixed_names.named_decisions import (
    Act,
    Found,
    decide_close,
    decide_open,
    decide_open_again,
    decide_place,
)
from gobblin_assets.destinations.fixed_names.named_steps import (
    DIRECTORIES,
    NamedStep,
    Phase,
    RemoveFile,
    WrittenStep,
    describe_gone,
)
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.fs.file_system import RenameOutcome
from gobblin_assets.fs.named_files import NamedFiles, require_closed_directories
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.model.files import DataFile


@dataclass(frozen=True, slots=True)
class PlaceDirectory(WrittenStep):
    """The publication of a directory that is new as a whole, by one rename; an empty directory at its name gives way.

    ``inode``: that of the staged directory. ``files``: every file below it, by names relative to it. ``is_metadata``:
    all of them are.
    """

    inode: int
    files: tuple[DataFile, ...]
    is_metadata: bool = False

    def __post_init__(self) -> None:
        if not self.files:
            raise RejectedError("a new directory without files", field="files", hint="Ensure the directory instead.")

    @property
    def kind(self) -> str:
        return "place_directory"

    @property
    def phase(self) -> int:
        return Phase.METADATA if self.is_metadata else Phase.NEW

    def judge(self, entry: TreeEntry | None) -> Found:
        if entry is None:
            return Found.NOTHING
        is_ours = entry.kind is EntryKind.DIRECTORY and entry.identity.inode == self.inode
        return Found.NEW if is_ours else Found.OTHER

    def decide_again(self, files: NamedFiles, attempt: str) -> Act:
        """By the directories alone: their files were looked at just before, and are again behind the rename."""
        source, at_name = files.find_entry(self.source_in(attempt)), files.find_entry(self.target)
        name = self.judge(at_name)
        if name is Found.OTHER and at_name is not None and at_name.kind is EntryKind.DIRECTORY:
            # A directory that holds something is left alone by the rename itself.
            return Act.PUBLISH if self.judge(source) is Found.NEW and files.is_empty(self.target) else Act.CONFLICT
        return decide_place(self.judge(source), name)

    def decide(self, files: NamedFiles, attempt: str) -> Act:
        act = self.decide_again(files, attempt)
        if act is Act.DONE and not self._holds_all(files, self.target):
            return Act.CONFLICT
        if act is Act.PUBLISH and not self._holds_all(files, self.source_in(attempt)):
            return Act.CONFLICT
        return act

    def decide_back(self, files: NamedFiles, attempt: str) -> Act:
        """A directory to which a stranger has added something stays, and goes back where it was taken along."""
        returned, name = files.find_entry(self.returned_in(attempt)), self.judge(files.find_entry(self.target))
        if returned is not None:
            if self._holds_exactly(files, self.returned_in(attempt)):
                return Act.DONE
            return Act.UNRETURN if name is Found.NOTHING else Act.CONFLICT
        if name is not Found.NEW:
            if not self._holds_others(files, self.source_in(attempt)):
                return Act.DONE
            # A power cut undid the rename, and not what a stranger had put into the directory behind it.
            return Act.PUBLISH if name is Found.NOTHING else Act.CONFLICT
        return Act.RETURN if self._holds_exactly(files, self.target) else Act.CONFLICT

    def move(self, files: NamedFiles, source: str, target: str) -> RenameOutcome:
        return files.rename_onto_empty(source, target)

    def published(self) -> Iterable[PublishedStepFile]:
        return ((f"{self.target}/{file.name}", file.identity, 0) for file in self.files)

    def _holds_all(self, files: NamedFiles, directory: str) -> bool:
        found = files.find_files(directory, [file.name for file in self.files])
        return all(
            identity is not None and identity.matches(file.identity)
            for identity, file in zip(found, self.files, strict=True)
        )

    def _holds_exactly(self, files: NamedFiles, directory: str) -> bool:
        return self._holds_all(files, directory) and len(files.list_files(directory)) == len(self.files)

    def _holds_others(self, files: NamedFiles, directory: str) -> bool:
        """Whether anything else than the staged files is in it; some of these may be missing."""
        if not files.is_directory(directory):
            return False
        planned = {f"{directory}/{file.name}": file.identity for file in self.files}
        return any(
            (known := planned.get(found.path)) is None or not found.identity.matches(known)
            for found in files.list_files(directory)
        )


@dataclass(frozen=True, slots=True)
class EnsureDirectory(NamedStep):
    """The making of a directory, for names below it. Any directory counts; it stays if the sequence is abandoned.

    Another publication may need it by then, and an empty directory harms nobody.
    """

    @property
    def kind(self) -> str:
        return "ensure_directory"

    @property
    def phase(self) -> int:
        return Phase.DIRECTORIES

    @property
    def is_left_when_undone(self) -> bool:
        return True

    def source_in(self, attempt: str) -> str:
        return f"{attempt}/{DIRECTORIES}/{self.number}"

    def judge(self, entry: TreeEntry | None) -> Found:
        if entry is None:
            return Found.NOTHING
        return Found.NEW if entry.kind is EntryKind.DIRECTORY else Found.OTHER

    def decide(self, files: NamedFiles, attempt: str) -> Act:
        look = files.find_entry
        act = decide_place(self.judge(look(self.source_in(attempt))), self.judge(look(self.target)))
        return Act.CONFLICT if act is Act.DONE and self._has_taken_along(files, attempt) else act

    def decide_back(self, files: NamedFiles, attempt: str) -> Act:
        if not self._has_taken_along(files, attempt):
            return Act.DONE
        return Act.PUBLISH if files.find_entry(self.target) is None else Act.CONFLICT

    def _has_taken_along(self, files: NamedFiles, attempt: str) -> bool:
        """Whether a power cut undid the rename, and not what a stranger had put into the directory behind it."""
        source = self.source_in(attempt)
        return files.is_directory(source) and not files.is_empty(source)


@dataclass(frozen=True, slots=True)
class ClearFile(RemoveFile):
    """The move of a file of planned identity away from a name at which something else is published then."""

    @property
    def kind(self) -> str:
        return "clear_file"

    @property
    def phase(self) -> int:
        return Phase.CLEARED_FILES

    def undo(self, world: StepWorld, captured: CapturedStaging) -> UndoOutcome:
        files, attempt = world.named_files, captured.place_of(self.staging)
        kept = self.judge(files.find_entry(self.slot_in(attempt)))
        if kept is Found.OLD:
            self._free_name(files, attempt)
            if files.find_entry(self.target) is None:
                # The directory of the name gave way, too, and another one does as well as it.
                files.make_directories(self.target.rpartition("/")[0])
        return super(ClearFile, self).undo(world, captured)

    def _free_name(self, files: NamedFiles, attempt: str) -> None:
        """Directories that were made for new files stay when those are taken back; without files, they give way."""
        occupant = files.find_entry(self.target)
        if occupant is None or occupant.kind is not EntryKind.DIRECTORY or files.list_files(self.target):
            return
        place = f"{self.returned_in(attempt)}.directory"
        files.rename_no_replace(self.target, place)
        if files.is_directory(place) and files.list_files(place):
            files.rename_no_replace(place, self.target)


@dataclass(frozen=True, slots=True)
class ClearDirectory(NamedStep):
    """The move of an empty directory away from a name at which a file is published, or from a directory above it."""

    @property
    def kind(self) -> str:
        return "clear_directory"

    @property
    def phase(self) -> int:
        return Phase.CLEARED_DIRECTORIES

    def source_in(self, attempt: str) -> str:
        """Nothing is staged: no such name is ever made."""
        return f"{attempt}/{SLOTS}/{self.number}.source"

    @property
    def is_left_when_undone(self) -> bool:
        return True

    def judge(self, entry: TreeEntry | None) -> Found:
        if entry is None:
            return Found.NOTHING
        return Found.OLD if entry.kind is EntryKind.DIRECTORY else Found.OTHER

    def decide(self, files: NamedFiles, attempt: str) -> Act:
        slot = self.slot_in(attempt)
        name = self.judge(files.find_entry(self.target))
        if self.judge(files.find_entry(slot)) is Found.OLD:
            if files.is_empty(slot):
                return Act.DONE
            # Somebody put something there between the look and the rename.
            return Act.PUT_BACK if name is Found.NOTHING else Act.CONFLICT
        if name is not Found.OLD:
            # It is gone, and whoever publishes at the name looks at what is there.
            return Act.DONE
        # Directories below are cleared before it.
        return Act.CONFLICT if files.list_files(self.target) else Act.AWAY

    def decide_again(self, files: NamedFiles, attempt: str) -> Act:
        act = self.decide(files, attempt)
        return Act.CONFLICT if act is Act.AWAY and not files.is_empty(self.target) else act

    def decide_back(self, files: NamedFiles, attempt: str) -> Act:
        """An empty directory goes back if its name is free; else it stays in the slot."""
        slot = self.slot_in(attempt)
        if not files.is_directory(slot):
            return Act.DONE
        if files.find_entry(self.target) is None:
            return Act.PUT_BACK
        return Act.DONE if files.is_empty(slot) else Act.CONFLICT


NO_PLACE: Final = ""
"""The number of these steps: nothing of theirs is ever in the attempt's directory."""


@dataclass(frozen=True, slots=True)
class ModeStep(NamedStep):
    """The common part of both. ``mode``: the closed one. ``inode`` None: any directory at the name counts, as it does
    where one is ensured.
    """

    mode: int
    inode: int | None = None

    @property
    def is_left_when_undone(self) -> bool:
        return True

    def source_in(self, attempt: str) -> str:
        """Nothing is staged: no such name is ever made."""
        return f"{attempt}/{SLOTS}/{NO_PLACE}.source"

    def judge(self, entry: TreeEntry | None) -> Found:
        if entry is None:
            return Found.NOTHING
        is_ours = entry.kind is EntryKind.DIRECTORY and self.inode in (None, entry.identity.inode)
        return Found.OLD if is_ours else Found.OTHER

    @abstractmethod
    def decide_by_mode(self, mode: int | None) -> Act: ...

    @abstractmethod
    def decide_back_by_mode(self, mode: int | None) -> Act: ...

    def decide(self, files: NamedFiles, attempt: str) -> Act:
        del attempt
        return self.decide_by_mode(self._find_mode(files))

    def decide_back(self, files: NamedFiles, attempt: str) -> Act:
        del attempt
        return self.decide_back_by_mode(self._find_mode(files))

    def carry_out(self, files: NamedFiles, attempt: str, act: Act) -> None:
        self._change(files, act, while_there=attempt)

    def undo(self, world: StepWorld, captured: CapturedStaging) -> UndoOutcome:
        """Also without the attempt's directory, while no newer owner has the sequence: the mode is in the log."""
        files, attempt = world.named_files, captured.place_of(self.staging)
        is_there = files.is_directory(attempt)
        if not is_there:
            captured.require_held()
        act = self.decide_back(files, attempt)
        if act is Act.DONE:
            return UndoOutcome.NEVER_HAPPENED
        self._change(files, act, while_there=attempt if is_there else None)
        return UndoOutcome.UNDONE

    def touches(self, captured: CapturedStaging | None = None) -> Iterable[str]:
        """The mode is in the directory's own inode."""
        del captured
        return (self.target,)

    def find_fault(self, world: StepWorld, verdict: StepVerdict) -> StepFault:
        files, attempt = world.named_files, world.locate(self.staging)
        if not files.is_directory(attempt):
            return describe_gone(attempt, self.target, verdict, self.judge(files.find_entry(self.target)))
        mode = self._find_mode(files)
        found = "?" if mode is None else f"{mode:04o}"
        return StepFault(
            self.target,
            f"has the mode {found}, and had {self.mode:04o} when this was planned: something else changed it",
            f"Give it its old mode by `chmod {self.mode:04o}`, or its owner the right to write, and resume. Or abandon "
            "the publication: the next run compares both sides again.",
        )

    def _find_mode(self, files: NamedFiles) -> int | None:
        entry = files.find_entry(self.target)
        return entry.mode if entry is not None and self.judge(entry) is Found.OLD else None

    def _change(self, files: NamedFiles, act: Act, while_there: str | None) -> None:
        entry = files.find_entry(self.target)
        inode = None if entry is None or self.judge(entry) is not Found.OLD else entry.identity.inode
        modes = (self.mode, self.mode | stat.S_IWUSR)
        old, new = modes if act is Act.OPEN else reversed(modes)
        change = require_closed_directories(files).change_mode
        if inode is None or not change(self.target, inode, old, new, while_there=while_there):
            raise ConflictError(f"{self.target} changed since it was looked at, or was taken over", path=self.target)


@dataclass(frozen=True, slots=True)
class OpenDirectory(ModeStep):
    """The opening of a closed directory: its owner gets the right to write. A directory that is not there yet is not
    opened, and is closed when the sequence is taken back.
    """

    @property
    def kind(self) -> str:
        return "open_directory"

    @property
    def phase(self) -> int:
        return Phase.OPENED

    def decide_by_mode(self, mode: int | None) -> Act:
        return decide_open(mode, self.mode)

    def decide_back_by_mode(self, mode: int | None) -> Act:
        return decide_close(mode, self.mode)


@dataclass(frozen=True, slots=True)
class CloseDirectory(ModeStep):
    """The closing of a directory: its owner loses the right to write, once all names in it are as they should be."""

    @property
    def kind(self) -> str:
        return "close_directory"

    @property
    def phase(self) -> int:
        return Phase.CLOSED

    def decide_by_mode(self, mode: int | None) -> Act:
        return decide_close(mode, self.mode)

    def decide_back_by_mode(self, mode: int | None) -> Act:
        return decide_open_again(mode, self.mode)
