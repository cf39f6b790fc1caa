"""The port through which published files are found."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa

from gobblin_assets.commit.name_changes import changes_table, has_given_names, list_changes
from gobblin_assets.commit.segment import decode_sizes, list_published
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.path_names import moved_path
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """One file: its path on the destination's file system, without a scheme.

    If the file was copied to another root, only its length is known, not its inode and time.
    ``publisher``: of a file at a given name, the sequence that published it, which may have been folded since.
    """

    path: str
    identity: FileIdentity
    row_count: int
    publisher: SequenceId | None = None


@dataclass(frozen=True, slots=True)
class PublishedSegment:
    """Active files of one sequence, partition and role, as they are stored.

    ``root_uri``: their destination. ``version``: the dataset's version that their sequence made. ``file_schema``: the
    schema of the files as Spark's JSON, partition columns included, or None. ``moved``: the old and the new root, if
    they were moved after the publication.
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
    moved: tuple[str, str] | None = None

    def files(self) -> Iterator[PublishedFile]:
        """CorruptionError if the stored segment is not the one that was sealed."""
        for path, identity, row_count in list_published(self.payload, self.digest):
            known = identity if self.moved is None else FileIdentity(identity.size_bytes)
            yield PublishedFile(moved_path(path, self.moved), known, row_count)

    @property
    def has_given_names(self) -> bool:
        """Whether later publications may have replaced or removed files of this one."""
        return has_given_names(self.payload, self.digest)

    def changes(self) -> Iterator[tuple[str, PublishedFile | None]]:
        """At given names: what each name holds after the publication; None: its file was removed."""
        for path, identity, publisher in list_changes(self.payload, self.digest):
            by = self.sequence_id if publisher is None else SequenceId(uuid.UUID(publisher))
            yield path, None if identity is None else PublishedFile(path, identity, 0, by)

    def changes_table(self) -> pa.Table:
        """``changes`` as columns: the path and the fields of its identity, whose size is NULL for a removed file."""
        return changes_table(self.payload, self.digest)

    def file_sizes(self) -> Iterable[tuple[str, int]]:
        """Path and length of each file, in the same order, in a tenth of the time."""
        return ((moved_path(path, self.moved), size) for path, size in decode_sizes(self.payload, self.digest))


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """One consistent view of a dataset. ``version`` is the one that a seal can compare.

    ``segments`` are newest first. ``file_schemas`` are the distinct schemas of the role's active files in all
    partitions, newest first. If the role has no active files, it is the last schema that was published for the role,
    even if its files are gone, or if its publication had no rows and no file.
    """

    version: int
    segments: tuple[PublishedSegment, ...]
    file_schemas: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class PublishedSource:
    """A dataset's files with what its source said of them, of one moment.

    ``source_columns`` and ``source_facts`` are those of the ``DatasetState``.
    """

    files: PublishedSet
    source_columns: Mapping[str, str] | None
    source_facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RowsElsewhere:
    """Active data rows that are in no file, such as those in a table. ``uri``: where people find them."""

    uri: str
    row_count: int


@dataclass(frozen=True, slots=True)
class ActiveSchema:
    """A schema of active files of a dataset, in any role, as Spark's JSON.

    ``only_partition``: the only partition whose files have the schema; None if files of several partitions have it.
    """

    file_schema: object
    only_partition: str | None


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

    def find_source(self, job: JobName, urn: DatasetUrn, *, role: Role) -> PublishedSource | None:
        """What ``find`` gives for all partitions, with what the source said. None: there is no such dataset."""
        ...

    def is_published(self, sequence_id: SequenceId) -> bool:
        """Whether the log knows the sequence as published, also if it was folded into another one or retired since."""
        ...

    def scan(
        self, job: JobName, urn: DatasetUrn, *, role: Role, read: Callable[[int, Iterator[PublishedSegment]], T]
    ) -> T | None:
        """What ``read`` makes of the dataset's version and of the segments of ``find``, some at a time, of one moment.

        If the connection is lost, ``read`` is called again with all of them. None: there is no such dataset.
        """
        ...

    def find_active_schemas(
        self, job: JobName, urns: Sequence[DatasetUrn]
    ) -> Mapping[DatasetUrn, Sequence[ActiveSchema]]:
        """The distinct schemas of the active files of each dataset, in no order. One without such files is left out."""
        ...

    def list_partitions(self, job: JobName, urn: DatasetUrn) -> Sequence[PublishedPartition]:
        """The partitions that have active files, in order."""
        ...

    def find_rows_elsewhere(self, job: JobName, urn: DatasetUrn) -> RowsElsewhere | None:
        """The rows that were published, and that are in no file; None: there are none."""
        ...

    def list_urns(self, job: JobName) -> Sequence[DatasetUrn]:
        """The datasets of a job, in order; for messages."""
        ...
