"""The transitions of time zones, found by their offsets, without the product."""

import datetime as dt
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, available_timezones

ODD_ZONES = (
    "Africa/Cairo",  # clocks jump over midnight, and are set back at it
    "Africa/Casablanca",  # set back for about a month each year
    "Africa/Monrovia",  # an offset with seconds, until 1972
    "America/Havana",  # midnight twice
    "America/Santiago",
    "America/St_Johns",  # set back from 00:01 into the day before
    "Antarctica/Troll",  # by two hours
    "Asia/Beirut",
    "Asia/Kathmandu",  # by fifteen minutes, for good
    "Australia/Lord_Howe",  # by thirty minutes
    "Europe/Berlin",
    "Pacific/Apia",  # a day that never was
    "Pacific/Kwajalein",
)

_FIRST = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST = dt.datetime(2038, 1, 1, tzinfo=dt.UTC)
# No two transitions of a zone since 1970 are nearer to each other (Recife, October 2000: seven days less an hour).
_STEP = dt.timedelta(days=6)
_SECOND = dt.timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Transition:
    """``at``: the first instant of the new offset, in UTC."""

    zone: ZoneInfo
    at: dt.datetime
    before: dt.timedelta
    after: dt.timedelta

    @property
    def wall(self) -> dt.datetime:
        """The time that clocks show at that instant."""
        return (self.at + self.after).replace(tzinfo=None)


@functools.cache
def list_transitions(name: str) -> list[Transition]:
    """The transitions from 1970 to 2037, ascending."""
    zone = ZoneInfo(name)
    found, known, moment = [], _offset(_FIRST, zone), _FIRST
    while moment < _LAST:
        offset = _offset(moment + _STEP, zone)
        if offset != known:
            found.append(Transition(zone, _find(zone, moment, moment + _STEP), known, offset))
        known, moment = offset, moment + _STEP
    return found


def distinct_transitions(names: Iterable[str]) -> Iterator[Transition]:
    """For each zone one of each size at each time of day; the others differ only by their date."""
    for name in names:
        kinds = {(each.before, each.after, each.wall.time()): each for each in list_transitions(name)}
        yield from kinds.values()


def all_zones() -> tuple[str, ...]:
    """The zones of this machine; only one of several whose files are equal."""
    known: dict[bytes, str] = {}
    for name in sorted(available_timezones()):
        found = next((path for root in TZPATH if (path := Path(root, name)).is_file()), None)
        known.setdefault(name.encode() if found is None else found.read_bytes(), name)
    return tuple(known.values())


def _offset(moment: dt.datetime, zone: ZoneInfo) -> dt.timedelta:
    return moment.astimezone(zone).utcoffset() or dt.timedelta()


def _find(zone: ZoneInfo, before: dt.datetime, after: dt.datetime) -> dt.datetime:
    known = _offset(before, zone)
    while after - before > _SECOND:
        middle = before + dt.timedelta(seconds=(after - before) // (2 * _SECOND))
        before, after = (middle, after) if _offset(middle, zone) == known else (before, middle)
    return after
