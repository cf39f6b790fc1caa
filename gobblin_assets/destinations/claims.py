"""Claims of trees: a small file in the work directory of a tree names the job that copies there, and no other may."""

import json
from typing import Final

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
