"""The layout of one job in Dagster: the asset of each dataset and role, its partitions and checks. Nothing connects."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import dagster as dg

from gobblin_assets.dagster.metadata import PUBLISHED_CHECK, build_materialization
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
    translate_source_tree,
)
from gobblin_assets.dagster.partitions import build_partitions_def, list_keys
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY, connection_key
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.programs import DeclaredCheck, JobProgram, ShownAsset, program_of
from gobblin_assets.jobs.sink.sink_checks import LANES_CHECK, SINK_LAG_CHECK
from gobblin_assets.jobs.sink.sink_rules import is_one_stream
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.quality_checks import DEAD_LETTER_CHECK, LAG_CHECK, QUARANTINE_CHECK
from gobblin_assets.run.run_values import DatasetReport
from gobblin_assets.spec.job_options import DatasetOptions, JobOptions
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.partition_keys import asset_partition
from gobblin_assets.spec.source_kind import kind_of
from gobblin_assets.spec.source_spec import SourceSpec

_PUBLISHED: Final = DeclaredCheck(
    PUBLISHED_CHECK, "The requested publication is complete; no publication waits for a person."
)


@dataclass(frozen=True, slots=True)
class JobLayout:
    """The assets of a job. ``datasets``: their full specifications; ``specs``: the AssetSpec of each dataset and role.

    ``sources``: the upstream external asset of each dataset, if there is one. ``shown``: by dataset and role, as
    ``specs``.
    """

    job: JobOptions
    datasets: Mapping[DatasetUrn, DatasetOptions]
    partitions: Mapping[DatasetUrn, dg.PartitionsDefinition[str] | None]
    specs: Mapping[tuple[DatasetUrn, Role], dg.AssetSpec]
    sources: Mapping[DatasetUrn, dg.AssetSpec]
    shown: Mapping[tuple[DatasetUrn, Role], ShownAsset]

    @property
    def program(self) -> JobProgram:
        return program_of(self.job)

    @property
    def roles(self) -> Sequence[Role]:
        return self.program.roles_of(self.job)

    @property
    def source(self) -> SourceSpec | None:
        """What the job reads over a connection, if it does."""
        return self.program.source_of(self.job)

    @property
    def resource_keys(self) -> set[str]:
        """The keys of the resources that a run of the job's assets needs."""
        shared = {STORES_KEY, FILE_SYSTEMS_KEY, SPARK_KEY}
        return shared if self.source is None else {*shared, connection_key(self.source)}

    @property
    def is_one_stream(self) -> bool:
        """Whether the datasets are change logs, which only workers of a sink follow."""
        return isinstance(self.job, JobSpec) and is_one_stream(self.job)

    def get_key(self, urn: DatasetUrn, role: Role = Role.DATA) -> dg.AssetKey:
        return self.specs[urn, role].key

    def has_dataset(self, urn: DatasetUrn) -> bool:
        return urn in self.datasets

    def uri_of(self, urn: DatasetUrn, role: Role) -> str:
        return self.shown[urn, role].uri

    def shown_data(self, urn: DatasetUrn) -> ShownAsset:
        return self.shown[urn, Role.DATA]

    def build_materialization(self, report: DatasetReport, role: Role) -> dg.AssetMaterialization:
        """The event of one role of a finished sequence, with the URI of the layout where the log has none."""
        uri = report.uri if role is Role.DATA and report.uri else self.uri_of(report.urn, role)
        return build_materialization(self.get_key(report.urn, role), report, role, uri=uri)

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
        for urn in self.datasets:
            key = self.get_key(urn)
            for check in self.list_checks(urn):
                checks[check_output_name_of(key, check.name)] = _build_check(
                    check, key, None if check.of_sink else self.partitions[urn]
                )
        return checks

    def list_checks(self, urn: DatasetUrn) -> list[DeclaredCheck]:
        """The checks of a dataset; RejectedError for two of one name."""
        dataset = self.datasets[urn]
        checks = [*self.program.list_checks(self.job, dataset), _PUBLISHED]
        if len({check.name for check in checks}) < len(checks):
            raise RejectedError(
                "two quality policies share a name, or one is called "
                f"{PUBLISHED_CHECK}, {QUARANTINE_CHECK}, {DEAD_LETTER_CHECK}, {LAG_CHECK}, {LANES_CHECK} or "
                f"{SINK_LAG_CHECK}",
                field=f"datasets[{dataset.urn}].quality",
                hint="Each becomes an asset check: give them names that differ.",
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
    job: JobOptions,
    datasets: Mapping[DatasetUrn, DatasetOptions],
    translator: GobblinTranslator,
    *,
    database: str | None = None,
) -> JobLayout:
    """Ask the translator about every dataset, role and source.

    ``database``: of a JDBC connection, where it is known. RejectedError names the dataset and the field.
    """
    if not datasets and not program_of(job).may_lack_datasets(job):
        raise RejectedError(
            f"the job {job.job!r} has no datasets",
            field="datasets",
            hint="List some, or run `gobblin-assets discover` so that source.include finds tables.",
        )
    name = JobName(job.job)
    partitions = {urn: build_partitions_def(d.partitions, job=name, urn=urn) for urn, d in datasets.items()}
    program = program_of(job)
    roles, read = program.roles_of(job), program.source_of(job)
    sources: dict[DatasetUrn, dg.AssetSpec] = {}
    shown: dict[tuple[DatasetUrn, Role], ShownAsset] = {}
    specs: dict[tuple[DatasetUrn, Role], dg.AssetSpec] = {}
    urns_by_key: dict[dg.AssetKey, list[DatasetUrn]] = {}
    for urn, dataset in datasets.items():
        shown |= {(urn, role): program.show(job, dataset, role) for role in roles}
        source = _find_source(read, shown[urn, Role.DATA], translator, database)
        if source is not None:
            sources[urn] = source
        for role in roles:
            spec = translate(translator, DatasetTranslation(job, urn, dataset, role, shown[urn, role]))
            specs[urn, role] = spec.replace_attributes(
                partitions_def=partitions[urn],
                skippable=True,
                deps=[*spec.deps, *([] if source is None else [dg.AssetDep(source.key)])],
            )
            urns_by_key.setdefault(spec.key, []).append(urn)
    require_distinct(urns_by_key)
    require_apart((source.key for source in sources.values()), urns_by_key)
    return JobLayout(job, datasets, partitions, specs, sources, shown)


def _find_source(
    read: SourceSpec | None, shown: ShownAsset, translator: GobblinTranslator, database: str | None
) -> dg.AssetSpec | None:
    """The table, topic or tree of files that a dataset is read from."""
    if shown.source_tree is not None:
        return translate_source_tree(translator, shown.source_tree)
    if read is None or shown.source_name is None:
        return None
    kind = kind_of(read)
    return translate_source(
        translator, SourceTranslation(read, shown.source_name, database or kind.shown_as or kind.noun)
    )


def _build_check(
    check: DeclaredCheck, key: dg.AssetKey, partitions: dg.PartitionsDefinition[str] | None
) -> dg.AssetCheckSpec:
    with warnings.catch_warnings():
        # Partitions of checks are a preview in Dagster; without them, a good month would hide a bad one.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.AssetCheckSpec(
            check.name,
            asset=key,
            description=check.description,
            blocking=check.blocking,
            partitions_def=partitions,
        )
