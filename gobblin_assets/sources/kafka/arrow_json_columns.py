"""Columns as Arrow's JSON reader reads them best, made the columns of the schema; what may not be exact is found.

A column may be read in one of several types, by what its records hold: a time as text or as whole seconds, a decimal as
number or as text. ``finish_column`` turns each into the column's type.
"""

from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from gobblin_assets.sources.kafka.json_times import MICROS_PER_SECOND, SECONDS_MAX

Rows = np.ndarray[Any, np.dtype[np.bool_]]
"""Whether each row is meant."""

_DIGITS_MAX: Final = 38

# Days that there are in every year, and the last of February in leap years but those that end a century.
_YEAR: Final = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_DAY: Final = (
    f"(?:{_YEAR}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    "|[1-9][0-9](?:0[48]|[2468][048]|[13579][26])-02-29)"
)
_CLOCK: Final = "[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,6})?"
_DATE: Final = f"^{_DAY}$"
_LOCAL: Final = f"^{_DAY}{_CLOCK}$"
_INSTANT: Final = f"^{_DAY}{_CLOCK}(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])?$"
_ZONE: Final = "(?:Z|[+-][0-9]{2}:[0-9]{2})$"


def reading_types(data_type: pa.DataType) -> list[pa.DataType]:
    """The types in which a column can be read, the likeliest first."""
    if pa.types.is_list(data_type):
        return [pa.list_(data_type.value_field.with_type(each)) for each in reading_types(data_type.value_type)]
    if pa.types.is_timestamp(data_type):
        return [pa.string()] if data_type.tz is None else [pa.string(), pa.int64()]
    if pa.types.is_date(data_type):
        return [pa.string()]
    if pa.types.is_decimal(data_type):
        return [pa.decimal128(_DIGITS_MAX, data_type.scale), pa.string()]
    return [data_type]


def finish_column(read: pa.Array, data_type: pa.DataType) -> tuple[pa.Array, Rows | None]:
    """The column, and the rows that have to be read in another way, if there are any."""
    if pa.types.is_list(data_type):
        return _finish_list(read, data_type)
    if pa.types.is_floating(data_type):
        return read, _odd_floats(read)
    if pa.types.is_decimal(data_type):
        return _finish_decimal(read, data_type)
    if pa.types.is_date(data_type):
        return _finish_text(read, _DATE, data_type)
    if pa.types.is_timestamp(data_type):
        if data_type.tz is None:
            return _finish_text(read, _LOCAL, data_type)
        return _finish_instant(read, data_type)
    return read, None


def _finish_list(read: pa.ListArray, data_type: pa.DataType) -> tuple[pa.Array, Rows | None]:
    elements, odd = finish_column(read.values, data_type.value_type)
    mask = read.is_null() if read.null_count else None
    made = pa.ListArray.from_arrays(read.offsets, elements, type=data_type, mask=mask)
    if odd is None:
        return made, None
    rows = np.zeros(len(read), dtype=np.bool_)
    rows[pc.list_parent_indices(read).to_numpy()[odd]] = True
    return made, rows


def _odd_floats(read: pa.Array) -> Rows | None:
    """Not finite, or zero with a sign: a whole number -0 has none."""
    numbers = np.asarray(read.fill_null(0.0))
    return _some(~np.isfinite(numbers) | ((numbers == 0) & np.signbit(numbers)))


def _finish_decimal(read: pa.Array, data_type: pa.DataType) -> tuple[pa.Array, Rows | None]:
    precision, scale = data_type.precision, data_type.scale
    read_type = pa.decimal128(_DIGITS_MAX, scale)
    of_texts: Rows | None = None
    if pa.types.is_string(read.type):
        digits = f"[0-9]{{1,{_DIGITS_MAX - scale}}}"
        read, of_texts = _finish_text(
            read, f"^-?{digits}(?:[.][0-9]{{1,{scale}}})?$" if scale else f"^-?{digits}$", read_type
        )
    # Arrow's reader looks at a number's own digits alone, not at those that the scale adds.
    limit = Decimal((0, (9,) * precision, -scale))
    beyond = _some(np.asarray(pc.greater(pc.abs(read), pa.scalar(limit, read_type)).fill_null(fill_value=False)))
    kept = read if beyond is None else pc.if_else(pa.array(beyond), None, read)
    made = kept if precision == _DIGITS_MAX else kept.cast(data_type)
    return made, _either(of_texts, beyond)


def _finish_text(read: pa.Array, usual: str, data_type: pa.DataType) -> tuple[pa.Array, Rows | None]:
    fits = pc.match_substring_regex(read, usual)
    odd = _some(~np.asarray(fits.fill_null(fill_value=True)))
    kept = read if odd is None else pc.if_else(fits, read, None)
    return kept.cast(data_type), odd


def _finish_instant(read: pa.Array, data_type: pa.DataType) -> tuple[pa.Array, Rows | None]:
    if pa.types.is_int64(read.type):
        beyond = _some(np.abs(np.asarray(read.fill_null(0))) > SECONDS_MAX)
        kept = read if beyond is None else pc.if_else(pa.array(beyond), None, read)
        return pc.multiply(kept, MICROS_PER_SECOND).cast(data_type), beyond
    fits = pc.match_substring_regex(read, _INSTANT)
    odd = _some(~np.asarray(fits.fill_null(fill_value=True)))
    kept = read if odd is None else pc.if_else(fits, read, None)
    zoned = pc.match_substring_regex(kept, _ZONE)
    if pc.any(zoned).as_py() is not True:
        return kept.cast(pa.timestamp("us")).cast(data_type), odd
    if pc.all(zoned).as_py() is not True:
        kept = pc.if_else(zoned, kept, pc.binary_join_element_wise(kept, "Z", ""))
    return kept.cast(data_type), odd


def _some(rows: Rows) -> Rows | None:
    return rows if rows.any() else None


def _either(one: Rows | None, other: Rows | None) -> Rows | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other
