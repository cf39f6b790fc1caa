"""The real file system, whose process stops between its look at a step's places and the rename that follows."""

from pathlib import PurePosixPath

from gobblin_assets.commit.attempts import STAGING_NAME
from gobblin_assets.failpoints import stop_this_process
from gobblin_assets.fs.file_system import RenameOutcome
from gobblin_assets.fs.named_files import ExchangeOutcome
from gobblin_assets.fs.posix_named import PosixNamedFiles


class StoppingFiles(PosixNamedFiles):
    """The process stops before its n-th act, counted from 1; captures of attempts are no acts."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    def rename_no_replace(self, source: str, target: str) -> RenameOutcome:
        self._act(source)
        return super().rename_no_replace(source, target)

    def rename_onto_empty(self, source: str, target: str) -> RenameOutcome:
        self._act(source)
        return super().rename_onto_empty(source, target)

    def exchange(self, one: str, other: str) -> ExchangeOutcome:
        self._act(one)
        return super().exchange(one, other)

    def change_mode(self, path: str, inode: int, old: int, new: int, *, while_there: str | None = None) -> bool:
        self._act(path)
        return super().change_mode(path, inode, old, new, while_there=while_there)

    def _act(self, source: str) -> None:
        if PurePosixPath(source).parent.name == STAGING_NAME:
            return
        self._left -= 1
        if self._left == 0:
            stop_this_process()
