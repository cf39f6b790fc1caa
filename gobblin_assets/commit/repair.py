"""The end of a publication at given names that can't be taken back as a whole: a person decides which files its names
keep.

An abandonment takes each step back, and stops where it can't: if the attempt's directory is gone, or a stranger's file
is at a name. A repair goes on there (``steps.CommitStep.settle``). Steps that can be taken back are taken back. At each
other name, the person's decision holds, and nothing is lost. Two kinds of files are moved to new names below the job's
directory ``.set-aside``: files that give way, and files in the step's places that are not the step's own. All this
happens under a capture, as in an abandonment.

The log does not know which files are then at these names. So their paths are kept as a fact of the dataset, and the
next publication copies each of them again, whatever times say.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from gobblin_assets.commit.withdrawal import withdraw_name
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.named_files import NamedFiles
from gobblin_assets.model.path_names import list_upwards

UNLOGGED_FACT: Final = "unlogged_names"
"""Key in a dataset's facts: by partition, full paths at which something is that the log does not know."""

EVERY_NAME: Final = "*"
"""In the place of more names than a fact should have."""

UNLOGGED_NAMES_MAX: Final = 10_000


class Keep(StrEnum):
    """The version that a name has afterwards, as far as it is anywhere: the one before, the planned one, or neither."""

    OLD = "old"
    NEW = "new"
    THERE = "there"


@dataclass(frozen=True, slots=True)
class UnsettledName:
    """A name whose step can't be taken back: its versions, each with where it is, for people."""

    path: str
    old: str
    new: str
    there: str


@dataclass(slots=True)
class NamedRepair:
    """A person's decision, and what was done by it.

    ``withdrawn``: a new directory of this owner, for what is moved away. ``unlogged``: once the repair is over, the
    names that were not taken back. ``root``: what is above all names.
    """

    keep: Keep
    root: str
    withdrawn: str
    unlogged: list[str] = field(default_factory=list)
    _prepared: set[str] = field(default_factory=set)
    _touched: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """For the fact of the dataset."""
        return self.unlogged if len(self.unlogged) <= UNLOGGED_NAMES_MAX else [EVERY_NAME]

    def make_places(self, files: NamedFiles, attempt: str, names: Iterable[str]) -> None:
        """Make these directories of an attempt that lost a part of its own, once. Only this owner knows its name."""
        if attempt not in self._prepared and files.is_directory(attempt):
            for name in names:
                files.make_directory(f"{attempt}/{name}")
        self._prepared.add(attempt)

    def withdraw(self, files: NamedFiles, path: str, place: str, name: str) -> None:
        """Move what is at ``path``, if anything is, out of the way: a ``place`` of the step at ``name``."""
        target = f"{self.withdrawn}/{place}{name.removeprefix(self.root)}"
        if withdraw_name(files, path, target):
            self.touch(path, target)

    def touch(self, *paths: str) -> None:
        """These names changed."""
        self._touched.update(path.rpartition("/")[0] for path in paths)

    def sync(self, fs: FileSystem) -> None:
        """Let what was done survive a power cut."""
        if self._touched:
            fs.sync_directories(list_upwards(self._touched, self.root))
