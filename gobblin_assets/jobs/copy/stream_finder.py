"""Datasets of a stream: directories named after dates. Each is a file set, with the key of its partition.

A pattern has strftime's directives: ``%Y``, ``%m``, ``%d`` and ``%H`` stand for numbers of fixed width, each once and
in this order; what else a pattern has stands for itself, and ``%%`` for a percent sign. The last one says what a
directory holds: a month, a day or an hour of the zone's wall clock. An hour that clocks show twice is one directory, of
two hours.
"""

import datetime as dt
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import Tree
from gobblin_assets.jobs.copy.copyable import WHOLE_TREE, CopyableDataset, FileSet
from gobblin_assets.jobs.copy.finders import (
    LiteralStart,
    NamePattern,
    list_directories,
    parse_name_pattern,
)
from gobblin_assets.model.partition import PartitionKind, PartitionWindow
from gobblin_assets.model.time_windows import DATE_FORMAT, HOURLY_FORMAT, to_utc
from gobblin_assets.spec.spec_errors import read_extension_options
from gobblin_assets.spec.spec_model import SpecModel

_LETTERS: Final = "YmdH"
_FIRST: Final = (1, 1, 1, 0)
_KINDS: Final = {"Ym": PartitionKind.MONTHLY, "Ymd": PartitionKind.DAILY, "YmdH": PartitionKind.HOURLY}
_TOKEN: Final = re.compile(r"%(.?)|([^%]+)", re.DOTALL)
_YEAR_MAX: Final = 9998
_MONTH: Final = dt.timedelta(days=32)


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A pattern of dates: one regular expression for each name of the path, with a group for each directive."""

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


_FIELD: Final = "finder.pattern"

LOOKBACK_S_MAX: Final = 1_000 * 365 * 86_400
"""A thousand years: no calendar has a date that is much further back."""


class StreamFinderOptions(SpecModel):
    """Options of the finder ``stream``. ``pattern``: globs of directories' names, then directories with dates:
    ``topics/*/hourly/%Y/%m/%d/%H``.

    The dates begin with the first name that has ``%Y``; ``date_patterns`` describes them. ``zone`` is that of their
    wall clock. ``lookback_s``: windows that ended longer ago are left out; without it, none is. It is at most
    ``LOOKBACK_S_MAX``.
    """

    pattern: str
    zone: str = "UTC"
    lookback_s: float | None = Field(None, gt=0, le=LOOKBACK_S_MAX, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class StreamDatasetFinder:
    """The finder ``stream``: a dataset for each match of ``datasets`` that has directories of ``dates``, and a file set
    for each of these.

    Directories that stand for no date are left out, and windows that begin after now.
    """

    datasets: NamePattern
    dates: DatePattern
    lookback_s: float | None = None

    def find_datasets(self, tree: Tree, root: str, now: dt.datetime) -> Sequence[CopyableDataset]:
        depth = len(self.datasets.globs)
        found: dict[str, list[FileSet]] = defaultdict(list)
        start = LiteralStart(root, self.datasets)

        def descend(path: str) -> bool:
            names = path.split("/")
            if len(names) <= depth:
                return self.datasets.matches_start(names)
            dates = names[depth:]
            return len(dates) < len(self.dates.names) and self._is_asked_for(self.dates.find_window(dates), now)

        for entry in list_directories(tree, root, descend):
            start.meet(entry)
            names = entry.path.split("/")
            if len(names) != depth + len(self.dates.names):
                continue
            dates = names[depth:]
            window, key = self.dates.find_window(dates), self.dates.find_key(dates)
            if key is not None and self._is_asked_for(window, now):
                found["/".join(names[:depth])].append(FileSet(key, "/".join(dates), window))
        start.require()
        return [
            CopyableDataset(
                path or WHOLE_TREE,
                path,
                self.datasets.below_literal(path),
                tuple(sorted(file_sets, key=lambda each: each.key)),
            )
            for path, file_sets in sorted(found.items())
        ]

    def _is_asked_for(self, window: PartitionWindow | None, now: dt.datetime) -> bool:
        oldest = None if self.lookback_s is None else now - dt.timedelta(seconds=self.lookback_s)
        return window is not None and window.start <= now and (oldest is None or window.end > oldest)


def open_stream_finder(options: Mapping[str, object]) -> StreamDatasetFinder:
    """The finder of the kind ``stream``. RejectedError names the option."""
    read = read_extension_options(StreamFinderOptions, options, within="finder.")
    try:
        zone = ZoneInfo(read.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise RejectedError(
            f"expected a zone such as Europe/Berlin, found {read.zone!a}", field="finder.zone", hint="Correct it."
        ) from error
    names = read.pattern.split("/")
    first = next((number for number, name in enumerate(names) if "%Y" in name), len(names))
    datasets = parse_name_pattern("/".join(names[:first]), field=_FIELD)
    return StreamDatasetFinder(
        datasets, parse_date_pattern("/".join(names[first:]), zone, field=_FIELD, whole=read.pattern), read.lookback_s
    )
