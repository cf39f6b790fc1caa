"""Asset partitions as values: the window or the name that one materialization is bounded by."""

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum


class PartitionKind(StrEnum):
    """How a dataset is divided into Dagster partitions."""

    NONE = "none"
    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    STATIC = "static"
    DYNAMIC = "dynamic"

    @property
    def is_time(self) -> bool:
        return self in (PartitionKind.HOURLY, PartitionKind.DAILY, PartitionKind.WEEKLY, PartitionKind.MONTHLY)


@dataclass(frozen=True, slots=True)
class PartitionWindow:
    """``start <= t < end``, both aware and in UTC; empty where they are equal.

    ``days``: the first day and the day after the last, of windows that are whole days of a calendar. They differ also
    where no clock ever showed the day.
    """

    start: dt.datetime
    end: dt.datetime
    days: tuple[dt.date, dt.date] | None = None


@dataclass(frozen=True, slots=True)
class AssetPartition:
    """One partition of a dataset. ``key`` None: the dataset has no partitions.

    ``window`` is set for time partitions; a static or dynamic partition is the rows whose partition column
    equals ``key``.
    """

    key: str | None = None
    window: PartitionWindow | None = None

    def __str__(self) -> str:
        return "(whole)" if self.key is None else self.key


WHOLE = AssetPartition()
