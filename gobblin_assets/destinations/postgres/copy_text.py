"""Rows of Arrow as the text format of Postgres' COPY, made column by column, and the types of the columns. Pure.

Texts are escaped only where a column has something to escape, and bytes become hexadecimal digits, both by functions
over whole columns. Arrays and JSON are written value by value. An existing column is taken if it holds the rows'
values unchanged.
"""

import datetime as dt
import re
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.commit.arrow_arrays import make_array
from gobblin_assets.destinations.row_forms import write_json
from gobblin_assets.errors import RejectedError

_PLAIN: Final = MappingProxyType(
    {
        pa.bool_(): "boolean",
        pa.int8(): "smallint",
        pa.int16(): "smallint",
        pa.int32(): "integer",
        pa.int64(): "bigint",
        pa.float32(): "real",
        pa.float64(): "double precision",
        pa.string(): "text",
        pa.large_string(): "text",
        pa.binary(): "bytea",
        pa.large_binary(): "bytea",
        pa.date32(): "date",
    }
)

_WIDER: Final = MappingProxyType(
    {
        "smallint": frozenset({"integer", "bigint", "numeric"}),
        "integer": frozenset({"bigint", "numeric"}),
        "bigint": frozenset({"numeric"}),
        "real": frozenset({"double precision"}),
        "text": frozenset({"character varying"}),
        "jsonb": frozenset({"json"}),
    }
)
"""Types that hold every value of the first, by the names of ``format_type``."""

_NUMERIC: Final = re.compile(r"numeric\((\d+),(\d+)\)")

NAME_BYTES_MAX: Final = 63
"""Postgres cuts longer names off."""


def column_type(kind: pa.DataType) -> str:
    """The type of a column for values of ``kind``, as ``format_type`` writes it.

    Nested values other than lists of plain ones are kept as JSON.
    """
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return "timestamp without time zone" if kind.tz is None else "timestamp with time zone"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if is_array(kind):
        return f"{column_type(kind.value_type)}[]"
    if pa.types.is_nested(kind):
        return "jsonb"
    raise RejectedError(f"rows have a column of Arrow's type {kind}", field="into", hint="Leave the column out.")


def is_array(kind: pa.DataType) -> bool:
    """Whether it becomes an array of Postgres, and not JSON."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return is_list and not pa.types.is_nested(kind.value_type)


def holds(existing: str, wanted: str) -> bool:
    """Whether a column of the type ``existing`` keeps each value of ``wanted`` as it is."""
    if existing == wanted or existing in _WIDER.get(wanted, ()):
        return True
    if wanted.endswith("[]") and existing.endswith("[]"):
        return holds(existing[:-2], wanted[:-2])
    needed, found = _NUMERIC.fullmatch(wanted), _NUMERIC.fullmatch(existing)
    if needed is None:
        return False
    if found is None:
        return existing == "numeric"
    whole = int(found[1]) - int(found[2]) >= int(needed[1]) - int(needed[2])
    return whole and int(found[2]) >= int(needed[2])


_TEXT: Final = pa.large_string()
# Not by `pa.scalar`, which imports pandas.
_NULL, _TAB, _LINE_END, _EMPTY, _HEX_MARK = make_array(["\\N", "\t", "\n", "", "\\\\x"], pa.string()).cast(_TEXT)
_NO_TEXT: Final = pa.nulls(1, _TEXT)[0]
_SPECIAL: Final = r"[\\\t\n\r]"
_ESCAPES: Final = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_HEX: Final = np.array([f"{byte:02x}".encode() for byte in range(256)], dtype="S2")
# In an array, a value in quotes: only these two mean something else there.
_QUOTED: Final = str.maketrans({"\\": "\\\\", '"': '\\"'})


def write_copy_text(rows: pa.RecordBatch) -> bytes:
    """The lines of all rows, which have at least one column."""
    columns = [_fill(_write_column(column)) for column in rows.columns]
    lines = columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, _TAB)
    ended = pc.binary_join_element_wise(lines, _EMPTY, _LINE_END)
    return _bytes_of(ended)


def _fill(texts: pa.Array) -> pa.Array:
    return pc.fill_null(texts, _NULL) if texts.null_count else texts


def _write_column(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _escape(values.cast(_TEXT))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _write_hex(values.cast(pa.large_binary()))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # Sessions are in UTC. With its zone, Arrow takes twenty times as long to write an instant.
        return values.cast(pa.timestamp(kind.unit, tz="UTC")).cast(pa.timestamp(kind.unit)).cast(_TEXT)
    if pa.types.is_nested(kind):
        write = _write_array if is_array(kind) else partial(write_json, kind)
        written = [None if each is None else write(each) for each in values.to_pylist()]
        return _escape(make_array(written, pa.string()).cast(_TEXT))
    return values.cast(_TEXT)


def _escape(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(texts, _SPECIAL)).as_py():
        return texts
    for plain, escaped in _ESCAPES:
        texts = pc.replace_substring(texts, plain, escaped)
    return texts


def _write_hex(values: pa.Array) -> pa.Array:
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int64)[values.offset : values.offset + len(values) + 1]
    data = values.buffers()[2]
    start, end = int(offsets[0]), int(offsets[-1])
    used = np.frombuffer(data if data is not None else b"", dtype=np.uint8)[start:end]
    digits = pa.LargeStringArray.from_buffers(
        len(values), pa.py_buffer((offsets - start) * 2), pa.py_buffer(_HEX[used].tobytes())
    )
    written = pc.binary_join_element_wise(_HEX_MARK, digits, _EMPTY)
    return pc.if_else(values.is_valid(), written, _NO_TEXT) if values.null_count else written


def _write_array(values: list[Any]) -> str:
    return "{" + ",".join("NULL" if each is None else f'"{_write_element(each)}"' for each in values) + "}"


def _write_element(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return f"\\\\x{value.hex()}"
        case dt.datetime() | dt.date():
            return value.isoformat()
        case _:
            return str(value).translate(_QUOTED)


def _bytes_of(texts: pa.Array) -> bytes:
    """The texts one after the other, as they lie in memory."""
    whole = texts.cast(_TEXT)
    offsets = np.frombuffer(whole.buffers()[1], dtype=np.int64)
    start, end = int(offsets[whole.offset]), int(offsets[whole.offset + len(whole)])
    return bytes(whole.buffers()[2].slice(start, end - start))
