"""Directories by event time, in this process: each row gets the directory that an ingestion's row would get.

The options are those of ``spec.event_time_spec``, and the rules those of ``rows.event_time``, for columns that hold a
date, a time or a whole number. Texts and JSON are read by Spark only.
"""

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink.lane_files import PlacedRows
from gobblin_assets.model.column_names import name_key
from gobblin_assets.model.directory_names import escape_directory
from gobblin_assets.model.urn import Role
from gobblin_assets.model.watermark import from_micros, to_micros
from gobblin_assets.rows.hidden_columns import REASON_COLUMN
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

# Spark's letters of a pattern, as Arrow writes them: those of a sortable time.
_LETTERS: Final = MappingProxyType({"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"})
# Arrow knows the changes of clocks up to 2037.
_ZONES_END_MICROS: Final = to_micros(dt.datetime(2037, 1, 1, tzinfo=dt.UTC))
_PATTERN: Final = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'])")


class EventDirectories:
    """``PlaceRows`` by event time. ``columns``: those of each role's files, which don't have the directory's column.

    Dead letters have none of these directories. ``now``: from which the future is measured, asked for each batch.
    RejectedError names an option that needs Spark, or a column.
    """

    def __init__(
        self,
        spec: EventTimeSpec,
        columns: Mapping[Role, pa.Schema],
        *,
        dataset: str,
        now: Callable[[], dt.datetime],
    ) -> None:
        self._spec = spec
        self._columns = columns
        self._dataset = dataset
        self._now = now
        self._format = _to_arrow_pattern(spec.directory_pattern)
        data = columns[Role.DATA]
        if spec.json_path is not None:
            raise RejectedError(
                f"dataset {dataset!r}: a sink does not look into JSON for event times",
                field="writer.event_time.json_path",
                hint="Take it out, and name a column that holds a date, a time or a whole number.",
            )
        if any(name_key(name) == name_key(spec.name) for name in data.names):
            raise RejectedError(
                f"dataset {dataset!r}: there is a column {spec.name!r} already",
                field="writer.event_time.name",
                hint="Give the directory column another name.",
            )
        if spec.column not in data.names or not _is_time(data.field(spec.column).type):
            found = data.field(spec.column).type if spec.column in data.names else "no such column"
            raise RejectedError(
                f"dataset {dataset!r}: expected a date, a time or a whole number in {spec.column!r}, found {found}",
                field="writer.event_time.column",
                hint=f"The columns are {', '.join(map(repr, data.names))}.",
            )

    def __call__(self, role: Role, rows: pa.RecordBatch) -> Iterable[PlacedRows]:
        """The rows by directory. RejectedError: a row has no usable time, and the rules are to fail."""
        if role is Role.DEAD_LETTER:
            yield PlacedRows(role, "", rows)
            return
        values = rows.column(self._spec.column)
        moments = self._read(values)
        walls = self._in_zone(moments)
        faults = self._judge(values, moments, walls)
        names = self._name(pc.if_else(faults.is_null(), walls, None))
        for fault in TimeFault:
            is_one = pc.fill_null(pc.equal(faults, fault.value), fill_value=False)
            if not pc.any(is_one).as_py():
                continue
            match fault.rule(self._spec):
                case "directory":
                    names = pc.if_else(is_one, fault.directory(self._spec), names)
                case "dead_letter":
                    yield self._as_dead_letters(rows.filter(is_one), fault)
                case _:
                    raise fault.refusal(self._spec.column, dataset=self._dataset)
        yield from self._divide(role, rows, names)

    def _name(self, walls: pa.Array) -> pa.Array:
        """A pattern may be finer than the granularity, which says how much time a directory holds."""
        begins = pc.floor_temporal(walls.cast(pa.timestamp("us")), unit=self._spec.granularity.value)
        # Of smaller units than seconds, Arrow writes fractions.
        return pc.strftime(begins.cast(pa.timestamp("s")), self._format)

    def _divide(self, role: Role, rows: pa.RecordBatch, names: pa.Array) -> Iterable[PlacedRows]:
        """NULL in ``names``: the row has another place already."""
        encoded = names.dictionary_encode()
        # NULLs come last.
        order = pc.sort_indices(encoded.indices)
        counts = pc.value_counts(encoded.indices.drop_null())
        by_code = {each["values"].as_py(): each["counts"].as_py() for each in counts}
        begin = 0
        for code in sorted(by_code):
            value = encoded.dictionary[code].as_py()
            path = f"{escape_directory(self._spec.name)}={escape_directory(value)}"
            is_whole = by_code[code] == rows.num_rows
            mine = rows if is_whole else rows.take(order.slice(begin, by_code[code]))
            yield PlacedRows(role, path, mine)
            begin += by_code[code]

    def _as_dead_letters(self, rows: pa.RecordBatch, fault: TimeFault) -> PlacedRows:
        schema = self._columns[Role.DEAD_LETTER]
        reasons = pa.array([fault.reason(self._spec)] * rows.num_rows, pa.string())
        known = {**dict(zip(rows.schema.names, rows.columns, strict=True)), REASON_COLUMN: reasons}
        columns = [known.get(each.name, pa.nulls(rows.num_rows, each.type)) for each in schema]
        return PlacedRows(Role.DEAD_LETTER, "", pa.RecordBatch.from_arrays(columns, schema=schema))

    def _read(self, values: pa.Array) -> pa.Array:
        """Microseconds since 1970: NULL, or at least ``LOW_MICROS``."""
        kind = values.type
        if pa.types.is_date(kind):
            days = values.cast(pa.date32()).view(pa.int32()).cast(pa.int64())
            return self._out_of_zone(_scaled(days, DAY_MICROS))
        if pa.types.is_timestamp(kind):
            micros = values.cast(pa.timestamp("us", tz=kind.tz)).view(pa.int64())
            clipped = pc.if_else(pc.greater_equal(micros, HIGH_MICROS), BEYOND_MICROS, micros)
            moments = pc.if_else(pc.greater_equal(micros, LOW_MICROS), clipped, None)
            return moments if kind.tz is not None else self._out_of_zone(moments)
        return _scaled(values.cast(pa.int64()), UNIT_MICROS[self._spec.unit])

    def _out_of_zone(self, clocks: pa.Array) -> pa.Array:
        """The moments at which the zone's clocks show these times.

        Clocks skip a time, or repeat it, on few days, and Arrow would round a skipped one: such batches go by Python,
        as those do that have times beyond Arrow's tables of zones.
        """
        if self._spec.zone == "UTC":
            return clocks
        # Neither Arrow nor Python has clocks of other years, which are no good times anyway.
        is_known = pc.and_(pc.greater_equal(clocks, YEAR_1_MICROS), pc.less(clocks, YEAR_10000_MICROS))
        known = pc.if_else(is_known, clocks, None)
        found = None if _are_far(known) else self._find_moments(known)
        if found is None:
            found = pa.array([_moment_of(each, ZoneInfo(self._spec.zone)) for each in known.to_pylist()], pa.int64())
        return pc.if_else(pc.less(clocks, YEAR_10000_MICROS), found, BEYOND_MICROS)

    def _find_moments(self, clocks: pa.Array) -> pa.Array | None:
        """The moments by Arrow; None if the zone skips one of the times."""
        try:
            moments = pc.assume_timezone(clocks.cast(pa.timestamp("us")), self._spec.zone, ambiguous="earliest")
        except pa.ArrowInvalid:
            return None
        return moments.cast(pa.timestamp("us", tz="UTC")).view(pa.int64())

    def _in_zone(self, moments: pa.Array) -> pa.Array:
        """The times of the zone's clocks, as microseconds; NULL where no zone's clocks show a year of 1 to 9999."""
        in_bounds = pc.and_(pc.greater_equal(moments, LOW_MICROS), pc.less(moments, HIGH_MICROS))
        kept = pc.if_else(in_bounds, moments, None)
        if self._spec.zone == "UTC":
            return kept
        if _are_far(kept):
            zone = ZoneInfo(self._spec.zone)
            return pa.array([_clock_of(each, zone) for each in kept.to_pylist()], pa.int64())
        zoned = kept.cast(pa.timestamp("us", tz="UTC")).cast(pa.timestamp("us", tz=self._spec.zone))
        return pc.local_timestamp(zoned).view(pa.int64())

    def _judge(self, values: pa.Array, moments: pa.Array, walls: pa.Array) -> pa.Array:
        """The value of a ``TimeFault``; NULL for a time that may be used."""
        in_calendar = pc.and_(pc.greater_equal(walls, YEAR_1_MICROS), pc.less(walls, YEAR_10000_MICROS))
        faults = pc.if_else(
            pc.fill_null(in_calendar, fill_value=False), pa.scalar(None, pa.string()), TimeFault.UNREADABLE.value
        )
        if self._spec.limit_s is not None:
            limit = to_micros(self._now()) + int(self._spec.limit_s * 1_000_000)
            is_late = pc.fill_null(pc.greater(moments, limit), fill_value=False)
            faults = pc.if_else(is_late, TimeFault.FUTURE.value, faults)
        faults = pc.if_else(moments.is_valid(), faults, TimeFault.UNREADABLE.value)
        return pc.if_else(values.is_valid(), faults, TimeFault.MISSING.value)


def find_need_of_times(spec: EventTimeSpec, data: pa.Schema) -> str | None:
    """Why only Spark finds the directories of rows with these columns, as a clause; None: ``EventDirectories`` does."""
    if spec.json_path is not None:
        return "its event times are inside of JSON"
    if spec.column in data.names and pa.types.is_string(data.field(spec.column).type):
        return "its event times are texts"
    letters = (found["letters"] for found in _PATTERN.finditer(spec.directory_pattern))
    if any(each is not None and each not in _LETTERS for each in letters):
        return f"the pattern of its directories is {spec.directory_pattern!a}"
    return None


def _is_time(kind: pa.DataType) -> bool:
    types = pa.types
    return any(is_one(kind) for is_one in (types.is_date, types.is_timestamp, types.is_signed_integer))


def _scaled(numbers: pa.Array, micros: int) -> pa.Array:
    """``numbers * micros`` where it fits; NULL below, and ``BEYOND_MICROS`` above."""
    is_beyond = pc.greater_equal(numbers, HIGH_MICROS // micros)
    is_readable = pc.greater_equal(numbers, LOW_MICROS // micros)
    fitting = pc.if_else(pc.and_(is_readable, pc.invert(is_beyond)), numbers, None)
    return pc.if_else(is_beyond, BEYOND_MICROS, pc.multiply(fitting, micros))


def _are_far(micros: pa.Array) -> bool:
    return bool(pc.any(pc.greater_equal(micros, _ZONES_END_MICROS)).as_py())


def _moment_of(clock: int | None, zone: ZoneInfo) -> int | None:
    """A skipped time moves on by the gap, and a repeated one means the first."""
    if clock is None:
        return None
    return clock - _offset_of(from_micros(clock, local=True).replace(tzinfo=zone, fold=0))


def _clock_of(moment: int | None, zone: ZoneInfo) -> int | None:
    if moment is None:
        return None
    # Python has no time of another year, in no zone.
    near = min(max(moment, YEAR_1_MICROS + DAY_MICROS), YEAR_10000_MICROS - DAY_MICROS)
    return moment + _offset_of(from_micros(near).astimezone(zone))


def _offset_of(shown: dt.datetime) -> int:
    return (shown.utcoffset() or dt.timedelta(0)) // dt.timedelta(microseconds=1)


def _to_arrow_pattern(pattern: str) -> str:
    written = []
    for found in _PATTERN.finditer(pattern):
        if found["letters"] is not None and found["letters"] not in _LETTERS:
            raise RejectedError(
                f"a sink does not know {found['letters']!a} of a date pattern, found {pattern!a}",
                field="writer.event_time.pattern",
                hint=f"Write it by {', '.join(_LETTERS)} and other text in single quotes.",
            )
        text = found["quoted"] or found["other"] or ""
        written.append(_LETTERS[found["letters"]] if found["letters"] is not None else text.replace("%", "%%"))
    return "".join(written)
