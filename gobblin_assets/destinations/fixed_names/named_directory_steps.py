"""Steps at given names for directories: new ones with all their files, and those on the way to files."""

from collections.abc import Iterable
from dataclasses import dataclass

from gobblin_assets.commit.steps import PublishedStepFile
from gobblin_assets.destinations.fixed_names.named_decisions import Act, Found, decide_place
from gobblin_assets.destinations.fixed_names.named_steps import DIRECTORIES, NamedStep, Phase, WrittenStep
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.file_system import RenameOutcome
from gobblin_assets.fs.named_files import NamedFiles
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.model.files import DataFile


@dataclass(frozen=True, slots=True)
class PlaceDirectory(WrittenStep):
    """Publish a directory that is new as a whole, by one rename; an empty directory at its name gives way.

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
    """Let a directory be there, for names below it. Any directory counts; it stays if the sequence is abandoned.

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
