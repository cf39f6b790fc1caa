"""The check ``gobblin_published`` of what a sink publishes: told with each window, and again when a trouble is over."""

from collections.abc import Sequence
from typing import Final

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from gobblin_assets.dagster.instances import telling
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import PUBLISHED_CHECK, build_evaluations
from gobblin_assets.dagster.reported_runs import report_checks
from gobblin_assets.dagster.sink_sight import SinkSight
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.state import DatasetOutcome
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.run_values import DatasetReport

_RESULTS_READ_MAX: Final = 100


def tell_published(
    layout: JobLayout, instance: dg.DagsterInstance, sight: SinkSight, told: Sequence[tuple[DatasetUrn, str | None]]
) -> None:
    """Evaluate the check of these partitions. It fails while a publication of the dataset is BLOCKED, or a worker
    reports a failure: the lane's rows that come next are missing from later windows as well.

    RetryableError as for ``tell_windows``. Partitions share one run of Dagster's: without a run, Dagster takes one
    evaluation of a partition and no more. A dataset without partitions needs none.
    """
    of_partitions: list[DatasetReport] = []
    for urn, key in told:
        report = _report(sight, urn, key)
        if key is not None:
            of_partitions.append(report)
            continue
        for evaluation in build_evaluations(layout.get_key(urn), report):
            with telling(evaluation.asset_key):
                instance.report_runless_asset_event(evaluation)
    if of_partitions:
        report_checks(layout, of_partitions, instance, by=f"{layout.job.job}_sink_sensor")


def heal_published(layout: JobLayout, instance: dg.DagsterInstance, sight: SinkSight) -> None:
    """Let the check pass where it failed and nothing is in the way any more: no new rows may ever come there.

    RetryableError as for ``tell_windows``. One query, if no check fails.
    """
    keys = {
        dg.AssetCheckKey(layout.get_key(urn), PUBLISHED_CHECK): urn
        for urn in sight.looks
        if sight.find_trouble(urn) is None
    }
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(keys)) if keys else {}
    healed: list[tuple[DatasetUrn, str | None]] = []
    for check, urn in keys.items():
        if _passed(latest.get(check)) is False:
            healed += [(urn, key) for key in _list_failing(instance, check)]
    tell_published(layout, instance, sight, healed)


def _report(sight: SinkSight, urn: DatasetUrn, key: str | None) -> DatasetReport:
    trouble = sight.find_trouble(urn)
    if trouble is None:
        return DatasetReport(urn, AssetPartition(key), DatasetOutcome.COMMITTED)
    outcome, error = trouble
    return DatasetReport(urn, AssetPartition(key), outcome, error=error)


def _list_failing(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> list[str | None]:
    """The partitions whose latest result is a failure."""
    results: dict[str | None, bool] = {}
    with telling(check.asset_key):
        found = instance.event_log_storage.get_asset_check_execution_history(check, limit=_RESULTS_READ_MAX)
    for record in found:
        if (passed := _passed(record)) is not None:
            results.setdefault(record.partition, passed)
    return [key for key, passed in results.items() if not passed]


def _passed(record: AssetCheckExecutionRecord | None) -> bool | None:
    """None: it is no result."""
    event = None if record is None or record.event is None else record.event.dagster_event
    if event is None or event.event_type is not dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        return None
    return event.asset_check_evaluation_data.passed
