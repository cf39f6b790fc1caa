"""Ingested datasets as assets: their descriptions, where they lie, and the checks of their quality policies."""

from collections.abc import Iterator
from typing import Final

from gobblin_assets.jobs.asset_view import DeclaredCheck, ShownAsset
from gobblin_assets.jobs.ingest.quality import may_have_dead_letters
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.dead_letter_check import DEAD_LETTER_CHECK
from gobblin_assets.run.lag_check import LAG_CHECK
from gobblin_assets.run.quarantine_check import QUARANTINE_CHECK
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import kind_of

KINDS: Final = frozenset({"spark", "parquet"})


def show_dataset(job: JobSpec, dataset: DatasetSpec, role: Role) -> ShownAsset:
    """One role of a resolved dataset."""
    urn = DatasetUrn(str(dataset.urn))
    return ShownAsset(
        description=_describe(job, dataset, role),
        uri=path_of(job.destination, JobName(job.job), urn, role),
        kinds=KINDS,
        metadata={"gobblin/extract": dataset.extract.value},
        source_name=dataset.table or urn,
    )


def list_quality_checks(dataset: DatasetSpec, *, may_fail_rows: bool) -> Iterator[DeclaredCheck]:
    """One for each policy that counts something, and for each limit of what is set aside."""
    policies, fraction_max = dataset.quality.rows, dataset.quality.quarantine_fraction_max
    # Not the optional ones: what they found stands in the rows, and nothing counts it.
    for policy in policies:
        if policy.on_failure != "optional":
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
