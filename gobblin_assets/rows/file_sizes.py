"""Computes how many rows to write to a file, so that it has about the wanted size."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

# Bytes of a value in Parquet before compression; for texts and the like, the guesses of Spark's own planner.
_FIXED_BYTES: Final = MappingProxyType(
    {
        "boolean": 0.125,
        "byte": 1.0,
        "short": 2.0,
        "integer": 4.0,
        "date": 4.0,
        "float": 4.0,
        "long": 8.0,
        "double": 8.0,
        "timestamp": 8.0,
        "timestamp_ntz": 8.0,
    }
)
_TEXT_BYTES: Final = 20.0
_DECIMAL_BYTES: Final = 16.0
_ELEMENTS: Final = 4


def plan_file_rows_max(schema: Mapping[str, Any], *, file_bytes_max: int, file_rows_max: int | None = None) -> int:
    """How many rows a file may have, so that it has about ``file_bytes_max`` at most.

    Computed from the widths of the types in ``schema``, Spark's JSON, before compression, which makes smaller files;
    only a column of long texts makes larger ones. Spark offers a bound by rows only. ``file_rows_max`` is a further
    bound, where it is given.
    """
    planned = max(1, int(file_bytes_max / max(_width(schema), 1.0)))
    return planned if file_rows_max is None else min(planned, file_rows_max)


def _width(data_type: Any) -> float:
    match data_type:
        case {"type": "struct", "fields": fields}:
            return sum(_width(column["type"]) for column in fields)
        case {"type": "array", "elementType": element}:
            return _ELEMENTS * _width(element)
        case {"type": "map", "keyType": key, "valueType": value}:
            return _ELEMENTS * (_width(key) + _width(value))
        case str() as name:
            return _DECIMAL_BYTES if name.startswith("decimal") else _FIXED_BYTES.get(name, _TEXT_BYTES)
        case _:
            return _TEXT_BYTES
