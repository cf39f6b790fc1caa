"""Ingestion as commands run it, and as assets show it: descriptions, places, and the checks of quality policies."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from gobblin_assets.errors import CorruptionError
from gobblin_assets.jobs.ingest.engine_port import Engine
from gobblin_assets.jobs.ingest.quality import may_have_dead_letters
from gobblin_assets.jobs.ingest.running import find_discovered, open_run, plan_stream_job, read_job_datasets
from gobblin_assets.jobs.programs import (
    FROM_ENVIRONMENT,
    DeclaredCheck,
    FileSets,
    OnPublication,
    RunResources,
    Say,
    ShownAsset,
    ShownTable,
)
from gobblin_assets.jobs.sink.sink_checks import declare_sink_checks
from gobblin_assets.jobs.sink.sink_rules import has_sink
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.dry_run import PlannedSlice
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.job_rules import JobRules
from gobblin_assets.run.quality_checks import DEAD_LETTER_CHECK, LAG_CHECK, QUARANTINE_CHECK
from gobblin_assets.run.run_values import RunPorts
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.source_port import find_asked_of_spark
from gobblin_assets.spec.destination_kind import kind_of_rows
from gobblin_assets.spec.job_parsing import resolve_datasets
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import kind_of
from gobblin_assets.spec.source_spec import SourceSpec
from gobblin_assets.spec.spec_errors import into_of


def show_dataset(job: JobSpec, dataset: DatasetSpec, role: Role) -> ShownAsset:
    """One role of a resolved dataset."""
    urn = DatasetUrn(str(dataset.urn))
    return ShownAsset(
        description=_describe(job, dataset, role),
        uri=path_of(job.destination, JobName(job.job), urn, role),
        kinds=frozenset(_list_kinds(job, dataset, role)),
        metadata={"gobblin/extract": dataset.extract.value},
        source_name=dataset.table or urn,
        table=_find_table(job, dataset, role),
    )


def _list_kinds(job: JobSpec, dataset: DatasetSpec, role: Role) -> Iterator[str]:
    """The kinds that hold whichever way a run takes: Spark, only where nothing else could make the rows."""
    late = dataset.watermark is not None and dataset.watermark.late_window > 0
    if find_asked_of_spark(dataset, rereads=late) or (kind_of(job.source).demands_spark(job) and not has_sink(job)):
        yield "spark"
    into = job.rows_into if role is Role.DATA else None
    if into is not None:
        yield into.type
    else:
        yield job.sink.format if has_sink(job) else "parquet"


def _find_table(job: JobSpec, dataset: DatasetSpec, role: Role) -> ShownTable | None:
    into, urn = job.rows_into, DatasetUrn(str(dataset.urn))
    if into is None or role is not Role.DATA or (name := kind_of_rows(into).names_table) is None:
        return None
    return ShownTable(name(urn, into_of(into, dataset.into, f"datasets[{urn}].into")), into.type)


def list_quality_checks(dataset: DatasetSpec, *, may_fail_rows: bool) -> Iterator[DeclaredCheck]:
    """One for each policy that counts something, and for each limit of what is set aside."""
    policies, fraction_max = dataset.quality.rows, dataset.quality.quarantine_fraction_max
    for policy in policies:
        # Those that do not pass an optional policy are published, so that it only warns.
        yield DeclaredCheck(policy.name, f"Every row: {policy.check}", policy.on_failure == "fail")
    if any(policy.on_failure == "err_file" for policy in policies):
        said = f"Share of the rows that are set aside: at most {fraction_max:.4g}"
        yield DeclaredCheck(QUARANTINE_CHECK, said, blocking=True)
    if may_have_dead_letters(dataset, may_fail_rows=may_fail_rows):
        limit = dataset.quality.dead_letter_fraction_max
        said = f"Share of the records that are dead letters: at most {limit:.4g}"
        yield DeclaredCheck(DEAD_LETTER_CHECK, said, blocking=True)
    if dataset.quality.lag_max is not None:
        yield DeclaredCheck(LAG_CHECK, f"Offsets that are not published: at most {dataset.quality.lag_max:,}")
    for task in dataset.quality.tasks:
        yield DeclaredCheck(task.name, f"{task.kind} of each published partition", task.blocking)


def _describe(job: JobSpec, dataset: DatasetSpec, role: Role) -> str:
    table, kind = dataset.table or dataset.urn, kind_of(job.source)
    match role:
        case Role.DATA if kind.connection is None:
            return f"The rows of a {kind.noun}. {kind.instead}"
        case Role.DATA:
            return f"The {kind.noun} {table} of the connection {job.source.connection}."
        case Role.QUARANTINE:
            return f"Rows of {table} that a quality policy set aside."
        case Role.DEAD_LETTER:
            return f"Records of {table} that could not be read."


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
        on_publication: OnPublication,
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
