"""A job's options for the event time: its column, its directory, and the rules for rows without a time."""

from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import Field

from gobblin_assets.spec.spec_model import SpecModel

FUTURE_S_MAX: Final = 1e11
"""Some 3,000 years: more than that is the same as no limit, and its microseconds still fit 64 bits."""

NAME_LENGTH_MAX: Final = 80
"""Characters; two such names make a directory's, whose bytes ``directory_names`` counts."""


class TimeUnit(StrEnum):
    """What a number that stands for a time counts since 1970."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"


class Granularity(StrEnum):
    """How much time one directory holds, finest first."""

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
