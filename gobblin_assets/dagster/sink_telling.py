"""Tells Dagster of what a sink's workers publish: a materialization of each window that is closed, and observations.

Workers may be plain processes, so the sink sensor tells in their place. A window is told at least once: first Dagster
gets the event, then the log remembers it. Two daemons that look at once may both tell it.
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, cast

import dagster as dg

from gobblin_assets.dagster.instances import telling
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import COLUMN_SCHEMA, DATA_VERSION_TAG, SEQUENCE_ID, build_column_schema
from gobblin_assets.dagster.sink_published_check import tell_published
from gobblin_assets.dagster.sink_sight import TELL_EVERY_S, SinkSight
from gobblin_assets.dagster.source_observing import build_observation
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink.sink_checks import list_due
from gobblin_assets.jobs.sink.stream_status import DatasetStatus, StreamStatus
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.source_constraints import SourceConstraints
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_options import DatasetOptions
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.partition_keys import asset_partition, open_partition
from gobblin_assets.state.sink_windows import WindowCounts, WindowNews

TOLD_PER_TICK_MAX: Final = 100
"""Windows in one tick: each is a few milliseconds of Dagster's storage, and the next tick tells the rest."""

_NEVER: Final = dt.datetime.max.replace(tzinfo=dt.UTC)


def tell_windows(layout: JobLayout, stores: Stores, instance: dg.DagsterInstance, sight: SinkSight) -> int:
    """Materializations of what is due; returns how many partitions were told, none of them for an empty cut.

    RetryableError when Dagster does not take an event: the next tick tells it.
    """
    due: list[tuple[DatasetUrn, WindowNews]] = []
    for urn, look in sight.looks.items():
        found = list_due(look, sight.workers, partial(_find_end, layout.datasets[urn]), every_s=TELL_EVERY_S)
        due += [(urn, news) for news in found]
    told: list[tuple[DatasetUrn, str | None]] = []
    looked: list[tuple[DatasetUrn, WindowNews, WindowCounts]] = []
    try:
        for urn, news in due[:TOLD_PER_TICK_MAX]:
            counts = stores.sink_windows.count(sight.ids[urn], news.partition)
            if counts is None:
                continue
            if counts.row_count != (news.told_row_count or 0):
                _tell(layout, instance, sight, urn, news, counts)
                told.append((urn, news.partition or None))
            looked.append((urn, news, counts))
    finally:
        # Also if Dagster refuses one event for ever: those before it must not be told again and again.
        tell_published(layout, instance, sight, told)
        _observe_sources(layout, instance, sight, dict.fromkeys(urn for urn, _key in told))
        for urn, news, counts in looked:
            version = max(counts.version, news.version)
            stores.sink_windows.mark_told(sight.ids[urn], news.partition, version=version, row_count=counts.row_count)
    return len(told)


def observe(layout: JobLayout, stores: Stores, instance: dg.DagsterInstance, sight: SinkSight) -> None:
    """One observation of each dataset that is due, while workers are at it.

    An observation that is claimed and then not made is left out: the next one says more.
    """
    if not sight.workers:
        return
    claimed = stores.sink_windows.claim_observations([sight.ids[urn] for urn in sight.looks], every_s=TELL_EVERY_S)
    for urn, look in sight.looks.items():
        window = _open_window(layout, urn, look.now) if sight.ids[urn] in claimed else None
        if window is None:
            continue
        counts = stores.sink_windows.count(sight.ids[urn], window.key or "")
        key = layout.get_key(urn)
        metadata = _describe_progress(layout, sight, urn, counts)
        with telling(key):
            instance.report_runless_asset_event(
                dg.AssetObservation(asset_key=key, partition=window.key, metadata=metadata)
            )


def _find_end(dataset: DatasetOptions, key: str) -> dt.datetime | None:
    try:
        window = asset_partition(dataset, key or None).window
    except RejectedError:
        # The job's partitions have changed: Dagster has no such partition any more.
        return _NEVER
    return None if window is None else window.end


def _open_window(layout: JobLayout, urn: DatasetUrn, now: dt.datetime) -> AssetPartition | None:
    try:
        return open_partition(layout.datasets[urn], now)
    except RejectedError:
        return None


def _tell(
    layout: JobLayout,
    instance: dg.DagsterInstance,
    sight: SinkSight,
    urn: DatasetUrn,
    news: WindowNews,
    counts: WindowCounts,
) -> None:
    key = news.partition or None
    where = urn if key is None else f"{urn} [{key}]"
    late = ", late rows came" if key is not None and news.told_row_count else ""
    for role in layout.roles:
        rows = counts.row_counts.get(role, 0)
        metadata: dict[str, dg.MetadataValue] = {"gobblin/rows": dg.MetadataValue.int(rows)}
        if role is Role.DATA:
            metadata |= _describe_counts(counts) | _describe_workers(sight, urn)
            name = "dagster/row_count" if key is None else "dagster/partition_row_count"
            metadata[name] = dg.MetadataValue.int(rows)
            # None are known of a dataset whose publications are all of an older release.
            if columns := sight.columns.get(urn):
                metadata[COLUMN_SCHEMA] = build_column_schema(
                    columns, constraints=_find_constraints(sight, urn, columns), key_as="key of the table"
                )
        metadata |= {
            "dagster/uri": dg.MetadataValue.text(layout.uri_of(urn, role)),
            "gobblin/version": dg.MetadataValue.int(counts.version),
            SEQUENCE_ID: dg.MetadataValue.text(str(counts.sequence_id)),
        }
        asset_key = layout.get_key(urn, role)
        with telling(asset_key):
            instance.report_runless_asset_event(
                dg.AssetMaterialization(
                    asset_key=asset_key,
                    partition=key,
                    description=f"Published {where}: rows: {rows:,}, files: {counts.file_count:,}{late}",
                    metadata=metadata,
                    tags={DATA_VERSION_TAG: str(counts.sequence_id)},
                )
            )


def _find_constraints(sight: SinkSight, urn: DatasetUrn, columns: Mapping[str, str]) -> SourceConstraints:
    """The key of a table that is followed. Its columns hold NULL as well: a delete of a row has little else."""
    status = None if sight.status is None else sight.status.datasets.get(urn)
    key = () if status is None else status.key
    return SourceConstraints(tuple(name for name in key if name in columns))


def _observe_sources(
    layout: JobLayout, instance: dg.DagsterInstance, sight: SinkSight, urns: Iterable[DatasetUrn]
) -> None:
    """That workers have read the topics or tables of these datasets, and what is left there."""
    for urn in urns:
        source = layout.sources.get(urn)
        if source is not None:
            metadata = _describe_workers(sight, urn)
            with telling(source.key):
                instance.report_runless_asset_event(build_observation(layout, urn, source, f"Read for {urn}", metadata))


def _describe_counts(counts: WindowCounts) -> dict[str, dg.MetadataValue]:
    metadata: dict[str, dg.MetadataValue] = {
        "gobblin/files": dg.MetadataValue.int(counts.file_count),
        "gobblin/bytes": dg.MetadataValue.int(counts.file_bytes),
        "gobblin/dead_letters": dg.MetadataValue.int(counts.row_counts.get(Role.DEAD_LETTER, 0)),
        "gobblin/publications": dg.MetadataValue.int(counts.publication_count),
    }
    if counts.epoch is not None:
        metadata["gobblin/epoch"] = dg.MetadataValue.int(counts.epoch)
    return metadata


def _describe_workers(sight: SinkSight, urn: DatasetUrn) -> dict[str, dg.MetadataValue]:
    metadata: dict[str, dg.MetadataValue] = {"gobblin/workers": dg.MetadataValue.int(len(sight.workers))}
    if sight.status is not None:
        return metadata | _describe_stream(sight.status, urn)
    if (lag := sight.lag_of(urn)) is not None:
        metadata["gobblin/lag"] = dg.MetadataValue.int(lag)
    return metadata


def _describe_stream(status: StreamStatus, urn: DatasetUrn) -> dict[str, dg.MetadataValue]:
    found = status.datasets.get(urn, DatasetStatus())
    metadata: dict[str, dg.MetadataValue] = {}
    if found.copy is not None:
        metadata["gobblin/copy"] = dg.MetadataValue.int(found.copy)
    if found.position is not None:
        metadata["gobblin/position"] = dg.MetadataValue.text(found.position)
    if found.lag_bytes is not None:
        metadata["gobblin/lag_bytes"] = dg.MetadataValue.int(found.lag_bytes)
    if found.lag_s is not None:
        metadata["gobblin/lag_s"] = dg.MetadataValue.float(found.lag_s)
    if status.stream.retained_bytes is not None:
        metadata["gobblin/retained_bytes"] = dg.MetadataValue.int(status.stream.retained_bytes)
    return metadata


def _describe_progress(
    layout: JobLayout, sight: SinkSight, urn: DatasetUrn, counts: WindowCounts | None
) -> dict[str, dg.MetadataValue]:
    """``counts``: of the window that is open."""
    job = cast("JobSpec", layout.job)
    lanes = [lane for lane in sight.looks[urn].lanes if lane.vnode_count]
    rows = 0 if counts is None else counts.row_counts.get(Role.DATA, 0)
    metadata: dict[str, dg.MetadataValue] = {"gobblin/rows": dg.MetadataValue.int(rows)}
    if counts is not None:
        metadata |= _describe_counts(counts)
    metadata |= _describe_workers(sight, urn)
    metadata["gobblin/lanes"] = dg.MetadataValue.int(len(lanes))
    metadata["gobblin/lanes_held"] = dg.MetadataValue.int(sum(lane.holder is not None for lane in lanes))
    epochs = [lane.epoch for lane in lanes if lane.epoch is not None]
    if job.sink.barriers == "log" and lanes and len(epochs) == len(lanes):
        metadata["gobblin/epoch_of_all_lanes"] = dg.MetadataValue.int(min(epochs))
    return metadata
