"""Which partitions of which datasets the command line asks for, from what was typed there."""

import datetime as dt
from collections.abc import Sequence

import dagster as dg

from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.partition_keys import asset_partition, open_partition
from gobblin_assets.spec.source_kind import kind_of

_NAMED_MAX = 20


def select_partitions(
    layout: JobLayout,
    *,
    urns: Sequence[str],
    keys: Sequence[str],
    ranges: Sequence[tuple[str, str]],
    begun_by: dt.datetime | None = None,
) -> dict[DatasetUrn, tuple[AssetPartition, ...]]:
    """The dataset partitions to run. ``ranges`` are (first, last), both included.

    Without ``urns``: with partitions given, the datasets that have partitions; else those that have none. Of topics
    without a partition given, the window that is open.
    ``begun_by``, aware: a window that begins later is refused.
    RejectedError names the option that does not fit, and the dataset that it does not fit.
    """
    by_partition = bool(keys or ranges)
    if kind_of(layout.job.source).is_log and not by_partition:
        return select_open_partitions(layout, urns=urns)
    chosen = layout.find_datasets(urns) if urns else _choose(layout, by_partition=by_partition)
    selection = {}
    for urn in chosen:
        spec = layout.datasets[urn]
        wanted: list[str | None] = [*keys, *(key for each in ranges for key in _expand(layout, urn, *each))]
        selection[urn] = tuple(asset_partition(spec, key) for key in dict.fromkeys(wanted or [None]))
        if begun_by is not None:
            _require_begun(urn, selection[urn], begun_by)
    return selection


def _require_begun(urn: DatasetUrn, partitions: Sequence[AssetPartition], now: dt.datetime) -> None:
    for partition in partitions:
        window = partition.window
        if window is not None and window.start > now:
            raise RejectedError(
                f"the partition {partition.key} of {urn!r} begins at {window.start:%Y-%m-%d %H:%M}Z, in the future",
                field="--partition",
                hint="Correct it, or add --future if its rows are there already.",
            )


def select_open_partitions(layout: JobLayout, *, urns: Sequence[str]) -> dict[DatasetUrn, tuple[AssetPartition, ...]]:
    """Of topics, what they are read into now. RejectedError for a dataset that is not the job's."""
    now = dt.datetime.now(dt.UTC)
    return {urn: (open_partition(layout.datasets[urn], now),) for urn in layout.find_datasets(urns)}


def _choose(layout: JobLayout, *, by_partition: bool) -> list[DatasetUrn]:
    chosen = [urn for urn, partitions in layout.partitions.items() if (partitions is not None) == by_partition]
    if not chosen:
        have = "no dataset with partitions" if by_partition else "only datasets with partitions"
        raise RejectedError(
            f"the job {layout.job.job} has {have}",
            field="--partition",
            hint="Leave it out." if by_partition else "Name some with --partition or --partition-range.",
        )
    return chosen


def _expand(layout: JobLayout, urn: DatasetUrn, first: str, last: str) -> Sequence[str]:
    partitions = layout.partitions[urn]
    if partitions is None or isinstance(partitions, dg.DynamicPartitionsDefinition):
        what = "no" if partitions is None else "dynamic"
        raise RejectedError(
            f"the dataset {urn!r} has {what} partitions, and so no range of them",
            field="--partition-range",
            hint="Leave it out, or name other datasets." if partitions is None else "Name each with --partition.",
        )
    for key in (first, last):
        # Says what is wrong with a key that Dagster would only call unknown.
        asset_partition(layout.datasets[urn], key)
    keys = partitions.get_partition_keys()
    if first not in keys or last not in keys or keys.index(first) > keys.index(last):
        shown = f"{keys[0]} to {keys[-1]}" if len(keys) > _NAMED_MAX else ", ".join(keys)
        raise RejectedError(
            f"{first}...{last} is no range of partitions of {urn!r}",
            field="--partition-range",
            hint=f"Its partitions, the earlier first, are: {shown}.",
        )
    return keys[keys.index(first) : keys.index(last) + 1]
