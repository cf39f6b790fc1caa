"""The kinds of steps that publish staged files: one renames a file, the other a directory with all its files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import PurePosixPath
from typing import Final

from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import (
    CapturedStaging,
    CommitStep,
    PublishedStepFile,
    StepFault,
    StepKind,
    StepRow,
    StepVerdict,
    UndoOutcome,
)
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.fs.file_system import FileSystem, RenameOutcome
from gobblin_assets.model.files import DataFile, FileIdentity, IdentityColumns

_RENAME_FILE: Final = "rename_file"
_RENAME_DIRECTORY: Final = "rename_directory"


@dataclass(frozen=True, slots=True)
class RenameFile(CommitStep):
    """The publication of one file under its final name."""

    source: str
    target: str
    identity: FileIdentity
    row_count: int

    @property
    def kind(self) -> str:
        return _RENAME_FILE

    def expects(self) -> Iterable[str]:
        return (self.source, self.target)

    def prepare(self, world: StepWorld) -> None:
        world.make_directories(_parent(self.target))

    def verify(self, world: StepWorld) -> StepVerdict:
        at_source = world.find_identity(self.source)
        at_target = world.find_identity(self.target)
        # Once our file is published, another file at the source is no fault; a zombie may have made it.
        if at_target is not None:
            if not at_target.matches(self.identity):
                return StepVerdict.CONFLICT
            if at_source is not None and at_source.matches(self.identity):
                return StepVerdict.DROP_SOURCE
            return StepVerdict.DONE
        if at_source is None:
            return StepVerdict.LOST
        return StepVerdict.DO if at_source.matches(self.identity) else StepVerdict.CONFLICT

    def execute(self, world: StepWorld) -> None:
        if world.fs.find_identity(self.target) is not None:
            # Both names are there: a link-and-unlink rename was killed between its halves.
            world.fs.remove_file(self.source, self.identity)
            return
        _expect_renamed(world.fs.rename_no_replace(self.source, self.target), self.source, self.target)

    def undo(self, world: StepWorld, captured: CapturedStaging) -> UndoOutcome:
        found = world.fs.find_identity(self.target)
        if found is None:
            return UndoOutcome.NEVER_HAPPENED
        if not found.matches(self.identity):
            return UndoOutcome.STRANGER
        _take_back(world.fs, self.target, captured.place_for(self.source))
        return UndoOutcome.UNDONE

    def published(self) -> Iterable[PublishedStepFile]:
        return ((self.target, self.identity, self.row_count),)

    def touches(self, captured: CapturedStaging | None = None) -> Iterable[str]:
        return (_parent(self.source), _parent(self.target), *_parents_of_places(captured, self.source))

    def find_fault(self, world: StepWorld, verdict: StepVerdict) -> StepFault:
        del world
        lost = verdict is StepVerdict.LOST
        return StepFault(self.target, "is neither staged nor published" if lost else "is not the file that was staged")


@dataclass(frozen=True, slots=True)
class RenameDirectory(CommitStep):
    """The publication of a directory with its files by one rename. Its target is new: no other sequence names it."""

    source: str
    target: str
    files: tuple[DataFile, ...]

    def __post_init__(self) -> None:
        if not self.files:
            raise RejectedError("a directory step without files", field="files", hint="Publish nothing instead.")

    @property
    def kind(self) -> str:
        return _RENAME_DIRECTORY

    def prepare(self, world: StepWorld) -> None:
        world.make_directories(_parent(self.target))

    def verify(self, world: StepWorld) -> StepVerdict:
        if world.fs.is_directory(self.target):
            found = world.list_directory(self.target)
            return StepVerdict.DONE if self._holds_exactly(found) else StepVerdict.CONFLICT
        found = world.list_directory(self.source)
        if not any(file.name in found for file in self.files):
            return StepVerdict.LOST
        return StepVerdict.DO if self._holds_all(found) else StepVerdict.CONFLICT

    def execute(self, world: StepWorld) -> None:
        planned = {file.name for file in self.files}
        for name, identity in world.list_directory(self.source).items():
            if name not in planned:
                # The file was added after the attempt was staged, to a directory that only we use.
                world.fs.remove_file(f"{self.source}/{name}", identity)
        _expect_renamed(world.fs.rename_no_replace(self.source, self.target), self.source, self.target)

    def undo(self, world: StepWorld, captured: CapturedStaging) -> UndoOutcome:
        if not world.fs.is_directory(self.target):
            return UndoOutcome.NEVER_HAPPENED
        if not self._holds_exactly(world.list_directory(self.target)):
            return UndoOutcome.STRANGER
        _take_back(world.fs, self.target, captured.place_for(self.source))
        return UndoOutcome.UNDONE

    def published(self) -> Iterable[PublishedStepFile]:
        return ((f"{self.target}/{file.name}", file.identity, file.row_count) for file in self.files)

    def touches(self, captured: CapturedStaging | None = None) -> Iterable[str]:
        return (
            _parent(self.source),
            self.target,
            _parent(self.target),
            *_parents_of_places(captured, self.source),
        )

    def find_fault(self, world: StepWorld, verdict: StepVerdict) -> StepFault:
        if verdict is StepVerdict.LOST:
            return StepFault(f"{self.target}/{self.files[0].name}", "is neither staged nor published")
        directory = self.target if world.fs.is_directory(self.target) else self.source
        found = dict(world.list_directory(directory))
        for file in self.files:
            if file.name not in found:
                return StepFault(f"{directory}/{file.name}", "is missing from the directory that was staged")
            if not found.pop(file.name).matches(file.identity):
                return StepFault(f"{directory}/{file.name}", "is not the file that was staged")
        return StepFault(f"{directory}/{next(iter(found), '')}", "is none of the files that were staged")

    def _holds_all(self, found: Mapping[str, FileIdentity]) -> bool:
        return all(file.name in found and found[file.name].matches(file.identity) for file in self.files)

    def _holds_exactly(self, found: Mapping[str, FileIdentity]) -> bool:
        return len(found) == len(self.files) and self._holds_all(found)


class _FileCodec:
    """One row for each step."""

    def to_columns(self, steps: Sequence[RenameFile], first: int) -> Sequence[Sequence[object]]:
        sources = [step.source.rpartition("/") for step in steps]
        targets = [step.target.rpartition("/") for step in steps]
        return [
            range(first, first + len(steps)),
            [directory for directory, _, _ in sources],
            [name for _, _, name in sources],
            [directory for directory, _, _ in targets],
            [name for _, _, name in targets],
            *IdentityColumns.of([step.identity for step in steps]).columns,
            [step.row_count for step in steps],
            [None] * len(steps),
        ]

    def from_rows(self, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
        for _number, _kind, source_dir, source, target_dir, target, size, inode, mtime, tag, row_count, _ in rows:
            identity = FileIdentity(size, inode, mtime, tag)
            # A done and folded step no longer knows where its file was staged.
            path = "" if source_dir is None else f"{source_dir}/{source}"
            yield RenameFile(path, f"{target_dir}/{target}", identity, row_count)


class _DirectoryCodec:
    """One row for each file, with the number of its step."""

    def to_columns(self, steps: Sequence[RenameDirectory], first: int) -> Sequence[Sequence[object]]:
        files = [(number, step, file) for number, step in enumerate(steps, first) for file in step.files]
        names = [file.name for _, _, file in files]
        return [
            [number for number, _, _ in files],
            [step.source for _, step, _ in files],
            names,
            [step.target for _, step, _ in files],
            names,
            *IdentityColumns.of([file.identity for _, _, file in files]).columns,
            [file.row_count for _, _, file in files],
            [None] * len(files),
        ]

    def from_rows(self, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
        for _number, group in groupby(rows, key=itemgetter(0)):
            files = list(group)
            _, _, source, _, target, *_ = files[0]
            yield RenameDirectory(
                source or "",
                target,
                tuple(
                    DataFile(name, FileIdentity(size, inode, mtime, tag), row_count)
                    for _, _, _, name, _, _, size, inode, mtime, tag, row_count, _ in files
                ),
            )


RENAME_KINDS: Final = (StepKind(_RENAME_FILE, _FileCodec()), StepKind(_RENAME_DIRECTORY, _DirectoryCodec()))


def _expect_renamed(outcome: RenameOutcome, source: str, target: str) -> None:
    if outcome is not RenameOutcome.RENAMED:
        # Another process was quicker, or the storage changed since the verification: verify again.
        raise ConflictError(f"rename found {outcome}", source=source, target=target, outcome=outcome)


def _take_back(fs: FileSystem, target: str, place: str) -> None:
    fs.make_directories(_parent(place))
    if fs.rename_no_replace(target, place) is RenameOutcome.TARGET_EXISTS:
        raise ConflictError(f"{place} is taken; {target} can't be taken back", path=target)


def _parents_of_places(captured: CapturedStaging | None, source: str) -> Iterator[str]:
    """The directories into which the capture of any owner may have moved it."""
    return (_parent(place) for place in captured.places_of(source)) if captured is not None else iter(())


def _parent(path: str) -> str:
    return str(PurePosixPath(path).parent)
