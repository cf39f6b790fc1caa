"""The reports of a sink to Dagster: a materialization of each window that is closed, observations, and checks.

Workers may be plain processes, so the sink sensor reports in their place. A window is reported at least once: Dagster
gets the event, and then the log remembers it. Two daemons that look at once may both report it. The check
``gobblin_published`` is reported with each window, and again when a trouble is over; the other checks when a result
changes, at most once a minute, and now and then anew.
"""

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, cast

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from gobblin_assets.dagster.instances import find_evaluation, reporting
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import (
    COLUMN_SCHEMA,
    DATA_VERSION_TAG,
    PUBLISHED_CHECK,
    SEQUENCE_ID,
    build_column_schema,
    build_evaluation,
    build_evaluations,
)
from gobblin_assets.dagster.reported_runs import report_checks
from gobblin_assets.dagster.sensor_ticks import read_times
from gobblin_assets.dagster.sink_sight import REPORT_EVERY_S, SinkSight, judge_sink
from gobblin_assets.dagster.source_observing import build_observation
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink.sink_checks import LANES_CHECK, list_due
from gobblin_assets.jobs.sink.stream_status import DatasetStatus, StreamStatus
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.source_declarations import SourceConstraints
from gobblin_assets.model.state import DatasetOutcome
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.run_values import DatasetReport
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_options import DatasetOptions
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.partition_keys import asset_partition, open_partition
from gobblin_assets.state.sinks import DatasetLook, WindowCounts, WindowNews

REFRESH_S: Final = 600.0
"""While workers are alive, the figures of a result that stays are reported again so often."""

SETTLED_S: Final = 60.0
"""So long lanes may be free while workers are alive, on their way from one to the other, before a check says so."""


_RESULTS_READ_MAX: Final = 100

WINDOWS_PER_TICK_MAX: Final = 100
"""Windows in one tick: each is a few milliseconds of Dagster's storage, and the next tick reports the rest."""

_NEVER: Final = dt.datetime.max.replace(tzinfo=dt.UTC)


def report_windows(layout: JobLayout, stores: Stores, instance: dg.DagsterInstance, sight: SinkSight) -> int:
    """Materializations of what is due; returns how many partitions were reported, none of them for an empty cut.

    RetryableError when Dagster does not take an event: the next tick reports it.
    """
    due: list[tuple[DatasetUrn, WindowNews]] = []
    for urn, look in sight.looks.items():
        found = list_due(look, sight.workers, partial(_find_end, layout.datasets[urn]), every_s=REPORT_EVERY_S)
        due += [(urn, news) for news in found]
    reported: list[tuple[DatasetUrn, str | None]] = []
    looked: list[tuple[DatasetUrn, WindowNews, WindowCounts]] = []
    try:
        for urn, news in due[:WINDOWS_PER_TICK_MAX]:
            counts = stores.sink_windows.count(sight.ids[urn], news.partition)
            if counts is None:
                continue
            if counts.row_count != (news.reported_row_count or 0):
                _report_window(layout, instance, sight, urn, news, counts)
                reported.append((urn, news.partition or None))
            looked.append((urn, news, counts))
    finally:
        # Also if Dagster refuses one event for ever: those before it must not be reported again and again.
        report_published(layout, instance, sight, reported)
        _observe_sources(layout, instance, sight, dict.fromkeys(urn for urn, _key in reported))
        for urn, news, counts in looked:
            version = max(counts.version, news.version)
            stores.sink_windows.mark_reported(
                sight.ids[urn], news.partition, version=version, row_count=counts.row_count
            )
    return len(reported)


def observe(layout: JobLayout, stores: Stores, instance: dg.DagsterInstance, sight: SinkSight) -> None:
    """One observation of each dataset that is due, while workers are at it.

    An observation that is claimed and then not made is left out: the next one says more.
    """
    if not sight.workers:
        return
    claimed = stores.sink_windows.claim_observations([sight.ids[urn] for urn in sight.looks], every_s=REPORT_EVERY_S)
    for urn, look in sight.looks.items():
        window = _open_window(layout, urn, look.now) if sight.ids[urn] in claimed else None
        if window is None:
            continue
        counts = stores.sink_windows.count(sight.ids[urn], window.key or "")
        key = layout.get_key(urn)
        metadata = _describe_progress(layout, sight, urn, counts)
        with reporting(key):
            instance.report_runless_asset_event(
                dg.AssetObservation(asset_key=key, partition=window.key, metadata=metadata)
            )


def report_sink_checks(
    layout: JobLayout, instance: dg.DagsterInstance, sight: SinkSight, cursor: str | None, now: dt.datetime
) -> str:
    """Evaluate the checks of each dataset. Returns the cursor: by dataset, since when lanes wait for a worker.

    RetryableError as for ``report_windows``.
    """
    seen = read_times(cursor)
    waiting = {urn: seen.get(urn, now.timestamp()) for urn, look in sight.looks.items() if _has_free(look)}
    moving = {urn for urn, since in waiting.items() if sight.workers and now.timestamp() - since < SETTLED_S}
    found = {
        dg.AssetCheckKey(layout.get_key(urn), check.name): check
        for urn in sight.looks
        for check in judge_sink(layout, sight, urn)
        if check.name != LANES_CHECK or check.blocking or urn not in moving
    }
    known = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(found))
    for key, check in found.items():
        if _is_due(check, known.get(key), now, is_at_work=bool(sight.workers)):
            with reporting(key.asset_key):
                instance.report_runless_asset_event(build_evaluation(key.asset_key, check))
    return json.dumps(waiting, sort_keys=True)


def report_published(
    layout: JobLayout,
    instance: dg.DagsterInstance,
    sight: SinkSight,
    partitions: Sequence[tuple[DatasetUrn, str | None]],
) -> None:
    """Evaluate the check of these partitions. It fails while a publication of the dataset is BLOCKED, or a worker
    reports a failure: the lane's rows that come next are missing from later windows as well.

    RetryableError as for ``report_windows``. Partitions share one run of Dagster's: without a run, Dagster takes one
    evaluation of a partition and no more. A dataset without partitions needs none.
    """
    of_partitions: list[DatasetReport] = []
    for urn, key in partitions:
        report = _judge_published(sight, urn, key)
        if key is not None:
            of_partitions.append(report)
            continue
        for evaluation in build_evaluations(layout.get_key(urn), report):
            with reporting(evaluation.asset_key):
                instance.report_runless_asset_event(evaluation)
    if of_partitions:
        report_checks(layout, of_partitions, instance, by=f"{layout.job.job}_sink_sensor")


def report_healed(layout: JobLayout, instance: dg.DagsterInstance, sight: SinkSight) -> None:
    """Let the check pass where it failed and nothing is in the way any more: no new rows may ever come there.

    RetryableError as for ``report_windows``. One query, if no check fails.
    """
    keys = {
        dg.AssetCheckKey(layout.get_key(urn), PUBLISHED_CHECK): urn
        for urn in sight.looks
        if sight.find_trouble(urn) is None
    }
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(keys)) if keys else {}
    healed: list[tuple[DatasetUrn, str | None]] = []
    for check, urn in keys.items():
        last = find_evaluation(latest.get(check))
        if last is not None and not last.passed:
            healed += [(urn, key) for key in _list_failing(instance, check)]
    report_published(layout, instance, sight, healed)


def _is_due(check: CheckResult, known: AssetCheckExecutionRecord | None, now: dt.datetime, *, is_at_work: bool) -> bool:
    last = find_evaluation(known)
    if last is None or known is None or known.event is None:
        # Also where a run of the assets has planned it, which hides the earlier result: no worker evaluates it.
        return True
    age_s = now.timestamp() - known.event.timestamp
    if age_s < REPORT_EVERY_S:
        return False
    changed = last.passed is not check.passed or (
        check.name == LANES_CHECK and (last.description or "") != check.description
    )
    return changed or (is_at_work and age_s >= REFRESH_S)


def _has_free(look: DatasetLook) -> bool:
    return any(lane.vnode_count and lane.holder is None for lane in look.lanes)


def _judge_published(sight: SinkSight, urn: DatasetUrn, key: str | None) -> DatasetReport:
    trouble = sight.find_trouble(urn)
    if trouble is None:
        return DatasetReport(urn, AssetPartition(key), DatasetOutcome.COMMITTED)
    outcome, error = trouble
    return DatasetReport(urn, AssetPartition(key), outcome, error=error)


def _list_failing(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> list[str | None]:
    """The partitions whose latest result is a failure."""
    results: dict[str | None, bool] = {}
    with reporting(check.asset_key):
        found = instance.event_log_storage.get_asset_check_execution_history(check, limit=_RESULTS_READ_MAX)
    for record in found:
        if (result := find_evaluation(record)) is not None:
            results.setdefault(record.partition, result.passed)
    return [key for key, passed in results.items() if not passed]


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


def _report_window(
    layout: JobLayout,
    instance: dg.DagsterInstance,
    sight: SinkSight,
    urn: DatasetUrn,
    news: WindowNews,
    counts: WindowCounts,
) -> None:
    key = news.partition or None
    where = urn if key is None else f"{urn} [{key}]"
    late = ", late rows came" if key is not None and news.reported_row_count else ""
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
        with reporting(asset_key):
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
    found = None if sight.stream_status is None else sight.stream_status.datasets.get(urn)
    key = () if found is None else found.key
    return SourceConstraints(tuple(name for name in key if name in columns))


def _observe_sources(
    layout: JobLayout, instance: dg.DagsterInstance, sight: SinkSight, urns: Iterable[DatasetUrn]
) -> None:
    """Report that workers have read the topics or tables of these datasets, and what is left there."""
    for urn in urns:
        source = layout.sources.get(urn)
        if source is not None:
            metadata = _describe_workers(sight, urn)
            with reporting(source.key):
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
    if sight.stream_status is not None:
        return metadata | _describe_stream(sight.stream_status, urn)
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
