"""The port of extraction: what turns planned WorkUnits into files in a staging directory.

Spark implements it (``jobs.ingest.extractor``). The protocol's crash tests implement it with a few lines of
pyarrow, so that thousands of real runs cost seconds.
"""

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gobblin_assets.model.files import DataFile
from gobblin_assets.model.state import AttemptId, DatasetId
from gobblin_assets.model.urn import JobName, Role
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.sources.port import PartitionPlan
from gobblin_assets.spec.job_spec import DatasetSpec


@dataclass(frozen=True, slots=True)
class ExtractOrder:
    """Read ``units`` of ``plan`` and write them below ``directory``, which does not exist yet.

    Without ``units`` there is nothing to read or to write: what is asked for is ``Extracted.file_schemas``.
    ``started_at`` is the run's clock when the attempt started: the "now" of all its rows. ``tag`` names the work
    to a later ``cancel``. ``dataset_id`` and ``job`` are for what is compared with rows published before (the late
    window). ``schemas_beside`` are Spark's JSON of the schemas that the dataset's other active files have: what is
    written must be readable together with them.
    """

    job: JobName
    dataset_id: DatasetId
    plan: PartitionPlan
    spec: DatasetSpec
    units: tuple[WorkUnit, ...]
    attempt_id: AttemptId
    directory: str
    started_at: dt.datetime
    tag: str
    schemas_beside: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputDirectory:
    """One leaf directory that was written.

    ``path`` is its full path in staging; ``partition_path`` its place below the dataset's partition, such as
    ``day=2013-01-01``, or "" when the output is not divided.
    """

    role: Role
    path: str
    partition_path: str
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class Extracted:
    """What an attempt wrote, complete and closed but not yet durable. Its files' rows are those of their footers.

    ``file_schemas`` is Spark's JSON by role; ``columns`` the published data columns, name to type text.
    ``rows_read`` counts the rows that should come out again: what the source gave, less what converters and the
    late window took out. It is counted on the way of the rows, never from the files: an attempt whose files hold
    another number is given up. ``observed_high`` is the highest position that was really read, where it was observed.
    ``samples`` are some of the rows that were set aside, as ``row_samples`` writes them.
    """

    directories: tuple[OutputDirectory, ...]
    rows_read: int
    file_schemas: Mapping[Role, object] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    actual_highs: Mapping[uuid.UUID, Watermark | None] = field(default_factory=dict)
    observed_high: Watermark | None = None
    samples: tuple[str, ...] = ()

    def row_count(self, role: Role) -> int:
        return sum(f.row_count for d in self.directories if d.role is role for f in d.files)


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What recovery must know to interrupt this work after its driver died."""

    session_id: str | None = None
    user: str | None = None


class Extractor(Protocol):
    """Called from several threads at once, one for each running task."""

    def session_facts(self) -> SessionFacts: ...

    def extract(self, order: ExtractOrder) -> Extracted:
        """Do it, or raise a family; whatever was raised, the directory may hold anything."""
        ...

    def extract_together(self, orders: Sequence[ExtractOrder]) -> Sequence[Extracted]:
        """As ``extract`` for each of them, by one read and one write: their plans share, and so does their tag.

        A failure is that of all of them. It says nothing of which one it came from.
        """
        ...

    def cancel(self, tag: str) -> None:
        """End the work of that tag as soon as possible; not knowing the tag is fine."""
        ...
