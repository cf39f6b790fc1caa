"""Claims of trees: a small file in the work directory of a tree names the job that copies there, and no other may.

    <root>/.gobblin/claim.json      the claim, which is never removed
    <root>/.gobblin/.intents/       what runs are about to claim

Jobs of rows claim nothing, since several share a root: the identity file of their destination shows it.


"""

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from gobblin_assets.commit.destination import IDENTITY_NAME, TREE_WORK_NAME
from gobblin_assets.errors import CorruptionError, GobblinError, RejectedError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.fs.file_system import FileSystem, LinkedPaths, SearchedDirectories
from gobblin_assets.model.files import FileStat
from gobblin_assets.model.urn import JobName

WORK_NAME: Final = TREE_WORK_NAME
"""The work directory, which listings of the tree leave out."""

CLAIM_NAME: Final = "claim.json"
INTENTS_NAME: Final = ".intents"
"""No job's directory begins with a dot."""

_UNFINISHED: Final = "."
"""Begins the names of files that are being written, or that a crash left so."""


def work_root_of(root: str) -> str:
    """The root that the log knows, of a tree's root or its URI."""
    return f"{root.rstrip('/')}/{WORK_NAME}"


def claim_path(root: str) -> str:
    return f"{work_root_of(root)}/{CLAIM_NAME}"


def list_above(fs: FileSystem, root: str) -> list[str]:
    """The directories that hold the tree, nearest first: those of its path, and those behind links in it."""
    real = fs.real_path(root) if isinstance(fs, LinkedPaths) else root
    parents = (*PurePosixPath(root).parents, *PurePosixPath(real).parents)
    return list(dict.fromkeys(str(path) for path in parents if len(path.parts) > 1))


def write_claim(fs: FileSystem, root: str, job: JobName) -> None:
    """Claim the tree, unless it is claimed already."""
    fs.write_new({claim_path(root): _encode(job)})
    sync_claim(fs, root)


def sync_claim(fs: FileSystem, root: str) -> None:
    """Return once the claim survives a power cut: the process that wrote it may have died before."""
    fs.sync_directories([work_root_of(root), root])


def find_claim(fs: FileSystem, root: str) -> str | None:
    """The job that claims the tree."""
    return None if fs.find_identity(claim_path(root)) is None else read_claim(fs, root)


def read_claim(fs: FileSystem, root: str) -> str:
    """The job that claims the tree, whose claim is there."""
    path = claim_path(root)
    with fs.open_input(path) as stream:
        content = stream.read()
    try:
        return str(json.loads(content)["job"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(
            f"{path} can't be read as a claim",
            hint='It should name the job that copies there, as in `{"job": "mirror"}`. Write it again.',
            path=path,
        ) from error


def write_intent(fs: FileSystem, root: str, job: JobName, run: uuid.UUID) -> str:
    """Let others see that this run is about to claim the tree. Returns the path of the intent."""
    directory = _intents_root(root)
    fs.make_directories(directory)
    path = f"{directory}/{_key_of(job)}-{run.hex}.json"
    fs.write_new({path: _encode(job)})
    return path


def list_intents(fs: FileSystem, root: str) -> Sequence[FileStat]:
    found = fs.list_files(_intents_root(root))
    return [each for each in found if not _name_of(each).startswith(_UNFINISHED)]


def remove_intents(fs: FileSystem, root: str, job: JobName, *, only: str | None = None) -> None:
    """Those of the job's runs, or only the one of this path."""
    for each in list_intents(fs, root):
        if each.path == only or (only is None and _name_of(each).startswith(f"{_key_of(job)}-")):
            fs.remove_file(each.path, each.identity)


def _intents_root(root: str) -> str:
    return f"{work_root_of(root)}/{INTENTS_NAME}"


def _name_of(intent: FileStat) -> str:
    return intent.path.rpartition("/")[2]


def _key_of(job: JobName) -> str:
    return hashlib.sha256(job.encode()).hexdigest()[:16]


def _encode(job: JobName) -> bytes:
    return (json.dumps({"job": job}) + "\n").encode()


def refuse_tree(path: str, place: str, holder: str) -> RejectedError:
    """The error of a place in another job's tree."""
    return RejectedError(
        f"{path} lies in the tree {place}, to which the job {holder!r} copies",
        field="destination",
        hint="Copy to a directory that no other job copies to.",
        claimed_by=holder,
    )


def refuse_around(place: str, holder: str | None = None, *, is_listed: bool = False) -> RejectedError:
    """The error of a tree that has another copy's tree, at ``place``, inside.

    ``is_listed``: a listing came to it, which goes into no directory that the filters exclude.
    """
    who = "another copy's destination" if holder is None else f"the tree to which the job {holder!r} copies"
    filters = "Exclude that directory, as one excludes snapshots, or" if is_listed else "Filters do not help:"
    return RejectedError(
        f"{who} lies inside: {place} has the work directory {WORK_NAME}",
        field="destination",
        hint=f"{filters} copy to a directory that holds no other job's tree. If no job copies to that tree any more, "
        f"move its {WORK_NAME} to another place.",
        path=place,
        claimed_by=holder,
    )


def refuse_intent(root: str, intent: str) -> RejectedError:
    """The error of a tree that another job is about to claim, or one above it."""
    return RejectedError(
        f"another job is about to copy to a tree that holds {root}: {intent}",
        field="destination",
        hint="Run again when that one has ended. If its first run was killed, run that job again, or remove this file.",
        path=intent,
    )


def refuse_rows(fs: FileSystem, path: str, place: str) -> None:
    """RejectedError if jobs of rows publish below ``place``, so that no tree may be at ``path``, there or below."""
    if fs.find_identity(f"{place.rstrip('/')}/{IDENTITY_NAME}") is not None:
        raise RejectedError(
            f"{path} lies in {place}, where a job publishes rows, as its file {IDENTITY_NAME} says",
            field="destination",
            hint="Copy to a directory of its own.",
            path=place,
        )


def refuse_trees(fs: FileSystem, root: str, job_directory: str) -> None:
    """RejectedError if a job copies to a tree in which a job of rows would publish, or to the job's own directory."""
    for place in (job_directory, root, *list_above(fs, root)):
        intents = list_intents(fs, place)
        holder = find_claim(fs, place)
        if holder is not None:
            raise RejectedError(
                f"{root} lies in the tree {place}, to which the job {holder!r} copies",
                field="destination",
                hint="Publish to a directory that no other job copies to.",
                path=place,
            )
        if intents:
            raise refuse_intent(root, intents[0].path)


def find_trees(directories: Iterator[str], root: str) -> Iterator[str]:
    """The trees below ``root``, by the work directories that were found there."""
    own = work_root_of(root)
    return (work.removesuffix(f"/{WORK_NAME}") for work in directories if work != own)


@dataclass(frozen=True, slots=True)
class TreeClaim:
    """The claim of a tree by a job.

    ``is_whole``: a dataset is the whole tree. This may be a copy of a destination of rows: its listing finds out.
    """

    fs: FileSystem
    root: str
    job: JobName
    is_whole: bool
    new_id: Callable[[], uuid.UUID]

    def look(self) -> bool:
        """Whether the job has claimed the tree. RejectedError if it, or one around it, is another job's, or if nobody
        has claimed it and another tree lies inside.
        """
        holder = find_claim(self.fs, self.root)
        try:
            self._refuse_others(holder)
        except RejectedError as refused:
            if holder is None and _names_a_claim(refused):
                remove_intents(self.fs, self.root, self.job)
            raise
        return holder is not None

    def take(self) -> None:
        """Claim the tree, which the job has not, as ``look`` said. The work directory is there."""
        intent = write_intent(self.fs, self.root, self.job, self.new_id())
        reach(Failpoint.CLAIM_INTENDED)
        try:
            self._refuse_others(find_claim(self.fs, self.root))
            write_claim(self.fs, self.root, self.job)
            # Another job may have claimed this very root meanwhile.
            self._refuse_others(find_claim(self.fs, self.root))
        except GobblinError as error:
            remove_intents(self.fs, self.root, self.job, only=None if _names_a_claim(error) else intent)
            raise
        remove_intents(self.fs, self.root, self.job)

    def _refuse_others(self, holder: str | None) -> None:
        """``holder``: the job that claims the tree; None: nobody does, so that intents and trees inside count."""
        if holder not in {None, self.job}:
            raise refuse_tree(self.root, self.root, str(holder))
        if not self.is_whole:
            refuse_rows(self.fs, self.root, self.root)
        for place in list_above(self.fs, self.root):
            # Whoever removed his intent has written his claim before.
            intents = list_intents(self.fs, place) if holder is None else ()
            found = find_claim(self.fs, place)
            if found is not None:
                raise refuse_tree(self.root, place, found)
            if intents:
                raise refuse_intent(self.root, intents[0].path)
            refuse_rows(self.fs, self.root, place)
        if holder is None:
            self._refuse_below()

    def _refuse_below(self) -> None:
        if not isinstance(self.fs, SearchedDirectories):
            raise RejectedError(
                f"directories of {self.fs.scheme} can't be searched for other jobs' trees",
                field="destination",
                hint="Copy to a file system that can.",
            )
        for place in find_trees(self.fs.find_directories(self.root, WORK_NAME), self.root):
            raise refuse_around(place, find_claim(self.fs, place))


def _names_a_claim(error: GobblinError) -> bool:
    return error.fields.get("claimed_by") is not None
