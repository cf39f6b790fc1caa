"""Turns the options that a person wrote into a JobSpec and its datasets, or into one RejectedError with the fix.

All of it is pure: nothing connects, and no file is read.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pydantic import ValidationError

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.network_files import StagingFiles
from gobblin_assets.fs.objects import HoldsObjects
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.urn import DatasetUrn, Role, parse_job_name, parse_urn
from gobblin_assets.spec.dataset_rules import check_dataset, check_distinct_urns
from gobblin_assets.spec.job_kinds import read_options
from gobblin_assets.spec.job_options import DatasetOptions, JobOptions
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import check_new_data, check_packing, check_words, kind_of
from gobblin_assets.spec.spec_errors import into_of, refuse

# A URL never matches, so a password can't be given in place of a name.
_CONNECTION: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")

_NOT_FOR_DEFAULTS: Final = ("urn", "table")


def parse_any_job(data: Mapping[str, object] | JobOptions) -> JobOptions:
    """Validate a job's options, alone and together. RejectedError names the field, such as ``datasets[0].urn``."""
    spec = data if isinstance(data, JobOptions) else read_options(data)
    if isinstance(spec, JobSpec):
        _check_job(spec)
        for number, dataset in enumerate(_explicit_datasets(spec)):
            _check(spec, dataset, f"datasets[{number}]")
    return spec


def parse_job(data: Mapping[str, object] | JobOptions) -> JobSpec:
    """``parse_any_job`` for what only jobs that read rows can do. RejectedError for a job of another kind."""
    spec = parse_any_job(data)
    if not isinstance(spec, JobSpec):
        raise RejectedError(
            f"expected a job that reads rows (ingest), found one of the kind {spec.kind!r}",
            field="kind",
            hint=f"This is not for jobs of the kind {spec.kind}: `gobblin-assets run` and `stream` run them; in Python "
            "`load_job` reads them, and `run_job` runs them.",
        )
    return spec


def read_ingestion(options: Mapping[str, object]) -> JobSpec:
    """The specification of a job of the kind ``ingest``. What its options promise together is checked later."""
    try:
        return JobSpec.model_validate(options)
    except ValidationError as error:
        # Without its cause: pydantic's own text repeats what was found, secrets included.
        raise refuse(error, JobSpec) from None


def resolve_datasets(spec: JobSpec, discovered: Sequence[str] | None) -> Mapping[DatasetUrn, DatasetSpec]:
    """Every dataset of the job by URN, the job's defaults applied, ``urn`` and ``table`` filled in.

    ``discovered`` are the tables that discovery selected by the source's patterns; None where it has no patterns.
    A table that some dataset names (by ``table``, else by ``urn``) belongs to that dataset; each other becomes a
    dataset of its own, named after it. Order: as written, then as discovered.

    Fields that a dataset sets win over the defaults. A group of options (``watermark``, ``writer``, …) is
    replaced whole: what it leaves out is not taken from the same group of the defaults.
    """
    if discovered is None and spec.source.include:
        raise RejectedError(
            "the source's patterns choose the tables, and they have not been discovered",
            field="source.include",
            hint="Run gobblin-assets discover, which asks the source once and writes down what it found.",
        )
    explicit = _explicit_datasets(spec)
    taken = {dataset.table for dataset in explicit}
    found = [
        spec.defaults.model_copy(update={"urn": parse_urn(table), **_at_source(spec, table)})
        for table in discovered or ()
        if table not in taken
    ]
    check_distinct_urns(
        [(f"datasets[{number}]", str(dataset.urn)) for number, dataset in enumerate(explicit)]
        + [(f"discovered table {dataset.table!a}", str(dataset.urn)) for dataset in found]
    )
    for dataset in found:
        _check(spec, dataset, f"defaults (for {dataset.table!a})")
    return MappingProxyType({DatasetUrn(str(dataset.urn)): dataset for dataset in (*explicit, *found)})


def find_datasets(job: str, datasets: Mapping[DatasetUrn, DatasetOptions], urns: Sequence[str]) -> list[DatasetUrn]:
    """The named datasets, each once; all datasets if none is named. RejectedError for one that is not the job's."""
    for urn in urns:
        if DatasetUrn(urn) not in datasets:
            has = ", ".join(datasets) or "none"
            raise RejectedError(f"the job {job} has no dataset {urn!r}", field="datasets", hint=f"It has: {has}.")
    return [DatasetUrn(urn) for urn in dict.fromkeys(urns)] or list(datasets)


def _explicit_datasets(spec: JobSpec) -> list[DatasetSpec]:
    """The written datasets with defaults, URN and table. RejectedError for a missing or repeated name."""
    datasets = []
    kind = kind_of(spec.source)
    for number, written in enumerate(spec.datasets):
        where = f"datasets[{number}]"
        check_words(written, where, kind)
        at_source = getattr(written, kind.noun, None)
        urn = written.urn if written.urn is not None else at_source
        if urn is None:
            hint = "Write it." if kind.connection is None else f"Write urn, {kind.noun}, or both."
            raise RejectedError("expected a name, found none", field=f"{where}.urn", hint=hint)
        try:
            parse_urn(urn)
        except RejectedError as error:
            raise RejectedError(error.message.removeprefix("urn: "), field=f"{where}.urn", hint=error.hint) from error
        own = {name: getattr(written, name) for name in written.model_fields_set}
        table = at_source if at_source is not None else urn
        datasets.append(spec.defaults.model_copy(update={**own, "urn": urn, **_at_source(spec, table)}))
    check_distinct_urns([(f"datasets[{number}]", str(each.urn)) for number, each in enumerate(datasets)])
    return datasets


def _at_source(spec: JobSpec, name: str) -> dict[str, str]:
    """The dataset's name at the source, by the word of every kind, and by that of its own."""
    kind = kind_of(spec.source)
    has_own = kind.dataset_options is not None and kind.noun in kind.dataset_options.model_fields
    return {"table": name, kind.noun: name} if has_own else {"table": name}


def _check(spec: JobSpec, dataset: DatasetSpec, where: str) -> None:
    kind = kind_of(spec.source)
    kind.check_dataset(dataset, where)
    check_dataset(dataset, where, has_own_positions=kind.has_own_positions)
    if dataset.into is not None:
        if spec.rows_into is None:
            raise RejectedError(
                "says what differs from the job's `into`, and the job has none",
                field=f"{where}.into",
                hint="Write `into: {type: postgres, connection: NAME}` beside `source`.",
            )
        into_of(spec.rows_into, dataset.into, f"{where}.into")


def _check_job(spec: JobSpec) -> None:
    parse_job_name(spec.job)
    if not _CONNECTION.fullmatch(spec.source.connection):
        raise RejectedError(
            "expected the name of a connection resource: letters, digits, dots, dashes and underscores",
            field="source.connection",
            hint="Configure the connection as a resource, its password by an environment variable, and name it here.",
        )
    fs, _root = open_file_system(spec.destination, umask=spec.umask)
    if spec.compaction is not None and isinstance(fs, HoldsObjects | StagingFiles):
        raise RejectedError(
            f"files are compacted where whole directories are renamed, found the scheme {fs.scheme!r}",
            field="compaction",
            hint="Leave it out. Fewer, larger files come from fewer publications, or larger `split.work_unit_rows`.",
        )
    if spec.into is not None and spec.sink.into is not None:
        raise RejectedError("is said twice", field="sink.into", hint="Leave it out: `into` beside `source` says it.")
    kind = kind_of(spec.source)
    check_words(spec.defaults, "defaults", kind)
    if not spec.datasets and not spec.source.include:
        raise RejectedError(
            "expected at least one dataset, found none",
            field="datasets",
            hint="List datasets, or choose tables by source.include.",
        )
    if spec.source.exclude and not spec.source.include:
        raise RejectedError(
            "exclude takes tables out of what include chose, found no include",
            field="source.exclude",
            hint="Add source.include, such as public.*, or take exclude out.",
        )
    for name in dict.fromkeys((*_NOT_FOR_DEFAULTS, kind.noun)):
        if getattr(spec.defaults, name, None) is not None:
            raise RejectedError("belongs to one dataset", field=f"defaults.{name}", hint="Take it out of the defaults.")
    if len(set(spec.roles)) != len(spec.roles) or Role.DATA not in spec.roles:
        raise RejectedError(
            f"expected data and, each once, other roles; found {', '.join(spec.roles) or 'none'}",
            field="roles",
            hint="Write roles: [data], or [data, quarantine].",
        )
    check_packing(spec)
    check_new_data(spec)
    kind.check_job(spec)
    if spec.retry.back_off_max_s < spec.retry.back_off_s:
        raise RejectedError(
            f"expected at least back_off_s, {spec.retry.back_off_s}; found {spec.retry.back_off_max_s}",
            field="retry.back_off_max_s",
            hint="Raise it, or lower back_off_s.",
        )
