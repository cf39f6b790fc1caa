"""Claims of trees: a small file in the work directory of a tree names the job that copies there, and no other may.

Jobs of rows claim nothing, since several share a root: the identity file of their destination shows it.
"""

import json
from pathlib import PurePosixPath
from typing import Final

from gobblin_assets.commit.destination import IDENTITY_NAME
from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.model.urn import JobName

WORK_NAME: Final = ".gobblin"
"""The work directory, which listings of the tree leave out."""

CLAIM_NAME: Final = "claim.json"


def work_root_of(root: str) -> str:
    """The root that the log knows, of a tree's root or its URI."""
    return f"{root.rstrip('/')}/{WORK_NAME}"


def claim_path(root: str) -> str:
    return f"{work_root_of(root)}/{CLAIM_NAME}"


def write_claim(fs: FileSystem, root: str, job: JobName) -> None:
    """Claim the tree, unless it is claimed already."""
    fs.write_new({claim_path(root): (json.dumps({"job": job}) + "\n").encode()})
    fs.sync_directories([work_root_of(root), root])


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


def refuse_tree(path: str, place: str, holder: str) -> RejectedError:
    """The error of a place in another job's tree."""
    return RejectedError(
        f"{path} lies in the tree {place}, to which the job {holder!r} copies",
        field="destination",
        hint="Copy to a directory that no other job copies to.",
        claimed_by=holder,
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
    path = PurePosixPath(root)
    for place in (job_directory, root, *(str(each) for each in path.parents if len(each.parts) > 1)):
        if fs.find_identity(claim_path(place)) is not None:
            raise RejectedError(
                f"{root} lies in the tree {place}, to which the job {read_claim(fs, place)!r} copies",
                field="destination",
                hint="Publish to a directory that no other job copies to.",
                path=place,
            )
