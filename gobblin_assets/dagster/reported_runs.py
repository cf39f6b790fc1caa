"""Reports runs that Dagster did not start to a Dagster instance, as runs of that instance.

Such a run is MANAGED until its end is told (Dagster's word for external runs): it takes none of the slots for
concurrent runs, and Dagster does not monitor it. With its end, Dagster gets its start; both have the log's times.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import dagster as dg
from dagster._core.events import (
    AssetObservationData,
    DagsterEvent,
    DagsterEventType,
    JobCanceledData,
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
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.run_values import DatasetReport

SOURCE_TAG: Final = "gobblin/reported_by"


@dataclass(frozen=True, slots=True)
class ReportedEnd:
    """How a run ended, and when. ``error`` None: well; ``is_cancelled``: somebody stopped it."""

    error: str | None = None
    is_cancelled: bool = False
    begun_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None


class ReportedRun:
    """One run in Dagster: materializations and checks as they come, and how it ended.

    RetryableError where Dagster does not take an event.
    """

    def __init__(self, layout: JobLayout, instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
        self.layout = layout
        self._sources = SourceObservations(layout)
        self._instance = instance
        self._run = run
        self._made_at = dt.datetime.now(dt.UTC)

    @property
    def run_id(self) -> str:
        return self._run.run_id

    @property
    def is_over(self) -> bool:
        """Whether Dagster knows its end already."""
        return self._run.is_finished

    def report_publication(self, report: DatasetReport, *, done_at: dt.datetime | None = None) -> None:
        """One materialization for each role of a finished sequence, then its checks."""
        for role in self.layout.roles:
            event = build_role_materialization(self.layout, report, role)
            with telling(event.asset_key):
                self._send(
                    DagsterEventType.ASSET_MATERIALIZATION,
                    StepMaterializationData(event),
                    event.description,
                    at=done_at,
                )
        for seen in self._sources.observe(report):
            with telling(seen.asset_key):
                self._send(DagsterEventType.ASSET_OBSERVATION, AssetObservationData(seen), seen.description, at=done_at)
        self.report_checks(report)

    def report_superseded(self, report: DatasetReport, *, done_at: dt.datetime) -> None:
        """A publication older than one that Dagster knows: an observation, since the last materialization stays."""
        event = build_role_materialization(self.layout, report, Role.DATA)
        observation = dg.AssetObservation(
            asset_key=event.asset_key, partition=event.partition, description=event.description, metadata=event.metadata
        )
        with telling(event.asset_key):
            self._send(
                DagsterEventType.ASSET_OBSERVATION, AssetObservationData(observation), event.description, at=done_at
            )

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

    def close(self, end: ReportedEnd = ReportedEnd()) -> None:
        """Tell that the run is over."""
        begun_at, ended_at = end.begun_at or self._made_at, end.ended_at or dt.datetime.now(dt.UTC)
        with telling(next(iter(self.layout.specs.values())).key):
            duration_ms = (ended_at - begun_at).total_seconds() * 1_000
            self._send(DagsterEventType.RUN_START, None, "Started outside of Dagster.", at=begun_at)
            self._send(DagsterEventType.STEP_START, None, None, at=begun_at)
            if end.is_cancelled:
                info = SerializableErrorInfo(end.error or "It was stopped.", [], None)
                self._send(DagsterEventType.RUN_CANCELED, JobCanceledData(info), end.error, at=ended_at)
            elif end.error is None:
                success = StepSuccessData(duration_ms)  # type: ignore[no-untyped-call]  # Dagster leaves it untyped
                self._send(DagsterEventType.STEP_SUCCESS, success, None, at=ended_at)
                self._send(DagsterEventType.RUN_SUCCESS, None, None, at=ended_at)
            else:
                info = SerializableErrorInfo(end.error, [], None)
                failure = StepFailureData(info, None)  # type: ignore[no-untyped-call]  # the same
                self._send(DagsterEventType.STEP_FAILURE, failure, end.error, at=ended_at)
                data = JobFailureData(info, RunFailureReason.STEP_FAILURE, None)
                self._send(DagsterEventType.RUN_FAILURE, data, end.error, at=ended_at)

    def _send(self, kind: DagsterEventType, data: object, said: str | None, *, at: dt.datetime | None = None) -> None:
        of_step = kind.value.startswith(("STEP", "ASSET"))
        event = DagsterEvent(
            event_type_value=kind.value,
            job_name=self._run.job_name,
            step_key=self.layout.job.job if of_step else None,
            event_specific_data=data,  # type: ignore[arg-type]  # a union of all of Dagster's
            message=said,
        )
        at_s = None if at is None else at.timestamp()
        self._instance.report_dagster_event(event, self._run.run_id, timestamp=at_s)


def build_role_materialization(layout: JobLayout, report: DatasetReport, role: Role) -> dg.AssetMaterialization:
    """The event of one role of a finished sequence, with the URI of the layout where the log has none."""
    uri = report.uri if role is Role.DATA and report.uri else layout.uri_of(report.urn, role)
    return build_materialization(layout.get_key(report.urn, role), report, role, uri=uri)


def begin_apart(layout: JobLayout, instance: dg.DagsterInstance, *, by: str) -> ReportedRun:
    """A run of the recovery job that does nothing but tell."""
    definitions = dg.Definitions(jobs=[build_recovery_job(layout)], resources=stand_ins(layout))
    job = definitions.resolve_job_def(recovery_job_name(layout.job.job))
    with telling(next(iter(layout.specs.values())).key):
        run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.MANAGED, tags={SOURCE_TAG: by})
    return ReportedRun(layout, instance, run)


def report_blocked(layout: JobLayout, blocked: Sequence[SequenceRecord], instance: dg.DagsterInstance) -> None:
    """Fail the checks of publications that wait for a person, in a run of the recovery job that does nothing else.

    Events without a run are enough only for datasets without partitions: Dagster keeps one evaluation for each check,
    partition and run, and treats all events without a run as one run.
    """
    told = begin_apart(layout, instance, by=f"{layout.job.job}_recovery_sensor")
    for sequence in blocked:
        told.report_check(sequence.urn, sequence.partition or None, judge_blocked(sequence))
    told.close()


def report_checks(
    layout: JobLayout, reports: Sequence[DatasetReport], instance: dg.DagsterInstance, *, by: str
) -> None:
    """Report checks of different partitions in a run like that of ``report_blocked``."""
    told = begin_apart(layout, instance, by=by)
    for report in reports:
        told.report_checks(report)
    told.close()


def stand_ins(layout: JobLayout) -> dict[str, object]:
    """Resources under the job's keys: Dagster only checks that they exist, and executes none of them."""
    return {key: dg.ResourceDefinition.none_resource() for key in layout.resource_keys}
