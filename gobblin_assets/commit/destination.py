"""Destinations: where each job publishes, and the check that the destination is mounted.

The promise. A destination has a random identity in a small durable file at its root; the log binds each job to a
destination and its identity when the job is first run. Before anything is read, written, recovered or cleaned for a
job, the file is read and compared. Another root is refused. A root without the file, or with the file of another
destination, stops the job if the log has publications of it.

    <root>/.gobblin-destination.json

Who is authoritative. The log says where a job publishes; the file says what is mounted there. Several jobs may share a
root, and its file.

What a crash leaves. A file without a binding: the next run binds the identity that it finds. If two first runs happen
at once, one makes the file, and both bind its content. The file is durable before it is bound, and bound before
anything is sealed.

What is not promised. If a mount goes away after a check, a program may write files below the mount point; the next
check, before the seal and before each publication, notices it. A copy of a destination has the identity of the
original, so only its path tells the two apart.
"""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from gobblin_assets.errors import ConflictError, CorruptionError, RejectedError, RetryableError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.state import DatasetId
from gobblin_assets.model.urn import JobName

IDENTITY_NAME: Final = ".gobblin-destination.json"
"""Hidden from readers, as are all our files beside the datasets."""

TREE_WORK_NAME: Final = ".gobblin"
"""The work directory of a tree that a job copies to, which is the root that the log has of such a job."""

_KEY: Final = "identity"
_NOTHING_DONE: Final = "Nothing was read, written or cleaned."
_MOVE: Final = "gobblin-assets destination move"
_NOTE: Final = "gobblin-assets knows this destination by this file. Keep it here; copy it along with the files."


@dataclass(frozen=True, slots=True)
class Binding:
    """The place where a job publishes, as the log has it.

    ``identity`` None: the binding comes from publications of an earlier release, and no run has checked it since;
    ``root_uri`` is then as a person wrote it. ``has_published``: a sequence of the job is sealed, or was published.
    """

    job: JobName
    root_uri: str
    identity: str | None
    has_published: bool


@dataclass(frozen=True, slots=True)
class Move:
    """A move between roots: URIs for the log, paths for the files. ``old_uris``: the old root as sequences have it."""

    job: JobName
    old_uris: Sequence[str]
    old_root: str
    new_uri: str
    new_root: str
    identity: str


class DestinationStore(Protocol):
    """Implemented by ``commit.postgres.destinations``."""

    def find(self, job: JobName) -> Binding | None: ...

    def list_all(self) -> Sequence[Binding]:
        """The bindings of all jobs, in their order."""
        ...

    def bind(self, job: JobName, *, root_uri: str, identity: str) -> Binding:
        """Bind a job that is not bound. Returns the log's binding afterwards, which another run may have made."""
        ...

    def identify(self, job: JobName, *, old: str | None, root_uri: str, identity: str) -> Binding:
        """Replace the identity ``old``. Returns the log's binding afterwards.

        A known identity stays if something of the job is published.
        """
        ...

    def list_roots(self, job: JobName) -> Sequence[str]:
        """The destinations of the job's sequences, as they were written."""
        ...

    def move(self, move: Move, *, expected: Binding, fences: Mapping[DatasetId, int]) -> None:
        """Bind the job to the new root, and record on its sequences that they are there now; all or nothing.

        Raises:
            FencedError: one of the datasets was taken over.
            ConflictError: the binding is not ``expected``, a dataset is missing in ``fences``, or a sequence is open.

        """
        ...


class Verdict(StrEnum):
    """The decision of a run about its destination."""

    READY = "ready"
    BIND = "bind"
    IDENTIFY = "identify"
    ELSEWHERE = "elsewhere"
    AWAY = "away"


def decide(
    binding: Binding | None, *, is_bound_root: bool, identity: str | None, is_visible: Callable[[], bool]
) -> Verdict:
    """The verdict for a job at a root whose file says ``identity`` (None: there is no file).

    ``is_visible`` says whether any published file is there; it is called only if an earlier release left no identity.
    """
    if binding is None:
        return Verdict.BIND
    if not is_bound_root:
        return Verdict.ELSEWHERE
    if identity is not None and identity == binding.identity:
        return Verdict.READY
    if not binding.has_published or (binding.identity is None and is_visible()):
        return Verdict.IDENTIFY
    return Verdict.AWAY


def find_nested(job_directory: str, root: str, others: Mapping[JobName, tuple[str, str]]) -> JobName | None:
    """The first job whose data this one would publish into, or that publishes into this one's.

    ``others`` are (directory, root) by job; a job's directory is ``<root>/<job>``. Sharing a root is fine.
    """
    for job, (other_directory, other_root) in others.items():
        if _is_within(root, other_directory) or _is_within(other_root, job_directory):
            return job
    return None


def _is_within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def read_identity(fs: FileSystem, root: str) -> str | None:
    """The identity in the file at the root; None if there is no file. CorruptionError if the file can't be read."""
    path = f"{root}/{IDENTITY_NAME}"
    if fs.find_identity(path) is None:
        return None
    with fs.open_input(path) as stream:
        content = stream.read()
    try:
        return uuid.UUID(str(json.loads(content)[_KEY])).hex
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(
            f"{path} does not say which destination this is: {error!r}",
            hint="Restore the file from a backup of the destination.",
            path=path,
        ) from error


def make_identity(fs: FileSystem, root: str, identity: uuid.UUID) -> str:
    """Give the root an identity unless it has one. Returns the root's identity, which is then durable."""
    content = json.dumps({_KEY: identity.hex, "note": _NOTE}, indent=1).encode() + b"\n"
    fs.write_new({f"{root}/{IDENTITY_NAME}": content})
    # Also if another process made the file: that process may have died before it synced.
    fs.sync_directories([root])
    found = read_identity(fs, root)
    if found is None:
        raise RetryableError(f"{root}/{IDENTITY_NAME} was removed while it was being made", path=root)
    return found


def require_identity(fs: FileSystem, root: str, identity: str | None) -> None:
    """Return if the destination is still there, else RetryableError. An identity of None is not checked."""
    if identity is not None and read_identity(fs, root) != identity:
        raise RetryableError(
            f"the destination {root} has gone away: its file {IDENTITY_NAME} is not there any more, or is another's",
            hint="Nothing more is written there. Mount it again; sealed publications are then completed.",
            path=root,
        )


def _is_work(root: str) -> bool:
    return root.rpartition("/")[2] == TREE_WORK_NAME


def _explain_lost_work(root: str) -> str:
    """The way out where the work directory of a copy is lost; empty for the root of a job of rows."""
    if not _is_work(root):
        return ""
    return (
        f"If {root} is lost, put it back from a backup. Without one, move away what is left of it, and give the job a "
        "new name: its first run copies only what differs, and `deletes: ours` then does not know what the old job "
        "published."
    )


class StorageMismatchError(ConflictError):
    """Log and storage do not match now. Nothing may be read, written or cleaned until a person has looked."""


class DestinationAwayError(StorageMismatchError):
    """The root is there, but is not the destination: most likely its file system is not mounted."""

    def __init__(self, job: JobName, root: str, *, expected: str | None, found: str | None) -> None:
        what = f"has no {IDENTITY_NAME}" if found is None else f"holds another destination ({found})"
        super().__init__(
            f"{job} is stopped: {root} {what}, and the log has publications of the job there"
            f"{'' if expected is None else f' ({expected})'}. It looks as if its file system were not mounted.",
            hint=f"{_NOTHING_DONE} Mount it, and run again. "
            + (_explain_lost_work(root) or f"If the files moved, or are lost, see `{_MOVE} {job} ROOT`."),
            job=job,
            path=root,
            expected=expected,
            found=found,
        )


class StorageBehindError(StorageMismatchError):
    """The right destination, without the files that the log says are in it."""

    def __init__(self, urn: str, root: str, version: int) -> None:
        super().__init__(
            f"{urn} is stopped: the log has version {version} of it, and {root} has no trace of any publication. It "
            "looks as if another file system were mounted there, or as if its files were lost.",
            hint=f"{_NOTHING_DONE} Mount the right one, or bring the files back with their hidden directories. "
            + (_explain_lost_work(root) or f"If they are lost, see `{_MOVE}`."),
            urn=urn,
            path=root,
            version=version,
        )


def elsewhere(job: JobName, bound_uri: str, here_uri: str) -> RejectedError:
    """The error of a job whose file names another root than the log."""
    moves = f"If the job moves: copy its files, hidden ones as well, then `{_MOVE} {job} {here_uri}`."
    if _is_work(bound_uri):
        moves = "A copy can't move: with a new name and the new destination, its first run copies only what is missing."
    return RejectedError(
        f"the log has the job {job} at {bound_uri}, found {here_uri}",
        field="destination",
        hint=f"Give this job another name, if it is another one. {moves}",
        job=job,
        bound=bound_uri,
        found=here_uri,
    )


def nested(job: JobName, root: str, other: JobName) -> RejectedError:
    """The error of a destination inside another job's data, or around it."""
    return RejectedError(
        f"{root} lies inside of the data of the job {other}, or that one's destination inside of the data of {job}",
        field="destination",
        hint="Choose a separate folder. Several jobs may share one root: each has its own folder there.",
        job=job,
        other=other,
    )


def unfinished(job: JobName) -> ConflictError:
    """The error of a job that can't move now."""
    return ConflictError(
        f"publications of {job} are open",
        hint=f"Complete them first: `gobblin-assets commit recover --job {job}`, or `commit resume` or `abandon`.",
        job=job,
    )
