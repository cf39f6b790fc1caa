"""The versions that publications at given names replaced or removed, as long as their slots keep them.

A version is restored as a new file of this machine, with the attributes that it had.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from uuid import uuid4

from gobblin_assets.commit.attempts import captured_directory
from gobblin_assets.commit.object_attempts import MTIME_KEY
from gobblin_assets.commit.published.published_port import PublishedFiles
from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.commit.step_world import OpenFileSystem
from gobblin_assets.commit.store import CommitLogReader
from gobblin_assets.destinations.fixed_names.named_steps import RemoveFile, ReplaceFile
from gobblin_assets.destinations.fixed_names.object_steps import ObjectStep, RemoveObject, ReplaceObject
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.fs.file_system import FileSystem, RenameOutcome
from gobblin_assets.fs.objects import HoldsObjects
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.fs.tree import FoundEntries
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_PRIVATE: Final = 0o600
_GIVES_IDENTITY: Final = 0o6000
"""The bits by which a program runs as the file's owner or group."""


@dataclass(frozen=True, slots=True)
class KeptAttributes:
    """The attributes of a kept version; None where the file system has none. ``owner`` and ``group`` are numbers."""

    mode: int | None = None
    owner: int | None = None
    group: int | None = None
    mtime_ns: int | None = None


def write_restored(target: Path, stream: BinaryIO, kept: KeptAttributes) -> None:
    """Write a new file, which gets its name once it is whole and has its attributes. The owner is given where allowed.

    ConflictError if something is at the name, which is never replaced.
    """
    target = target.absolute()
    unfinished = target.with_name(f".gobblin-{uuid4().hex}")
    try:
        with os.fdopen(os.open(unfinished, _NEW, 0o666 if kept.mode is None else _PRIVATE), "wb") as out:
            shutil.copyfileobj(stream, out)
            out.flush()
            _apply(out.fileno(), kept)
            os.fsync(out.fileno())
        if PosixFileSystem().rename_no_replace(str(unfinished), str(target)) is RenameOutcome.TARGET_EXISTS:
            raise ConflictError(f"{target} is there already", hint="Name another file.", path=str(target))
    except OSError as error:
        raise RejectedError(
            f"can't write {target}: {error.strerror}", field="--to", hint="Correct the path."
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _apply(descriptor: int, kept: KeptAttributes) -> None:
    """The owner first, because a new owner takes bits of the mode away."""
    is_owned = _give(descriptor, owner=kept.owner) and _give(descriptor, group=kept.group)
    if kept.mode is not None:
        os.fchmod(descriptor, kept.mode if is_owned else kept.mode & ~_GIVES_IDENTITY)
    if kept.mtime_ns is not None:
        os.utime(descriptor, ns=(kept.mtime_ns, kept.mtime_ns))


def _give(descriptor: int, *, owner: int | None = None, group: int | None = None) -> bool:
    """Whether the file has this owner, or this group, now."""
    try:
        os.fchown(descriptor, -1 if owner is None else owner, -1 if group is None else group)
    except OSError:
        return False
    return True


_KEEPING: Final = (ReplaceFile, RemoveFile, ReplaceObject, RemoveObject)
"""The kinds of steps that keep the version that they take away."""


@dataclass(frozen=True, slots=True)
class TrashedFile:
    """A version that is no longer at its name. ``path``: its name; ``slot``: where it is now, below ``root_uri``.

    ``version``: the dataset's version whose publication put it there.
    """

    urn: DatasetUrn
    path: str
    version: int
    sequence_id: SequenceId
    identity: FileIdentity
    slot: str
    was_removed: bool
    root_uri: str


@dataclass(frozen=True, slots=True)
class Trash:
    """The trash of one job."""

    store: CommitLogReader
    published: PublishedFiles
    open_file_system: OpenFileSystem
    job: JobName

    def list_files(self, urn: DatasetUrn) -> Iterator[TrashedFile]:
        """Of one dataset, newest publications first. Versions whose slots were emptied are left out."""
        found = self.published.find(self.job, urn, role=Role.DATA)
        for segment in () if found is None else found.segments:
            if not segment.has_given_names:
                continue
            fs, _root = self.open_file_system(segment.root_uri)
            places = self._locate(fs, segment.sequence_id)
            # Also of folded publications, which have no steps any more.
            if not places:
                continue
            for step in decode_segment(segment.payload, segment.digest):
                if not isinstance(step, _KEEPING) or step.staging not in places:
                    continue
                slot = _slot_of(step, places[step.staging])
                occupant = fs.find_identity(slot)
                if occupant is not None and _is_old(occupant, step):
                    was_removed = isinstance(step, RemoveFile | RemoveObject)
                    yield TrashedFile(
                        *(urn, step.target, segment.version, segment.sequence_id, step.old, slot, was_removed),
                        root_uri=segment.root_uri,
                    )

    def restore(
        self, urn: DatasetUrn, path: str, target: Path, *, directory: str = "", version: int | None = None
    ) -> TrashedFile:
        """Copy a version to ``target``, which is not there yet. ``version`` None: the newest that is kept.

        ``path``: the whole published name, or its end below the dataset's ``directory`` or below the destination.
        ``directory`` is relative to the destination.

        RejectedError if no version is kept. What a person puts at a published name is a stranger's file, which the next
        run replaces by the source's; so a version goes back to the source, or to another place.
        """
        kept = [each for each in self.list_files(urn) if version in (None, each.version)]
        found = next((each for name in _spellings(path, directory) for each in kept if self._has(each, name)), None)
        if found is None:
            example = f", such as {kept[0].path}" if kept else ""
            raise RejectedError(
                f"no version of {path} is kept",
                field="--path",
                hint=f"Write a path as `gobblin-assets trash list` shows it{example}, or its end below the directory "
                "of the dataset, as `gobblin-assets plan` shows it.",
            )
        fs, _root = self.open_file_system(found.root_uri)
        with fs.open_input(found.slot) as stream:
            write_restored(target, stream, _attributes_of(fs, found.slot))
        return found

    def _has(self, kept: TrashedFile, name: str) -> bool:
        """Whether the version was at a name: a whole one, or one below the destination."""
        if name.startswith("/"):
            return kept.path == name
        _fs, work_root = self.open_file_system(kept.root_uri)
        return kept.path == f"{work_root.rpartition('/')[0]}/{name}"

    def _locate(self, fs: FileSystem, sequence_id: SequenceId) -> dict[str, str]:
        """The directories of the sequence's attempts, as they are named now."""
        places: dict[str, str] = {}
        for attempt in self.store.list_attempts(sequence_id):
            names = [captured_directory(attempt.staging_path, fence) for fence in attempt.cleanup_fences]
            for name in (attempt.staging_path, *names):
                if fs.is_directory(name):
                    places[attempt.staging_path] = name
        return places


def _spellings(path: str, directory: str) -> tuple[str, ...]:
    """What a person may mean by a path, most likely first."""
    return (path,) if path.startswith("/") else ("/".join(filter(None, (directory, path))), path)


def _attributes_of(fs: FileSystem, slot: str) -> KeptAttributes:
    """Of an object: only the time that its origin had."""
    if isinstance(fs, HoldsObjects):
        found = fs.objects.find_object(slot)
        told = (found.metadata or {}).get(MTIME_KEY) if found is not None else None
        return KeptAttributes(mtime_ns=int(told) if told and told.isdecimal() else None)
    entry = fs.find_entry(slot) if isinstance(fs, FoundEntries) else None
    if entry is None:
        return KeptAttributes()
    return KeptAttributes(entry.mode, entry.owner, entry.group, entry.identity.mtime_ns)


def _slot_of(step: ReplaceFile | RemoveFile | ReplaceObject | RemoveObject, attempt: str) -> str:
    return step.slot if isinstance(step, ObjectStep) else step.slot_in(attempt)


def _is_old(occupant: FileIdentity, step: ReplaceFile | RemoveFile | ReplaceObject | RemoveObject) -> bool:
    """A copy inside a store has an ETag of its own, and nobody else writes below the attempt."""
    if isinstance(step, ObjectStep):
        return occupant.size_bytes == step.old.size_bytes
    return occupant.matches(step.old)
