"""From a Dagster partition key to the window or name that bounds one materialization.

Keys are written as Dagster writes them by default: ``%Y-%m-%d-%H:%M`` for hours, ``%Y-%m-%d`` for days, weeks
(which begin on Sunday) and months, in the partitions' zone. Where clocks go back, the second of two equal
hours carries its UTC offset; an hour, or a midnight, that clocks jump over begins where they land.
"""

import datetime as dt
from typing import Final
from zoneinfo import ZoneInfo

from gobblin_assets.errors import RejectedError
from gobblin_assets.ingest.job_spec import DatasetSpec, PartitionsSpec
from gobblin_assets.model.partition import WHOLE, AssetPartition, PartitionKind, PartitionWindow

HOURLY_FORMAT: Final = "%Y-%m-%d-%H:%M"
DATE_FORMAT: Final = "%Y-%m-%d"
_OFFSET: Final = "%z"
_HOUR: Final = dt.timedelta(hours=1)
_DAY: Final = dt.timedelta(days=1)
_SUNDAY: Final = 6

# What Dagster refuses inside a key: its range notation, and control characters.
_REFUSED_IN_KEYS: Final = ("...", "\a", "\b", "\f", "\n", "\r", "\t", "\v", "\0")


def asset_partition(spec: DatasetSpec, key: str | None) -> AssetPartition:
    """The partition that ``key`` names. ``spec`` must be resolved: its URN is what errors name.

    A key that Dagster would not offer for this dataset is a RejectedError: before the start, not below the end,
    not the beginning of a window, not in the static list. Whether a window has ended by now isn't asked.
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
        return AssetPartition(key, _window_of(spec, key))
    if found := [part for part in _REFUSED_IN_KEYS if part in key]:
        raise _refuse(spec, f"expected a key without {found[0]!a}, found {key[:120]!a}", "Dagster refuses such keys.")
    if kind is PartitionKind.STATIC and key not in partitions.keys:
        raise _refuse(
            spec,
            f"expected one of {', '.join(map(repr, partitions.keys[:20]))}, found {key[:120]!a}",
            "Choose one of these, or add the key to partitions.keys.",
        )
    return AssetPartition(key)


def open_partition(spec: DatasetSpec, now: dt.datetime) -> AssetPartition:
    """The partition of a log that holds what is read at ``now``, which is aware: its window, or the whole dataset.

    RejectedError: ``now`` lies before the first window, or behind the last.
    """
    partitions = spec.partitions
    if not partitions.kind.is_time:
        return WHOLE
    local = now.astimezone(ZoneInfo(partitions.zone))
    start = _window_start(partitions.kind, local.replace(tzinfo=None, fold=0))
    key = start.strftime(format_of(partitions.kind))
    if partitions.kind is PartitionKind.HOURLY and local.fold:
        key += local.strftime(_OFFSET)
    return asset_partition(spec, key)


def _window_start(kind: PartitionKind, wall: dt.datetime) -> dt.datetime:
    """The last beginning of a window at or before ``wall``."""
    if kind is PartitionKind.HOURLY:
        return wall.replace(minute=0, second=0, microsecond=0)
    day = wall.replace(hour=0, minute=0, second=0, microsecond=0)
    if kind is PartitionKind.WEEKLY:
        return day - ((day.weekday() - _SUNDAY) % 7) * _DAY
    return day.replace(day=1) if kind is PartitionKind.MONTHLY else day


def first_window_start(kind: PartitionKind, moment: dt.date | dt.datetime) -> dt.datetime:
    """The first beginning of a window of that kind, as wall time, at or after ``moment``."""
    wall = moment.replace(tzinfo=None) if isinstance(moment, dt.datetime) else dt.datetime.combine(moment, dt.time())
    if kind is PartitionKind.HOURLY:
        floor = wall.replace(minute=0, second=0, microsecond=0)
        return floor if floor == wall else floor + _HOUR
    floor = wall.replace(hour=0, minute=0, second=0, microsecond=0)
    day = floor if floor == wall else floor + _DAY
    if kind is PartitionKind.WEEKLY:
        return day + ((_SUNDAY - day.weekday()) % 7) * _DAY
    if kind is PartitionKind.MONTHLY and day.day != 1:
        return _next_month(day)
    return day


def format_of(kind: PartitionKind) -> str:
    """The key format of a kind of time partition, in strftime's words."""
    return HOURLY_FORMAT if kind is PartitionKind.HOURLY else DATE_FORMAT


def to_utc(wall: dt.datetime, zone: ZoneInfo, *, second: bool = False) -> dt.datetime:
    """The instant of a wall time; of two equal ones the first, unless ``second``."""
    return wall.replace(tzinfo=zone, fold=int(second)).astimezone(dt.UTC)


def boundary_of(partitions: PartitionsSpec, moment: dt.date | dt.datetime) -> dt.datetime:
    """The instant of a configured ``start`` or ``end``: a wall time in the partitions' zone, or aware as it is."""
    if isinstance(moment, dt.datetime) and moment.tzinfo is not None:
        return moment.astimezone(dt.UTC)
    wall = moment if isinstance(moment, dt.datetime) else dt.datetime.combine(moment, dt.time())
    return to_utc(wall, ZoneInfo(partitions.zone))


def _window_of(spec: DatasetSpec, key: str) -> PartitionWindow:
    partitions = spec.partitions
    zone = ZoneInfo(partitions.zone)
    wall, offset = _parse_key(spec, key)
    if first_window_start(partitions.kind, wall) != wall:
        aligned = first_window_start(partitions.kind, wall).strftime(format_of(partitions.kind))
        raise _refuse(
            spec, f"no {partitions.kind} partition begins at {key!a}", f"The next one that could is {aligned!r}."
        )
    start = to_utc(wall, zone)
    if offset is not None:
        start = to_utc(wall, zone, second=True)
        if start == to_utc(wall, zone) or start.astimezone(zone).utcoffset() != offset:
            raise _refuse(spec, f"{key!a} is no repeated hour in {partitions.zone}", "Leave the UTC offset out.")
    elif partitions.kind is PartitionKind.HOURLY and start.astimezone(zone).replace(tzinfo=None) != wall:
        raise _refuse(spec, f"clocks in {partitions.zone} jump over {key!a}", "Name the hour after it.")
    window = PartitionWindow(start, _end_of(partitions.kind, wall, start, zone))
    if partitions.start is not None and window.start < boundary_of(partitions, partitions.start):
        raise _refuse(spec, f"{key!a} lies before the first partition", f"The start is {partitions.start}.")
    if partitions.end is not None and window.end > boundary_of(partitions, partitions.end):
        raise _refuse(spec, f"{key!a} lies after the last partition", f"The end is {partitions.end}.")
    return window


def _parse_key(spec: DatasetSpec, key: str) -> tuple[dt.datetime, dt.timedelta | None]:
    """The key's wall time, and the UTC offset that it carries, if any. Only Dagster's own spelling is taken."""
    layout = format_of(spec.partitions.kind)
    layouts = (layout, layout + _OFFSET) if spec.partitions.kind is PartitionKind.HOURLY else (layout,)
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


def _end_of(kind: PartitionKind, wall: dt.datetime, start: dt.datetime, zone: ZoneInfo) -> dt.datetime:
    match kind:
        case PartitionKind.HOURLY:
            return start + _HOUR
        case PartitionKind.DAILY:
            return to_utc(wall + _DAY, zone)
        case PartitionKind.WEEKLY:
            return to_utc(wall + 7 * _DAY, zone)
        case _:
            return to_utc(_next_month(wall), zone)


def _next_month(wall: dt.datetime) -> dt.datetime:
    first = wall.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return (first + 31 * _DAY).replace(day=1)


def _refuse(spec: DatasetSpec, message: str, hint: str) -> RejectedError:
    return RejectedError(f"dataset {spec.urn!a}: {message}", field="partition", hint=hint)
