"""The runs that Dagster would make of a job's datasets, for reports of runs that it did not make."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from gobblin_assets.dagster.instances import telling
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.partitions import PARTITION_TAG, RANGE_END_TAG, RANGE_START_TAG
from gobblin_assets.dagster.reported_runs import SOURCE_TAG, ReportedRun, stand_ins
from gobblin_assets.model.urn import DatasetUrn

MODE_SHOWN_TAG: Final = "gobblin/asked_mode"

AskedPartitions = tuple[str, str, int]
"""The first and the last key of what was asked for, and how many."""


class ReportedJob:
    """A job of which Dagster is told, by what Dagster has of it. That is resolved once, for the first run.

    ``jobs``: in the order of the layout's groups of partitions.
    """

    def __init__(
        self, layout: JobLayout, assets: dg.AssetsDefinition | None, jobs: Sequence[UnresolvedAssetJobDefinition]
    ) -> None:
        self.layout = layout
        self._assets = assets
        self._jobs = jobs

    @cached_property
    def _definitions(self) -> dg.Definitions:
        assets = [] if self._assets is None else [self._assets]
        return dg.Definitions(assets=assets, jobs=list(self._jobs), resources=stand_ins(self.layout))

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
        with telling(next(iter(keys))):
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
        """The name of the Dagster job; None if datasets of several jobs are selected."""
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
