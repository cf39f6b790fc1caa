"""Steps at given names for what gives way to an entry of another kind: files where a directory comes, and the reverse.

They are carried out before all others, and taken back behind all others. What gives way is moved into its slot, as a
removed file is; a directory only if nothing is in it.
"""

from dataclasses import dataclass

from gobblin_assets.commit.attempts import SLOTS
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import CapturedStaging, UndoOutcome
from gobblin_assets.destinations.fixed_names.named_decisions import Act, Found
from gobblin_assets.destinations.fixed_names.named_steps import NamedStep, Phase, RemoveFile
from gobblin_assets.fs.named_files import NamedFiles
from gobblin_assets.fs.tree import EntryKind, TreeEntry


@dataclass(frozen=True, slots=True)
class ClearFile(RemoveFile):
    """Move a file of planned identity away from a name at which something else is published then."""

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
        standing = files.find_entry(self.target)
        if standing is None or standing.kind is not EntryKind.DIRECTORY or files.list_files(self.target):
            return
        place = f"{self.returned_in(attempt)}.directory"
        files.rename_no_replace(self.target, place)
        if files.is_directory(place) and files.list_files(place):
            files.rename_no_replace(place, self.target)


@dataclass(frozen=True, slots=True)
class ClearDirectory(NamedStep):
    """Move an empty directory away from a name at which a file is published then, or from a directory above it."""

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
            # It is gone, and whoever publishes at the name looks at what stands there.
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
