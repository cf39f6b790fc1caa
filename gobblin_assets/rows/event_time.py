"""The output partition of a row by its event time: each row gets a directory's value, or what the rules say instead.

``event_time_spec`` says what a job can ask for. A time is read as microseconds since 1970, in steps. Each step is a
column of its own, so that Spark evaluates it once a row, in code small enough to be compiled:

    the value   of the column, or the text at a path in its JSON; a text is also parsed as ISO 8601
    the moment  NULL where it can't be read, ``BEYOND_MICROS`` where no calendar of ours holds the time
    the wall    what clocks in the zone show then, for the pattern
    the verdict NULL for a good time, else what is wrong

No step can fail a row by itself, in ANSI mode or outside: numbers are compared before they are computed, and texts
are matched before they are cast. Spark's own cast would take ``10:30`` for today, which must never happen. Wall clocks
that a zone skips or repeats are read as Java and Python read them: a skipped one moves on by the gap, and a repeated
one means the first.
"""

import datetime as dt
import itertools
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.column_names import name_key
from gobblin_assets.model.watermark import to_micros
from gobblin_assets.rows.column_names import find_column, require_column
from gobblin_assets.rows.columns import named, raising
from gobblin_assets.rows.hidden_columns import DEAD_LETTER_COLUMN
from gobblin_assets.rows.row_quality import dead_letter_columns, is_dead_letter
from gobblin_assets.rows.time_faults import (
    BEYOND_MICROS,
    DAY_MICROS,
    HIGH_MICROS,
    LOW_MICROS,
    UNIT_MICROS,
    YEAR_1_MICROS,
    YEAR_10000_MICROS,
    TimeFault,
)
from gobblin_assets.spec.event_time_spec import EventTimeSpec

DEAD_LETTER_VALUE: Final = "dead_letter"
"""The directory of dead letters while they are written; it is not part of the path that is published."""

_NUMBER: Final = r"^[+-]?[0-9]+([.][0-9]*)?(E[+-]?[0-9]{1,4})?$"
_ISO: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?( ?(Z|[+-][0-9]{2}(:?[0-9]{2})?))?)?$"
)
_LATER_YEAR: Final = r"^[+]?[0-9]{5,9}-[0-9]{2}-[0-9]{2}([T ].*)?$"

# Where the seconds begin in a trimmed text, counted from 1: behind yyyy-MM-ddTHH:mm.
_SECONDS_AT: Final = 17
_ISO_LENGTH_MAX: Final = 40

# 19 digits before the point hold every readable number of microseconds.
_EXACT: Final = t.DecimalType(28, 9)


def add_event_time(frame: DataFrame, spec: EventTimeSpec, *, dataset: str, now: dt.datetime) -> DataFrame:
    """The frame with the directory column ``spec.name``, and the reason of rows that become dead letters by it.

    ``now`` is aware. The session's zone is UTC. Nothing but analysis happens. RejectedError names dataset, column
    and the fix.
    """
    label = f"dataset {dataset!r}"
    column = require_column(frame.columns, spec.column, label=label, field="writer.event_time.column")
    if find_column(frame.columns, spec.name) is not None:
        raise RejectedError(
            f"{label}: there is a column {spec.name!r} already",
            field="writer.event_time.name",
            hint="Give the directory column another name.",
        )
    own = frame.columns
    value, parsed, moment, verdict, wall = _free_names(own, 5)
    data_type = frame.schema[column].dataType
    read = named(column)
    if spec.json_path is not None:
        if not isinstance(data_type, t.StringType | t.BinaryType):
            hint = "Take json_path out; a field of a struct becomes a column by a flatten or sql converter."
            raise _wrong_type(data_type, label, column, "JSON as text or bytes", hint)
        read, data_type = f.get_json_object(read.cast(t.StringType()), spec.json_path), t.StringType()
    if isinstance(data_type, t.StringType):
        read = f.upper(f.trim(read))
    staged = frame.select("*", read.alias(value))
    if isinstance(data_type, t.StringType):
        staged = staged.select("*", _parse_iso(named(value)).alias(parsed))
        micros = _read_text(named(value), named(parsed), spec)
    else:
        micros = _read(named(value), data_type, spec, label, column)
    staged = staged.select("*", micros.alias(moment))
    staged = staged.select("*", _in_zone(named(moment), spec.zone).alias(wall))
    found = _judge(named(value), named(moment), named(wall), _limit(spec, now))
    if dead_letter_columns(own):
        found = f.when(~is_dead_letter(), found)
    staged = staged.select("*", found.alias(verdict))
    columns = {name: named(name) for name in own}
    if spec.makes_dead_letters:
        reason = _reason(named(verdict), spec)
        known = columns.get(DEAD_LETTER_COLUMN)
        columns[DEAD_LETTER_COLUMN] = reason if known is None else f.coalesce(known, reason)
    directory = _directory(named(verdict), named(wall), spec)
    if dead_letter_columns(own):
        directory = f.when(is_dead_letter(), f.lit(DEAD_LETTER_VALUE)).otherwise(directory)
    return staged.select(*(each.alias(name) for name, each in columns.items()), directory.alias(spec.name))


def find_zone_failure(error: BaseException, *, dataset: str) -> RejectedError | None:
    """The error to raise instead, if Spark's Java does not know the zone: its list may be older than Python's."""
    if "[INVALID_TIMEZONE]" not in str(error):
        return None
    return RejectedError(
        f"dataset {dataset!r}: Spark does not know this time zone",
        field="writer.event_time.zone",
        hint="Write it like Europe/Berlin; a zone that is new needs a Java with newer time zone data.",
    )


def find_event_time_failure(raised: tuple[str, str], *, dataset: str) -> RejectedError | None:
    """The error for what ``find_raised`` found, if it was a row without a usable event time."""
    kind, name = raised
    return TimeFault(kind).refusal(name, dataset=dataset) if kind in list(TimeFault) else None


def _read(value: Column, data_type: t.DataType, spec: EventTimeSpec, label: str, column: str) -> Column:
    """Microseconds since 1970: NULL, or at least ``LOW_MICROS``; ``BEYOND_MICROS`` from ``HIGH_MICROS`` on."""
    match data_type:
        case t.DateType():
            days = f.unix_date(value).cast(t.LongType())
            return _out_of_zone(_scaled(days, days, DAY_MICROS), spec.zone)
        case t.TimestampType():
            return _clipped(f.unix_micros(value))
        case t.TimestampNTZType():
            clock = _clipped(f.unix_micros(value.cast(t.TimestampType())))
            return _out_of_zone(clock, spec.zone)
        case t.FloatType() | t.DoubleType():
            number = value.cast(t.DoubleType())
            return f.when(~f.isnan(number), _scaled(number, number, UNIT_MICROS[spec.unit]))
        case t.DecimalType():
            return _scaled(value.cast(t.DoubleType()), value.try_cast(_EXACT), UNIT_MICROS[spec.unit])
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            number = value.cast(t.LongType())
            return _scaled(number, number, UNIT_MICROS[spec.unit])
        case _:
            hint = "Name the place of a text in JSON by json_path; take a field out of a struct by a converter."
            raise _wrong_type(data_type, label, column, "a date, a time, a number or a text", hint)


def _parse_iso(text: Column) -> Column:
    """The time in an ISO 8601 text: microseconds since 1970 of the moment, or of a wall clock that has no zone yet."""
    behind = f.substring(text, _SECONDS_AT, _ISO_LENGTH_MAX)
    # Spark reads an offset behind seconds only, and no comma.
    no_seconds = (f.length(text) >= _SECONDS_AT) & ~behind.startswith(":")
    whole = f.when(no_seconds, f.concat(f.substring(text, 1, _SECONDS_AT - 1), f.lit(":00"), behind)).otherwise(text)
    # The session's zone is UTC, and so a text without an offset gives its wall clock.
    pointed = f.when(text.contains(","), f.translate(whole, ",", ".")).otherwise(whole)
    moment = f.unix_micros(pointed.try_cast(t.TimestampType()))
    return f.when(text.rlike(_ISO), moment)


def _read_text(text: Column, parsed: Column, spec: EventTimeSpec) -> Column:
    """``text`` is in upper case and has no blanks around it; ``parsed`` is what ``_parse_iso`` makes of it."""
    behind = f.substring(text, _SECONDS_AT, _ISO_LENGTH_MAX)
    has_offset = text.endswith("Z") | behind.contains("+") | behind.contains("-")
    number = _scaled(text.try_cast(t.DoubleType()), text.try_cast(_EXACT), UNIT_MICROS[spec.unit])
    return (
        f.when(parsed.isNotNull() & has_offset, parsed)
        .when(parsed.isNotNull(), _out_of_zone(parsed, spec.zone))
        .when(text.rlike(_NUMBER), number)
        .when(text.rlike(_LATER_YEAR), f.lit(BEYOND_MICROS))
    )


def _scaled(compared: Column, exact: Column, micros: int) -> Column:
    """``exact * micros`` where it fits. ``compared`` is the same number, of a type that holds all of its values."""
    product = f.floor(exact * f.lit(micros)).cast(t.LongType())
    return f.when(compared >= f.lit(HIGH_MICROS // micros), f.lit(BEYOND_MICROS)).when(
        compared >= f.lit(LOW_MICROS // micros), product
    )


def _clipped(moment: Column) -> Column:
    return f.when(moment >= HIGH_MICROS, f.lit(BEYOND_MICROS)).when(moment >= LOW_MICROS, moment)


def _out_of_zone(clock: Column, zone: str) -> Column:
    """The moment at which the zone's clocks show ``clock``."""
    if zone == "UTC":
        return clock
    return f.when(clock < HIGH_MICROS, f.unix_micros(f.to_utc_timestamp(f.timestamp_micros(clock), zone))).otherwise(
        clock
    )


def _in_zone(moment: Column, zone: str) -> Column:
    """What the zone's clocks show; NULL where no zone's clocks show a year of 1 to 9999."""
    clock = f.timestamp_micros(moment)
    return f.when(
        (moment >= LOW_MICROS) & (moment < HIGH_MICROS), clock if zone == "UTC" else f.from_utc_timestamp(clock, zone)
    )


def _judge(value: Column, moment: Column, wall: Column, limit: int | None) -> Column:
    """NULL for a time that may be used, else the value of a ``TimeFault``."""
    verdict = f.when(value.isNull(), f.lit(TimeFault.MISSING.value)).when(
        moment.isNull(), f.lit(TimeFault.UNREADABLE.value)
    )
    if limit is not None:
        verdict = verdict.when(moment > limit, f.lit(TimeFault.FUTURE.value))
    shown = f.unix_micros(wall)
    return verdict.when(
        wall.isNull() | (shown < YEAR_1_MICROS) | (shown >= YEAR_10000_MICROS), f.lit(TimeFault.UNREADABLE.value)
    )


def _limit(spec: EventTimeSpec, now: dt.datetime) -> int | None:
    return None if spec.limit_s is None else to_micros(now) + int(spec.limit_s * 1_000_000)


def _directory(verdict: Column, wall: Column, spec: EventTimeSpec) -> Column:
    good = f.date_format(f.date_trunc(spec.granularity.value, wall), spec.directory_pattern)
    directory = f.when(verdict.isNull(), good)
    for fault in TimeFault:
        match fault.rule(spec):
            case "directory":
                instead = f.lit(fault.directory(spec))
            case "dead_letter":
                instead = f.lit(DEAD_LETTER_VALUE)
            case _:
                instead = raising(fault.value, spec.column, t.StringType())
        directory = directory.when(verdict == fault.value, instead)
    return directory


def _reason(verdict: Column, spec: EventTimeSpec) -> Column:
    reason = f.lit(None).cast(t.StringType())
    for fault in TimeFault:
        if fault.rule(spec) == "dead_letter":
            reason = f.when(verdict == fault.value, f.lit(fault.reason(spec))).otherwise(reason)
    return reason


def _free_names(taken: Sequence[str], count: int) -> list[str]:
    """Names of columns that exist only between two steps."""
    known = {name_key(name) for name in taken}
    numbered = (f"gobblin_event_time_{number}" for number in itertools.count())
    return list(itertools.islice((name for name in numbered if name not in known), count))


def _wrong_type(data_type: t.DataType, label: str, column: str, expected: str, hint: str) -> RejectedError:
    return RejectedError(
        f"{label}: expected {expected} in {column!r}, found {data_type.simpleString()}",
        field="writer.event_time.column",
        hint=hint,
    )
