"""Finds the publications of the log that Dagster does not show."""

from collections.abc import Mapping, Sequence

import dagster as dg

from gobblin_assets.dagster.instances import telling
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import DATA_VERSION_TAG
from gobblin_assets.run.run_values import DatasetReport


def find_untold(
    layout: JobLayout, latest: Sequence[DatasetReport], instance: dg.DagsterInstance
) -> list[DatasetReport]:
    """The latest publications that are not the latest materialization of their partition in Dagster.

    One without a file, of a partition that Dagster knows, has nothing to tell.
    """
    known: dict[dg.AssetKey, Mapping[str | None, str | None]] = {}
    untold = []
    for report in latest:
        key = layout.get_key(report.urn)
        if key not in known:
            with telling(key):
                known[key] = _read_told(instance, key)
        publication, told = report.publication, known[key].get(report.partition.key)
        if publication is None or (told is not None and not publication.file_count):
            continue
        if told != str(publication.sequence_id):
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
