"""Selects the partitions of datasets that a run of a job is asked for."""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.partition import AssetPartition, PartitionKind
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_options import DatasetOptions, JobOptions, PartitionsSpec
from gobblin_assets.spec.job_parsing import find_datasets
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.partition_keys import (
    asset_partition,
    find_last_boundary,
    list_ended_windows,
    list_time_partitions,
    open_partition,
)
from gobblin_assets.spec.source_kind import kind_of

Datasets = Mapping[DatasetUrn, DatasetOptions]
"""Every dataset of a job, as its kind gives them."""

Selection = Mapping[DatasetUrn, tuple[AssetPartition, ...]]
"""The partitions that are asked for of each dataset."""

_NAMED_MAX: Final = 20

_CLOCKS_DIFFER_S: Final = 60.0
"""A source's clock may be so far behind that of whoever decides that a window is over."""


def select_partitions(
    job: JobOptions,
    datasets: Datasets,
    *,
    urns: Sequence[str] = (),
    keys: Sequence[str] = (),
    ranges: Sequence[tuple[str, str]] = (),
    begun_by: dt.datetime | None,
) -> dict[DatasetUrn, tuple[AssetPartition, ...]]:
    """The dataset partitions to run. ``ranges`` are (first, last), both included.

    Without ``urns``: with partitions given, the datasets that have partitions; else those that have none. Of logs
    without a partition given, the window that is open. Jobs that take all partitions do so.
    ``begun_by``, aware: a window that begins later is refused.
    RejectedError names what does not fit, by the fields ``datasets``, ``partitions`` and ``partition_ranges``, and the
    dataset that it does not fit.
    """
    by_partition = bool(keys or ranges)
    if isinstance(job, JobSpec) and kind_of(job.source).is_log and not by_partition:
        return select_open_partitions(job, datasets, urns=urns)
    if job.takes_all_partitions and not by_partition:
        return {urn: tuple(_list_all(datasets[urn])) for urn in find_datasets(job.job, datasets, urns)}
    chosen = find_datasets(job.job, datasets, urns) if urns else _choose(job, datasets, by_partition=by_partition)
    # Datasets of equal partitions have the same ones: hundreds of tables by days would find each day hundreds of times.
    found: dict[tuple[PartitionsSpec, bool], tuple[AssetPartition, ...]] = {}
    for spec in (datasets[urn] for urn in chosen):
        alike = spec.partitions, spec.finds_partitions
        if alike not in found:
            found[alike] = tuple(_select(spec, keys, ranges, begun_by))
    return {urn: found[datasets[urn].partitions, datasets[urn].finds_partitions] for urn in chosen}


def select_missing(
    job: JobOptions,
    datasets: Datasets,
    published: Mapping[DatasetUrn, Mapping[str, dt.datetime]],
    *,
    urns: Sequence[str] = (),
    now: dt.datetime,
    limit: int,
    ended_by: dt.datetime | None = None,
) -> dict[DatasetUrn, tuple[AssetPartition, ...]]:
    """What is to be published of each dataset where nobody named a partition. Pure.

    Datasets without partitions as wholes. Of the others, at most ``limit`` of each, the oldest ones, in order: windows
    that are over at ``now`` and were not published since, and static keys that are not published. ``ended_by``, aware:
    no window that ends later, however late it is when a run of that time comes to begin. ``published``: of
    each partition whose latest publication is complete, when the run began that made it. Datasets of which nothing is
    missing are left out. Logs, and jobs that take all partitions, as ``select_partitions`` selects them.
    RejectedError for a dataset whose partitions only a person can name.
    """
    if job.takes_all_partitions or (isinstance(job, JobSpec) and kind_of(job.source).is_log):
        return select_partitions(job, datasets, urns=urns, begun_by=now)
    missing = (
        (urn, _list_missing(datasets[urn], published.get(urn, {}), now, ended_by))
        for urn in find_datasets(job.job, datasets, urns)
    )
    chosen = {urn: tuple(islice(each, limit)) for urn, each in missing}
    return {urn: partitions for urn, partitions in chosen.items() if partitions}


def measure_wait_s(datasets: Datasets, ended_by: dt.datetime, now: dt.datetime) -> float:
    """After how many seconds from ``now`` on all rows of the windows are there that end by ``ended_by``."""
    timed = [spec for spec in datasets.values() if spec.partitions.kind.is_time]
    ready = (find_last_boundary(spec.partitions, ended_by) + _measure_lateness(spec) for spec in timed)
    return max([0.0, *((each - now).total_seconds() for each in ready)])


def leave_published(
    datasets: Datasets, selection: Selection, published: Mapping[DatasetUrn, Mapping[str, dt.datetime]]
) -> dict[DatasetUrn, tuple[AssetPartition, ...]]:
    """The selection without windows that were published once all of their rows were there. ``published``: as above."""
    kept = {}
    for urn, partitions in selection.items():
        wait, read_at = _measure_lateness(datasets[urn]), published.get(urn, {})
        kept[urn] = tuple(each for each in partitions if not _is_complete(each, read_at, wait))
    return {urn: partitions for urn, partitions in kept.items() if partitions}


def _is_complete(partition: AssetPartition, read_at: Mapping[str, dt.datetime], wait: dt.timedelta) -> bool:
    at = read_at.get(partition.key or "")
    return at is not None and partition.window is not None and at >= partition.window.end + wait


def _measure_lateness(spec: DatasetOptions) -> dt.timedelta:
    """Rows of a window still come for so long. What was read before that is not all of it."""
    watermark = spec.watermark if isinstance(spec, DatasetSpec) else None
    return dt.timedelta(seconds=_CLOCKS_DIFFER_S + (0.0 if watermark is None else watermark.commit_lag_s))


def _list_missing(
    spec: DatasetOptions, published: Mapping[str, dt.datetime], now: dt.datetime, ended_by: dt.datetime | None
) -> Iterator[AssetPartition]:
    kind = spec.partitions.kind
    if kind is PartitionKind.DYNAMIC:
        raise RejectedError(
            f"the dataset {spec.urn!r} has dynamic partitions, and nobody can say which are missing",
            field="partitions",
            hint="Name them, or name other datasets.",
        )
    if not kind.is_time:
        yield from (each for each in _list_all(spec) if each.key is None or each.key not in published)
        return
    wait = _measure_lateness(spec)
    ended = now - wait if ended_by is None else min(now - wait, ended_by)
    for partition in list_ended_windows(spec, ended):
        if not _is_complete(partition, published, wait):
            yield partition


def select_open_partitions(
    job: JobOptions, datasets: Datasets, *, urns: Sequence[str] = ()
) -> dict[DatasetUrn, tuple[AssetPartition, ...]]:
    """Of logs, what they are read into now. RejectedError for a dataset that is not the job's."""
    now = dt.datetime.now(dt.UTC)
    return {urn: (open_partition(datasets[urn], now),) for urn in find_datasets(job.job, datasets, urns)}


def has_partitions(spec: DatasetOptions) -> bool:
    return spec.partitions.kind is not PartitionKind.NONE


def _choose(job: JobOptions, datasets: Datasets, *, by_partition: bool) -> list[DatasetUrn]:
    chosen = [urn for urn, spec in datasets.items() if has_partitions(spec) == by_partition]
    if not chosen:
        have = "no dataset with partitions" if by_partition else "only datasets with partitions"
        raise RejectedError(
            f"the job {job.job} has {have}",
            field="partitions",
            hint="Leave them out." if by_partition else "Name some, or a range of them.",
        )
    return chosen


def _list_all(spec: DatasetOptions) -> Iterator[AssetPartition]:
    if spec.partitions.kind is PartitionKind.STATIC:
        yield from (asset_partition(spec, key) for key in spec.partitions.keys)
    else:
        yield asset_partition(spec, None)


def _select(
    spec: DatasetOptions, keys: Sequence[str], ranges: Sequence[tuple[str, str]], begun_by: dt.datetime | None
) -> Iterator[AssetPartition]:
    if not keys and not ranges:
        yield asset_partition(spec, None)
    # Key by key, so that a range into the far future is refused at its first window that has not begun.
    for key in _each_once([*keys], *(_expand(spec, *each) for each in ranges)):
        yield _require_begun(spec, asset_partition(spec, key), begun_by)


def _each_once(*keys: Iterable[str]) -> Iterator[str]:
    seen = set()
    for key in chain(*keys):
        if key not in seen:
            seen.add(key)
            yield key


def _require_begun(spec: DatasetOptions, partition: AssetPartition, now: dt.datetime | None) -> AssetPartition:
    window = partition.window
    if now is not None and window is not None and window.start > now:
        raise RejectedError(
            f"the partition {partition.key} of {spec.urn!r} begins at {window.start:%Y-%m-%d %H:%M}Z, in the future",
            field="partitions",
            hint="Correct it, or ask for the future (--future) if its rows are there already.",
        )
    return partition


def _expand(spec: DatasetOptions, first: str, last: str) -> Iterator[str]:
    """The keys from ``first`` to ``last``. RejectedError where these are no range of the dataset's partitions."""
    kind = spec.partitions.kind
    if kind is PartitionKind.NONE:
        said = f"the dataset {spec.urn!r} has no partitions, and so no range of them"
        raise _no_range(said, "Leave the range out, or name other datasets.")
    if kind is PartitionKind.DYNAMIC:
        said = f"the dataset {spec.urn!r} has dynamic partitions, and so no range of them"
        raise _no_range(said, "Name each partition.")
    for key in (first, last):
        asset_partition(spec, key)  # says what is wrong with the key
    if kind is PartitionKind.STATIC:
        known = spec.partitions.keys
        found = iter(known[known.index(first) : known.index(last) + 1])
        shown = ", ".join(known) if len(known) <= _NAMED_MAX else f"{known[0]} to {known[-1]}"
        hint = f"Its partitions, in order, are: {shown}."
    else:
        found, hint = list_time_partitions(spec, first, last), "Name the earlier one first."
    begin = next(found, None)
    if begin is None:
        raise _no_range(f"{first}...{last} is no range of partitions of {spec.urn!r}", hint)
    yield begin
    yield from found


def _no_range(message: str, hint: str) -> RejectedError:
    return RejectedError(message, field="partition_ranges", hint=hint)
