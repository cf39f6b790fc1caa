"""Rows of Arrow as the text format of Postgres' COPY, made column by column.

Texts are escaped only where a column has something to escape, and bytes become hexadecimal digits, both by functions
over whole columns. Arrays and JSON are written value by value.
"""

import datetime as dt
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.commit.arrow_arrays import make_array
from gobblin_assets.destinations.plain_json import write_json
from gobblin_assets.destinations.postgres.column_types import is_array

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
