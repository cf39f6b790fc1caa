"""Steps at given names that open closed directories, in which names change, and close them again.

A closed directory is one whose mode takes the right to write from its owner. For a user who may not write everywhere,
no name in it can change, and it can't be moved. So it is opened before all other steps, and closed behind them; each of
the two is the other's undo, so that a sequence that is taken back leaves it closed, too. A new directory has both steps
as well: it is moved to its name open.

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
from gobblin_assets.commit.steps import CapturedStaging, StepFault, StepVerdict, UndoOutcome
from gobblin_assets.destinations.fixed_names.named_decisions import (
    Act,
    Found,
    decide_close,
    decide_open,
    decide_open_again,
)
from gobblin_assets.destinations.fixed_names.named_faults import describe_gone
from gobblin_assets.destinations.fixed_names.named_steps import NamedStep, Phase
from gobblin_assets.errors import ConflictError
from gobblin_assets.fs.named_files import NamedFiles, require_closed_directories
from gobblin_assets.fs.tree import EntryKind, TreeEntry

NO_PLACE: Final = ""
"""The number of these steps: nothing of theirs is ever in the attempt's directory."""


@dataclass(frozen=True, slots=True)
class ModeStep(NamedStep):
    """What both have in common. ``mode``: the closed one. ``inode`` None: any directory at the name counts, as it does
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
    """Give a closed directory's owner the right to write. What is not there yet is opened by nobody, and closed when
    the sequence is taken back.
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
    """Take the right to write from a directory's owner, once all names in it are as they should be."""

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
