"""The port for queries on the log, and its answers."""

import datetime as dt
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol

from gobblin_assets.model.interval import Gap, Interval, find_gaps
from gobblin_assets.model.job_ticket import SentTicket
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import Watermark


@dataclass(frozen=True, slots=True)
class DatasetLine:
    """A dataset now. Files are those of active segments, of all roles; ``rows`` are those of the data role.

    Both are None at given names, where later files replace earlier ones: only the lists of files tell how many stand.
    ``open_state`` and ``open_sequence``: the publication that is open, if any. ``held_by`` has a live lease.
    ``published_at``: of the last publication, compactions not counted.
    """

    job: JobName
    urn: DatasetUrn
    version: int
    partitions: int
    rows: int | None
    files: int | None
    file_bytes: int | None
    open_state: str | None
    open_sequence: uuid.UUID | None
    held_by: str | None
    last_outcome: str | None
    last_error: str | None
    last_ended_at: dt.datetime | None
    published_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """A partition with its last publication, compactions not counted; "" where there are no partitions.

    ``rows``, ``files``, ``file_bytes``: of active segments, as of ``DatasetLine``. ``published_rows`` and
    ``published_files``: of the last publication alone. ``complete``: False where a part of it was left out.
    """

    partition: str
    sequence_id: uuid.UUID
    mode: str
    published_at: dt.datetime
    complete: bool
    published_rows: int
    published_files: int
    rows: int | None
    files: int | None
    file_bytes: int | None


@dataclass(frozen=True, slots=True)
class WatermarkLine:
    """The published position of one watermark key in one partition; "" where there are no partitions."""

    job: JobName
    urn: DatasetUrn
    key: str
    partition: str
    watermark: Watermark | None
    moved_at: dt.datetime | None
    sequence_id: uuid.UUID | None


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One interval of a key that a sequence published. ``interval`` None: a generation of a snapshot."""

    job: JobName
    urn: DatasetUrn
    key: str
    partition: str
    sequence_id: uuid.UUID
    interval: Interval | None
    reread_from: Watermark | None
    active: bool
    rows: int
    files: int
    done_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class GapLine:
    """Positions between active intervals of one key that nothing has published."""

    job: JobName
    urn: DatasetUrn
    key: str
    partition: str
    gap: Gap


@dataclass(frozen=True, slots=True)
class SequenceLine:
    """A commit sequence in any state. ``publications``: how many publications it holds; more than one in a fold."""

    sequence_id: uuid.UUID
    job: JobName
    urn: DatasetUrn
    partition: str
    state: str
    mode: str
    publications: int
    rows: int | None
    files: int | None
    failed_tries: int
    last_error: str | None
    created_at: dt.datetime
    prepared_at: dt.datetime | None
    ended_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run of a job; ``figures`` are plain JSON values."""

    run_id: uuid.UUID
    job: JobName
    state: str
    owner: str
    dagster_run_id: str | None
    started_at: dt.datetime
    ended_at: dt.datetime | None
    error: str | None
    figures: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunDatasetLine:
    """A line about how one dataset partition left a run."""

    urn: DatasetUrn
    partition: str
    outcome: str
    sequence_id: uuid.UUID | None
    error: str | None
    figures: Mapping[str, object]
    ended_at: dt.datetime


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """One try at one MultiWorkUnit for one dataset partition: a task."""

    urn: DatasetUrn
    partition: str
    multi_work_unit: int
    try_number: int
    state: str
    rows: int | None
    files: int | None
    file_bytes: int | None
    started_at: dt.datetime
    ended_at: dt.datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class KeptLine:
    """A finished sequence at given names: since when it is, and until when it keeps what it replaced or removed."""

    sequence_id: uuid.UUID
    done_at: dt.datetime
    kept_until: dt.datetime


@dataclass(frozen=True, slots=True)
class OwnTicket:
    """A ticket that an executor began by itself. ``number``: in the order of commits.

    ``sent`` None: it is forgotten.
    """

    number: int
    sent_at: dt.datetime
    sent: SentTicket | None


class Overview(Protocol):
    """Implemented by ``state.postgres.overview``. None stands for all jobs, all datasets."""

    def list_datasets(self, job: JobName | None) -> Sequence[DatasetLine]: ...

    def page_datasets(
        self, jobs: Sequence[JobName], *, prefix: str, after: tuple[JobName, DatasetUrn] | None, limit: int
    ) -> Sequence[DatasetLine]:
        """Of these jobs, by job and URN, in the order of code points. ``prefix``: of URNs."""
        ...

    def page_partitions(
        self, job: JobName, urn: DatasetUrn, *, before: str | None, limit: int
    ) -> Sequence[PartitionLine]:
        """Those that were published, the greatest first. ``before``: the last one that the caller has."""
        ...

    def list_watermarks(self, job: JobName | None, urn: DatasetUrn | None) -> Sequence[WatermarkLine]: ...

    def find_watermarks(
        self, job: JobName, urn: DatasetUrn, partitions: Sequence[str], *, limit: int
    ) -> Sequence[WatermarkLine]:
        """Those of these partitions, and those that belong to no partition."""
        ...

    def list_ledger(self, job: JobName | None, urn: DatasetUrn | None, *, with_retired: bool) -> Sequence[LedgerLine]:
        """In the order of dataset, partition, key and position."""
        ...

    def list_sequences(
        self, job: JobName | None, urn: DatasetUrn | None, *, with_ended: bool, limit: int
    ) -> Sequence[SequenceLine]:
        """Newest first. Without ``with_ended``: those that have not ended, BUILDING ones included."""
        ...

    def list_kept(self, job: JobName, urn: DatasetUrn) -> Sequence[KeptLine]:
        """Of publications at names that are always new, none. After its time a cleanup may come at any moment."""
        ...

    def list_runs(self, job: JobName | None, *, limit: int) -> Sequence[RunLine]:
        """Newest first."""
        ...

    def get_run(self, run_id: uuid.UUID) -> RunLine:
        """RejectedError when there is none."""
        ...

    def list_run_datasets(self, run_id: uuid.UUID) -> Sequence[RunDatasetLine]: ...

    def list_run_attempts(self, run_id: uuid.UUID) -> Sequence[AttemptLine]: ...

    def list_own_tickets(self, after: int, *, limit: int) -> Sequence[OwnTicket]:
        """By number, those behind ``after``: none before the last one comes later.

        They end before one that this release can't read; RejectedError if that is the first one.
        """
        ...


def list_gaps(lines: Iterable[LedgerLine]) -> list[GapLine]:
    """The gaps of each key, from its ledger lines in the order of ``list_ledger``."""

    def identity(line: LedgerLine) -> tuple[JobName, DatasetUrn, str, str]:
        return line.job, line.urn, line.key, line.partition

    return [
        GapLine(*key, gap)
        for key, group in groupby(lines, identity)
        for gap in find_gaps([line.interval for line in group if line.active and line.interval is not None])
    ]
