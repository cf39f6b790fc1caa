"""Writes to and reads from Dagster's instance, in the product's own terms."""

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluation,
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from gobblin_assets.errors import RetryableError


@contextmanager
def reporting(key: dg.AssetKey) -> Iterator[None]:
    """Wraps events of an asset. RetryableError if Dagster's storage does not take them, whatever its driver raises."""
    try:
        yield
    except Exception as error:
        raise RetryableError(
            f"Dagster does not take the event of {key.to_user_string()}: {type(error).__name__}",
            hint="The publication is safe. Repair Dagster's storage, then run again to report it.",
        ) from error


def find_latest(
    instance: dg.DagsterInstance, key: dg.AssetKey, partition: str | None
) -> AssetCheckEvaluationTargetMaterializationData | None:
    """The latest materialization of an asset's partition, which its checks are about."""
    wanted = dg.AssetRecordsFilter(key, asset_partitions=None if partition is None else [partition])
    for record in instance.fetch_materializations(wanted, limit=1).records:
        return AssetCheckEvaluationTargetMaterializationData(
            storage_id=record.storage_id, run_id=record.event_log_entry.run_id, timestamp=record.timestamp
        )
    return None


def find_last_heard_s(instance: dg.DagsterInstance, record: dg.RunRecord) -> float:
    """When Dagster last heard of the run, in Unix time."""
    heard = aware_moment(record.update_timestamp).timestamp()
    latest = instance.get_records_for_run(record.dagster_run.run_id, limit=1, ascending=False).records
    return max([heard, *(each.event_log_entry.timestamp for each in latest)])


def find_made_at(instance: dg.DagsterInstance, run_id: str) -> dt.datetime | None:
    """When the run was made, which may have waited in the queue since, or be tried again."""
    record = instance.get_run_record_by_id(run_id)
    return None if record is None else aware_moment(record.create_timestamp)


def find_evaluation(record: AssetCheckExecutionRecord | None) -> AssetCheckEvaluation | None:
    """The result in a record of a check; None: the check was only planned."""
    event = None if record is None or record.event is None else record.event.dagster_event
    if event is None or event.event_type is not dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        return None
    return event.asset_check_evaluation_data


def aware_moment(moment: dt.datetime) -> dt.datetime:
    """A moment that the instance gave: some storages leave out that it is UTC's."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
