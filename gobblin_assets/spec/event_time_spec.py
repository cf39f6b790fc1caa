"""A job's options for the event time: its column, its directory, and the rules for rows without a time.

Faults that Spark would find only at the first row, in a task, are refused here, when the job is read: rules between the
fields, and patterns that can't name a directory by time.
"""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.directory_names import check_directory_value
from gobblin_assets.spec.spec_model import SpecModel

FUTURE_S_MAX: Final = 1e11
"""Some 3,000 years: more than that is the same as no limit, and its microseconds still fit 64 bits."""

NAME_LENGTH_MAX: Final = 80
"""Characters; two such names make a directory's, whose bytes ``directory_names`` counts."""


class TimeUnit(StrEnum):
    """The unit in which a number counts the time since 1970."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"


class Granularity(StrEnum):
    """The time that one directory holds, finest first."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    YEAR = "year"


_PATTERNS: Final = MappingProxyType(
    {
        Granularity.MINUTE: "yyyy-MM-dd-HH-mm",
        Granularity.HOUR: "yyyy-MM-dd-HH",
        Granularity.DAY: "yyyy-MM-dd",
        Granularity.MONTH: "yyyy-MM",
        Granularity.YEAR: "yyyy",
    }
)

_Name = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH_MAX)]


class EventTimeSpec(SpecModel):
    """The output partition of a row by its event time, under an explicit rule for rows without a usable one.

    The time is read from a ``column`` (date, time, number or text), or by a ``json_path`` from a text or binary
    column that holds JSON. Numbers, and texts that are numbers, count ``unit`` since 1970; other texts are ISO 8601,
    and those without a zone are in ``zone``, as are dates and wall-clock times. The directory is
    ``<name>=<pattern of the time in zone, cut down to granularity>``.

    Readable are the years 1 to 9999. A number or a date beyond them is in the future, whatever ``future_s_max`` is;
    where futures are accepted, it is unreadable.
    """

    column: str = Field(description="Column of the time, or of the JSON text that holds it, after the converters.")
    json_path: str | None = Field(None, description="Path into the column's JSON, such as $.header.time.")
    unit: TimeUnit = TimeUnit.MILLISECONDS
    granularity: Granularity = Granularity.DAY
    pattern: str | None = Field(
        None, description="Spark date pattern of the directory's value. Default: by granularity, such as yyyy-MM-dd."
    )
    zone: str = Field("UTC", description="IANA name: where a day begins.")
    name: _Name = Field("event_time", description="Name of the directory column.")
    on_missing: Literal["fail", "directory", "dead_letter"] = Field(
        "fail", description="A row whose time is NULL, absent or unreadable."
    )
    missing_name: _Name = Field("missing", description="The directory of such rows, for on_missing: directory.")
    future_s_max: float | None = Field(
        86_400.0,
        ge=0,
        le=FUTURE_S_MAX,
        allow_inf_nan=False,
        description="A time further ahead of the run's clock than this counts as wrong; null: no limit.",
    )
    on_future: Literal["fail", "directory", "dead_letter", "accept"] = "fail"
    future_name: _Name = Field("future", description="The directory of such rows, for on_future: directory.")

    @property
    def directory_pattern(self) -> str:
        return _PATTERNS[self.granularity] if self.pattern is None else self.pattern

    @property
    def limit_s(self) -> float | None:
        """How far ahead of the run's clock a time may be; None: no limit."""
        return None if self.on_future == "accept" else self.future_s_max

    @property
    def makes_dead_letters(self) -> bool:
        return self.on_missing == "dead_letter" or (self.on_future == "dead_letter" and self.limit_s is not None)


# The letters of Spark's date patterns, each with the numbers of times that it may be repeated (tried with Spark 4.0).
# Spark 3 removed the week-based letters, so years never shift; its formatter refuses D.
_CLOCK_LETTERS: Final[Mapping[str, Collection[int]]] = MappingProxyType(
    {**dict.fromkeys("GMLQqE", range(1, 5)), **dict.fromkeys("dhKkHms", (1, 2)), **dict.fromkeys("aF", (1,))}
    | {"y": range(1, 7), "S": range(1, 10)}
)
_ZONE_LETTERS: Final[Mapping[str, Collection[int]]] = MappingProxyType(
    {"V": (2,), "z": range(1, 5), "O": (1, 4), **dict.fromkeys("XxZ", range(1, 6))}
)
_QUOTED: Final = re.compile(r"'[^']*'")
_RUN_OF_LETTERS: Final = re.compile(r"([A-Za-z])\1*")
_RESERVED: Final = frozenset("'#{}[]")

# Units smaller than one directory of a granularity: at the directory's beginning they are always the same.
_LETTERS_WITHIN: Final = MappingProxyType(
    {
        Granularity.MINUTE: frozenset("sS"),
        Granularity.HOUR: frozenset("m"),
        Granularity.DAY: frozenset("ahKkH"),
        Granularity.MONTH: frozenset("dEF"),
        Granularity.YEAR: frozenset("MLQq"),
    }
)
# A path that Spark can't read gives NULL for every row; one with a wildcard gives an array.
_JSON_PATH: Final = re.compile(r"\$(?:\.[^.\[\]'\"*?\s]+|\['[^'?]+'\]|\[[0-9]{1,9}\])+")


def unquoted(pattern: str) -> str:
    """The approximate output of the pattern: its text unchanged, and as many characters as it has letters."""
    return pattern.replace("'", "")


def check_pattern(pattern: str, field: str) -> None:
    """Refuse a pattern that Spark's formatter does not take, or that says nothing."""
    _check_letters(pattern, {**_CLOCK_LETTERS, **_ZONE_LETTERS}, field)


def check_event_time(spec: EventTimeSpec, where: str) -> None:
    """Raise RejectedError for the first rule that does not hold; the zone is looked at elsewhere."""
    if spec.json_path is not None and not _JSON_PATH.fullmatch(spec.json_path):
        raise RejectedError(
            f"expected the path of one value, found {spec.json_path[:80]!a}",
            field=f"{where}.json_path",
            hint="Write it like $.header.time, $['a b'] or $.times[0].",
        )
    letters = _check_letters(spec.directory_pattern, _CLOCK_LETTERS, f"{where}.pattern")
    _check_granularity(letters, spec, f"{where}.pattern")
    check_directory_value(spec.name, unquoted(spec.directory_pattern), f"{where}.pattern")
    for name, rule in (("missing_name", spec.on_missing), ("future_name", spec.on_future)):
        if rule == "directory":
            check_directory_value(spec.name, getattr(spec, name), f"{where}.{name}")


def _check_granularity(letters: set[str], spec: EventTimeSpec, field: str) -> None:
    """Refuse a letter that the granularity makes the same in all directories, such as the hour of a day's beginning."""
    needed: Granularity | None = None
    for granularity in Granularity:
        if finer := sorted(letters & _LETTERS_WITHIN[granularity]):
            raise RejectedError(
                f"granularity {spec.granularity} leaves nothing of {finer[0]!a}, found {spec.directory_pattern!a}",
                field=field,
                hint=f"Take it out of the pattern{f', or set granularity: {needed}' if needed else ''}.",
            )
        if granularity is spec.granularity:
            return
        needed = granularity


def _check_letters(pattern: str, known: Mapping[str, Collection[int]], field: str) -> set[str]:
    """The letters of the pattern, outside of quoted text."""
    plain = _QUOTED.sub("", pattern)
    letters = {letter for letter in plain if letter.isalpha()}
    example = "Write it like yyyy-MM-dd, and other text in single quotes."
    if wrong := sorted(letters - known.keys()):
        said = (
            "says the zone, which all rows share" if wrong[0] in _ZONE_LETTERS else "is not a letter of date patterns"
        )
        raise RejectedError(f"{wrong[0]!a} {said}, found {pattern[:80]!a}", field=field, hint=example)
    for run in _RUN_OF_LETTERS.finditer(plain):
        if len(run[0]) not in known[run[1]]:
            counts = ", ".join(map(str, known[run[1]]))
            raise RejectedError(
                f"expected {run[1]!a} so many times: {counts}; found {pattern[:80]!a}", field=field, hint=example
            )
    if wrong := sorted(set(plain) & _RESERVED):
        raise RejectedError(
            f"{wrong[0]!a} can't stand in a date pattern, found {pattern[:80]!a}", field=field, hint=example
        )
    if not letters:
        raise RejectedError(f"expected a date pattern, found {pattern[:80]!a}", field=field, hint=example)
    return letters
