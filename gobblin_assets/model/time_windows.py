"""The windows of time partitions, exactly as in Dagster's definitions, from a zone's own transitions. Pure.

Days, weeks and months begin at a midnight of the zone's calendar. If a day has two midnights, the first counts; if
clocks jump over a midnight, the offset before the jump gives its instant. A day that a zone skips (Apia, 2011-12-30) is
an empty window. Hours are whole hours since the first window; if a zone moves its clocks by less than an hour (Lord
Howe: 30 minutes), hours no longer begin at the full hour, and their keys say so. A window always ends where the next
one begins.

Keys are written as Dagster writes them by default: ``%Y-%m-%d-%H:%M`` for hours, with the UTC offset after a time that
clocks show for the second time, and ``%Y-%m-%d`` for the others; weeks begin on Sunday.
"""

import datetime as dt
from dataclasses import dataclass
from typing import Final
from zoneinfo import ZoneInfo

from gobblin_assets.model.partition import PartitionKind, PartitionWindow

HOURLY_FORMAT: Final = "%Y-%m-%d-%H:%M"
DATE_FORMAT: Final = "%Y-%m-%d"
OFFSET_FORMAT: Final = "%z"
_HOUR: Final = dt.timedelta(hours=1)
_DAY: Final = dt.timedelta(days=1)
_MONTH_MAX: Final = dt.timedelta(days=31)
_SUNDAY: Final = 6


@dataclass(frozen=True, slots=True)
class HourlyWindows:
    """Hours since ``first``, the beginning of the first one, in UTC."""

    zone: ZoneInfo
    first: dt.datetime

    def key_of(self, window: PartitionWindow) -> str:
        local = window.start.astimezone(self.zone)
        return local.strftime(HOURLY_FORMAT + OFFSET_FORMAT if local.fold else HOURLY_FORMAT)

    def containing(self, moment: dt.datetime) -> PartitionWindow:
        return self._begin_at(self.first + (moment - self.first) // _HOUR * _HOUR)

    def first_from(self, moment: dt.datetime) -> PartitionWindow:
        """The first that begins at ``moment`` or later."""
        return self._begin_at(self.first - (self.first - moment) // _HOUR * _HOUR)

    def after(self, window: PartitionWindow) -> PartitionWindow:
        return self._begin_at(window.end)

    def _begin_at(self, start: dt.datetime) -> PartitionWindow:
        return PartitionWindow(start, start + _HOUR)


@dataclass(frozen=True, slots=True)
class CalendarWindows:
    """Days, weeks or months of the zone's calendar."""

    kind: PartitionKind
    zone: ZoneInfo

    def key_of(self, window: PartitionWindow) -> str:
        return _days_of(window)[0].strftime(DATE_FORMAT)

    def begin_on(self, day: dt.date) -> PartitionWindow:
        """The window of which ``day`` is the first."""
        after = first_day_from(self.kind, day + _DAY)
        return PartitionWindow(self._midnight(day), self._midnight(after), (day, after))

    def containing(self, moment: dt.datetime) -> PartitionWindow:
        found = self.begin_on(_last_day_until(self.kind, moment.astimezone(self.zone).date()))
        # A midnight that is shown twice, or jumped over, lies beside what the clocks show at the moment.
        while found.start > moment:
            found = self.begin_on(_last_day_until(self.kind, _days_of(found)[0] - _DAY))
        while found.end <= moment:
            found = self.after(found)
        return found

    def after(self, window: PartitionWindow) -> PartitionWindow:
        return self.begin_on(_days_of(window)[1])

    def _midnight(self, day: dt.date) -> dt.datetime:
        return to_utc(dt.datetime.combine(day, dt.time()), self.zone)


def hourly_windows(start: dt.datetime, zone: ZoneInfo) -> HourlyWindows:
    """``start`` is aware; the first window begins where clocks next show a full hour."""
    local = start.astimezone(zone)
    past = dt.timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
    return HourlyWindows(zone, start.astimezone(dt.UTC) + (_HOUR - past if past else past))


def to_utc(wall: dt.datetime, zone: ZoneInfo) -> dt.datetime:
    """The instant of a wall time: of two the first, unless its ``fold`` is set."""
    return wall.replace(tzinfo=zone).astimezone(dt.UTC)


def first_day_from(kind: PartitionKind, day: dt.date) -> dt.date:
    """The first day of a window of that kind, at or after ``day``."""
    if kind is PartitionKind.WEEKLY:
        return day + ((_SUNDAY - day.weekday()) % 7) * _DAY
    if kind is PartitionKind.MONTHLY and day.day != 1:
        return (day.replace(day=1) + _MONTH_MAX).replace(day=1)
    return day


def _last_day_until(kind: PartitionKind, day: dt.date) -> dt.date:
    if kind is PartitionKind.WEEKLY:
        return day - ((day.weekday() - _SUNDAY) % 7) * _DAY
    return day.replace(day=1) if kind is PartitionKind.MONTHLY else day


def _days_of(window: PartitionWindow) -> tuple[dt.date, dt.date]:
    if window.days is None:
        raise AssertionError("a window of the calendar has its days")
    return window.days
