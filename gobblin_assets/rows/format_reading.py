"""Files of each format as Spark reads them, with the values that were written.

Spark tells nothing of the types from text: all of them come from the schema of the files. A text that has not the type
of its column fails the query; Spark alone would give NULL.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, DataFrameReader
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.model.files import FileFormat
from gobblin_assets.rows.columns import named

_STRICT: Final = {"mode": "FAILFAST", "allowNonNumericNumbers": "true"}
_CSV: Final = {
    "header": "true",
    "enforceSchema": "false",
    "sep": ",",
    "quote": '"',
    "escape": '"',
    # Spark would take a NUL before a quote for an escape.
    "charToEscapeQuoteEscaping": '"',
    "emptyValue": "",
    "nanValue": "NaN",
    "positiveInf": "Infinity",
    "negativeInf": "-Infinity",
    "maxColumns": "1000000",
    # Values have line feeds in them, and carriage returns that must stay as they are.
    "multiLine": "true",
    "lineSep": "\n",
}


def columns_to_read(
    file_format: FileFormat, stored: t.StructType, asked: Mapping[str, t.DataType]
) -> Mapping[str, t.DataType]:
    """What a read must name so that the columns ``asked`` are among it: CSV has its columns by their places."""
    if file_format is not FileFormat.CSV:
        return asked
    return {field.name: field.dataType for field in stored.fields}


def open_format(
    reader: DataFrameReader, file_format: FileFormat, columns: Mapping[str, t.DataType], uris: Sequence[str]
) -> DataFrame:
    """The files, lazily, with these columns; ``read_value`` gives the values."""
    match file_format:
        case FileFormat.PARQUET:
            return reader.schema(_schema(columns)).parquet(*uris)
        case FileFormat.JSON:
            return _open_strictly(reader).schema(_schema(columns)).json(list(uris))
        case FileFormat.CSV:
            as_texts = {name: t.StringType() if _is_base64(kind) else kind for name, kind in columns.items()}
            # A text that no value is: else a text would come back as NULL.
            marked = _open_strictly(reader).options(**_CSV, nullValue=uuid.uuid4().hex)
            return marked.schema(_schema(as_texts)).csv(list(uris))


def read_value(file_format: FileFormat, name: str, kind: t.DataType) -> Column:
    """The value of a column of ``open_format``."""
    is_text = file_format is FileFormat.CSV and _is_base64(kind)
    return f.unbase64(named(name)) if is_text else named(name)


def _is_base64(kind: t.DataType) -> bool:
    return isinstance(kind, t.BinaryType)


def _schema(columns: Mapping[str, t.DataType]) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


def _open_strictly(reader: DataFrameReader) -> DataFrameReader:
    # Spark takes a column of this name for one of its own.
    return reader.options(**_STRICT, columnNameOfCorruptRecord=uuid.uuid4().hex)
