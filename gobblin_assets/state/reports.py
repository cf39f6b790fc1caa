"""The reports that Dagster was not given yet, as a port.

Nothing is written for Dagster when a sequence is finished: the log itself says what is to be reported. A publication
waits until ``announced_at`` is set, and the run of a command until ``reported_at`` is. Both are set after Dagster has
taken the report, so that everything is reported at least once. A reporter claims the job for a while: two code
locations do not report one thing twice, unless one of them rests in the middle of it for longer than its claim.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gobblin_assets.model.state import DatasetOutcome, RunId, SequenceId, WorkingState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.wording import count_of, show_moment
from gobblin_assets.state.datasets import AskedRun

UNREPORTED_S_MAX: Final = 7 * 86_400.0
"""After this time a publication is reported only if it is the latest of its partition, and may be folded before."""

_ON_ITS_WAY_S: Final = 60.0
"""A sensor looks every few seconds; what waits for less than this is on its way."""

_LOOKS_S_MAX: Final = 180.0
"""A sensor that has not looked for this long is not at work."""


@dataclass(frozen=True, slots=True)
class UnreportedRun:
    """The run of a command whose end was not reported. ``ended_at`` None: it is at work, or has died.

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
    """A finished sequence that was not reported.

    ``is_news`` False: nothing happened, or a later one is reported, which says the same and more.
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
    """A partition without a publication, whose end in a run is to be reported: it failed, or it had failed before.

    ``checks``: as the run kept them, in plain JSON.
    """

    urn: DatasetUrn
    partition: str
    outcome: DatasetOutcome
    error: str | None
    checks: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ReportBacklog:
    """The reports of one job that wait: how many, since when, and why. ``looked_at``: the last look of a sensor."""

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
        """Whether ``reporter`` may report the job now. A claim of its own is extended."""
        ...

    def release(self, job: JobName, reporter: str, *, error: str | None) -> None:
        """``error``: why something was not reported; None clears an earlier one."""
        ...

    def list_runs(self, job: JobName, *, limit: int) -> Sequence[UnreportedRun]:
        """Those that have ended first, and the oldest of them first."""
        ...

    def load_runs(self, run_ids: Sequence[RunId]) -> Sequence[UnreportedRun]:
        """Those of these runs that are to be reported."""
        ...

    def list_publications(
        self, job: JobName, *, after: tuple[dt.datetime, SequenceId] | None, limit: int
    ) -> Sequence[UnreportedPublication]:
        """In the order in which they were finished; without those that a living run of Dagster's is about to report."""
        ...

    def list_unpublished(self, run_id: RunId) -> Sequence[UnpublishedPartition]:
        """Partitions that the run did not publish, and that failed, or had failed in the last run that was reported."""
        ...

    def list_unchecked(self, job: JobName) -> Sequence[SequenceId]:
        """The latest publication of each partition that streams published since ``mark_checked``."""
        ...

    def find_checked_age_s(self, job: JobName) -> float | None:
        """How long ago ``mark_checked`` was; None: never."""
        ...

    def mark_checked(self, job: JobName) -> None: ...

    def list_reported_later(self, sequence_ids: Sequence[SequenceId]) -> Sequence[SequenceId]:
        """The latest publication that Dagster knows of each partition of these, where it is a later one."""
        ...

    def mark_begun(self, run_id: RunId, dagster_run_id: str) -> None: ...

    def mark_reported(self, run_id: RunId) -> None: ...

    def list_backlogs(self, job: JobName | None) -> Sequence[ReportBacklog]:
        """Of each job of which something waits, and that is not older than ``UNREPORTED_S_MAX``."""
        ...


def is_late(backlog: ReportBacklog) -> bool:
    """Whether Dagster should know of it by now."""
    return (backlog.now - backlog.since).total_seconds() > _ON_ITS_WAY_S


def describe_backlog(backlog: ReportBacklog) -> str:
    """What waits of a job, since when, why, and what to do."""
    counts = (
        (backlog.publications, "publication", "publications"),
        (backlog.failed_runs, "failed run", "failed runs"),
    )
    what = " and ".join(count_of(*each) for each in counts if each[0])
    are = "is" if backlog.publications + backlog.failed_runs == 1 else "are"
    since = f"since {show_moment(backlog.since)}, because {_explain(backlog)}"
    return f"{backlog.job}: {what} {are} not reported to Dagster {since}"


def _explain(backlog: ReportBacklog) -> str:
    if backlog.error is not None:
        return f"{backlog.error}"
    if backlog.looked_at is None:
        return (
            "no daemon of Dagster has looked at this job yet. Start one: gobblin-assets dagster dev. "
            "Or report it now: gobblin-assets report JOB_FILE; without Dagster, set GOBBLIN_REPORT_TO_DAGSTER=never."
        )
    if (backlog.now - backlog.looked_at).total_seconds() > _LOOKS_S_MAX:
        return (
            f"no daemon of Dagster has looked since {show_moment(backlog.looked_at)}. "
            "Start it, and look at its storage and at the sensor that reports. Or: gobblin-assets report JOB_FILE"
        )
    return (
        "the code location that looks at the job does not have these datasets, or has much to report. "
        "If it stays, reload the code location."
    )
