"""The reports that Dagster was not given yet, as a port.

Nothing is written for Dagster when a sequence is finished: the log itself says what is to be told. A publication waits
until ``announced_at`` is set, and the run of a command until ``reported_at`` is. Both are set after Dagster has taken
what was told, so that everything is told at least once. Whoever tells it claims the job for a while: two code
locations do not tell one thing twice, unless one of them rests in the middle of it for longer than its claim.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gobblin_assets.model.state import DatasetOutcome, RunId, SequenceId, WorkingState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.state.datasets import AskedRun

UNREPORTED_S_MAX: Final = 7 * 86_400.0
"""After this time a publication is told only if it is the latest of its partition, and may be folded before."""


@dataclass(frozen=True, slots=True)
class UnreportedRun:
    """The run of a command, of whose end Dagster was not told. ``ended_at`` None: it is at work, or has died.

    ``dagster_run_id``: of its run in Dagster, once that has begun.
    """

    run_id: RunId
    asked: AskedRun
    dagster_run_id: str | None
    state: WorkingState
    error: str | None
    started_at: dt.datetime
    ended_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class UnreportedPublication:
    """A finished sequence of which Dagster was not told.

    ``is_news`` False: nothing happened, or Dagster is told of a later one, which says the same and more.
    ``is_superseded``: Dagster knows a later publication of the partition already. ``outlived``: its run was over
    before it was finished.
    """

    sequence_id: SequenceId
    run_id: RunId
    done_at: dt.datetime
    is_news: bool
    is_superseded: bool
    outlived: bool
    is_old: bool


@dataclass(frozen=True, slots=True)
class UnpublishedPartition:
    """A partition without a publication of which Dagster must learn how it left a run: it failed, or it had failed.

    ``checks``: as the run kept them, in plain JSON.
    """

    urn: DatasetUrn
    partition: str
    outcome: DatasetOutcome
    error: str | None
    checks: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ReportBacklog:
    """What waits of one job, since when; who looked at it last, and why it was not told."""

    job: JobName
    publications: int
    failed_runs: int
    since: dt.datetime
    now: dt.datetime
    looked_at: dt.datetime | None
    error: str | None


class ReportStore(Protocol):
    """Each method is one transaction, by the log's clock."""

    def look(self, jobs: Sequence[JobName]) -> Sequence[JobName]:
        """Those of these jobs of which something waits; notes that somebody has looked after all of them."""
        ...

    def claim(self, job: JobName, reporter: str, *, ttl_s: float) -> bool:
        """Whether ``reporter`` may tell Dagster of the job now. A claim of its own is extended."""
        ...

    def release(self, job: JobName, reporter: str, *, error: str | None) -> None:
        """``error``: why something was not told; None clears an earlier one."""
        ...

    def list_runs(self, job: JobName, *, limit: int) -> Sequence[UnreportedRun]:
        """Those that have ended first, and the oldest of them first."""
        ...

    def load_runs(self, run_ids: Sequence[RunId]) -> Sequence[UnreportedRun]:
        """Those of these runs of which Dagster has to be told."""
        ...

    def list_publications(
        self, job: JobName, *, after: tuple[dt.datetime, SequenceId] | None, limit: int
    ) -> Sequence[UnreportedPublication]:
        """In the order in which they were finished; without those that a living run of Dagster's is about to tell."""
        ...

    def list_unpublished(self, run_id: RunId) -> Sequence[UnpublishedPartition]:
        """Partitions that the run did not publish, and that failed, or had failed in the run before that was told."""
        ...

    def list_unchecked(self, job: JobName) -> Sequence[SequenceId]:
        """The latest publication of each partition that streams published since ``mark_checked``."""
        ...

    def find_checked_age_s(self, job: JobName) -> float | None:
        """How long ago ``mark_checked`` was; None: never."""
        ...

    def mark_checked(self, job: JobName) -> None: ...

    def list_told_later(self, sequence_ids: Sequence[SequenceId]) -> Sequence[SequenceId]:
        """The latest publication that Dagster knows of each partition of these, where it is a later one."""
        ...

    def mark_begun(self, run_id: RunId, dagster_run_id: str) -> None: ...

    def mark_reported(self, run_id: RunId) -> None: ...

    def list_backlogs(self, job: JobName | None) -> Sequence[ReportBacklog]:
        """Of each job of which something waits, and that is not older than ``UNREPORTED_S_MAX``."""
        ...
