"""Copies as commands run them, and as assets show them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from gobblin_assets.destinations.claims import work_root_of
from gobblin_assets.jobs.copy.copy_assets import (
    SIDES_AGREE,
    CopySets,
    as_assets,
    declare_copies,
    find_within_bound,
    judge_sides,
    plan_audit,
    show_copy,
)
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec
from gobblin_assets.jobs.copy.running import list_copy_datasets, open_copy_run
from gobblin_assets.jobs.copy.transfer.choice import SparkSessions
from gobblin_assets.jobs.programs import (
    FROM_ENVIRONMENT,
    DeclaredCheck,
    OnPublication,
    RunResources,
    Say,
    ShownAsset,
    WatchRules,
)
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.dry_run import PlannedSlice
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.job_rules import JobRules
from gobblin_assets.run.run_values import RunPorts
from gobblin_assets.run.stores import Stores


class CopyProgram:
    """``JobProgram`` of the kind ``distcp``."""

    def read_datasets(self, job: CopySpec) -> Mapping[DatasetUrn, CopyDatasetSpec]:
        return {urn: each.spec for urn, each in list_copy_datasets(job).items()}

    def rules_of(self, job: CopySpec) -> JobRules:
        return job

    def root_uri(self, job: CopySpec) -> str:
        return work_root_of(job.destination)

    def open_run(
        self,
        job: CopySpec,
        datasets: Mapping[DatasetUrn, CopyDatasetSpec],
        open_spark: Callable[[], SparkSessions],
        stores: Stores,
        say: Say,
        on_publication: OnPublication,
        resources: RunResources = FROM_ENVIRONMENT,
    ) -> AbstractContextManager[RunPorts]:
        """Spark starts only for a copy that goes to it. Copies need no connection."""
        del resources
        return open_copy_run(job, stores, say, on_publication, open_spark(), known=datasets)

    def source_of(self, job: CopySpec) -> None:
        """Both sides are named by their roots."""
        del job

    def roles_of(self, job: CopySpec) -> Sequence[Role]:
        del job
        return [Role.DATA]

    def find_discovered(self, job: CopySpec) -> None:
        """What finders find is read by ``declare_datasets``."""
        del job

    def declare_datasets(
        self, job: CopySpec, discovered: Sequence[str] | None, *, searches: bool
    ) -> Mapping[DatasetUrn, CopyDatasetSpec]:
        del discovered
        return declare_copies(job, searches=searches)

    def as_assets(
        self, job: CopySpec, datasets: Mapping[DatasetUrn, CopyDatasetSpec]
    ) -> Mapping[DatasetUrn, CopyDatasetSpec]:
        return as_assets(job, datasets)

    def may_lack_datasets(self, job: CopySpec) -> bool:
        return job.finder is not None

    def show(self, job: CopySpec, dataset: CopyDatasetSpec, role: Role) -> ShownAsset:
        del role
        return show_copy(job, dataset)

    def list_checks(self, job: CopySpec, dataset: CopyDatasetSpec) -> Sequence[DeclaredCheck]:
        del job, dataset
        return [SIDES_AGREE]

    def find_watch_rules(self, job: CopySpec) -> WatchRules:
        trigger = job.trigger
        return WatchRules(trigger.interval_s, trigger.running, finds_datasets=job.finder is not None)

    def look_at_sets(self, job: CopySpec) -> CopySets:
        return CopySets(job, find_within_bound(job))

    def plan_audit(self, job: CopySpec) -> CopySpec:
        return plan_audit(job)

    def judge_audit(self, name: str, planned: PlannedSlice) -> CheckResult:
        return judge_sides(name, planned)

    @property
    def repeats_runs(self) -> bool:
        """Both sides are listed anew each time."""
        return True

    def plan_stream(self, job: CopySpec) -> CopySpec:
        return job


PROGRAM: Final = CopyProgram()
