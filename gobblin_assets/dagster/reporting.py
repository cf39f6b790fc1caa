"""Reports to a Dagster instance from outside: the run, and publications that Dagster does not know yet."""

from collections.abc import Mapping, Sequence

import dagster as dg

from gobblin_assets.dagster.factory import build_gobblin_assets, build_gobblin_jobs
from gobblin_assets.dagster.instances import telling
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import DATA_VERSION_TAG
from gobblin_assets.dagster.partitions import PARTITION_TAG, RANGE_END_TAG, RANGE_START_TAG
from gobblin_assets.dagster.reported_runs import MODE_SHOWN_TAG, SOURCE_TAG, ReportedRun, stand_ins
from gobblin_assets.run.run_values import DatasetReport
from gobblin_assets.spec.selection import Selection


def begin_reported_run(
    layout: JobLayout, selection: Selection, instance: dg.DagsterInstance, *, by: str, mode: str | None = None
) -> ReportedRun:
    """Make the run of this selection, under the name of the job that Dagster would launch for it.

    RetryableError where the instance can't be asked.
    """
    keys = {layout.get_key(urn, role) for urn in selection for role in layout.roles}
    definitions = dg.Definitions(
        assets=[build_gobblin_assets(layout)], jobs=build_gobblin_jobs(layout), resources=stand_ins(layout)
    )
    name = _find_job_name(layout, selection, definitions)
    with telling(next(iter(keys))):
        job = (
            definitions.resolve_implicit_global_asset_job_def() if name is None else definitions.resolve_job_def(name)
        ).get_subset(asset_selection=keys)
        run = instance.create_run_for_job(
            job,
            status=dg.DagsterRunStatus.MANAGED,
            tags={
                SOURCE_TAG: by,
                **({} if mode is None else {MODE_SHOWN_TAG: mode}),
                **_partition_tags(layout, selection),
            },
            asset_selection=keys,
        )
    return ReportedRun(layout, instance, run)


def _find_job_name(layout: JobLayout, selection: Selection, definitions: dg.Definitions) -> str | None:
    """The name of the Dagster job; None if datasets of several jobs are selected."""
    for job, (_partitions, urns) in zip(definitions.jobs or (), layout.group_by_partitions(), strict=True):
        if selection.keys() <= set(urns):
            return job.name
    return None


def _partition_tags(layout: JobLayout, selection: Selection) -> dict[str, str]:
    """The partition tags of a Dagster run; none if the selection is not the same range of all of its datasets."""
    chosen = {tuple(partition.key for partition in partitions) for partitions in selection.values()}
    if len(chosen) != 1:
        return {}
    keys = [key for key in next(iter(chosen)) if key is not None]
    if not keys:
        return {}
    if len(keys) == 1:
        return {PARTITION_TAG: keys[0]}
    for urn in selection:
        partitions = layout.partitions[urn]
        if not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
            return {}
        if list(partitions.get_partition_keys_in_range(dg.PartitionKeyRange(min(keys), max(keys)))) != sorted(keys):
            return {}
    return {RANGE_START_TAG: min(keys), RANGE_END_TAG: max(keys)}


def find_untold(
    layout: JobLayout, latest: Sequence[DatasetReport], instance: dg.DagsterInstance
) -> list[DatasetReport]:
    """The latest publications that are not the latest materialization of their partition in Dagster."""
    known: dict[dg.AssetKey, Mapping[str | None, str | None]] = {}
    untold = []
    for report in latest:
        key = layout.get_key(report.urn)
        if key not in known:
            with telling(key):
                known[key] = _read_told(instance, key)
        sequence = None if report.publication is None else str(report.publication.sequence_id)
        if known[key].get(report.partition.key) != sequence:
            untold.append(report)
    return untold


def _read_told(instance: dg.DagsterInstance, key: dg.AssetKey) -> Mapping[str | None, str | None]:
    """The sequence that Dagster shows for each partition."""
    told: dict[str | None, str | None] = {}
    latest = instance.get_latest_materialization_event(key)
    if latest is not None and latest.asset_materialization is not None:
        event = latest.asset_materialization
        told[event.partition] = (event.tags or {}).get(DATA_VERSION_TAG)
    by_partition = instance.event_log_storage.get_latest_tags_by_partition(
        key, dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION_TAG]
    )
    return told | {partition: tags.get(DATA_VERSION_TAG) for partition, tags in by_partition.items()}
