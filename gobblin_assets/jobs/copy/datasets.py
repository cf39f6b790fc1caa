"""Datasets of a source file system, as finders find them, and the sets of files that are published together."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from gobblin_assets.fs.tree import Tree
from gobblin_assets.jobs.copy.copyable import Attributes
from gobblin_assets.model.partition import PartitionWindow

WHOLE_TREE: Final = "tree"
"""The name of a dataset that is all of the source's root."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that a manifest names by its path below the dataset's source.

    ``attributes``: what the copy shall have, where they are not None. ``is_deleted``: it is removed at the destination.
    """

    path: str
    attributes: Attributes = field(default_factory=Attributes)
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class FileSet:
    """Files that one sequence publishes: all below ``directory``, or those of ``files`` alone if there are any.

    ``key``: the partition's key, or a manifest's word; empty for a dataset that is one set. ``directory`` is relative
    to the dataset's source and to its destination alike; empty for all of it. ``window``: the time of a partition.
    """

    key: str
    directory: str = ""
    window: PartitionWindow | None = None
    files: tuple[NamedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class CopyableDataset:
    """A dataset. ``source`` is relative to the root in which it was found, ``destination`` to the job's destination."""

    name: str
    source: str
    destination: str
    file_sets: tuple[FileSet, ...]


class DatasetFinder(Protocol):
    """A finder of a job's datasets; a package may offer more kinds of finders, see ``finders``."""

    def find_datasets(self, tree: Tree, root: str, now: dt.datetime) -> Sequence[CopyableDataset]:
        """The datasets below ``root``, ascending by name; their sources do not lie inside one another.

        ``now`` is aware. RejectedError says what a person must correct, and errors of the tree pass.
        """
        ...
