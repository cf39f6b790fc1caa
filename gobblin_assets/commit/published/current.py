"""The files that a dataset has now: at given names, a later publication replaces or removes files of earlier ones.

The content of each given name is sorted by name, in memory that does not grow with the dataset. A look-up reads the one
block in which its name would be: whoever asks in order reads each block once.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow.compute as pc

from gobblin_assets.commit.name_changes import BLOCK_ROWS, ROWS_AT_ONCE, SortedRun, sort_changes
from gobblin_assets.commit.published.published_port import PublishedFile, PublishedSegment
from gobblin_assets.commit.segment import IDENTITY_COLUMNS
from gobblin_assets.model.files import FileIdentity


@dataclass(slots=True)
class CurrentNames:
    """The files, by full path."""

    run: SortedRun
    _loaded: int = field(default=-1, init=False)
    _block: dict[str, tuple[int, int | None, int | None, str | None]] = field(default_factory=dict, init=False)

    def find(self, path: str) -> FileIdentity | None:
        """The identity of the file at ``path``; None: the publications left none there."""
        number = bisect_right(self.run.firsts, path) - 1
        if number < 0:
            return None
        if number != self._loaded:
            self._block, self._loaded = self._read(number), number
        found = self._block.get(path)
        return None if found is None else FileIdentity(*found)

    def total(self) -> tuple[int, int]:
        """How many files there are, and their bytes."""
        files = size_bytes = 0
        for number in range(len(self.run.firsts)):
            sizes = self.run.load(number).column("size_bytes")
            files += len(sizes)
            size_bytes += pc.sum(sizes).as_py() or 0
        return files, size_bytes

    def _read(self, number: int) -> dict[str, tuple[int, int | None, int | None, str | None]]:
        block = self.run.load(number)
        columns = (block.column(name).to_pylist() for name in IDENTITY_COLUMNS)
        return dict(zip(block.column("path").to_pylist(), zip(*columns, strict=True), strict=True))


NO_NAMES = CurrentNames(SortedRun((), [].__getitem__))


def sort_current(
    segments: Iterable[PublishedSegment], *, rows_at_once: int = ROWS_AT_ONCE, block_rows: int = BLOCK_ROWS
) -> CurrentNames:
    """``segments``: of given names, newest first. RetryableError: there is no room for the temporary files."""
    changes = (segment.changes_table().select(["path", *IDENTITY_COLUMNS]) for segment in segments)
    newest = sort_changes(changes, rows_at_once=rows_at_once, block_rows=block_rows)
    files = (table.filter(pc.is_valid(table.column("size_bytes"))) for table in newest)
    return CurrentNames(SortedRun.keep(files, block_rows, rows_max=rows_at_once))


def list_current(segments: Iterable[PublishedSegment]) -> Iterator[tuple[PublishedSegment, PublishedFile]]:
    """Each file with the segment that published it last. ``segments``: newest first, of any kinds of names."""
    seen: set[str] = set()
    for segment in segments:
        if not segment.has_given_names:
            yield from ((segment, file) for file in segment.files())
            continue
        for path, file in segment.changes():
            if path not in seen:
                seen.add(path)
                if file is not None:
                    yield segment, file


class Became(StrEnum):
    """The fate of a version at a given name, by a later publication."""

    REPLACED = "replaced"
    REMOVED = "removed"


def list_kept_versions(
    segments: Iterable[PublishedSegment],
) -> Iterator[tuple[PublishedSegment, PublishedFile, Became | None]]:
    """``list_current``, and the earlier versions that the segments have; None for a version that is current."""
    later: dict[str, Became] = {}
    for segment in segments:
        if not segment.has_given_names:
            yield from ((segment, file, None) for file in segment.files())
            continue
        for path, file in segment.changes():
            if file is not None:
                yield segment, file, later.get(path)
            later[path] = Became.REMOVED if file is None else Became.REPLACED
