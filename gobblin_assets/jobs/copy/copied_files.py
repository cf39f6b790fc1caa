"""The staged files of a copy: the identities of a plan's files, as they are reported, and the outputs that they make.

A plan may have a million files. So what is known of a file that is published by itself takes a place in each of a few
arrays, and outputs are made, some thousands of files at a time, when a destination asks for them.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from gobblin_assets.destinations.named_outputs import (
    ClosedDirectory,
    DirectoryAtName,
    DirectoryToClear,
    FilesAtNames,
    FilesToRemove,
    NamedOutput,
    ParentDirectory,
)
from gobblin_assets.errors import RetryableError
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import CopyItem
from gobblin_assets.jobs.copy.transfer.transfer_port import FileResult
from gobblin_assets.model.files import DataFile, FileIdentity, IdentityColumns

FILES_PER_OUTPUT_MAX: Final = 10_000
"""As many as a segment of the log has at most."""

_NOBODY: Final = -1


class CopiedFiles:
    """The staged files of one plan. Iterating gives the outputs, the same ones each time.

    ``latest_ns``: the latest time of what was staged, in nanoseconds. ``left_out``: items that changed while they were
    copied, by number with their paths. ``closed``: directories that are opened before all else, and closed behind it.
    """

    def __init__(self, plan: CopyPlan) -> None:
        self.latest_ns = 0
        self.left_out: dict[int, str] = {}
        self.closed: tuple[ClosedDirectory, ...] = ()
        self._plan = plan
        places = range(1 + max((item.number for item in plan.items), default=0))
        # By the number of the item: its writer, and what it staged.
        self._writer = array("i", [_NOBODY]) * len(places)
        self._size_bytes = array("q", [0]) * len(places)
        self._inode = array("Q", [0]) * len(places)
        self._mtime_ns = array("q", [0]) * len(places)
        self._checksum = array("q", [_NOBODY]) * len(places)
        self._writers: dict[str, int] = {}
        self._names: list[str] = []
        self._of_directories: dict[int, list[FileResult]] = {
            item.number: [] for item in plan.items if item.is_directory
        }

    def add(self, result: FileResult) -> None:
        """A file or directory that was copied. RetryableError if its identity is not told."""
        identity, number = result.identity, result.item
        if identity is None or identity.inode is None:
            raise _untold(result.path)
        self.latest_ns = max(self.latest_ns, identity.mtime_ns or 0)
        if (found := self._of_directories.get(number)) is not None:
            found.append(result)
            return
        if identity.mtime_ns is None:
            raise _untold(result.path)
        self._size_bytes[number] = identity.size_bytes
        self._inode[number] = identity.inode
        self._mtime_ns[number] = identity.mtime_ns
        self._checksum[number] = _NOBODY if result.checksum is None else result.checksum
        name = _writer_of(result)
        if name not in self._writers:
            self._writers[name] = len(self._names)
            self._names.append(name)
        self._writer[number] = self._writers[name]

    def require_all(self) -> None:
        """RetryableError unless every file of the plan was reported."""
        for item in self._plan.items:
            if item.is_directory:
                reported = self._of_directories[item.number]
                count = sum(not each.is_directory for each in reported)
                if count != len(item.files) or count == len(reported):
                    raise _missing(item, count)
            elif self._writer[item.number] == _NOBODY and item.number not in self.left_out:
                raise _missing(item, 0)

    def list_inodes(self) -> Iterator[int]:
        """Of all files that were copied."""
        for results in self._of_directories.values():
            yield from (_identity_of(each).inode or 0 for each in results if not each.is_directory)
        for writer, inode in zip(self._writer, self._inode, strict=True):
            if writer != _NOBODY:
                yield inode

    def list_directories(self) -> Iterator[tuple[int, str]]:
        """The number of each item that is a directory, and its place below the attempt."""
        for number, results in self._of_directories.items():
            yield from ((number, each.staged_path) for each in results if each.is_directory)

    def list_checksums(self) -> Iterator[tuple[str, str, int | None]]:
        """Of each file its place below the destination, that below the attempt, and its CRC32C."""
        for item in self._plan.items:
            if item.is_directory:
                yield from ((each.path, each.staged_path, each.checksum) for each in self._files_of(item))
            elif item.number not in self.left_out:
                checksum = self._checksum[item.number]
                staged_path = f"{self._names[self._writer[item.number]]}/{item.number}"
                yield item.path, staged_path, None if checksum == _NOBODY else checksum

    def __iter__(self) -> Iterator[NamedOutput]:
        plan = self._plan
        for number, path, _desired in plan.directories:
            yield ParentDirectory(number, path)
        for start in range(0, len(plan.items), FILES_PER_OUTPUT_MAX):
            yield from self._describe(plan.items[start : start + FILES_PER_OUTPUT_MAX])
        if not self.left_out:
            yield from _describe_removals(plan.removals, make_way=False)
        cleared = [each for each in plan.cleared_files if not self._is_kept(each[1])]
        yield from _describe_removals(cleared, make_way=True)
        for number, path in plan.cleared_directories:
            if not self._is_kept(path):
                yield DirectoryToClear(number, path)
        yield from self.closed

    def _is_kept(self, path: str) -> bool:
        """Whether what gives way at the path, or above it, is left out, so that nothing has to."""
        return any(path == name or path.startswith(f"{name}/") for name in self.left_out.values())

    def _describe(self, items: Sequence[CopyItem]) -> Iterator[NamedOutput]:
        replaced, metadata = self._plan.replaced, self._plan.metadata
        files = []
        for item in items:
            if item.is_directory:
                yield self._describe_directory(item)
            elif item.number not in self.left_out and not (self.left_out and item.number in metadata):
                files.append(item)
        for is_metadata in (False, True):
            some = [item for item in files if (item.number in metadata) is is_metadata]
            new = [item for item in some if item.number not in replaced]
            if new:
                yield self._describe_files(new, None, is_metadata=is_metadata)
            if len(some) > len(new):
                changed = [item for item in some if item.number in replaced]
                old = IdentityColumns.of([replaced[item.number] for item in changed])
                yield self._describe_files(changed, old, is_metadata=is_metadata)

    def _describe_files(
        self, items: Sequence[CopyItem], old: IdentityColumns | None, *, is_metadata: bool
    ) -> FilesAtNames:
        numbers = [item.number for item in items]
        identities = IdentityColumns(
            _choose(self._size_bytes, numbers),
            _choose(self._inode, numbers),
            _choose(self._mtime_ns, numbers),
            [None] * len(numbers),
        )
        names = self._names
        writers = [names[writer] for writer in _choose(self._writer, numbers)]
        return FilesAtNames(numbers, [item.path for item in items], writers, identities, old, is_metadata)

    def _describe_directory(self, item: CopyItem) -> DirectoryAtName:
        results = self._of_directories[item.number]
        (directory,) = [each for each in results if each.is_directory]
        writer = _writer_of(directory)
        start = len(f"{writer}/{item.number}/")
        names = sorted((each.staged_path[start:], _identity_of(each)) for each in self._files_of(item))
        inode = _identity_of(directory).inode
        if inode is None:
            raise _untold(item.path)
        files = tuple(DataFile(name, identity, 0) for name, identity in names)
        is_metadata = item.number in self._plan.metadata
        return DirectoryAtName(item.number, item.path, writer, inode, files, is_metadata)

    def _files_of(self, item: CopyItem) -> list[FileResult]:
        return [each for each in self._of_directories[item.number] if not each.is_directory]


def _describe_removals(removals: Sequence[tuple[int, str, FileIdentity]], *, make_way: bool) -> Iterator[FilesToRemove]:
    for start in range(0, len(removals), FILES_PER_OUTPUT_MAX):
        some = removals[start : start + FILES_PER_OUTPUT_MAX]
        yield FilesToRemove(
            [number for number, _path, _identity in some],
            [path for _number, path, _identity in some],
            IdentityColumns.of([identity for _number, _path, identity in some]),
            make_way,
        )


def _choose(column: "array[int]", numbers: Sequence[int]) -> "array[int]":
    """Most often, all that follow each other."""
    first, end = numbers[0], numbers[-1] + 1
    if end - first == len(numbers) and numbers == list(range(first, end)):
        return column[first:end]
    return array(column.typecode, [column[number] for number in numbers])


def _writer_of(result: FileResult) -> str:
    return result.staged_path.partition("/")[0]


def _identity_of(result: FileResult) -> FileIdentity:
    if result.identity is None:
        raise _untold(result.path)
    return result.identity


def _untold(path: str) -> RetryableError:
    return RetryableError(f"{path} was reported without an identity")


def _missing(item: CopyItem, reported: int) -> RetryableError:
    return RetryableError(f"{item.path}: {len(item.files)} files were planned, and {reported} were reported")
