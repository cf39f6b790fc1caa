"""Schedules of flows: cron or Quartz in the zone of each flow, their spread, and maintenance windows.

An expression says times of the wall clock. Where the clock is changed, times are as Debian's cron takes them:

- Of fixed times (neither minute nor hour begins with a star), one that the clock leaves out comes at once when the
  clock has gone on, and one that the clock shows twice comes the first time only.
- Otherwise a slot is wherever the clock shows its time: none in what is left out, and two where it is shown twice.

cronsim finds times of the wall clock. Their instants are found here: of zones that change by half an hour, such as
Australia/Lord_Howe, cronsim leaves out slots.
"""

import datetime as dt
import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from gobblin_assets.model.time_windows import to_utc
from gobblin_assets.service.quartz import refuse_schedule, translate_quartz
from gobblin_assets.spec.dataset_rules import check_zone

CONTINUOUS: Final = "@continuous"

_MACROS: Final = MappingProxyType(
    {
        "@hourly": "0 * * * *",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@weekly": "0 0 * * 0",
        "@monthly": "0 0 1 * *",
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
    }
)
_PARTS: Final = ("minute", "hour", "day of the month", "month", "day of the week")
_QUARTZ_PARTS: Final = (6, 7)
_LENGTH_MAX: Final = 200

_SECOND: Final = dt.timedelta(seconds=1)
_MINUTE: Final = dt.timedelta(minutes=1)
_DAY: Final = dt.timedelta(days=1)
_BEGIN: Final = dt.datetime(2000, 1, 1)  # noqa: DTZ001  a time of the wall clock
_MONDAY: Final = dt.datetime(2024, 1, 1)  # noqa: DTZ001  the same
_HASH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Schedule:
    """Slots in time. ``text``: as it was written. ``zone``: an IANA name.

    ``cron``: five fields; none for a flow that always runs. Slots come at ``second`` of the minutes that it names, in
    ``years``, or in each year. Each comes later by the same share of ``spread_s``, and before the next one of ``cron``.
    """

    text: str
    zone: str
    cron: str = ""
    second: int = 0
    years: frozenset[int] | None = None
    spread_s: int = 0
    spread_hash: int = 0

    @property
    def is_continuous(self) -> bool:
        """The flow always runs: it has no slots."""
        return not self.cron

    def spread(self, flow_id: uuid.UUID, spread_s: int) -> "Schedule":
        """The slots of this flow: each later by less than ``spread_s``, so that flows of one schedule don't meet."""
        digest = hashlib.sha256(flow_id.bytes).digest()
        return replace(self, spread_s=spread_s, spread_hash=int.from_bytes(digest[:_HASH_BYTES], "big"))

    def next_after(self, moment: dt.datetime) -> dt.datetime | None:
        """The first slot behind ``moment``, in UTC. ``moment`` is aware. None: there is none within 50 years."""
        if self.is_continuous:
            return None
        moment = moment.astimezone(dt.UTC)
        slot = self._find_last(moment) if self.spread_s else self._find(moment)
        while slot is not None and self.spread_s:
            later = self._find(slot)
            span_s = self.spread_s if later is None else min(self.spread_s, (later - slot) // _SECOND)
            at = slot + (self.spread_hash * span_s >> 8 * _HASH_BYTES) * _SECOND
            if at > moment:
                return at
            slot = later
        return slot

    def list_slots(self, after: dt.datetime, up_to: dt.datetime, limit: int) -> Sequence[dt.datetime]:
        """The slots behind ``after`` and not behind ``up_to``: the first ``limit`` of them."""
        slots: list[dt.datetime] = []
        while len(slots) < limit and (slot := self.next_after(slots[-1] if slots else after)) is not None:
            if slot > up_to:
                break
            slots.append(slot)
        return slots

    def _find_last(self, moment: dt.datetime) -> dt.datetime | None:
        """The last slot of the last ``spread_s`` that is not behind ``moment``; else the first one behind it.

        No slot before it comes behind ``moment``: each is spread to before the next one.
        """
        # Back by doubled steps, then between the last two of them: a schedule may have thousands of slots in a spread.
        back_s, high = min(60, self.spread_s), moment
        while (slot := self._find(moment - back_s * _SECOND)) is None or slot > moment:
            if back_s == self.spread_s:
                return slot
            high = moment - back_s * _SECOND
            back_s = min(2 * back_s, self.spread_s)
        while high - slot >= _MINUTE:
            middle = slot + (high - slot) / 2
            found = self._find(middle)
            if found is None or found > moment:
                high = middle
            else:
                slot = found
        return slot

    def _find(self, moment: dt.datetime) -> dt.datetime | None:
        """The first slot behind ``moment`` that is not spread."""
        shift = self.second * _SECOND
        found = self._find_minute(moment - shift)
        return None if found is None else found + shift

    def _find_minute(self, moment: dt.datetime) -> dt.datetime | None:
        zone = ZoneInfo(self.zone)
        local = moment.astimezone(zone)
        if self._is_fixed:
            times = (_first_instant(wall, zone) for wall in self._list_wall_times(local.replace(tzinfo=None)))
            return next((instant for instant in times if instant > moment), None)
        wall_from = local.replace(tzinfo=None)
        if (back_at := _find_set_back(moment, zone)) is not None:
            # The clock shows some times again. What comes before that is found first, then what comes from it on.
            offset = local.utcoffset() or dt.timedelta()
            wall = next(self._list_wall_times(wall_from), None)
            if wall is not None and (wall - offset).replace(tzinfo=dt.UTC) < back_at:
                return (wall - offset).replace(tzinfo=dt.UTC)
            moment = back_at - _SECOND
            wall_from = back_at.astimezone(zone).replace(tzinfo=None) - _SECOND
        return next(
            (
                instant
                for wall in self._list_wall_times(wall_from)
                for instant in _list_instants(wall, zone)
                if instant > moment
            ),
            None,
        )

    def _list_wall_times(self, behind: dt.datetime) -> Iterator[dt.datetime]:
        """Times of a clock that nobody changes."""
        times = CronSim(self.cron, behind)
        while True:
            try:
                wall = next(times)
            except (StopIteration, OverflowError):
                return
            if self.years is None or wall.year in self.years:
                yield wall
                continue
            later = min((year for year in self.years if year > wall.year), default=None)
            if later is None:
                return
            times = CronSim(self.cron, dt.datetime(later, 1, 1) - _SECOND)  # noqa: DTZ001  a time of the wall clock

    @property
    def _is_fixed(self) -> bool:
        minute, hour = self.cron.split()[:2]
        return not minute.startswith("*") and not hour.startswith("*")


@dataclass(frozen=True, slots=True)
class DailyWindow:
    """A time of some days in which flows don't start. One that ends before it begins goes on to the next day.

    ``days``: of its begin, Monday is 0.
    """

    begin: dt.time
    end: dt.time
    days: frozenset[int]


def find_window_end(windows: Sequence[DailyWindow], zone: str, moment: dt.datetime) -> dt.datetime | None:
    """When the windows that ``moment`` is in are over, in UTC. None: it is in none. Windows may follow each other.

    They must leave some time of the week, which ``leave_time`` says.
    """
    found, end = None, moment
    while (later := _find_end(windows, ZoneInfo(zone), end)) is not None:
        found = end = later
    return found


def leave_time(windows: Sequence[DailyWindow]) -> bool:
    """Whether some time of the week is in none of the windows."""
    utc, end = ZoneInfo("UTC"), to_utc(_MONDAY, ZoneInfo("UTC"))
    last = end + 8 * _DAY
    while end < last and (later := _find_end(windows, utc, end)) is not None:
        end = later
    return end < last


def _find_end(windows: Sequence[DailyWindow], zone: ZoneInfo, moment: dt.datetime) -> dt.datetime | None:
    """Of the window that ``moment`` is in, the one that ends last."""
    today = moment.astimezone(zone).date()
    ends = []
    for window in windows:
        for day in (today - _DAY, today):
            if day.weekday() in window.days:
                begin = to_utc(dt.datetime.combine(day, window.begin), zone)
                end_day = day if window.begin < window.end else day + _DAY
                end = to_utc(dt.datetime.combine(end_day, window.end), zone)
                if begin <= moment < end:
                    ends.append(end)
    return max(ends, default=None)


def parse_schedule(text: str, timezone: str) -> Schedule | None:
    """Read cron of five fields, ``@daily`` and its like, Quartz of six or seven fields, or ``@continuous``.

    None: the text is empty. RejectedError names ``schedule`` or ``timezone``, and says the fix; also of a schedule
    that never comes.
    """
    check_zone(timezone, "timezone")
    fields = text.split()
    if not fields:
        return None
    written = " ".join(fields)
    if len(written) > _LENGTH_MAX:
        raise refuse_schedule(f"it has more than {_LENGTH_MAX} characters", "Say it by ranges and steps.")
    if written.lower() == CONTINUOUS:
        return Schedule(CONTINUOUS, timezone)
    if written.startswith("@"):
        if written.lower() not in _MACROS:
            raise refuse_schedule(
                f"there is no schedule {written[:40]!a}", f"Known: {', '.join(sorted((*_MACROS, CONTINUOUS)))}."
            )
        return Schedule(written, timezone, cron=_MACROS[written.lower()])
    if len(fields) in _QUARTZ_PARTS:
        read = translate_quartz(fields)
        schedule = Schedule(written, timezone, cron=read.cron, second=read.second, years=read.years)
    elif len(fields) == len(_PARTS):
        _check_cron(fields)
        schedule = Schedule(written, timezone, cron=written)
    else:
        raise refuse_schedule(
            f"expected five fields of cron, or six or seven of Quartz; found {len(fields)}",
            "Write minute, hour, day of the month, month and day of the week, such as 0 3 * * *.",
        )
    if not _comes(schedule):
        raise refuse_schedule(f"{written!a} never comes", "Write days that its months and years have.")
    return schedule


def _check_cron(fields: Sequence[str]) -> None:
    for number, field in enumerate(fields):
        alone = ["*"] * len(_PARTS)
        alone[number] = field
        try:
            CronSim(" ".join(alone), _BEGIN)
        except CronSimError:
            hint = "Write * for each, 1-5 for a range, */15 for a step, or 1,15 for some."
            if "?" in field:
                hint = "Write * for ?. Quartz has ?, and its seconds come first: 0 0 3 * * ?."
            raise refuse_schedule(f"{field[:40]!a} is no {_PARTS[number]}", hint) from None


def _comes(schedule: Schedule) -> bool:
    begin = _BEGIN if schedule.years is None else dt.datetime(min(schedule.years), 1, 1) - _SECOND  # noqa: DTZ001  a time of the wall clock
    try:
        return next(schedule._list_wall_times(begin), None) is not None  # noqa: SLF001  of this module
    except CronSimError:
        # Each field is right by itself.
        return False


def _first_instant(wall: dt.datetime, zone: ZoneInfo) -> dt.datetime:
    """When the clock first shows the time, or has gone on from before it to behind it."""
    while not (instants := _list_instants(wall, zone)):
        wall += _MINUTE
    return instants[0]


def _list_instants(wall: dt.datetime, zone: ZoneInfo) -> Sequence[dt.datetime]:
    """When the clock shows the time: once, twice or never."""
    found = dict.fromkeys(to_utc(wall.replace(fold=fold), zone) for fold in (0, 1))
    return sorted(instant for instant in found if instant.astimezone(zone).replace(tzinfo=None) == wall)


def _find_set_back(moment: dt.datetime, zone: ZoneInfo) -> dt.datetime | None:
    """When the clock is set back within a day behind ``moment``."""

    def measure(at: dt.datetime) -> dt.timedelta:
        return at.astimezone(zone).utcoffset() or dt.timedelta()

    before, after = moment.replace(microsecond=0), moment.replace(microsecond=0) + _DAY
    offset = measure(before)
    if measure(after) >= offset:
        return None
    while after - before > _SECOND:
        middle = before + ((after - before) // 2 // _SECOND) * _SECOND
        if measure(middle) == offset:
            before = middle
        else:
            after = middle
    return after
