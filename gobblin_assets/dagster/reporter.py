"""The reporter: it shows Dagster the commands of jobs, from the log: their runs, what they published, and the checks.

A command writes nothing to Dagster. A run begins in Dagster with the first thing to report: a publication, a failure,
or a verdict that has changed. Its id in Dagster is its id in the log, so that whoever goes on after a crash finds it.
A publication of a stream, or one that another process finished, has no run at hand: it is an event without a run, or
belongs to a run of the recovery job that only reports. Everything is reported at least once, each with its sequence's
id.

A sensor does so for all jobs of a code location. Nobody can wake a sensor: Dagster looks at the time alone. So it asks
the log every few seconds, by one query that finds what waits in two small indexes.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import dagster as dg

from gobblin_assets.commit.sequence import Publication
from gobblin_assets.dagster.instances import reporting
from gobblin_assets.dagster.metadata import build_evaluations
from gobblin_assets.dagster.ports import STORES_KEY
from gobblin_assets.dagster.reported_runs import (
    ReportedEnd,
    ReportedJob,
    ReportedRun,
    begin_apart,
)
from gobblin_assets.dagster.sensor_ticks import EACH_LOOK_S
from gobblin_assets.dagster.source_observing import SourceObservations
from gobblin_assets.errors import GobblinError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.state import RunId, SequenceId, WorkingState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.announcements import checks_from_json, report_of
from gobblin_assets.run.run_values import DatasetReport
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.reports import UnpublishedPartition, UnreportedPublication, UnreportedRun

CLAIM_S: Final = 60.0
"""Longer than a page of publications takes: after each, the claim is extended."""

PAGE: Final = 100
RUNS_PER_PAGE: Final = 200

CHECKS_EVERY_S: Final = 600.0
"""The checks of a stream's partitions are reported this often: each time is a run in Dagster."""

REPORTER: Final = "gobblin-assets"
_FAILURES_SHOWN_MAX: Final = 100

_log = logging.getLogger(__name__)

REPORT_S_MAX: Final = 20.0
"""Of one tick: Dagster ends one that takes 60 s. The next tick goes on."""

REPORTING_SENSOR: Final = "gobblin_reporting_sensor"


def report_job(job: ReportedJob, stores: Stores, instance: dg.DagsterInstance, *, until_s: float | None) -> bool:
    """Report what waits of the job; whether that is all of it. ``until_s``: on the monotonic clock; None: to the end.

    False also if somebody else is at it. RetryableError where Dagster or the log does not answer: the rest stays.
    """
    name, reports = JobName(job.layout.job.job), stores.reports
    claimant = str(uuid.uuid4())
    if not reports.claim(name, claimant, ttl_s=CLAIM_S):
        return False
    error: str | None = "the process that reported it was killed or interrupted"
    try:
        reporting = _Reporting(job, stores, instance, name, claimant, until_s)
        is_all = reporting.run()
        error = reporting.defect
    except GobblinError as failure:
        error = str(failure)
        raise
    finally:
        reports.release(name, claimant, error=error)
    return is_all


@dataclass(slots=True)
class _Reporting:
    """One pass over a job. ``defect``: why a publication was left out that Dagster would have taken."""

    job: ReportedJob
    stores: Stores
    instance: dg.DagsterInstance
    name: JobName
    claimant: str
    until_s: float | None
    defect: str | None = None
    _begun: dict[RunId, ReportedRun] = field(default_factory=dict)
    _apart: ReportedRun | None = None
    _reported: list[SequenceId] = field(default_factory=list)
    _has_stream: bool = False
    _sources: SourceObservations = field(init=False)

    def __post_init__(self) -> None:
        self._sources = SourceObservations(self.job.layout)

    def run(self) -> bool:
        try:
            if not self._report_publications():
                return False
            self._repeat_latest()
            is_all = self._report_runs()
            if self._has_stream:
                self._report_stream_checks(at_once=False)
            return is_all
        finally:
            if self._apart is not None:
                self._apart.close()

    def _is_over(self) -> bool:
        return self.until_s is not None and time.monotonic() > self.until_s

    def _extend(self) -> bool:
        """Whether the job is still this reporter's: it may have rested for longer than its claim."""
        return self.stores.reports.claim(self.name, self.claimant, ttl_s=CLAIM_S)

    # Publications ---------------------------------------------------------------------------------------

    def _report_publications(self) -> bool:
        after = None
        while page := self.stores.reports.list_publications(self.name, after=after, limit=PAGE):
            runs = {run.run_id: run for run in self.stores.reports.load_runs(list({each.run_id for each in page}))}
            found = self._load(each.sequence_id for each in page)
            for each in page:
                self._report_publication(each, found[each.sequence_id], runs.get(each.run_id))
                if self._is_over():
                    return False
            if not self._extend():
                return False
            after = page[-1].done_at, page[-1].sequence_id
        return True

    def _load(self, sequence_ids: Iterable[SequenceId]) -> Mapping[SequenceId, Publication]:
        return {each.sequence_id: each for each in self.stores.commits.load_publications(*sequence_ids)}

    def _report_publication(
        self, waiting: UnreportedPublication, publication: Publication, run: UnreportedRun | None
    ) -> None:
        if not self.job.layout.has_dataset(publication.urn) and not waiting.is_old:
            # A code location that is loaded again may have it; a dataset that has left the job is not reported.
            return
        if waiting.is_news and self.job.layout.has_dataset(publication.urn):
            try:
                self._send_publication(waiting, publication, run)
            except GobblinError:
                raise
            except Exception as error:  # noqa: BLE001  of one publication; the others are reported
                self.defect = f"the publication {waiting.sequence_id} can't be reported: {type(error).__name__}"
                _log.exception("%s", self.defect)
                return
            if not waiting.is_superseded:
                self._reported.append(waiting.sequence_id)
            reach(Failpoint.REPORT_SENT)
        self.stores.commits.mark_announced(waiting.sequence_id)

    def _send_publication(
        self, waiting: UnreportedPublication, publication: Publication, run: UnreportedRun | None
    ) -> None:
        report = report_of(replace(publication, recovered=run is None or waiting.outlived))
        if run is not None and run.asked.is_stream:
            self._send_without_run(report, is_superseded=waiting.is_superseded)
            return
        shown = self._open_apart() if run is None else self._begin(run, [publication.urn])
        if waiting.is_superseded:
            shown.report_superseded(report, done_at=waiting.done_at)
        else:
            shown.report_publication(report, done_at=waiting.done_at)

    def _send_without_run(self, report: DatasetReport, *, is_superseded: bool) -> None:
        """Its checks, too, where there are no partitions: Dagster takes all events without a run for one run's."""
        self._has_stream = True
        if is_superseded:
            return
        layout = self.job.layout
        for role in layout.roles:
            event = layout.build_materialization(report, role)
            with reporting(event.asset_key):
                self.instance.report_runless_asset_event(event)
        if layout.partitions[report.urn] is None:
            self._evaluate_without_run(report)

    def _evaluate_without_run(self, report: DatasetReport) -> None:
        key = self.job.layout.get_key(report.urn)
        with reporting(key):
            for evaluation in build_evaluations(key, report):
                self.instance.report_runless_asset_event(evaluation)

    def _repeat_latest(self) -> None:
        """A run of Dagster's may have reported a later publication at the same time: that one is reported again."""
        later = self.stores.reports.list_reported_later(self._reported) if self._reported else []
        for publication in self._load(later).values() if later else ():
            if self.job.layout.has_dataset(publication.urn):
                self._open_apart().report_publication(report_of(publication))

    def _open_apart(self) -> ReportedRun:
        if self._apart is None:
            self._apart = begin_apart(self.job.layout, self.instance, by=REPORTER, recovery=self.job.recovery)
        return self._apart

    # Runs -----------------------------------------------------------------------------------------------

    def _begin(self, run: UnreportedRun, urns: Sequence[DatasetUrn]) -> ReportedRun:
        """The run in Dagster, made if missing. ``urns``: of the first report; some of what was asked may be gone."""
        if run.run_id not in self._begun:
            asked = [urn for urn in run.asked.datasets if self.job.layout.has_dataset(urn)]
            shown = self.job.begin(
                *(self.instance, asked or urns, run.asked.partitions),
                by=run.asked.by,
                mode=run.asked.mode,
                run_id=str(run.run_id),
            )
            reach(Failpoint.REPORT_BEGUN)
            self.stores.reports.mark_begun(run.run_id, shown.run_id)
            self._begun[run.run_id] = shown
        return self._begun[run.run_id]

    def _report_runs(self) -> bool:
        """The ends of runs whose publications have all been reported."""
        while True:
            runs = self.stores.reports.list_runs(self.name, limit=RUNS_PER_PAGE)
            self._has_stream = self._has_stream or any(run.asked.is_stream for run in runs)
            ended = [run for run in runs if run.ended_at is not None]
            for run in ended:
                self._report_end(run)
                if self._is_over():
                    return False
            if len(ended) < RUNS_PER_PAGE:
                return True
            if not self._extend():
                return False

    def _report_end(self, run: UnreportedRun) -> None:
        layout = self.job.layout
        changed = [each for each in self.stores.reports.list_unpublished(run.run_id) if layout.has_dataset(each.urn)]
        reports = [_report_of_unpublished(each) for each in changed]
        if run.asked.is_stream:
            self._report_stream_end(reports)
        elif run.dagster_run_id is not None or reports or run.state is WorkingState.FAILED:
            self._report_run_end(run, reports)
        reach(Failpoint.REPORT_ENDED)
        self.stores.reports.mark_reported(run.run_id)

    def _report_run_end(self, run: UnreportedRun, reports: Sequence[DatasetReport]) -> None:
        urns = [each.urn for each in reports] or [urn for urn in run.asked.datasets if self.job.layout.has_dataset(urn)]
        if not urns and run.run_id not in self._begun:
            # All of its datasets have left the job.
            return
        shown = self._begin(run, urns)
        for report in reports:
            shown.report_checks(report)
        if not shown.is_over:
            shown.close(
                ReportedEnd(
                    error=_describe_end(run, reports),
                    is_cancelled=run.state is WorkingState.CANCELLED,
                    begun_at=run.started_at,
                    ended_at=run.ended_at,
                )
            )

    # Streams --------------------------------------------------------------------------------------------

    def _report_stream_end(self, reports: Sequence[DatasetReport]) -> None:
        for report in reports:
            if self.job.layout.partitions[report.urn] is None:
                self._evaluate_without_run(report)
            else:
                self._open_apart().report_checks(report)
        self._report_stream_checks(at_once=True)

    def _report_stream_checks(self, *, at_once: bool) -> None:
        """The latest publication of each partition that streams published since the last time."""
        reports = self.stores.reports
        age_s = reports.find_checked_age_s(self.name)
        if not at_once and age_s is not None and age_s < CHECKS_EVERY_S:
            return
        found = reports.list_unchecked(self.name)
        layout = self.job.layout
        for publication in self._load(found).values() if found else ():
            if not layout.has_dataset(publication.urn):
                continue
            report = report_of(publication)
            for seen in self._sources.observe(report):
                with reporting(seen.asset_key):
                    self.instance.report_runless_asset_event(seen)
            if layout.partitions[publication.urn] is not None:
                self._open_apart().report_checks(report)
        if found or age_s is None:
            reports.mark_checked(self.name)


def _report_of_unpublished(partition: UnpublishedPartition) -> DatasetReport:
    return DatasetReport(
        partition.urn,
        AssetPartition(partition.partition or None),
        partition.outcome,
        checks=checks_from_json(partition.checks),
        error=partition.error,
    )


def _describe_end(run: UnreportedRun, reports: Sequence[DatasetReport]) -> str | None:
    """Why the run failed or was stopped; None if it went well."""
    failed = [each for each in reports if not each.is_good]
    if run.state is WorkingState.COMMITTED:
        return None
    if run.state is not WorkingState.FAILED or not failed:
        return run.error or f"The run ended as {run.state.value}."
    lines = [f"{each.label}: {each.outcome.value}: {each.error}" for each in failed[:_FAILURES_SHOWN_MAX]]
    more = [f"and {len(failed) - len(lines)} more"] if len(failed) > len(lines) else []
    return "\n".join([f"{len(failed)} of the run's partitions failed:", *lines, *more])


def report_all(jobs: Iterable[ReportedJob], stores: Stores, instance: dg.DagsterInstance, *, work_s_max: float) -> None:
    """Report what waits of these jobs. RetryableError, once all were tried, names the first that was not reported."""
    by_name = {JobName(job.layout.job.job): job for job in jobs}
    report_named(list(by_name), by_name.get, stores, instance, work_s_max=work_s_max)


def report_named(
    names: Sequence[JobName],
    find: Callable[[JobName], ReportedJob | None],
    stores: Stores,
    instance: dg.DagsterInstance,
    *,
    work_s_max: float,
) -> None:
    """The same by names; ``find`` is asked only for jobs of which something waits. None: it is left as it is."""
    until_s = time.monotonic() + work_s_max
    failures: list[str] = []
    for name in stores.reports.look(names):
        try:
            if (job := find(name)) is not None:
                report_job(job, stores, instance, until_s=until_s)
        except GobblinError as error:
            failures.append(f"{name}: {error}")
        if time.monotonic() > until_s:
            break
    if failures:
        raise RetryableError(f"not all could be reported to Dagster: {failures[0]}", hint="The next look reports it.")


def build_reporting_sensor(jobs: Sequence[ReportedJob], *, name: str = REPORTING_SENSOR) -> dg.SensorDefinition:
    """One sensor for all jobs of a code location, running unless it is stopped."""
    shown = [job for job in jobs if job.layout.specs]

    @dg.sensor(
        name=name,
        minimum_interval_seconds=EACH_LOOK_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={STORES_KEY},
        description="Shows what the command line published, and what it could not publish.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        stores: Stores = getattr(context.resources, STORES_KEY)
        report_all(shown, stores, context.instance, work_s_max=REPORT_S_MAX)
        return dg.SkipReason("What commands did is reported. No run is needed.")

    return look
