"""Asset partitions as values: the window or the name that one materialization is bounded by."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gobblin_assets.model.urn import DatasetUrn

_REFUSED_IN_KEYS: Final = ("...", "\a", "\b", "\f", "\n", "\r", "\t", "\v", "\0")
"""Dagster's range notation, and control characters."""

HINT_OF_KEYS: Final = "Dagster refuses such keys."


class PartitionKind(StrEnum):
    """The way in which a dataset is divided into Dagster partitions."""

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
    """A window of time: ``start <= t < end``, both aware and in UTC; empty where they are equal.

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


def find_wrong_in_key(key: str) -> str | None:
    """What of a partition's key Dagster or the log would refuse: a part of it, or None."""
    surrogate = next((letter for letter in key if "\ud800" <= letter <= "\udfff"), None)
    return next((part for part in _REFUSED_IN_KEYS if part in key), surrogate)


def find_common_keys(selection: Mapping[DatasetUrn, Sequence[AssetPartition]]) -> tuple[str, str, int] | None:
    """The least and the greatest key, and how many, if all of a selection have the same keys; None without keys."""
    chosen = {frozenset(partition.key for partition in each) for each in selection.values()}
    keys = [key for key in next(iter(chosen)) if key is not None] if len(chosen) == 1 else []
    return (min(keys), max(keys), len(keys)) if keys else None
