"""Positions in SQL and on clocks: conditions over intervals, and instants as positions of a column's type."""

import datetime as dt
import math
from dataclasses import dataclass
from typing import Final
from zoneinfo import ZoneInfo

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.watermark import Scalar, Watermark, WatermarkType
from gobblin_assets.sources.jdbc.dialect import Dialect

_LONG_MIN: Final = -(2**63)
_DAY_S: Final = 86_400
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_ZERO: Final = dt.timedelta()


@dataclass(frozen=True, slots=True)
class Axis:
    """The column of positions, or the pair of columns. ``lead`` and ``key`` are their types."""

    column: str
    lead: WatermarkType
    key_column: str | None = None
    key: WatermarkType | None = None

    @property
    def type(self) -> WatermarkType:
        return self.lead if self.key is None else WatermarkType.COMPOSITE

    @property
    def types(self) -> tuple[WatermarkType, ...]:
        return (self.lead,) if self.key is None else (self.lead, self.key)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,) if self.key_column is None else (self.column, self.key_column)

    def lift(self, value: Scalar) -> Watermark:
        """The first position whose leading value is ``value``."""
        lead = Watermark(self.lead, value)
        if self.key is None:
            return lead
        first: Scalar = "" if self.key is WatermarkType.STRING else _LONG_MIN
        return Watermark(WatermarkType.COMPOSITE, (lead, Watermark(self.key, first)))

    def join(self, values: tuple[Scalar, ...]) -> Watermark:
        """The position of a row that holds these values."""
        if self.key is None:
            return Watermark(self.lead, values[0])
        return Watermark(WatermarkType.COMPOSITE, (Watermark(self.lead, values[0]), Watermark(self.key, values[1])))

    def parts(self, position: Watermark) -> tuple[Watermark, ...]:
        """The position itself, or both positions of a pair."""
        match position.value:
            case (Watermark() as lead, Watermark() as key):
                return (lead, key)
            case _:
                return (position,)

    def leading(self, position: Watermark) -> Scalar:
        value = self.parts(position)[0].value
        if isinstance(value, tuple):
            raise RejectedError(f"{position} is no position of {self.column}", field="watermark.value")
        return value


def write_at_least(dialect: Dialect, axis: Axis, names: tuple[str, ...], low: Watermark) -> str:
    """SQL that holds for rows at ``low`` or above; ``names`` are the columns, already quoted.

    For a pair the condition keeps a plain bound on the first column, so that an index can serve it.
    """
    lead, *rest = axis.parts(low)
    if not rest or low == axis.lift(axis.leading(low)):
        return _write_bound(dialect, names[0], lead, above=True)
    over = _write_strict(dialect, names[0], lead)
    key = _write_bound(dialect, names[1], rest[0], above=True)
    return f"({_write_bound(dialect, names[0], lead, above=True)} AND ({over} OR {key}))"


def write_below(dialect: Dialect, axis: Axis, names: tuple[str, ...], high: Watermark) -> str:
    """SQL that holds for rows below ``high``."""
    lead, *rest = axis.parts(high)
    if not rest or high == axis.lift(axis.leading(high)):
        return _write_bound(dialect, names[0], lead, above=False)
    expression = dialect.in_order(names[0], lead.type)
    value = _literal(dialect, lead)
    key = _write_bound(dialect, names[1], rest[0], above=False)
    return f"({expression} <= {value} AND ({expression} < {value} OR {key}))"


def write_interval(dialect: Dialect, axis: Axis, names: tuple[str, ...], interval: Interval) -> str:
    """SQL that holds for exactly the rows in ``interval``."""
    below = write_below(dialect, axis, names, interval.high)
    return below if interval.low is None else f"{write_at_least(dialect, axis, names, interval.low)} AND {below}"


def parse_zone(name: str, *, field: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise RejectedError(
            f"expected the name of a time zone, found {name!r}", field=field, hint="Write it like Europe/Berlin or UTC."
        ) from error


def moment_value(kind: WatermarkType, moment: dt.datetime, zone: ZoneInfo) -> Scalar | None:
    """The least value of a time column that is written at ``moment`` or after it; None for columns that hold no time.

    A later ``moment`` never gives a lower value, even if the zone's clocks are set back.
    """
    match kind:
        case WatermarkType.TIMESTAMP:
            return moment.astimezone(dt.UTC)
        case WatermarkType.LOCAL_TIMESTAMP:
            return least_wall_from(moment, zone)
        case WatermarkType.DATE:
            return least_wall_from(moment, zone).date()
        case _:
            return None


def ahead_of(kind: WatermarkType, moment: dt.datetime, zone: ZoneInfo) -> dt.date | None:
    """The least value of a time column that a row written at ``moment`` or before it should not hold.

    None for columns that hold no time, and if there is no such value.
    """
    local = moment.astimezone(zone)
    # If clocks show this time for the second time, the first pass's offset counts: that pass's rows are not ahead.
    shown = local + ((local.replace(fold=0).utcoffset() or _ZERO) - (local.utcoffset() or _ZERO))
    try:
        match kind:
            case WatermarkType.TIMESTAMP:
                return moment.astimezone(dt.UTC) + _MICROSECOND
            case WatermarkType.LOCAL_TIMESTAMP:
                return shown.replace(tzinfo=None, fold=0) + _MICROSECOND
            case WatermarkType.DATE:
                return shown.date() + dt.timedelta(days=1)
            case _:
                return None
    except OverflowError:
        return None


def last_of(value: dt.date) -> dt.date:
    """The last value of the type of ``value``, a date, a wall time or an instant."""
    return dt.datetime.max.replace(tzinfo=value.tzinfo) if isinstance(value, dt.datetime) else dt.date.max


def least_wall_from(moment: dt.datetime, zone: ZoneInfo) -> dt.datetime:
    """The least wall time that the zone's clocks show at ``moment`` or after it, without a zone.

    That is the time they show at ``moment``. If they will be set back below it, it is the time right after that.
    """
    if zone.key == "UTC":
        return moment.astimezone(dt.UTC).replace(tzinfo=None, fold=0)
    first = moment.astimezone(zone)
    shown, offset = first.replace(tzinfo=None, fold=0), first.utcoffset()
    again = first.replace(fold=1)
    if first.fold or again.utcoffset() == offset:
        return shown
    # The clocks will show this time again: they are set back between the two passes.
    before, after = moment.astimezone(dt.UTC), again.astimezone(dt.UTC)
    while after - before > _MICROSECOND:
        middle = before + (after - before) // 2
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after.astimezone(zone).replace(tzinfo=None, fold=0)


def step_back(axis: Axis, position: Watermark, amount: float) -> Watermark:
    """The first position ``amount`` below: seconds for times (whole days for dates), else a count.

    The result is never below the first value of the type. Texts have no distance: RejectedError.
    """
    value = axis.leading(position)
    match value:
        case dt.datetime():
            room_s = (value - dt.datetime.min.replace(tzinfo=value.tzinfo)).total_seconds()
            return axis.lift(value - dt.timedelta(seconds=min(amount, room_s)))
        case dt.date():
            room = (value - dt.date.min).days
            return axis.lift(value - dt.timedelta(days=min(math.ceil(amount / _DAY_S), room)))
        case int():
            return axis.lift(max(value - math.ceil(amount), _LONG_MIN))
        case str():
            raise RejectedError(
                "texts have no distance", field="watermark.late_window", hint="Use 0, or a number or time column."
            )


def _literal(dialect: Dialect, position: Watermark) -> str:
    if isinstance(position.value, tuple):
        raise RejectedError(f"{position} can't be written in SQL", field="watermark.type")
    return dialect.literal(position.type, position.value)


def _write_bound(dialect: Dialect, name: str, position: Watermark, *, above: bool) -> str:
    expression = dialect.in_order(name, position.type)
    operator = ">=" if above else "<"
    if isinstance(position.value, str) and position.value.endswith("\0"):
        # The successor of a text ends in NUL, which databases can't hold. No text lies between the two.
        operator = ">" if above else "<="
        return f"{expression} {operator} {dialect.literal(position.type, position.value[:-1])}"
    return f"{expression} {operator} {_literal(dialect, position)}"


def _write_strict(dialect: Dialect, name: str, position: Watermark) -> str:
    return f"{dialect.in_order(name, position.type)} > {_literal(dialect, position)}"
