"""Turns a dataset's partitions into Dagster's definitions, and a run's tags into the requested partitions."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final, assert_never
from zoneinfo import ZoneInfo

import dagster as dg
from dagster import DagsterError
from dagster._check import CheckError

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.spec.job_options import DatasetOptions, PartitionsSpec
from gobblin_assets.spec.partition_keys import list_time_partitions

PARTITION_TAG: Final = "dagster/partition"
RANGE_START_TAG: Final = "dagster/asset_partition_range_start"
RANGE_END_TAG: Final = "dagster/asset_partition_range_end"

# The window that is still open can be materialized too: that is what append goes on with.
_OPEN_WINDOWS: Final = 1


def build_partitions_def(spec: PartitionsSpec, *, job: JobName, urn: DatasetUrn) -> dg.PartitionsDefinition[str] | None:
    """None for a dataset without partitions. What Dagster can't take is a RejectedError naming the dataset."""
    field = f"datasets[{urn}].partitions"
    try:
        match spec.kind:
            case PartitionKind.NONE:
                return None
            case PartitionKind.STATIC:
                return dg.StaticPartitionsDefinition(list(spec.keys))
            case PartitionKind.DYNAMIC:
                return dg.DynamicPartitionsDefinition(name=spec.name or f"{job}/{urn}")
            case PartitionKind.HOURLY | PartitionKind.DAILY | PartitionKind.WEEKLY | PartitionKind.MONTHLY:
                return _build_windows(spec, field)
            case _:
                assert_never(spec.kind)
    except (DagsterError, CheckError, ValueError) as error:
        raise RejectedError(
            f"Dagster does not accept these partitions: {error}",
            field=field,
            hint="Keys may not repeat, hold '...' or control characters; the zone is an IANA name.",
        ) from error


def _build_windows(spec: PartitionsSpec, field: str) -> dg.PartitionsDefinition[str]:
    if spec.start is None:
        raise RejectedError(
            f"{spec.kind} partitions need a start, found none",
            field=f"{field}.start",
            hint="Give the first window's date, such as 2013-01-01.",
        )
    zone = ZoneInfo(spec.zone)
    start, end = _as_wall_time(spec.start, zone), None if spec.end is None else _as_wall_time(spec.end, zone)
    match spec.kind:
        case PartitionKind.HOURLY:
            return dg.HourlyPartitionsDefinition(start, end, timezone=spec.zone, end_offset=_OPEN_WINDOWS)
        case PartitionKind.DAILY:
            return dg.DailyPartitionsDefinition(start, end, timezone=spec.zone, end_offset=_OPEN_WINDOWS)
        case PartitionKind.WEEKLY:
            return dg.WeeklyPartitionsDefinition(start, end, timezone=spec.zone, end_offset=_OPEN_WINDOWS)
        case _:
            return dg.MonthlyPartitionsDefinition(start, end, timezone=spec.zone, end_offset=_OPEN_WINDOWS)


def _as_wall_time(moment: dt.date | dt.datetime, zone: ZoneInfo) -> dt.datetime:
    """As Dagster reads it, in the partitions' zone: it would take an aware time's own clock for that zone's."""
    if not isinstance(moment, dt.datetime):
        return dt.datetime.combine(moment, dt.time())
    return moment if moment.tzinfo is None else moment.astimezone(zone).replace(tzinfo=None)


def find_run_range(tags: Mapping[str, str]) -> dg.PartitionKeyRange | None:
    """The partitions that a run's tags name: one is a range of itself; None for a run without partitions."""
    if PARTITION_TAG in tags:
        return dg.PartitionKeyRange(tags[PARTITION_TAG], tags[PARTITION_TAG])
    if RANGE_START_TAG in tags and RANGE_END_TAG in tags:
        return dg.PartitionKeyRange(tags[RANGE_START_TAG], tags[RANGE_END_TAG])
    return None


def list_keys(
    partitions: dg.PartitionsDefinition[str] | None,
    wanted: dg.PartitionKeyRange | None,
    *,
    spec: DatasetOptions,
    instance: dg.DagsterInstance,
) -> Sequence[str | None]:
    """The dataset's keys inside a run's range, ``[None]`` where neither has partitions. ``spec`` is resolved.

    RejectedError when the run's partitions are not this dataset's.
    """
    urn = spec.urn
    if partitions is None and wanted is None:
        return [None]
    if partitions is None or wanted is None:
        has, asks = ("no partitions", f"for {_show(wanted)}") if wanted else ("partitions", "for none")
        raise RejectedError(
            f"the dataset {urn!r} has {has}, and the run asks {asks}",
            field="partition",
            hint="Materialize datasets with different partitions in runs of their own; there is a job for each.",
        )
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        for key in (wanted.start, wanted.end):
            if not partitions.has_partition_key(key):
                raise RejectedError(
                    f"{key!r} is not a partition of the dataset {urn!r}",
                    field="partition",
                    hint=_hint(partitions),
                )
        if spec.partitions.kind.is_time:
            # Not by Dagster, which begins anew at the range's start: where clocks moved by less than an hour it gives
            # other keys than its own list has, and of two equal hours now and then the wrong one.
            return list(list_time_partitions(spec, wanted.start, wanted.end))
        return list(partitions.get_partition_keys_in_range(wanted))


def _hint(partitions: dg.PartitionsDefinition[str]) -> str:
    if isinstance(partitions, dg.DynamicPartitionsDefinition):
        return f"Add it to the dynamic partitions {partitions.name!r} first, or choose one that is there."
    first, last = partitions.get_first_partition_key(), partitions.get_last_partition_key()
    return f"They go from {first} to {last}." if first is not None else "It has no partition yet: its start lies ahead."


def _show(wanted: dg.PartitionKeyRange) -> str:
    return wanted.start if wanted.start == wanted.end else f"{wanted.start}...{wanted.end}"
