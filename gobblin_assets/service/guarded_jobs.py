"""Jobs as users read them: the datasets that they publish, their past executions, what their processes said.

The service has a job's flow and node; the log of its executor has the rest. A log that is away hides its own jobs'
datasets, and no others. A job of a flow that the user may not read does not exist for the user.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar

from gobblin_assets.errors import GobblinError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetOutcome
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.service.access import AccessRules, Action, User
from gobblin_assets.service.dagster_links import DagsterRun, link_dagster_run
from gobblin_assets.service.flow_store import SpecNotFoundError
from gobblin_assets.service.guarded_flows import GuardedFlows
from gobblin_assets.service.published_jobs import PastExecution, PublishingJob, PublishingJobs
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import JobStatus
from gobblin_assets.service.ticket_logs import TicketLogs
from gobblin_assets.service.topology import DAGSTER, Topology
from gobblin_assets.state.overview import DatasetLine, Overview, PartitionLine, SequenceLine, WatermarkLine
from gobblin_assets.state.tickets import TicketOutput

PAGE_DATASETS_MAX: Final = 100
PAGE_PARTITIONS_MAX: Final = 100
PAGE_PAST_MAX: Final = 100
PAST_MAX: Final = 10
"""Of each job in a list of jobs."""
OUTPUTS_MAX: Final = 5
"""So many attempts of a job show what their processes said, the latest ones."""

_JOBS_AT_ONCE: Final = 500
_LOOKS_MAX: Final = 20
"""Of one page: a search that finds nothing in so many jobs goes on with the next page."""

_WATERMARKS_MAX: Final = 1_000
_OPEN_MAX: Final = 20
_REPORTS_MAX: Final = 20
"""Of an attempt, so many of its first reports are looked at for the links of its run."""
_NUMBER_MAX: Final = (1 << 31) - 1

_AWAY_S: Final = 15.0
"""So long after a log did not answer, nobody waits for it again."""

T = TypeVar("T")


class DatasetCondition(StrEnum):
    """A dataset in one word: what a person should look at comes first."""

    BLOCKED = "BLOCKED"  # a publication waits for a person
    WRITING = "WRITING"  # somebody works on it, or a publication is open
    PUBLISHED = "PUBLISHED"
    EMPTY = "EMPTY"  # nothing was published yet


@dataclass(frozen=True, slots=True)
class PublishedDataset:
    """A dataset, and the job that publishes it."""

    job: PublishingJob
    line: DatasetLine

    @property
    def condition(self) -> DatasetCondition:
        if self.line.open_state == SequenceState.BLOCKED or self.line.last_outcome == DatasetOutcome.BLOCKED:
            return DatasetCondition.BLOCKED
        if self.line.open_state is not None or self.line.held_by is not None:
            return DatasetCondition.WRITING
        return DatasetCondition.EMPTY if self.line.published_at is None else DatasetCondition.PUBLISHED


@dataclass(frozen=True, slots=True)
class AwayLog:
    """A log that did not answer, and the jobs whose datasets are not shown therefore."""

    log: str
    reason: str
    jobs: tuple[PublishingJob, ...]


@dataclass(frozen=True, slots=True)
class DatasetPage:
    """Datasets by job and URN. ``after``: where the next page begins; None: this is the last.

    A page of a search may have few datasets, or none, and a next page.
    """

    datasets: tuple[PublishedDataset, ...]
    away: tuple[AwayLog, ...]
    after: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class DatasetDetails:
    """A dataset with a page of its partitions, the greatest first, and what is open.

    ``watermarks``: of these partitions, and those of no partition. ``before``: where the next page begins.
    """

    dataset: PublishedDataset
    partitions: tuple[PartitionLine, ...]
    watermarks: tuple[WatermarkLine, ...]
    open_sequences: tuple[SequenceLine, ...]
    before: str | None


@dataclass(frozen=True, slots=True)
class PastPage:
    """Past executions of a job, the latest first. ``after``: where the next page begins."""

    executions: tuple[PastExecution, ...]
    after: int | None


@dataclass(frozen=True, slots=True)
class JobOutput:
    """What the processes of a job of an execution said, the latest attempt first. ``away``: why it is not known.

    ``dagster_run``: of the last attempt, if a Dagster ran it.
    """

    job: JobStatus
    outputs: tuple[TicketOutput, ...]
    away: str = ""
    dagster_run: DagsterRun | None = None


class GuardedJobs:
    """All that users read of jobs. ``rules`` and ``topology``: those of now."""

    def __init__(
        self,
        jobs: PublishingJobs,
        flows: GuardedFlows,
        logs: TicketLogs,
        rules: Callable[[], AccessRules],
        topology: Callable[[], Topology],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = jobs
        self._topology = topology
        self._flows = flows
        self._logs = logs
        self._rules = rules
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._away: dict[str, tuple[float, str]] = {}

    def list_datasets(
        self,
        user: User,
        *,
        flow: FlowKey | None = None,
        node: str | None = None,
        prefix: str = "",
        after: tuple[str, str] | None = None,
        limit: int = PAGE_DATASETS_MAX,
    ) -> DatasetPage:
        """Datasets of flows that the user may read. ``prefix``: of their URNs."""
        scope = self._rules().scope_of(user, Action.READ)
        found: list[PublishedDataset] = []
        away: list[AwayLog] = []
        place = after
        for _ in range(_LOOKS_MAX):
            begin = "" if place is None else place[0]
            jobs = self._jobs.list_publishing(scope, flow=flow, node=node, begin=begin, limit=_JOBS_AT_ONCE)
            more, lost = self._look(jobs, prefix, place, limit + 1 - len(found))
            found, away = [*found, *more], [*away, *lost]
            if len(found) > limit:
                last = found[limit - 1]
                return DatasetPage(tuple(found[:limit]), tuple(away), (last.job.job_name, last.line.urn))
            if len(jobs) < _JOBS_AT_ONCE:
                return DatasetPage(tuple(found), tuple(away), None)
            # Behind all datasets of this job: no URN is empty, and the next name sorts behind it.
            place = jobs[-1].job_name + "\x01", ""
        return DatasetPage(tuple(found), tuple(away), place)

    def get_dataset(
        self, user: User, job_name: str, urn: str, *, before: str | None = None, limit: int = PAGE_PARTITIONS_MAX
    ) -> DatasetDetails:
        """SpecNotFoundError: there is none, or the user may not read its flow. RetryableError: its log is away."""
        job = self._get_job(user, job_name)
        name, of = JobName(job_name), DatasetUrn(urn)

        def read(overview: Overview) -> DatasetDetails | None:
            # Of all texts that begin with it, the URN itself sorts first.
            line = next(iter(overview.page_datasets([name], prefix=urn, after=None, limit=1)), None)
            if line is None or line.urn != urn:
                return None
            lines = overview.page_partitions(name, of, before=before, limit=limit + 1)
            shown = tuple(lines[:limit])
            partitions = [each.partition for each in shown]
            return DatasetDetails(
                dataset=PublishedDataset(job, line),
                partitions=shown,
                watermarks=tuple(overview.find_watermarks(name, of, partitions, limit=_WATERMARKS_MAX)),
                open_sequences=tuple(overview.list_sequences(name, of, with_ended=False, limit=_OPEN_MAX)),
                before=partitions[-1] if len(lines) > limit else None,
            )

        found = self._ask(job.log, lambda: read(self._logs.get_overview(job.log)))
        if found is None:
            raise SpecNotFoundError(
                f"the job {job_name} has no dataset {urn[:200]!a}", field="urn", hint="Look at the list of datasets."
            )
        return found

    def list_past(self, user: User, key: FlowKey, job_names: Sequence[str]) -> dict[str, Sequence[PastExecution]]:
        """The last executions of jobs of a flow."""
        self._flows.get(user, key)
        return dict(self._jobs.list_past(job_names, limit=PAST_MAX))

    def page_past(
        self, user: User, key: FlowKey, job_name: str, *, after: int | None = None, limit: int = PAGE_PAST_MAX
    ) -> PastPage:
        """SpecNotFoundError: the flow has no such job."""
        if self._get_job(user, job_name).flow != key:
            raise _no_job(job_name)
        found = self._jobs.page_past(job_name, after=after, limit=limit + 1)
        last = found[limit - 1].execution_id if len(found) > limit else None
        return PastPage(tuple(found[:limit]), last)

    def list_outputs(self, user: User, key: FlowKey, execution_id: int, *, limit: int = 1) -> list[JobOutput]:
        """Of the jobs of an execution, what their last attempts said."""
        execution = self._flows.get_execution(user, key, execution_id)
        past = self._jobs.find_logs_of(execution_id)
        return [self._read_output(job, past.get(job.number), limit) for job in execution.jobs]

    def get_output(
        self, user: User, key: FlowKey, execution_id: int, number: int, *, ticket: int | None = None
    ) -> JobOutput:
        """Of the job's ticket of this number, or of its last one. SpecNotFoundError: there is no such job or ticket."""
        execution = self._flows.get_execution(user, key, execution_id)
        job = next((each for each in execution.jobs if each.number == number), None)
        if job is None:
            raise SpecNotFoundError(
                f"the execution {execution_id} has no job {number}", field="job", hint="Look at the execution."
            )
        if ticket is None or ticket == job.attempt:
            return self._read_output(job, self._jobs.find_logs_of(execution_id).get(number), OUTPUTS_MAX)
        found = next((each for each in job.earlier if each.attempt == ticket), None)
        if found is None:
            raise SpecNotFoundError(
                f"the job {job.job_name} has no ticket {ticket}", field="ticket", hint="Look at the execution."
            )
        earlier = replace(
            job,
            job_group=found.executor,
            ticket_id=found.ticket_id,
            attempt=found.attempt,
            status=found.status,
            message=found.message,
            ended_at=found.ended_at,
        )
        return self._read_output(earlier, found.log, OUTPUTS_MAX)

    def _read_output(self, job: JobStatus, log: str | None, limit: int) -> JobOutput:
        if log is None:
            return JobOutput(job, ())
        ticket_id = TicketId(job.ticket_id)
        try:
            outputs = self._ask(log, lambda: self._logs.get_store(log).list_outputs(ticket_id, limit=limit))
            run = self._find_dagster_run(job, log, outputs[0].attempt if outputs else 1)
        except GobblinError as error:
            return JobOutput(job, (), error.message)
        return JobOutput(job, tuple(outputs), dagster_run=run)

    def _find_dagster_run(self, job: JobStatus, log: str, attempt: int) -> DagsterRun | None:
        found = self._topology().executors.get(job.job_group)
        if found is None or found.executor.technology != DAGSTER:
            return None
        ticket_id = TicketId(job.ticket_id)
        before = {ticket_id: (attempt - 1, _NUMBER_MAX)}
        store = self._logs.get_store(log)
        reports = self._ask(log, lambda: store.list_reports([ticket_id], before, limit=_REPORTS_MAX))
        mine = [each for each in reports if each.attempt == attempt]
        return link_dagster_run(JobName(job.job_name), mine, found.executor.ui_url)

    def _look(
        self, jobs: Sequence[PublishingJob], prefix: str, after: tuple[str, str] | None, limit: int
    ) -> tuple[list[PublishedDataset], list[AwayLog]]:
        """The first datasets of these jobs, and the logs that did not answer."""
        by_log: dict[str, list[PublishingJob]] = defaultdict(list)
        for job in jobs:
            by_log[job.log].append(job)
        found, away = [], []
        place = None if after is None else (JobName(after[0]), DatasetUrn(after[1]))
        for log, some in by_log.items():
            names = [JobName(each.job_name) for each in some]
            by_name = {each.job_name: each for each in some}

            def read(log: str = log, names: list[JobName] = names) -> Sequence[DatasetLine]:
                return self._logs.get_overview(log).page_datasets(names, prefix=prefix, after=place, limit=limit)

            try:
                found += [PublishedDataset(by_name[line.job], line) for line in self._ask(log, read)]
            except GobblinError as error:
                away.append(AwayLog(log, error.message, tuple(some)))
        found.sort(key=lambda each: (each.job.job_name, each.line.urn))
        return found[:limit], away

    def _ask(self, log: str, read: Callable[[], T]) -> T:
        """RetryableError: the log is away, or was a moment ago."""
        with self._lock:
            until, reason = self._away.get(log, (0.0, ""))
        if self._monotonic() < until:
            raise RetryableError(reason, passes=True, hint="Look again in a minute.")
        try:
            found = read()
        except (RetryableError, OutcomeUnknownError, RejectedError) as error:
            said = f"the log {log or 'of the service'} does not answer: {error.message}"
            with self._lock:
                self._away[log] = self._monotonic() + _AWAY_S, said
            raise RetryableError(said, passes=True, hint="Look again in a minute.") from error
        return found

    def _get_job(self, user: User, job_name: str) -> PublishingJob:
        job = self._jobs.find_publishing(job_name)
        if job is None or not self._rules().may(user, Action.READ, job.flow):
            raise _no_job(job_name)
        return job


def _no_job(job_name: str) -> SpecNotFoundError:
    return SpecNotFoundError(
        f"there is no job {job_name[:200]!a}", field="job", hint="Look at the flow's jobs, or at the list of datasets."
    )
