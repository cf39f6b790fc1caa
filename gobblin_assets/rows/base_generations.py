"""Base generations: the rows that a table had at one place of its change log, as files of a dataset of their own.

A base is a dataset beside the change log, and not a role or a partition of it: workers hold the log's dataset all day,
and a publication that replaces a partition would retire the log. It has a lease, a version and generations of its own,
and the log's files stay as they are.

When a base counts. A base names the newest publication of the log that it has, by sequence and version. It also has the
source's facts of the table at that time: the key, the number of the copy, and the transactions that the copy saw. The
base is passed over if the log does not know that publication any more (it was set aside after a restore), or if the
facts have changed (a new copy, another key). Then the whole log is read. Files of the log are left out by the version
of their publication. Files that compaction or folding has joined across it are read, and their rows compared with the
place.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from gobblin_assets.commit.published.published_port import (
    PublishedFiles,
    PublishedSegment,
    PublishedSet,
    PublishedSource,
)
from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.rows.change_log import ChangePlace

TABLE_FACT: Final = "postgres_log"
"""Under this name, the source keeps with the dataset what it knows of the table."""

_BASE_FACT: Final = "base_generation"


@dataclass(frozen=True, slots=True)
class BaseOrigin:
    """The origin of a base: the state of the log that it has.

    ``version``: of the log's dataset; ``newest``: the publication that made it, or the last one with files before;
    ``said``: a digest of the source's fact.
    """

    urn: DatasetUrn
    version: int
    newest: SequenceId
    said: str
    place: ChangePlace

    def write(self) -> Mapping[str, object]:
        """As the base's own source fact."""
        place = {"copy": self.place.copy, "lsn": self.place.lsn, "seq": self.place.seq}
        fact = {"of": self.urn, "version": self.version, "newest": str(self.newest), "said": self.said, **place}
        return {_BASE_FACT: fact}


@dataclass(frozen=True, slots=True)
class BaseGeneration:
    """A base that counts: its files, and those of the log that stand behind it."""

    origin: BaseOrigin
    urn: DatasetUrn
    files: PublishedSet
    later: PublishedSet

    @property
    def changes_behind(self) -> int:
        """The number of rows that the log got since; some more if files were joined across the base."""
        return sum(segment.row_count for segment in self.later.segments)


def name_base(urn: DatasetUrn) -> DatasetUrn:
    """The dataset of a change log's bases."""
    return DatasetUrn(f"{urn} (base)")


def find_base_files(port: PublishedFiles, job: JobName, urn: DatasetUrn) -> PublishedSource | None:
    """What is published of the log's bases. To be asked for before the log is, which then has all that a base has."""
    return port.find_source(job, name_base(urn), role=Role.DATA)


def choose_base(
    port: PublishedFiles, bases: PublishedSource | None, log: PublishedSource, urn: DatasetUrn
) -> BaseGeneration | None:
    """The base, if it counts for the log as it is now."""
    origin = None if bases is None else _read_origin(bases, urn)
    if bases is None or origin is None or origin.said != _digest(log) or origin.version > log.files.version:
        return None
    if not port.is_published(origin.newest):
        return None
    later = tuple(segment for segment in log.files.segments if segment.version > origin.version)
    return BaseGeneration(origin, name_base(urn), bases.files, replace(log.files, segments=later))


def describe_base(log: PublishedSource, urn: DatasetUrn, place: ChangePlace) -> BaseOrigin:
    """Of a base with all rows of ``log``, which has files, up to ``place``."""
    newest: PublishedSegment = max(log.files.segments, key=lambda segment: segment.version)
    return BaseOrigin(urn, log.files.version, newest.sequence_id, _digest(log), place)


def _digest(log: PublishedSource) -> str:
    said = json.dumps(log.source_facts.get(TABLE_FACT), sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def _read_origin(bases: PublishedSource, urn: DatasetUrn) -> BaseOrigin | None:
    """None: a dataset of that name that is no base of this log, or whose base was taken away."""
    fact = bases.source_facts.get(_BASE_FACT)
    if not isinstance(fact, Mapping) or fact.get("of") != urn or not bases.files.file_schemas:
        return None
    try:
        return BaseOrigin(
            urn,
            int(fact["version"]),
            SequenceId(uuid.UUID(fact["newest"])),
            str(fact["said"]),
            ChangePlace(int(fact["copy"]), int(fact["lsn"]), int(fact["seq"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"what is recorded of the base of {urn!a} can't be read", fact=str(fact)) from error
