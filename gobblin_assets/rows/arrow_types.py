"""Spark's types as Arrow has them, for rows that are written without Spark.

Spark reads a Parquet column of the Arrow type as the Spark type, with the same values: instants and wall clocks in
microseconds, instants in UTC.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import pyarrow as pa

_PLAIN: Final = MappingProxyType(
    {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
)
# Types that Spark's JSON names in another way than its SQL.
_JSON_NAMES: Final = MappingProxyType({"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"})
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_ARRAY: Final = re.compile(r"array<(.+)>")
# Of plain types only: such as the headers of a record.
_STRUCT: Final = re.compile(r"struct<((?:\w+:\w+,)*\w+:\w+)>")


@lru_cache(maxsize=1_024)
def arrow_type(spark_type: str) -> pa.DataType | None:
    """The Arrow type of a Spark type as ``simpleString`` writes it; None for maps, nested structs and such."""
    if (decimal := _DECIMAL.fullmatch(spark_type)) is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if (array := _ARRAY.fullmatch(spark_type)) is not None:
        element = arrow_type(array[1])
        # The element has the same name in Spark's own files.
        return None if element is None else pa.list_(pa.field("element", element))
    if (fields := _fields_of(spark_type)) is not None:
        kinds = [(name, arrow_type(kind)) for name, kind in fields]
        return None if any(kind is None for _name, kind in kinds) else pa.struct(kinds)
    return _PLAIN.get(spark_type)


def arrow_schema(columns: Sequence[tuple[str, str]]) -> pa.Schema:
    """The schema of columns that all have an Arrow type, each a name and a type as ``simpleString`` writes it."""
    return pa.schema([pa.field(name, arrow_type(spark_type)) for name, spark_type in columns])


def schema_to_json(columns: Sequence[tuple[str, str]]) -> dict[str, object]:
    """Spark's JSON of a schema of these columns, each a name and a type as ``simpleString`` writes it."""
    fields = [
        {"name": name, "type": _type_to_json(spark_type), "nullable": True, "metadata": {}}
        for name, spark_type in columns
    ]
    return {"type": "struct", "fields": fields}


def _type_to_json(spark_type: str) -> object:
    if (array := _ARRAY.fullmatch(spark_type)) is not None:
        return {"type": "array", "elementType": _type_to_json(array[1]), "containsNull": True}
    if (fields := _fields_of(spark_type)) is not None:
        return schema_to_json(fields)
    return _JSON_NAMES.get(spark_type, spark_type)


def _fields_of(spark_type: str) -> list[tuple[str, str]] | None:
    """The fields of a struct of plain types; None for any other type."""
    found = _STRUCT.fullmatch(spark_type)
    if found is None:
        return None
    pairs = (field.partition(":") for field in found[1].split(","))
    return [(name, kind) for name, _colon, kind in pairs]
