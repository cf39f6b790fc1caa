"""Reports runs that Dagster did not start to a Dagster instance, as runs of that instance.

Such a run is MANAGED while it works (Dagster's word for external runs): it takes none of the slots for concurrent runs,
and Dagster does not monitor it. When it ends, Dagster gets its start, with the time, and its end.
"""

import time
from collections.abc import Sequence
from typing import Final

import dagster as dg
from dagster._core.events import (
    AssetObservationData,
    DagsterEvent,
    DagsterEventType,
    JobFailureData,
    RunFailureReason,
    StepMaterializationData,
)
from dagster._core.execution.plan.objects import StepFailureData, StepSuccessData
from dagster_shared.error import SerializableErrorInfo

from gobblin_assets.commit.sequence import SequenceRecord
from gobblin_assets.dagster.instances import find_latest, telling
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import (
    build_evaluation,
    build_evaluations,
    build_materialization,
)
from gobblin_assets.dagster.published_checks import judge_blocked
from gobblin_assets.dagster.recovery import build_recovery_job, recovery_job_name
from gobblin_assets.dagster.source_observing import SourceObservations
from gobblin_assets.errors import GobblinError
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.run_values import DatasetReport, RunReport

SOURCE_TAG: Final = "gobblin/reported_by"
MODE_SHOWN_TAG: Final = "gobblin/asked_mode"


class ReportedRun:
    """One run in Dagster: materializations and checks as they come, and how it ended.

    RetryableError where Dagster does not take an event.
    """

    def __init__(self, layout: JobLayout, instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
        self.layout = layout
        self._sources = SourceObservations(layout)
        self._instance = instance
        self._run = run
        self._begun_at_s = time.time()

    @property
    def run_id(self) -> str:
        return self._run.run_id

    def report_publication(self, report: DatasetReport) -> None:
        """One materialization for each role of a finished sequence, then its checks."""
        if not self.layout.has_dataset(report.urn):
            # It has left the job since its publication was sealed: there is no asset to tell of it.
            return
        for role in self.layout.roles:
            uri = report.uri if role is Role.DATA and report.uri else self.layout.uri_of(report.urn, role)
            key = self.layout.get_key(report.urn, role)
            event = build_materialization(key, report, role, uri=uri)
            with telling(key):
                self._send(DagsterEventType.ASSET_MATERIALIZATION, StepMaterializationData(event), event.description)
        for seen in self._sources.observe(report):
            with telling(seen.asset_key):
                self._send(DagsterEventType.ASSET_OBSERVATION, AssetObservationData(seen), seen.description)
        self.report_checks(report)

    def end(self, report: RunReport) -> None:
        """Report the checks of unpublished partitions, and the end."""
        for dataset in report.datasets:
            if dataset.publication is None:
                self.report_checks(dataset)
        failed = [f"{each.urn} [{each.partition}]: {each.outcome.value}: {each.error}" for each in report.failed]
        self._end(f"{len(failed)} of {len(report.datasets)} failed:\n" + "\n".join(failed) if failed else None)

    def fail(self, error: BaseException) -> None:
        """Report that the run ended by an error, or was stopped."""
        self._end(str(error) if isinstance(error, GobblinError) else type(error).__name__)

    def close(self) -> None:
        """End the run successfully; there is nothing more to report."""
        self._end(None)

    def report_checks(self, report: DatasetReport) -> None:
        """Report the results of one partition: of its policies, and whether it was published."""
        key = self.layout.get_key(report.urn)
        with telling(key):
            latest = find_latest(self._instance, key, report.partition.key)
            for evaluation in build_evaluations(key, report, latest):
                self._send(DagsterEventType.ASSET_CHECK_EVALUATION, evaluation, evaluation.description)

    def report_check(self, urn: DatasetUrn, partition: str | None, check: CheckResult) -> None:
        """Report one result of one partition."""
        key = self.layout.get_key(urn)
        with telling(key):
            target = find_latest(self._instance, key, partition)
            evaluation = build_evaluation(key, check, partition=partition, target=target)
            self._send(DagsterEventType.ASSET_CHECK_EVALUATION, evaluation, evaluation.description)

    def _end(self, error: str | None) -> None:
        with telling(next(iter(self.layout.specs.values())).key):
            duration_ms = (time.time() - self._begun_at_s) * 1_000
            info = None if error is None else SerializableErrorInfo(error, [], None)
            self._send(DagsterEventType.RUN_START, None, "Started outside of Dagster.", at_s=self._begun_at_s)
            self._send(DagsterEventType.STEP_START, None, None, at_s=self._begun_at_s)
            if error is None:
                success = StepSuccessData(duration_ms)  # type: ignore[no-untyped-call]  # Dagster leaves it untyped
                self._send(DagsterEventType.STEP_SUCCESS, success, None)
                self._send(DagsterEventType.RUN_SUCCESS, None, None)
            else:
                failure = StepFailureData(info, None)  # type: ignore[no-untyped-call]  # the same
                self._send(DagsterEventType.STEP_FAILURE, failure, error)
                data = JobFailureData(info, RunFailureReason.STEP_FAILURE, None)
                self._send(DagsterEventType.RUN_FAILURE, data, error)

    def _send(self, kind: DagsterEventType, data: object, said: str | None, *, at_s: float | None = None) -> None:
        of_step = kind.value.startswith(("STEP", "ASSET"))
        event = DagsterEvent(
            event_type_value=kind.value,
            job_name=self._run.job_name,
            step_key=self.layout.job.job if of_step else None,
            event_specific_data=data,  # type: ignore[arg-type]  # a union of all of Dagster's
            message=said,
        )
        self._instance.report_dagster_event(event, self._run.run_id, timestamp=at_s)


def report_blocked(layout: JobLayout, blocked: Sequence[SequenceRecord], instance: dg.DagsterInstance) -> None:
    """Fail the checks of publications that wait for a person, in a run of the recovery job that does nothing else.

    Events without a run are enough only for datasets without partitions: Dagster keeps one evaluation for each check,
    partition and run, and treats all events without a run as one run.
    """
    told = _begin_telling(layout, instance, by=f"{layout.job.job}_recovery_sensor")
    for sequence in blocked:
        told.report_check(sequence.urn, sequence.partition or None, judge_blocked(sequence))
    told.close()


def report_checks(
    layout: JobLayout, reports: Sequence[DatasetReport], instance: dg.DagsterInstance, *, by: str
) -> None:
    """Report checks of different partitions in a run like that of ``report_blocked``."""
    told = _begin_telling(layout, instance, by=by)
    for report in reports:
        told.report_checks(report)
    told.close()


def _begin_telling(layout: JobLayout, instance: dg.DagsterInstance, *, by: str) -> ReportedRun:
    definitions = dg.Definitions(jobs=[build_recovery_job(layout)], resources=stand_ins(layout))
    job = definitions.resolve_job_def(recovery_job_name(layout.job.job))
    with telling(next(iter(layout.specs.values())).key):
        run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.MANAGED, tags={SOURCE_TAG: by})
    return ReportedRun(layout, instance, run)


def stand_ins(layout: JobLayout) -> dict[str, object]:
    """Resources under the job's keys: Dagster only checks that they exist, and executes none of them."""
    return {key: dg.ResourceDefinition.none_resource() for key in layout.resource_keys}
