"""Ingested datasets as assets: their descriptions, where they lie, and the checks of their quality policies."""

from collections.abc import Iterator

from gobblin_assets.jobs.asset_view import DeclaredCheck, ShownAsset, ShownTable
from gobblin_assets.jobs.ingest.quality import may_have_dead_letters
from gobblin_assets.jobs.sink.sink_rules import has_sink
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.quality_checks import DEAD_LETTER_CHECK, LAG_CHECK, QUARANTINE_CHECK
from gobblin_assets.sources.source_port import find_asked_of_spark
from gobblin_assets.spec.destination_kind import kind_of_rows
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import kind_of
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
    """What is so whichever way a run takes: Spark, only where nothing else could make the rows."""
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
