"""Runs in Dagster for what Dagster did not start: under the name of the job that Dagster would launch for it.

Such a run is MANAGED until its end is reported (Dagster's word for external runs): it takes none of the slots for
concurrent runs, and Dagster does not monitor it. With its end, Dagster gets its start; both have the log's times.
"""

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
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
from gobblin_assets.dagster.instances import find_latest, reporting
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.maintenance_jobs import build_recovery_job
from gobblin_assets.dagster.metadata import (
    build_evaluation,
    build_evaluations,
)
from gobblin_assets.dagster.partitions import PARTITION_TAG, RANGE_END_TAG, RANGE_START_TAG
from gobblin_assets.dagster.published_checks import judge_blocked
from gobblin_assets.dagster.source_observing import SourceObservations
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.run_values import DatasetReport

SOURCE_TAG: Final = "gobblin/reported_by"

MODE_SHOWN_TAG: Final = "gobblin/asked_mode"

AskedPartitions = tuple[str, str, int]
"""The first and the last key of what was asked for, and how many."""


@dataclass(frozen=True, slots=True)
class ReportedEnd:
    """The end of a run: its error, None for a good one, and its times. ``is_cancelled``: somebody stopped it."""

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
            event = self.layout.build_materialization(report, role)
            with reporting(event.asset_key):
                self._send(
                    DagsterEventType.ASSET_MATERIALIZATION,
                    StepMaterializationData(event),
                    event.description,
                    at=done_at,
                )
        for seen in self._sources.observe(report):
            with reporting(seen.asset_key):
                self._send(DagsterEventType.ASSET_OBSERVATION, AssetObservationData(seen), seen.description, at=done_at)
        self.report_checks(report)

    def report_superseded(self, report: DatasetReport, *, done_at: dt.datetime) -> None:
        """A publication older than one that Dagster knows: an observation, since the last materialization stays."""
        event = self.layout.build_materialization(report, Role.DATA)
        observation = dg.AssetObservation(
            asset_key=event.asset_key, partition=event.partition, description=event.description, metadata=event.metadata
        )
        with reporting(event.asset_key):
            self._send(
                DagsterEventType.ASSET_OBSERVATION, AssetObservationData(observation), event.description, at=done_at
            )

    def report_checks(self, report: DatasetReport) -> None:
        """Report the results of one partition: of its policies, and whether it was published."""
        key = self.layout.get_key(report.urn)
        with reporting(key):
            latest = find_latest(self._instance, key, report.partition.key)
            for evaluation in build_evaluations(key, report, latest):
                self._send(DagsterEventType.ASSET_CHECK_EVALUATION, evaluation, evaluation.description)

    def report_check(self, urn: DatasetUrn, partition: str | None, check: CheckResult) -> None:
        """Report one result of one partition."""
        key = self.layout.get_key(urn)
        with reporting(key):
            target = find_latest(self._instance, key, partition)
            evaluation = build_evaluation(key, check, partition=partition, target=target)
            self._send(DagsterEventType.ASSET_CHECK_EVALUATION, evaluation, evaluation.description)

    def close(self, end: ReportedEnd = ReportedEnd()) -> None:
        """Report that the run is over."""
        begun_at, ended_at = end.begun_at or self._made_at, end.ended_at or dt.datetime.now(dt.UTC)
        with reporting(next(iter(self.layout.specs.values())).key):
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


def begin_apart(
    layout: JobLayout, instance: dg.DagsterInstance, *, by: str, recovery: dg.JobDefinition | None = None
) -> ReportedRun:
    """A run that only reports, of the recovery job; ``recovery`` None: of the job's own."""
    of = build_recovery_job(layout) if recovery is None else recovery
    definitions = dg.Definitions(jobs=[of], resources=stand_ins(layout))
    job = definitions.resolve_job_def(of.name)
    with reporting(next(iter(layout.specs.values())).key):
        run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.MANAGED, tags={SOURCE_TAG: by})
    return ReportedRun(layout, instance, run)


def report_blocked(
    layout: JobLayout,
    blocked: Sequence[SequenceRecord],
    instance: dg.DagsterInstance,
    *,
    recovery: dg.JobDefinition | None = None,
) -> None:
    """Fail the checks of publications that wait for a person, in a run of the recovery job that does nothing else.

    Events without a run are enough only for datasets without partitions: Dagster keeps one evaluation for each check,
    partition and run, and treats all events without a run as one run.
    """
    run = begin_apart(layout, instance, by=f"{layout.job.job}_recovery_sensor", recovery=recovery)
    for sequence in blocked:
        run.report_check(sequence.urn, sequence.partition or None, judge_blocked(sequence))
    run.close()


def report_checks(
    layout: JobLayout, reports: Sequence[DatasetReport], instance: dg.DagsterInstance, *, by: str
) -> None:
    """Report checks of different partitions in a run like that of ``report_blocked``."""
    run = begin_apart(layout, instance, by=by)
    for report in reports:
        run.report_checks(report)
    run.close()


def stand_ins(layout: JobLayout) -> dict[str, object]:
    """Resources under the job's keys: Dagster only checks that they exist, and executes none of them."""
    return {key: dg.ResourceDefinition.none_resource() for key in layout.resource_keys}


class ReportedJob:
    """A job for reports, with what Dagster has of it. That is resolved once, for the first run.

    ``jobs``: in the order of the layout's groups of partitions; None for a job whose assets have no jobs of their own.
    ``recovery``: the job that runs without assets are shown under; None: the job's own.
    """

    def __init__(
        self,
        layout: JobLayout,
        assets: dg.AssetsDefinition | None,
        jobs: Sequence[UnresolvedAssetJobDefinition] | None,
        recovery: dg.JobDefinition | None = None,
    ) -> None:
        self.layout = layout
        self.recovery = recovery
        self._assets = assets
        self._jobs = jobs

    @cached_property
    def _definitions(self) -> dg.Definitions:
        assets = [] if self._assets is None else [self._assets]
        return dg.Definitions(assets=assets, jobs=list(self._jobs or ()), resources=stand_ins(self.layout))

    def begin(
        self,
        instance: dg.DagsterInstance,
        urns: Collection[DatasetUrn],
        partitions: AskedPartitions | None,
        *,
        by: str,
        mode: str | None = None,
        run_id: str | None = None,
    ) -> ReportedRun:
        """Make the run of these datasets, under the name of the job that Dagster would launch for it.

        ``run_id``: of a run that may have been made before. RetryableError where the instance can't be asked.
        """
        layout = self.layout
        keys = {layout.get_key(urn, role) for urn in urns for role in layout.roles}
        with reporting(next(iter(keys))):
            found = None if run_id is None else instance.get_run_by_id(run_id)
            if found is None:
                name = self._find_name(urns)
                definitions = self._definitions
                job = (
                    definitions.resolve_implicit_global_asset_job_def()
                    if name is None
                    else definitions.resolve_job_def(name)
                ).get_subset(asset_selection=keys)
                tags = {SOURCE_TAG: by, **({} if mode is None else {MODE_SHOWN_TAG: mode})}
                found = instance.create_run_for_job(
                    job,
                    run_id=run_id,
                    status=dg.DagsterRunStatus.MANAGED,
                    tags={**tags, **_partition_tags(layout, urns, partitions)},
                    asset_selection=keys,
                )
        return ReportedRun(layout, instance, found)

    def _find_name(self, urns: Collection[DatasetUrn]) -> str | None:
        """The name of the Dagster job; None if datasets of several jobs are selected, or there are no jobs."""
        if self._jobs is None:
            return None
        for job, (_partitions, of_job) in zip(self._jobs, self.layout.group_by_partitions(), strict=True):
            if set(urns) <= set(of_job):
                return job.name
        return None


def _partition_tags(
    layout: JobLayout, urns: Iterable[DatasetUrn], partitions: AskedPartitions | None
) -> Mapping[str, str]:
    """The partition tags of a Dagster run; none if it is not the same range of all of its datasets."""
    if partitions is None:
        return {}
    first, last, count = partitions
    if count == 1:
        return {PARTITION_TAG: first}
    for urn in urns:
        windows = layout.partitions[urn]
        if not isinstance(windows, dg.TimeWindowPartitionsDefinition):
            return {}
        if len(windows.get_partition_keys_in_range(dg.PartitionKeyRange(first, last))) != count:
            return {}
    return {RANGE_START_TAG: first, RANGE_END_TAG: last}
