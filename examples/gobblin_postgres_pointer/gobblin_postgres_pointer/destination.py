"""A destination whose publications move a pointer: ``pointed://POINTERS_URL/lake``.

The URI's host names the environment variable with the URL of the pointers' database, its path is a directory of this
machine. What is published there is what any job publishes. Each publication of rows moves the pointer of its dataset,
or of its partition, as its last step: both happen, or neither.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.files.rooted import Directories
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.urn import Role
from gobblin_assets.run.destination import DestinationRequest, Target
from gobblin_assets.run.job_kind import Output
from gobblin_postgres_pointer.step import MovePointer


def open_pointed_files(uri: str, umask: int | None) -> tuple[FileSystem, str]:
    """The ``FileSystemFactory`` of the scheme: the directory of the path."""
    return open_file_system(f"file://{_split(uri)[1]}", umask=umask)


def open_pointed(request: DestinationRequest) -> "PointedDestination":
    """The ``DestinationFactory`` of the scheme."""
    return PointedDestination(request)


class PointedDestination(Directories):
    """Directories, and a pointer to the newest of each dataset or partition: its sequence's id, by which the
    directories of the publication begin.
    """

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        steps = super().steps_for(outputs, target)
        is_first_of_rows = target.number == 0 and any(each.role is Role.DATA for each in outputs)
        if not steps or not is_first_of_rows:
            return steps
        place = path_of(self.root, self.job, target.urn)
        pointed = "/".join(part for part in (place, target.partition, target.sequence_id.hex) if part)
        name = "/".join(part for part in (str(self.job), target.urn, target.partition) if part)
        # After the files: its order in the segment is the order in which they are carried out.
        return [*steps, MovePointer(_split(self.root_uri)[0], name, pointed, str(target.sequence_id))]


def _split(uri: str) -> tuple[str, str]:
    """The variable and the path."""
    parts = urlsplit(uri)
    if not parts.netloc.isidentifier() or not parts.path.strip("/"):
        raise RejectedError(
            "expected pointed://VARIABLE/path", field="destination", hint="Name the variable with the pointers' URL."
        )
    return parts.netloc, parts.path
