"""One owner's file system, in which something else may happen before one of its calls."""

from collections.abc import Callable, Sequence

from gobblin_assets.fs.file_system import RenameOutcome
from gobblin_assets.fs.named_files import ExchangeOutcome
from gobblin_assets.fs.tree import TreeEntry
from gobblin_assets.model.files import FileIdentity
from tests.simulation.file_system import SimDisk, SimFileSystem


class RacingFiles(SimFileSystem):
    """Only the calls by which steps look and move are counted."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__(disk)
        self._calls_left = 0
        self._meanwhile: Callable[[], None] | None = None

    def interrupt_at(self, call: int, meanwhile: Callable[[], None] | None) -> None:
        """Before the call of this number, from now and from 0. None: nothing happens."""
        self._calls_left, self._meanwhile = call, meanwhile

    def _reach(self) -> None:
        meanwhile = self._meanwhile
        if meanwhile is not None and self._calls_left == 0:
            self._meanwhile = None
            meanwhile()
        self._calls_left -= 1

    def find_entry(self, path: str) -> TreeEntry | None:
        self._reach()
        return super().find_entry(path)

    def find_files(self, directory: str, names: Sequence[str]) -> Sequence[FileIdentity | None]:
        self._reach()
        return super().find_files(directory, names)

    def is_directory(self, path: str) -> bool:
        self._reach()
        return super().is_directory(path)

    def is_empty(self, directory: str) -> bool:
        self._reach()
        return super().is_empty(directory)

    def rename_no_replace(self, source: str, target: str) -> RenameOutcome:
        self._reach()
        return super().rename_no_replace(source, target)

    def rename_onto_empty(self, source: str, target: str) -> RenameOutcome:
        self._reach()
        return super().rename_onto_empty(source, target)

    def exchange(self, one: str, other: str) -> ExchangeOutcome:
        self._reach()
        return super().exchange(one, other)

    def change_mode(self, path: str, inode: int, old: int, new: int, *, while_there: str | None = None) -> bool:
        self._reach()
        return super().change_mode(path, inode, old, new, while_there=while_there)
