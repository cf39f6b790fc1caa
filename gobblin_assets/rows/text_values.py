"""Values of Arrow columns as texts from which the same values can be read again.

Plain values: whole numbers and decimals with all their digits; floats by the shortest text of the value, and ``NaN``,
``Infinity``, ``-Infinity``; times in ISO 8601 with microseconds, instants in UTC; bytes in base64.
"""

import base64
import json
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.errors import RejectedError

_ESCAPED: Final = ("\\", '"', *map(chr, range(32)))
_CONTROL: Final = r"[\x00-\x1f]"
_YEAR_1_DAYS: Final = -719_162
_YEAR_10000_DAYS: Final = 2_932_897
_DAY_MICROS: Final = 86_400_000_000


def is_plain(kind: pa.DataType) -> bool:
    """Whether values of the type have a text by themselves."""
    types = pa.types
    return any(
        is_one(kind)
        for is_one in (
            *(types.is_boolean, types.is_integer, types.is_float32, types.is_float64, types.is_decimal128),
            *(types.is_string, types.is_binary, types.is_date32, types.is_timestamp),
        )
    )


def is_texted(kind: pa.DataType) -> bool:
    """Whether the text needs quotes: those of numbers and booleans need none."""
    types = pa.types
    return any(each(kind) for each in (types.is_string, types.is_binary, types.is_date32, types.is_timestamp))


def plain_texts(name: str, column: pa.Array) -> pa.Array:
    """A text of each value, without quotes or escapes; NULL stays NULL.

    ``name``: the column's, for a RejectedError at a date or time that no text of ISO 8601 has.
    """
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_binary(kind):
        encoded = [None if each is None else base64.b64encode(each).decode("ascii") for each in column.to_pylist()]
        return pa.array(encoded, pa.string())
    if pa.types.is_floating(kind):
        return _float_texts(column)
    if pa.types.is_date32(kind):
        _require_years(name, column.view(pa.int32()), _YEAR_1_DAYS, _YEAR_10000_DAYS)
    if pa.types.is_timestamp(kind):
        micros = column.cast(pa.timestamp("us", tz=kind.tz)).view(pa.int64())
        _require_years(name, micros, _YEAR_1_DAYS * _DAY_MICROS, _YEAR_10000_DAYS * _DAY_MICROS)
        texts = pc.replace_substring(micros.view(pa.timestamp("us")).cast(pa.string()), " ", "T")
        return texts if kind.tz is None else _joined(texts, "Z")
    return column.cast(pa.string())


def json_texts(name: str, column: pa.Array) -> pa.Array:
    """Each value as JSON; NULL stays NULL. Objects leave out members that are NULL, but for those of maps."""
    kind = column.type
    if pa.types.is_struct(kind):
        return json_objects([each.name for each in kind], column.flatten(), column)
    if pa.types.is_list(kind):
        return _bracketed(column, json_texts(name, _seen(column, column.values)).fill_null("null"), "[", "]")
    if pa.types.is_map(kind):
        values = json_texts(name, _seen(column, column.items)).fill_null("null")
        return _bracketed(column, _joined(json_texts(name, _seen(column, column.keys)), ":", values), "{", "}")
    texts = plain_texts(name, column)
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(column), texts, _joined('"', texts, '"'))
    return _joined('"', _escape(texts), '"') if is_texted(kind) else texts


def json_objects(names: list[str], columns: list[pa.Array], whole: pa.Array | None = None) -> pa.Array:
    """One object of each row. ``whole``: NULL where there is none."""
    # Arrow's own way to skip NULLs loses a row whose members are all NULL.
    members = [
        _joined(f",{json.dumps(name, ensure_ascii=False)}:", json_texts(name, column)).fill_null("")
        for name, column in zip(names, columns, strict=True)
    ]
    objects = pc.replace_substring(_joined("{", *members, "}"), "{,", "{", max_replacements=1)
    return objects if whole is None else _null_where(whole, objects)


def csv_texts(name: str, column: pa.Array) -> pa.Array:
    """Each value as a field of CSV: nothing for NULL, and quotes around every text, so that an empty one differs."""
    texts = plain_texts(name, column)
    if is_texted(column.type):
        texts = _joined('"', pc.replace_substring(texts, '"', '""'), '"')
    return texts.fill_null("")


def _joined(*parts: pa.Array | str) -> pa.Array:
    """NULL where a part is."""
    return pc.binary_join_element_wise(*(pa.scalar(each) if isinstance(each, str) else each for each in parts), "")


def _null_where(whole: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(whole.is_valid(), texts, pa.scalar(None, pa.string()))


def _seen(column: pa.Array, inner: pa.Array) -> pa.Array:
    """The inner values of these rows: a slice of a list or a map shares them with all other slices."""
    begin, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return inner.slice(begin, end - begin)


def _bracketed(column: pa.Array, parts: pa.Array, begin: str, end: str) -> pa.Array:
    """``parts``: a text of each element of ``_seen``."""
    lists = pa.ListArray.from_arrays(pc.subtract(column.offsets, column.offsets[0]), parts)
    return _null_where(column, _joined(begin, pc.binary_join(lists, ","), end))


def _float_texts(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    shown = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "-0": "-0.0"}
    for found, instead in shown.items():
        texts = pc.if_else(pc.equal(texts, found), instead, texts)
    return texts


def _escape(texts: pa.Array) -> pa.Array:
    has_control = pc.any(pc.match_substring_regex(texts, _CONTROL)).as_py()
    for each in _ESCAPED if has_control else _ESCAPED[:2]:
        texts = pc.replace_substring(texts, each, json.dumps(each)[1:-1])
    return texts


def _require_years(name: str, values: pa.Array, low: int, high: int) -> None:
    if pc.any(pc.or_(pc.less(values, low), pc.greater_equal(values, high))).as_py():
        raise RejectedError(
            f"{name!r} has a time outside of the years 1 to 9999, which no ISO 8601 text can hold",
            field="writer.format",
            hint="Choose parquet, or convert such times to NULL.",
        )
