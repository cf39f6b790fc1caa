"""Both sides of a copy, as its plans look at them."""

from typing import Protocol

from gobblin_assets.fs.port import FileSystem
from gobblin_assets.fs.tree import Tree, TreeEntry
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec


class CopyTrees(Protocol):
    """Both sides of a copy: full paths of roots, and how their trees are listed."""

    def open_source(self, spec: CopyDatasetSpec) -> tuple[Tree, str]:
        """A tree that lists in byte order of the names that the dataset's converters give."""
        ...

    def require_inside(self, spec: CopyDatasetSpec, place: str) -> None:
        """RejectedError if a link on the way from the source's root to ``place`` below it may not be followed."""
        ...

    def find_source_entry(self, place: str) -> TreeEntry | None:
        """What stands at a full path of the source; links are not followed."""
        ...

    def find_source_directory(self, place: str) -> TreeEntry | None:
        """The directory at a full path of the source, by a link too; None if none is there, or has attributes."""
        ...

    def open_destination(self) -> Tree: ...
    def open_destination_files(self) -> FileSystem: ...
