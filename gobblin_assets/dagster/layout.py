"""The layout of one job in Dagster: the asset of each dataset and role, its partitions and checks. Nothing connects."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from gobblin_assets.dagster.metadata import PUBLISHED_CHECK
from gobblin_assets.dagster.naming import (
    DatasetTranslation,
    GobblinTranslator,
    SourceTranslation,
    check_output_name_of,
    output_name_of,
    require_apart,
    require_distinct,
    translate,
    translate_source,
)
from gobblin_assets.dagster.partitions import build_partitions_def, list_keys
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.ingest.quality import DEAD_LETTER_CHECK, QUARANTINE_CHECK, may_have_dead_letters
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.lag_check import LAG_CHECK
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.partition_keys import asset_partition
from gobblin_assets.spec.source_kind import kind_of


@dataclass(frozen=True, slots=True)
class JobLayout:
    """``datasets`` holds the full specification of every dataset; ``specs`` one AssetSpec of each dataset and role.

    ``sources``: the upstream external asset of each dataset, if there is one.
    """

    job: JobSpec
    datasets: Mapping[DatasetUrn, DatasetSpec]
    partitions: Mapping[DatasetUrn, dg.PartitionsDefinition[str] | None]
    specs: Mapping[tuple[DatasetUrn, Role], dg.AssetSpec]
    sources: Mapping[DatasetUrn, dg.AssetSpec]

    @property
    def roles(self) -> Sequence[Role]:
        return list(dict.fromkeys((Role.DATA, *self.job.roles)))

    def get_key(self, urn: DatasetUrn, role: Role = Role.DATA) -> dg.AssetKey:
        return self.specs[urn, role].key

    def has_dataset(self, urn: DatasetUrn) -> bool:
        return urn in self.datasets

    def uri_of(self, urn: DatasetUrn, role: Role) -> str:
        return path_of(self.job.destination, JobName(self.job.job), urn, role)

    def plan_selection(
        self,
        keys: Collection[dg.AssetKey],
        wanted: dg.PartitionKeyRange | None,
        instance: dg.DagsterInstance,
    ) -> dict[DatasetUrn, tuple[AssetPartition, ...]]:
        """The dataset partitions that a run of these assets asks for, each one known to be its dataset's.

        A selected quarantine asset stands for its dataset: all roles are published together.
        RejectedError when the run's partitions are not every selected dataset's.
        """
        chosen = {urn for (urn, _role), spec in self.specs.items() if spec.key in keys}
        selection = {}
        for urn in sorted(chosen):
            spec = self.datasets[urn]
            found = list_keys(self.partitions[urn], wanted, spec=spec, instance=instance)
            selection[urn] = tuple(asset_partition(spec, key) for key in found)
        return selection

    def build_outs(self) -> dict[str, dg.Out]:
        """The op's outputs. None is required: what a run publishes is known only when it is published."""
        assets = {output_name_of(spec.key): dg.Out(dg.Nothing, is_required=False) for spec in self.specs.values()}
        return assets | {name: dg.Out(is_required=False) for name in self.build_checks()}

    def build_keys_by_output(self) -> dict[str, dg.AssetKey]:
        return {output_name_of(spec.key): spec.key for spec in self.specs.values()}

    def build_checks(self) -> dict[str, dg.AssetCheckSpec]:
        """The check specs by output name: the dataset's quality policies, and whether it gets published."""
        checks = {}
        may_fail_rows = kind_of(self.job.source).has_dead_letters
        for urn, dataset in self.datasets.items():
            key = self.get_key(urn)
            for name, blocking, description in _list_checks(dataset, may_fail_rows=may_fail_rows):
                checks[check_output_name_of(key, name)] = _build_check(
                    name, key, self.partitions[urn], blocking=blocking, description=description
                )
        return checks

    def group_by_partitions(self) -> list[tuple[dg.PartitionsDefinition[str] | None, list[DatasetUrn]]]:
        """The datasets of each distinct partitions definition, in the order of the job."""
        groups: list[tuple[dg.PartitionsDefinition[str] | None, list[DatasetUrn]]] = []
        for urn, partitions in self.partitions.items():
            for known, urns in groups:
                if known == partitions:
                    urns.append(urn)
                    break
            else:
                groups.append((partitions, [urn]))
        return groups


def build_layout(
    job: JobSpec,
    datasets: Mapping[DatasetUrn, DatasetSpec],
    translator: GobblinTranslator,
    *,
    database: str | None = None,
) -> JobLayout:
    """Ask the translator about every dataset, role and source.

    ``database``: of a JDBC connection, where it is known. RejectedError names the dataset and the field.
    """
    if not datasets:
        raise RejectedError(
            f"the job {job.job!r} has no datasets",
            field="datasets",
            hint="List some, or run `gobblin-assets discover` so that source.include finds tables.",
        )
    name = JobName(job.job)
    partitions = {urn: build_partitions_def(d.partitions, job=name, urn=urn) for urn, d in datasets.items()}
    kind = kind_of(job.source)
    sources: dict[DatasetUrn, dg.AssetSpec] = {}
    specs: dict[tuple[DatasetUrn, Role], dg.AssetSpec] = {}
    urns_by_key: dict[dg.AssetKey, list[DatasetUrn]] = {}
    for urn, dataset in datasets.items():
        source = translate_source(
            translator, SourceTranslation(job.source, dataset.table or urn, database or kind.shown_as or kind.noun)
        )
        if source is not None:
            sources[urn] = source
        for role in dict.fromkeys((Role.DATA, *job.roles)):
            spec = translate(translator, DatasetTranslation(job, urn, dataset, role))
            specs[urn, role] = spec.replace_attributes(
                partitions_def=partitions[urn],
                skippable=True,
                deps=[*spec.deps, *([] if source is None else [dg.AssetDep(source.key)])],
            )
            urns_by_key.setdefault(spec.key, []).append(urn)
    require_distinct(urns_by_key)
    require_apart((source.key for source in sources.values()), urns_by_key)
    return JobLayout(job, datasets, partitions, specs, sources)


def _list_checks(dataset: DatasetSpec, *, may_fail_rows: bool) -> list[tuple[str, bool, str]]:
    policies, fraction_max = dataset.quality.rows, dataset.quality.quarantine_fraction_max
    # Not the optional ones: what they found stands in the rows, and nothing counts it.
    rows = [(p.name, p.on_failure == "fail", f"Every row: {p.check}") for p in policies if p.on_failure != "optional"]
    if any(policy.on_failure == "err_file" for policy in policies):
        rows.append((QUARANTINE_CHECK, True, f"Share of the rows that are set aside: at most {fraction_max:.4g}"))
    if may_have_dead_letters(dataset, may_fail_rows=may_fail_rows):
        limit = dataset.quality.dead_letter_fraction_max
        rows.append((DEAD_LETTER_CHECK, True, f"Share of the records that are dead letters: at most {limit:.4g}"))
    if dataset.quality.lag_max is not None:
        rows.append((LAG_CHECK, False, f"Offsets that are not published: at most {dataset.quality.lag_max:,}"))
    tasks = [(p.name, p.blocking, f"{p.kind} of each published partition") for p in dataset.quality.tasks]
    published = (PUBLISHED_CHECK, False, "The requested publication is complete; no publication waits for a person.")
    checks = [*rows, *tasks, published]
    if len({name for name, _, _ in checks}) < len(checks):
        raise RejectedError(
            "two quality policies share a name, or one is called "
            f"{PUBLISHED_CHECK}, {QUARANTINE_CHECK}, {DEAD_LETTER_CHECK} or {LAG_CHECK}",
            field=f"datasets[{dataset.urn}].quality",
            hint="Each becomes an asset check: give them names that differ.",
        )
    return checks


def _build_check(
    name: str, key: dg.AssetKey, partitions: dg.PartitionsDefinition[str] | None, *, blocking: bool, description: str
) -> dg.AssetCheckSpec:
    with warnings.catch_warnings():
        # Partitions of checks are a preview in Dagster; without them, a good month would hide a bad one.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.AssetCheckSpec(name, asset=key, description=description, blocking=blocking, partitions_def=partitions)
