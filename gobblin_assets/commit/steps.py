"""Commit steps: what a sealed sequence will do, each with a ``verify`` that tells whether it has happened.

A step is a value. It can be verified and executed any number of times, by anybody, in any order against a
crash. The kinds of this module publish files; ``set_watermark`` and ``retire_generation`` are the last two
steps of every sequence, carried out by its finishing transaction, so they have no code here.

To add a kind: write a frozen dataclass with the members of ``CommitStep``, and ``register`` a function
that rebuilds it from its JSON.

    verify    looks, changes nothing, and answers with a StepVerdict. It must tell "done" from "not done"
              by identity, never by existence alone: something else may stand at that name.
    execute   is called only after ``verify`` answered DO (or DROP_SOURCE). It must have one atomic effect,
              must never replace or delete what it did not make, and may raise any family.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final, Protocol

from gobblin_assets.errors import ConflictError, CorruptionError, RejectedError
from gobblin_assets.fs.port import FileSystem, RenameOutcome
from gobblin_assets.model.files import DataFile, FileIdentity

# With more steps than this into one directory, one listing is cheaper than a look at each name.
_LISTING_WORTH: Final = 16


class StepVerdict(StrEnum):
    """The four cases of a rename, and the fifth, in which both names are there."""

    DO = "do"
    DONE = "done"
    DROP_SOURCE = "drop_source"
    CONFLICT = "conflict"
    LOST = "lost"


class StepWorld:
    """What steps see of storage: the file system, and listings made once and used for many steps.

    A world is for one pass. A later pass takes a new one: its listings must not be older than the pass.
    """

    def __init__(self, fs: FileSystem) -> None:
        self.fs = fs
        self._listed: dict[str, dict[str, FileIdentity]] = {}

    def expect(self, paths: Iterable[str]) -> None:
        """Say which files will be asked for, so that crowded directories are listed once."""
        crowds: dict[str, int] = defaultdict(int)
        for path in paths:
            crowds[str(PurePosixPath(path).parent)] += 1
        for directory, count in crowds.items():
            if count > _LISTING_WORTH and directory not in self._listed:
                self._listed[directory] = self.list_directory(directory)

    def find_identity(self, path: str) -> FileIdentity | None:
        """The identity of the file at ``path``; None when nothing is there."""
        pure = PurePosixPath(path)
        listed = self._listed.get(str(pure.parent))
        return self.fs.find_identity(path) if listed is None else listed.get(pure.name)

    def list_directory(self, directory: str) -> dict[str, FileIdentity]:
        """All files below ``directory``, by their names relative to it."""
        prefix = len(directory) + 1
        return {stat.path[prefix:]: stat.identity for stat in self.fs.list_files(directory)}


class CommitStep(Protocol):
    """One step of a sequence: a value that can look at the world and change it once."""

    @property
    def kind(self) -> str:
        """The name that it is registered under."""
        ...

    def to_json(self) -> Mapping[str, object]:
        """Plain JSON values from which the registered function rebuilds the step."""
        ...

    def verify(self, world: StepWorld) -> StepVerdict: ...

    def execute(self, world: StepWorld) -> None: ...

    def published_files(self) -> Iterable[tuple[str, FileIdentity, int]]:
        """(full path, identity, row count) of each file that the step makes visible."""
        ...

    def touched_directories(self) -> Iterable[str]:
        """Directories whose entries it changes, at the source and at the target."""
        ...


@dataclass(frozen=True, slots=True)
class RenameFile:
    """Publish one file under its final name."""

    source: str
    target: str
    identity: FileIdentity
    row_count: int

    @property
    def kind(self) -> str:
        return "rename_file"

    def to_json(self) -> Mapping[str, object]:
        return {
            "source": self.source,
            "target": self.target,
            "identity": _identity_to_json(self.identity),
            "row_count": self.row_count,
        }

    def verify(self, world: StepWorld) -> StepVerdict:
        at_source = world.find_identity(self.source)
        at_target = world.find_identity(self.target)
        # A stranger at the source is no reason to stop once ours is published; a zombie may have made it.
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
            # Both names are there: a link-and-unlink rename was cut between its halves.
            world.fs.remove_file(self.source, self.identity)
            return
        _expect_renamed(world.fs.rename_no_replace(self.source, self.target), self.source, self.target)

    def published_files(self) -> Iterable[tuple[str, FileIdentity, int]]:
        return ((self.target, self.identity, self.row_count),)

    def touched_directories(self) -> Iterable[str]:
        return (str(PurePosixPath(self.source).parent), str(PurePosixPath(self.target).parent))


@dataclass(frozen=True, slots=True)
class RenameDirectory:
    """Publish a directory with all its files by one rename. Its target is new: no other sequence names it."""

    source: str
    target: str
    files: tuple[DataFile, ...]

    def __post_init__(self) -> None:
        if not self.files:
            raise RejectedError("a directory step without files", field="files", hint="Publish nothing instead.")

    @property
    def kind(self) -> str:
        return "rename_directory"

    def to_json(self) -> Mapping[str, object]:
        return {
            "source": self.source,
            "target": self.target,
            "files": [
                {"name": f.name, "identity": _identity_to_json(f.identity), "row_count": f.row_count}
                for f in self.files
            ],
        }

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
                # It came after the attempt was staged, into a directory that is ours alone.
                world.fs.remove_file(f"{self.source}/{name}", identity)
        _expect_renamed(world.fs.rename_no_replace(self.source, self.target), self.source, self.target)

    def published_files(self) -> Iterable[tuple[str, FileIdentity, int]]:
        return ((f"{self.target}/{file.name}", file.identity, file.row_count) for file in self.files)

    def touched_directories(self) -> Iterable[str]:
        return (
            str(PurePosixPath(self.source).parent),
            self.target,
            str(PurePosixPath(self.target).parent),
        )

    def _holds_all(self, found: Mapping[str, FileIdentity]) -> bool:
        return all(file.name in found and found[file.name].matches(file.identity) for file in self.files)

    def _holds_exactly(self, found: Mapping[str, FileIdentity]) -> bool:
        return len(found) == len(self.files) and self._holds_all(found)


StepReader = Callable[[Mapping[str, object]], CommitStep]

_READERS: dict[str, StepReader] = {}


def register(kind: str, reader: StepReader) -> None:
    """Make a kind of step known. Registering another function for a known kind is refused."""
    if _READERS.setdefault(kind, reader) is not reader:
        raise RejectedError(
            f"the step kind {kind!r} is already registered",
            field="kind",
            hint="Give your kind a name of its own, such as <package>.<kind>.",
        )


def read_step(kind: str, data: Mapping[str, object]) -> CommitStep:
    """Rebuild a step. An unknown kind is a CorruptionError: the code that sealed it isn't installed."""
    reader = _READERS.get(kind)
    if reader is None:
        raise CorruptionError(
            f"the log holds a step of the unknown kind {kind!r}",
            hint="Import the package that registers this kind before recovering.",
            kind=kind,
        )
    return reader(data)


def verify_all(steps: Sequence[CommitStep], world: StepWorld) -> list[StepVerdict]:
    """Verify many steps against one pass's listings, in order."""
    world.expect(path for step in steps if isinstance(step, RenameFile) for path in (step.source, step.target))
    return [step.verify(world) for step in steps]


def _expect_renamed(outcome: RenameOutcome, source: str, target: str) -> None:
    if outcome is not RenameOutcome.RENAMED:
        # Somebody else was quicker, or the storage changed since it was verified: verify again.
        raise ConflictError(f"rename found {outcome}", source=source, target=target, outcome=outcome)


def _identity_to_json(identity: FileIdentity) -> Mapping[str, object]:
    return {
        "size_bytes": identity.size_bytes,
        "inode": identity.inode,
        "mtime_ns": identity.mtime_ns,
        "tag": identity.tag,
    }


def _identity_from_json(data: object) -> FileIdentity:
    if not isinstance(data, Mapping):
        raise CorruptionError("a stored step holds no file identity")
    return FileIdentity(data["size_bytes"], data["inode"], data["mtime_ns"], data["tag"])


def _read_rename_file(data: Mapping[str, object]) -> CommitStep:
    return RenameFile(
        source=str(data["source"]),
        target=str(data["target"]),
        identity=_identity_from_json(data["identity"]),
        row_count=int(str(data["row_count"])),
    )


def _read_rename_directory(data: Mapping[str, object]) -> CommitStep:
    files = data["files"]
    if not isinstance(files, list):
        raise CorruptionError("a stored directory step holds no files")
    return RenameDirectory(
        source=str(data["source"]),
        target=str(data["target"]),
        files=tuple(DataFile(f["name"], _identity_from_json(f["identity"]), f["row_count"]) for f in files),
    )


register("rename_file", _read_rename_file)
register("rename_directory", _read_rename_directory)
