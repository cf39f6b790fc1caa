"""Times in the texts of JSON, as Spark reads them with UTC as its zone: which are times, and which lose something.

A text has one of three outcomes. It stands for a number: days since 1970 for a date, microseconds since 1970 for
others. It is ``LOSSY`` if Spark reads it, but the value is not the whole text, or has parts that the text lacks: a
clock's time without a date, a date without a day, digits beyond a microsecond. It is ``NO_TIME`` where Spark does not
read it.
"""

import datetime as dt
import re
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final
from zoneinfo import ZoneInfo

MICROS_PER_SECOND: Final = 1_000_000
SECONDS_MAX: Final = (2**63 - 1) // MICROS_PER_SECOND
"""The most whole seconds, of either sign, whose microseconds fit into 64 bits."""


class Unread(StrEnum):
    LOSSY = "lossy"
    NO_TIME = "no_time"


_DATE: Final = "(?P<sign>[+-]?)(?P<year>[0-9]{4,7})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
# What Spark reads without a loss. Its expressions let a line end behind the text.
_LINE_END: Final = r"(?:\r\n|\n|\r)?\Z"
_EXACT_DATE: Final = re.compile(f"{_DATE}{_LINE_END}")
_EXACT_MOMENT: Final = re.compile(
    r"[+-]?[0-9]{4,}-[0-9]{1,2}-[0-9]{1,2}"
    r"(?:[T ][0-9]{1,2}:[0-9]{1,2}(?::[0-9]{1,2}(?:[.][0-9]{0,6}0*)?)?(?: ?[A-Za-z+-][A-Za-z0-9/_+:-]*)?)?" + _LINE_END
)
# All that Spark reads.
_ANY_DATE: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<year>[0-9]{4,7})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})(?:[T ].*)?)?)?", re.DOTALL
)
_CLOCK: Final = (
    "(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})"
    "(?::(?P<second>[0-9]{1,2})(?:[.](?P<fraction>[0-9]*))?(?P<zone>[^0-9.].*)?)?)?"
)
_ANY_MOMENT: Final = re.compile(
    f"(?P<sign>[+-]?)(?P<year>[0-9]{{4,6}})(?:-(?P<month>[0-9]{{1,2}})(?:-(?P<day>[0-9]{{1,2}})(?:[T ]{_CLOCK})?)?)?",
    re.DOTALL,
)
_CLOCK_ALONE: Final = re.compile(f"(?:T|(?=[0-9]{{1,2}}:)){_CLOCK}", re.DOTALL)
_TRIMMED: Final = "".join(map(chr, range(0x21))) + "\x7f"

_EPOCH_DAYS: Final = 719_468
_DAYS_PER_ERA: Final = 146_097
_OFFSET: Final = re.compile(r"([+-])(?:([0-9]{1,2})|([0-9]{2}):?([0-9]{2})(?::?([0-9]{2}))?)")
_OFFSET_SECONDS_MAX: Final = 18 * 3600
_PREFIXES: Final = ("UTC", "GMT", "UT")
_REGION: Final = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+")
# Names of files in the system's folder of zones that are no zones to Java.
_NO_REGION: Final = re.compile(r"(?:posix|right)/.*|Factory|localtime|posixrules|leapseconds|tzdata.*|ROC")
# Java's ZoneId.SHORT_IDS.
_SHORT: Final = MappingProxyType({
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh", "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
})  # fmt: skip


def read_date(text: str) -> int | Unread:
    """Days since 1970."""
    trimmed = text.strip(_TRIMMED)
    found = _ANY_DATE.fullmatch(trimmed)
    days = None if found is None else _days(found)
    if days is None or not -(2**31) <= days < 2**31:
        return Unread.NO_TIME
    return days if _EXACT_DATE.match(text) else Unread.LOSSY


def read_moment(text: str, *, is_local: bool) -> int | Unread:
    """Microseconds since 1970: of an instant, where a text without a zone is in UTC; or local, where none may be."""
    trimmed = text.strip(_TRIMMED)
    found = _ANY_MOMENT.fullmatch(trimmed)
    if found is None:
        alone = None if is_local else _CLOCK_ALONE.fullmatch(trimmed)
        return Unread.NO_TIME if alone is None or _clock(alone) is None else Unread.LOSSY
    days, clock, zone = _days(found), _clock(found), found["zone"]
    if days is None or clock is None or (is_local and zone is not None):
        return Unread.NO_TIME
    seconds, micros = clock
    offset_s = 0 if zone is None else _offset_s(zone.strip(_TRIMMED), days, seconds)
    if offset_s is None:
        return Unread.NO_TIME
    total = (days * 86_400 + seconds - offset_s) * MICROS_PER_SECOND + micros
    if not -(2**63) <= total < 2**63:
        return Unread.NO_TIME
    return total if _EXACT_MOMENT.match(text) else Unread.LOSSY


def _days(found: re.Match[str]) -> int | None:
    """Days since 1970 in the calendar that goes on before 1582; None for a day that there is not."""
    year, month, day = int(found["year"]), int(found["month"] or 1), int(found["day"] or 1)
    if found["sign"] == "-":
        year = -year
    if not 1 <= month <= 12 or not 1 <= day <= _days_in(year, month):
        return None
    # Years that begin in March: the day that some years lack is the last one.
    shifted = year - (month <= 2)
    era, of_era = divmod(shifted, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * _DAYS_PER_ERA + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH_DAYS


def _days_in(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in {4, 6, 9, 11} else 31


def _clock(found: re.Match[str]) -> tuple[int, int] | None:
    """Seconds of the day, and microseconds of the second."""
    hour, minute, second = int(found["hour"] or 0), int(found["minute"] or 0), int(found["second"] or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return hour * 3600 + minute * 60 + second, int((found["fraction"] or "")[:6].ljust(6, "0"))


def _offset_s(zone: str, days: int, seconds: int) -> int | None:
    """What a zone's clocks are ahead of UTC when they show this time; None for what is no zone to Java."""
    zone = re.sub(r"^([+-])([0-9]):", r"\g<1>0\2:", zone)
    zone = re.sub(r"^([+-][0-9]{2}):([0-9])\Z", r"\1:0\2", zone)
    zone = _SHORT.get(zone, zone)
    if zone == "Z" or zone in _PREFIXES:
        return 0
    offset = zone
    for prefix in _PREFIXES:
        if zone.startswith((f"{prefix}+", f"{prefix}-")):
            offset = zone.removeprefix(prefix)
            break
    if offset.startswith(("+", "-")):
        return _fixed_offset_s(offset)
    region = _region(zone)
    if region is None:
        return None
    # The rules of Python end with the year 9999; they repeat every 400 years.
    eras = 0
    first, last = dt.date.min.toordinal(), dt.date.max.toordinal() - 800
    ordinal = days + dt.date(1970, 1, 1).toordinal()
    if ordinal > last:
        eras = -(-(ordinal - last) // _DAYS_PER_ERA)
    day = max(ordinal - eras * _DAYS_PER_ERA, first + 1)
    local = dt.datetime.combine(dt.date.fromordinal(day), dt.time(), region) + dt.timedelta(seconds=seconds)
    offset_at = local.utcoffset()
    return None if offset_at is None else int(offset_at.total_seconds())


def _fixed_offset_s(offset: str) -> int | None:
    found = _OFFSET.fullmatch(offset)
    if found is None:
        return None
    hours, minutes, seconds = int(found[2] or found[3]), int(found[4] or 0), int(found[5] or 0)
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _OFFSET_SECONDS_MAX:
        return None
    return -total if found[1] == "-" else total


@lru_cache(maxsize=1_000)
def _region(name: str) -> ZoneInfo | None:
    if _REGION.fullmatch(name) is None or _NO_REGION.fullmatch(name) is not None:
        return None
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        return None
