"""Directories named after dates: a pattern of strftime's directives, and the window that a path stands for. Pure.

``%Y``, ``%m``, ``%d`` and ``%H`` stand for numbers of fixed width, each once and in this order; what else a pattern has
stands for itself, and ``%%`` for a percent sign. The last one says what a directory holds: a month, a day or
an hour of the zone's wall clock. An hour that clocks show twice is one directory, of two hours.
"""

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from zoneinfo import ZoneInfo

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.partition import PartitionKind, PartitionWindow
from gobblin_assets.model.time_windows import DATE_FORMAT, HOURLY_FORMAT, to_utc

_LETTERS: Final = "YmdH"
_FIRST: Final = (1, 1, 1, 0)
_KINDS: Final = {"Ym": PartitionKind.MONTHLY, "Ymd": PartitionKind.DAILY, "YmdH": PartitionKind.HOURLY}
_TOKEN: Final = re.compile(r"%(.?)|([^%]+)", re.DOTALL)
_YEAR_MAX: Final = 9998
_MONTH: Final = dt.timedelta(days=32)


@dataclass(frozen=True, slots=True)
class DatePattern:
    """One regular expression for each name of the path, with a group for each directive."""

    names: tuple[re.Pattern[str], ...]
    zone: ZoneInfo
    kind: PartitionKind

    def find_window(self, names: Sequence[str]) -> PartitionWindow | None:
        """The window of a path, or the longer one that its first names give; None if they fit no date."""
        fields = self._find_fields(names)
        start = _start_of(fields)
        if start is None:
            return None
        match len(fields):
            case 1:
                end = start.replace(year=start.year + 1)
            case 2:
                end = (start + _MONTH).replace(day=1)
            case 3:
                end = start + dt.timedelta(days=1)
            case _:
                end = start + dt.timedelta(hours=1)
        days = None if len(fields) == len(_LETTERS) else (start.date(), end.date())
        return PartitionWindow(to_utc(start, self.zone), to_utc(end, self.zone), days)

    def find_key(self, names: Sequence[str]) -> str | None:
        """The key that Dagster gives to the partition of a whole path; None if the path fits no date."""
        start = _start_of(self._find_fields(names))
        if start is None or len(names) != len(self.names):
            return None
        return start.strftime(HOURLY_FORMAT if self.kind is PartitionKind.HOURLY else DATE_FORMAT)

    def _find_fields(self, names: Sequence[str]) -> list[int]:
        """The numbers, the year first; none if a name does not fit."""
        fields: list[int] = []
        for pattern, name in zip(self.names, names, strict=False):
            match = pattern.fullmatch(name)
            if match is None:
                return []
            fields += map(int, match.groups())
        return fields


def parse_date_pattern(text: str, zone: ZoneInfo, *, field: str, whole: str = "") -> DatePattern:
    """A pattern such as ``%Y/%m/%d`` or ``dt=%Y-%m-%d``. RejectedError names ``field``, and the ``whole`` of it."""
    names, used = [], ""
    for name in text.split("/"):
        expression = ""
        for match in _TOKEN.finditer(name):
            letter, literal = match[1], match[2]
            if literal is not None:
                expression += re.escape(literal)
            elif letter == "%":
                expression += "%"
            else:
                used += letter or "%"
                expression += f"([0-9]{{{4 if letter == 'Y' else 2}}})"
        names.append(re.compile(expression))
    if used not in _KINDS or "" in text.split("/"):
        raise RejectedError(
            f"expected %Y, %m, then maybe %d, then maybe %H, each once and in this order; found {whole or text!a}",
            field=field,
            hint="Write it as in `hourly/%Y/%m/%d/%H` or `dt=%Y-%m-%d`.",
        )
    return DatePattern(tuple(names), zone, _KINDS[used])


def _start_of(fields: Sequence[int]) -> dt.datetime | None:
    if not fields:
        return None
    year, month, day, hour = (*fields, *_FIRST[len(fields) :])
    try:
        start = dt.datetime(year, month, day, hour)  # noqa: DTZ001  a wall time
    except ValueError:
        return None
    # Years beside these have no beginning or no end in some zone.
    return start if 1 < year <= _YEAR_MAX else None
