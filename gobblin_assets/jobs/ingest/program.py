"""Ingestion as commands run it, and as assets show it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from gobblin_assets.errors import CorruptionError
from gobblin_assets.jobs.asset_view import DeclaredCheck, ShownAsset
from gobblin_assets.jobs.file_sets import FileSets
from gobblin_assets.jobs.ingest.engine_port import Engine
from gobblin_assets.jobs.ingest.running import find_discovered, open_run, read_job_datasets
from gobblin_assets.jobs.ingest.shown_datasets import list_quality_checks, show_dataset
from gobblin_assets.jobs.ingest.stream_job import plan_stream_job
from gobblin_assets.jobs.programs import FROM_ENVIRONMENT, RunResources, Say, Tell
from gobblin_assets.jobs.sink.sink_checks import declare_sink_checks
from gobblin_assets.jobs.sink.sink_rules import has_sink
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.dry_run import PlannedSlice
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.job_rules import JobRules
from gobblin_assets.run.run_values import RunPorts
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_parsing import resolve_datasets
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import kind_of
from gobblin_assets.spec.source_spec import SourceSpec


class IngestProgram:
    """``JobProgram`` of the kind ``ingest``."""

    def read_datasets(self, job: JobSpec) -> Mapping[DatasetUrn, DatasetSpec]:
        return read_job_datasets(job)

    def rules_of(self, job: JobSpec) -> JobRules:
        return job

    def root_uri(self, job: JobSpec) -> str:
        return job.destination

    def open_run(
        self,
        job: JobSpec,
        datasets: Mapping[DatasetUrn, DatasetSpec],
        open_spark: Callable[[], Engine],
        stores: Stores,
        say: Say,
        on_publication: Tell,
        resources: RunResources = FROM_ENVIRONMENT,
    ) -> AbstractContextManager[RunPorts]:
        return open_run(
            *(job, datasets, open_spark(), stores, say, on_publication),
            open_files=resources.open_file_system,
            connection=resources.connection,
        )

    def source_of(self, job: JobSpec) -> SourceSpec | None:
        return None if kind_of(job.source).connection is None else job.source

    def roles_of(self, job: JobSpec) -> Sequence[Role]:
        return list(dict.fromkeys((Role.DATA, *job.roles)))

    def find_discovered(self, job: JobSpec) -> Sequence[str] | None:
        return find_discovered(job)

    def declare_datasets(
        self, job: JobSpec, discovered: Sequence[str] | None, *, searches: bool
    ) -> Mapping[DatasetUrn, DatasetSpec]:
        """Nothing connects: patterns choose from what was discovered before."""
        del searches
        return resolve_datasets(job, discovered)

    def as_assets(self, job: JobSpec, datasets: Mapping[DatasetUrn, DatasetSpec]) -> Mapping[DatasetUrn, DatasetSpec]:
        del job
        return datasets

    def may_lack_datasets(self, job: JobSpec) -> bool:
        del job
        return False

    def show(self, job: JobSpec, dataset: DatasetSpec, role: Role) -> ShownAsset:
        return show_dataset(job, dataset, role)

    def list_checks(self, job: JobSpec, dataset: DatasetSpec) -> Sequence[DeclaredCheck]:
        checks = list_quality_checks(dataset, may_fail_rows=kind_of(job.source).has_dead_letters)
        if not has_sink(job):
            return list(checks)
        # Workers of a sink publish such rows as well, and count none.
        optional = {policy.name for policy in dataset.quality.rows if policy.on_failure == "optional"}
        return [*(each for each in checks if each.name not in optional), *declare_sink_checks(job)]

    def find_watch_rules(self, job: JobSpec) -> None:
        """What is new in logs, their connections say."""
        del job

    def look_at_sets(self, job: JobSpec) -> FileSets:
        raise CorruptionError(f"{job.job} has no file sets")

    def plan_audit(self, job: JobSpec) -> JobSpec:
        return job

    def judge_audit(self, name: str, planned: PlannedSlice) -> CheckResult:
        raise CorruptionError(f"{planned.urn}: {name} is no audit, and no check of an ingestion is one")

    @property
    def repeats_runs(self) -> bool:
        """A topic is followed under leases that are kept."""
        return False

    def plan_stream(self, job: JobSpec) -> JobSpec:
        return plan_stream_job(job)


PROGRAM: Final = IngestProgram()
