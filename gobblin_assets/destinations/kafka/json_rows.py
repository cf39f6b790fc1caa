"""Rows of Arrow as JSON objects and keys of records, made column by column by functions over whole columns.

Values that nest, and bytes, are written one by one.
"""

import base64
import json
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.commit.arrow_arrays import make_array
from gobblin_assets.destinations.row_forms import write_floats, write_json
from gobblin_assets.errors import RejectedError

_TEXT: Final = pa.large_string()
_SPACE: Final = 0x20
_ESCAPES: Final = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_ZERO_FRACTIONS: Final = {"ms": ".000", "us": ".000000"}


def write_objects(rows: pa.RecordBatch) -> list[bytes]:
    """Each row as a JSON object of its columns, which are one at least."""
    parts: list[Any] = []
    before = "{"
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        texts, quote = _write_open(column)
        parts += [_scalar(f"{before}{json.dumps(name, ensure_ascii=False)}:{quote}"), texts]
        before = f"{quote},"
    # No text of JSON has a line's end in it: the objects are told apart by it.
    ended = pc.binary_join_element_wise(*parts, _scalar(f"{before[:-1]}}}\n"), _scalar(""))
    _offsets, data = _bytes_of(ended)
    return data.split(b"\n")[:-1]


def write_keys(rows: pa.RecordBatch, columns: Sequence[str]) -> list[bytes | None]:
    """The JSON array of these columns; of one column, its value without quotes, and nothing for NULL."""
    if len(columns) == 1:
        column = rows.column(columns[0])
        plain = _write_plain(column)
        keys: list[bytes | None] = list(_split(pc.fill_null(plain, _scalar("")) if plain.null_count else plain))
        if plain.null_count:
            is_there = column.is_valid().to_pylist()
            keys = [key if found else None for key, found in zip(keys, is_there, strict=True)]
        return keys
    joined = pc.binary_join_element_wise(*(_write_json(rows.column(each)) for each in columns), _scalar(","))
    return list(_split(pc.binary_join_element_wise(_scalar("["), joined, _scalar("]"), _scalar(""))))


def require_columns(columns: pa.Schema, key: Sequence[str]) -> None:
    """RejectedError for columns that can't be written, and for a key of columns that rows don't have."""
    for name, kind in zip(columns.names, columns.types, strict=True):
        if not (pa.types.is_nested(kind) or _is_plain(kind) or _is_quoted(kind)):
            raise RejectedError(
                f"rows have the column {name!a} of Arrow's type {kind}", field="into", hint="Leave the column out."
            )
    missing = [name for name in key if name not in columns.names]
    if missing:
        raise RejectedError(
            f"rows have no column {', '.join(missing)}; they have {', '.join(columns.names)}",
            field="into.key",
            hint="Name columns of every dataset of the job, or put the dataset into a job of its own.",
        )


def _is_plain(kind: pa.DataType) -> bool:
    """Whether its values are numbers of JSON, or true and false."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_quoted(kind: pa.DataType) -> bool:
    """Whether its values become texts of JSON."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date32(kind)
        or (pa.types.is_timestamp(kind) and kind.unit != "ns")
    )


def _write_open(values: pa.Array) -> tuple[pa.Array, str]:
    """The values as JSON, and the quote that each still lacks on both sides: that is one copy less of a column."""
    if not _is_quoted(values.type) or values.null_count:
        return _write_json(values), ""
    return _write_text(values), '"'


def _write_json(values: pa.Array) -> pa.Array:
    """The values as JSON, null where there is none."""
    kind = values.type
    if _is_quoted(kind):
        texts = _quote(_write_text(values))
    else:
        texts = _write_plain(values)
        if pa.types.is_floating(kind):
            finite = pc.fill_null(pc.is_finite(values), fill_value=True)
            texts = texts if pc.all(finite).as_py() else pc.if_else(finite, texts, _quote(texts))
    return pc.fill_null(texts, _scalar("null")) if texts.null_count else texts


def _write_text(values: pa.Array) -> pa.Array:
    """The values as texts of JSON, without quotes."""
    texts = _write_plain(values)
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    return _escape(texts) if is_text else texts


def _write_plain(values: pa.Array) -> pa.Array:
    """The values as texts, without quotes."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        is_instant = kind.tz is not None
        if is_instant:
            # With its zone, Arrow takes twenty times as long to write an instant.
            values = values.cast(pa.timestamp(kind.unit, tz="UTC")).cast(pa.timestamp(kind.unit))
        texts = pc.replace_substring(values.cast(_TEXT), " ", "T")
        if kind.unit in _ZERO_FRACTIONS:
            texts = pc.replace_substring(texts, _ZERO_FRACTIONS[kind.unit], "")
        return pc.binary_join_element_wise(texts, _scalar("+00:00"), _scalar("")) if is_instant else texts
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _write_each(values, lambda value: base64.b64encode(value).decode())
    if pa.types.is_nested(kind):
        return _write_each(values, partial(write_json, kind))
    return write_floats(values) if pa.types.is_floating(kind) else values.cast(_TEXT)


def _write_each(values: pa.Array, write: Any) -> pa.Array:
    written = [None if each is None else write(each) for each in values.to_pylist()]
    return make_array(written, pa.string()).cast(_TEXT)


def _quote(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(_scalar('"'), texts, _scalar('"'), _scalar(""))


def _escape(texts: pa.Array) -> pa.Array:
    _offsets, data = _bytes_of(texts)
    found = np.frombuffer(data, dtype=np.uint8)
    is_rare = (found < _SPACE) & (found != ord("\n")) & (found != ord("\r")) & (found != ord("\t"))
    if is_rare.any():
        return _write_each(texts, lambda text: json.dumps(text, ensure_ascii=False)[1:-1])
    for plain, escaped in _ESCAPES:
        if (found == ord(plain)).any():
            texts = pc.replace_substring(texts, plain, escaped)
    return texts


def _scalar(text: str) -> Any:
    # Not by `pa.scalar`, which imports pandas.
    return make_array([text], pa.string()).cast(_TEXT)[0]


def _split(texts: pa.Array) -> list[bytes]:
    offsets, data = _bytes_of(texts)
    return [data[low:high] for low, high in pairwise(offsets.tolist())]


def _bytes_of(texts: pa.Array) -> tuple[Any, bytes]:
    """Where each text begins and the last one ends; and the texts, one after the other, as they lie in memory."""
    whole = texts.cast(_TEXT)
    offsets = np.frombuffer(whole.buffers()[1], dtype=np.int64)[whole.offset : whole.offset + len(whole) + 1]
    start, end = int(offsets[0]), int(offsets[-1])
    data = whole.buffers()[2]
    return offsets - start, b"" if data is None else bytes(data.slice(start, end - start))
