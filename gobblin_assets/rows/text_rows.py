"""Rows as lines of JSON or CSV, which other programs than Spark read as well.

JSON: an object of each row, without members that are NULL. CSV: RFC 4180 with a header line, and line feeds as ends of
lines. Both are UTF-8.

Each value has a text from which the same value can be read again. Whole numbers and decimals have all their digits. A
float has its shortest text, or is ``NaN``, ``Infinity`` or ``-Infinity``. Times are in ISO 8601 with microseconds,
instants in UTC. Bytes are in base64.
"""

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.destinations.row_forms import write_floats
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.files import FileFormat

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
        return write_floats(column).cast(pa.string())
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


# Rows are made texts in pieces, whose texts take some times their memory.
_PIECE_BYTES: Final = 4 << 20
_PIECE_ROWS: Final = 1 << 16
_GZIP_BITS: Final = 31


class TextRows:
    """Lines of a text file. ``lines_of`` gives one text of each row, without the end of the line."""

    kept_bytes: Final = 0

    def __init__(
        self,
        stream: BinaryIO,
        compression: str,
        lines_of: Callable[[pa.RecordBatch], pa.Array],
        header: str | None = None,
    ) -> None:
        self._stream = stream
        self._compressor = zlib.compressobj(wbits=_GZIP_BITS) if compression == "gzip" else None
        self._lines_of = lines_of
        self._row_count = 0
        if header is not None:
            self._write(f"{header}\n".encode())

    def write(self, rows: pa.Table) -> None:
        for piece in _cut(rows):
            lines = self._lines_of(piece)
            joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "\n")
            self._write(joined[0].as_buffer())
            self._write(b"\n")
            self._row_count += len(lines)

    def finish(self) -> int:
        if self._compressor is not None:
            self._stream.write(self._compressor.flush())
        return self._row_count

    def _write(self, content: bytes | pa.Buffer) -> None:
        self._stream.write(content if self._compressor is None else self._compressor.compress(content))


def open_json_rows(stream: BinaryIO, schema: pa.Schema, compression: str) -> TextRows:
    names = list(schema.names)
    return TextRows(stream, compression, lambda batch: json_objects(names, batch.columns))


def open_csv_rows(stream: BinaryIO, schema: pa.Schema, compression: str) -> TextRows:
    names = list(schema.names)

    def lines_of(batch: pa.RecordBatch) -> pa.Array:
        fields = [csv_texts(name, column) for name, column in zip(names, batch.columns, strict=True)]
        return pc.binary_join_element_wise(*fields, ",")

    quoted = ('"' + name.replace('"', '""') + '"' for name in names)
    return TextRows(stream, compression, lines_of, header=",".join(quoted))


def require_text_columns(file_format: FileFormat, schema: pa.Schema) -> None:
    """RejectedError names a column that the format can't hold."""
    for field in schema:
        if not (is_plain(field.type) or (file_format is FileFormat.JSON and _is_nested(field.type))):
            raise RejectedError(
                f"the {field.type} column {field.name!r} can't be written to {file_format} files",
                field="writer.format",
                hint="Choose parquet, or json if it is nested, or turn the column into a text. Keys of maps in JSON "
                "are texts.",
            )
    if file_format is FileFormat.CSV and len(schema) == 1:
        raise RejectedError(
            f"{schema.names[0]!r} is the only column of csv files: a NULL would be an empty line, which readers skip",
            field="writer.format",
            hint="Choose json or parquet, or add a column.",
        )


def _is_nested(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_in_json(each.type) for each in kind)
    if pa.types.is_map(kind):
        return pa.types.is_string(kind.key_type) and _is_in_json(kind.item_type)
    return pa.types.is_list(kind) and _is_in_json(kind.value_type)


def _is_in_json(kind: pa.DataType) -> bool:
    return is_plain(kind) or _is_nested(kind)


def _cut(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    for batch in rows.to_batches():
        count = min(_PIECE_ROWS, max(1, batch.num_rows * _PIECE_BYTES // max(1, batch.nbytes)))
        for begin in range(0, batch.num_rows, count):
            yield batch.slice(begin, count)
