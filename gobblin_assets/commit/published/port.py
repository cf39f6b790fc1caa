"""The port through which published files are found."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from gobblin_assets.commit.segment import decode_segment, decode_sizes
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """One file: its path on the destination's file system, without a scheme."""

    path: str
    identity: FileIdentity
    row_count: int


@dataclass(frozen=True, slots=True)
class PublishedSegment:
    """Active files of one sequence, partition and role, as they are stored.

    ``root_uri`` is the destination that they were published to; ``version`` the dataset's version that their
    sequence made; ``file_schema`` Spark's JSON of what they hold, partition columns included, or None.
    """

    sequence_id: SequenceId
    version: int
    partition: str
    role: Role
    root_uri: str
    file_count: int
    row_count: int
    file_bytes: int
    file_schema: object
    payload: bytes
    digest: bytes

    def files(self) -> Iterator[PublishedFile]:
        """CorruptionError if the stored segment is not the one that was sealed."""
        for step in decode_segment(self.payload, self.digest):
            for path, identity, row_count in step.published_files():
                yield PublishedFile(path, identity, row_count)

    def file_sizes(self) -> Iterable[tuple[str, int]]:
        """Path and length of each file, in the same order, in a tenth of the time."""
        return decode_sizes(self.payload, self.digest)


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """One consistent view of a dataset. ``version`` is the one that a seal can compare.

    ``segments`` are newest first. ``file_schemas`` are the distinct schemas of the role's active files in all
    partitions, newest first; where there are none, the last one that files of the role ever had.
    """

    version: int
    segments: tuple[PublishedSegment, ...]
    file_schemas: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class PublishedPartition:
    """The active files of one partition in all roles; the last publication into it was ``quiet_s`` ago."""

    partition: str
    file_count: int
    file_bytes: int
    quiet_s: float


class PublishedFiles(Protocol):
    """Implemented by ``published.postgres``."""

    def find(
        self, job: JobName, urn: DatasetUrn, *, role: Role, partitions: Sequence[str] | None = None
    ) -> PublishedSet | None:
        """The active files of these partitions (None: of all). None: there is no such dataset."""
        ...

    def list_partitions(self, job: JobName, urn: DatasetUrn) -> Sequence[PublishedPartition]:
        """Those that have active files, in order."""
        ...

    def list_urns(self, job: JobName) -> Sequence[DatasetUrn]:
        """The datasets of a job, in order; for messages."""
        ...
