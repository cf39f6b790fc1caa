"""How many rows to write to a file, so that it has about the wanted size."""

from typing import Final

from pyspark.sql import types as t

# Bytes of a value in Parquet before compression; for texts and the like, the guesses of Spark's own planner.
_FIXED_BYTES: Final[tuple[tuple[type[t.DataType], float], ...]] = (
    (t.BooleanType, 0.125),
    (t.ByteType, 1),
    (t.ShortType, 2),
    (t.IntegerType, 4),
    (t.DateType, 4),
    (t.FloatType, 4),
    (t.LongType, 8),
    (t.DoubleType, 8),
    (t.TimestampType, 8),
    (t.TimestampNTZType, 8),
)
_TEXT_BYTES: Final = 20.0
_DECIMAL_BYTES: Final = 16.0
_ELEMENTS: Final = 4


def plan_file_rows_max(schema: t.StructType, *, file_bytes_max: int, file_rows_max: int | None = None) -> int:
    """How many rows a file may have, so that it has about ``file_bytes_max`` at most.

    Computed from the widths of the schema's types before compression, which makes smaller files; only a column of long
    texts makes larger ones. Spark offers a bound by rows only. ``file_rows_max`` is a further bound, where it is given.
    """
    planned = max(1, int(file_bytes_max / max(_width(schema), 1.0)))
    return planned if file_rows_max is None else min(planned, file_rows_max)


def _width(data_type: t.DataType) -> float:
    match data_type:
        case t.StructType():
            return sum(_width(column.dataType) for column in data_type.fields)
        case t.ArrayType():
            return _ELEMENTS * _width(data_type.elementType)
        case t.MapType():
            return _ELEMENTS * (_width(data_type.keyType) + _width(data_type.valueType))
        case t.DecimalType():
            return _DECIMAL_BYTES
        case _:
            return next((width for kind, width in _FIXED_BYTES if isinstance(data_type, kind)), _TEXT_BYTES)
