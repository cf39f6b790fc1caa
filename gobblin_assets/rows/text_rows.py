"""Rows as lines of JSON or CSV, which other programs than Spark read as well.

JSON: an object of each row, without members that are NULL. CSV: RFC 4180 with a header line, and line feeds as ends of
lines. Both are UTF-8. How each type looks: ``text_values``.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.files import FileFormat
from gobblin_assets.rows.text_values import csv_texts, is_plain, json_objects

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
