"""Turns a Dagster partition key into the window or name that bounds one materialization.

``time_windows`` says which windows there are and how their keys are written.
"""

import datetime as dt
from collections.abc import Iterator
from typing import Final
from zoneinfo import ZoneInfo

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.partition import (
    HINT_OF_KEYS,
    WHOLE,
    AssetPartition,
    PartitionKind,
    PartitionWindow,
    find_wrong_in_key,
)
from gobblin_assets.model.time_windows import (
    DATE_FORMAT,
    HOURLY_FORMAT,
    OFFSET_FORMAT,
    CalendarWindows,
    HourlyWindows,
    first_day_from,
    hourly_windows,
    to_utc,
)
from gobblin_assets.spec.job_options import DatasetOptions, PartitionsSpec

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_KEYS_SHOWN: Final = 20


def asset_partition(spec: DatasetOptions, key: str | None) -> AssetPartition:
    """The partition that ``key`` names. ``spec`` must be resolved: its URN is what errors name.

    A key that Dagster would not offer for this dataset is a RejectedError: before the start, not below the end,
    not the beginning of a window, not in the static list. A window need not have ended by now.
    """
    partitions = spec.partitions
    kind = partitions.kind
    if kind is PartitionKind.NONE:
        if key:
            raise _refuse(spec, f"expected no partition, found {key!a}", "The dataset has no partitions: leave it out.")
        return WHOLE
    if not key:
        raise _refuse(spec, "expected a partition key, found none", f"Name one of its {kind} partitions.")
    if kind.is_time:
        try:
            return AssetPartition(key, _require_within(spec, key, _window_of(spec, key)))
        except OverflowError:
            raise _refuse(
                spec, f"{key!a} lies at an end of the calendar", "Name a partition that holds rows."
            ) from None
    if (wrong := find_wrong_in_key(key)) is not None:
        raise _refuse(spec, f"expected a key without {wrong!a}, found {key[:120]!a}", HINT_OF_KEYS)
    if kind is PartitionKind.STATIC and key not in partitions.keys and spec.finds_partitions:
        raise _refuse(
            spec,
            f"no file set is there for the key {key[:120]!a}; the source was searched",
            f"It has: {', '.join(partitions.keys[-_KEYS_SHOWN:]) or 'none'}.",
        )
    if kind is PartitionKind.STATIC and key not in partitions.keys:
        raise _refuse(
            spec,
            f"expected one of {', '.join(map(repr, partitions.keys[:20]))}, found {key[:120]!a}",
            "Choose one of these, or add the key to partitions.keys.",
        )
    return AssetPartition(key)


def open_partition(spec: DatasetOptions, now: dt.datetime) -> AssetPartition:
    """The partition of a log for records that are read at ``now``, which is aware: its window, or the whole dataset.

    RejectedError: ``now`` lies before the first window, or after the last.
    """
    partitions = spec.partitions
    if not partitions.kind.is_time:
        return WHOLE
    windows = _windows_of(partitions)
    window = windows.containing(now)
    key = windows.key_of(window)
    return AssetPartition(key, _require_within(spec, key, window))


def list_time_partitions(spec: DatasetOptions, first: str, last: str) -> Iterator[str]:
    """The keys from ``first`` to ``last``, both included; none if they stand the other way round.

    RejectedError as ``asset_partition`` raises it.
    """
    windows = _windows_of(spec.partitions)
    window, end = asset_partition(spec, first).window, asset_partition(spec, last).window
    while window is not None and end is not None and _order_of(window) <= _order_of(end):
        yield windows.key_of(window)
        window = windows.after(window)


def list_ended_windows(spec: DatasetOptions, now: dt.datetime) -> Iterator[AssetPartition]:
    """The windows that are over at ``now``, from the first one on."""
    partitions = spec.partitions
    windows = _windows_of(partitions)
    last = now if partitions.end is None else min(now, boundary_of(partitions, partitions.end))
    edge = now if partitions.start is None else boundary_of(partitions, partitions.start)
    window = windows.containing(edge)
    if window.start < edge:
        window = windows.after(window)
    while window.end <= last:
        yield AssetPartition(windows.key_of(window), window)
        window = windows.after(window)


def find_last_boundary(partitions: PartitionsSpec, moment: dt.datetime) -> dt.datetime:
    """The last time up to ``moment`` at which a window ended and another one began."""
    return _windows_of(partitions).containing(moment).start


def _order_of(window: PartitionWindow) -> tuple[dt.datetime, tuple[dt.date, ...]]:
    # The window of a day that a zone leaves out begins where the next one does.
    return window.start, window.days or ()


def _windows_of(partitions: PartitionsSpec) -> HourlyWindows | CalendarWindows:
    zone = ZoneInfo(partitions.zone)
    if partitions.kind is not PartitionKind.HOURLY:
        return CalendarWindows(partitions.kind, zone)
    return hourly_windows(_EPOCH if partitions.start is None else boundary_of(partitions, partitions.start), zone)


def boundary_of(partitions: PartitionsSpec, moment: dt.date | dt.datetime) -> dt.datetime:
    """The instant of a configured ``start`` or ``end``: a wall time in the partitions' zone, or aware as it is."""
    if isinstance(moment, dt.datetime) and moment.tzinfo is not None:
        return moment.astimezone(dt.UTC)
    wall = moment if isinstance(moment, dt.datetime) else dt.datetime.combine(moment, dt.time())
    return to_utc(wall, ZoneInfo(partitions.zone))


def find_later_window(partitions: PartitionsSpec, moment: dt.date | dt.datetime) -> str | None:
    """Where the first window begins after a configured ``start`` or ``end``; None if one begins right there.

    As these fields take it. ``partitions`` have a start. OverflowError: there is none within the calendar.
    """
    windows, edge = _windows_of(partitions), boundary_of(partitions, moment)
    window = windows.containing(edge)
    if window.start == edge:
        return None
    later = windows.after(window).start.astimezone(ZoneInfo(partitions.zone))
    wall = later.replace(tzinfo=None)
    if boundary_of(partitions, wall) != later:
        # The clock shows this time twice.
        return later.isoformat(sep=" ")
    return wall.date().isoformat() if wall.time() == dt.time() else wall.isoformat(sep=" ")


def _window_of(spec: DatasetOptions, key: str) -> PartitionWindow:
    partitions = spec.partitions
    zone = ZoneInfo(partitions.zone)
    wall, offset = _parse_key(spec, key)
    windows = _windows_of(partitions)
    if isinstance(windows, CalendarWindows):
        if (aligned := first_day_from(partitions.kind, wall.date())) != wall.date():
            raise _no_window(spec, key, aligned.strftime(DATE_FORMAT))
        return windows.begin_on(wall.date())
    # Keys are cut to minutes, and offsets may have seconds: so the window begins at this instant, or within the minute.
    # Where clocks jump into the middle of that minute, the instant is found by the offset behind the jump.
    passes = [to_utc(wall.replace(fold=fold), zone) for fold in (0, 1)]
    for instant in passes if offset is None else [(wall - offset).replace(tzinfo=dt.UTC)]:
        window = windows.first_from(instant)
        if windows.key_of(window) == key:
            return window
    if offset is not None:
        raise _refuse(spec, f"{key!a} is no repeated hour in {partitions.zone}", "Leave the UTC offset out.")
    if passes[0].astimezone(zone).replace(tzinfo=None) != wall:
        raise _refuse(spec, f"clocks in {partitions.zone} jump over {key!a}", "Name the hour after it.")
    raise _no_window(spec, key, windows.key_of(windows.first_from(passes[0])))


def _require_within(spec: DatasetOptions, key: str, window: PartitionWindow) -> PartitionWindow:
    partitions = spec.partitions
    if partitions.start is not None and window.start < boundary_of(partitions, partitions.start):
        raise _refuse(spec, f"{key!a} lies before the first partition", f"The start is {partitions.start}.")
    if partitions.end is not None and window.end > boundary_of(partitions, partitions.end):
        raise _refuse(spec, f"{key!a} lies after the last partition", f"The end is {partitions.end}.")
    return window


def _parse_key(spec: DatasetOptions, key: str) -> tuple[dt.datetime, dt.timedelta | None]:
    """The key's wall time, and the UTC offset that it carries, if any. Only Dagster's own spelling is taken."""
    layout = HOURLY_FORMAT if spec.partitions.kind is PartitionKind.HOURLY else DATE_FORMAT
    layouts = (layout, layout + OFFSET_FORMAT) if spec.partitions.kind is PartitionKind.HOURLY else (layout,)
    for each in layouts:
        try:
            # The zone, where the key has one, is kept; it only tells two equal hours apart.
            moment = dt.datetime.strptime(key, each)  # noqa: DTZ007  a key is a wall time in the partitions' zone
        except ValueError:
            continue
        if moment.strftime(each) == key:
            return moment.replace(tzinfo=None), moment.utcoffset()
    raise _refuse(
        spec,
        f"expected a key like {dt.datetime(2013, 1, 31, 5).strftime(layout)!r}, found {key[:120]!a}",  # noqa: DTZ001  an example
        f"Keys of {spec.partitions.kind} partitions are written as {layout}.",
    )


def _no_window(spec: DatasetOptions, key: str, following: str) -> RejectedError:
    said = f"no {spec.partitions.kind} partition begins at {key!a}"
    return _refuse(spec, said, f"The next one that could is {following!r}.")


def _refuse(spec: DatasetOptions, message: str, hint: str) -> RejectedError:
    return RejectedError(f"dataset {spec.urn!a}: {message}", field="partition", hint=hint)
