"""One schema for files that were written under several: the newest says what the dataset is.

All columns come back as nullable: a file may lack one that others have.
"""

import json
from collections.abc import Iterable, Mapping
from typing import cast

from pyspark.sql import types as t

from gobblin_assets.errors import CorruptionError
from gobblin_assets.ingest.column_names import pair_names


def parse_schema(data: object) -> t.StructType:
    """Spark's JSON of a schema, as text or as read, with everything nullable. CorruptionError if it is none."""
    try:
        fields = json.loads(data) if isinstance(data, str) else data
        if not isinstance(fields, Mapping):
            raise TypeError(type(data).__name__)
        return cast("t.StructType", _as_nullable(t.StructType.fromJson(dict(fields))))
    except (ValueError, TypeError, KeyError, AssertionError) as error:
        raise CorruptionError(f"a stored file schema is not Spark's JSON ({type(error).__name__})") from error


def merge_schemas(newest_first: Iterable[t.StructType]) -> t.StructType:
    """The newest schema, followed by the columns that only older ones have. Names differ by more than case."""
    merged = t.StructType([])
    for schema in newest_first:
        merged = cast("t.StructType", _merge(merged, schema))
    return merged


def type_to_read(stored: t.DataType, wanted: t.DataType) -> t.DataType:
    """As which type a file's column is read so that a cast to ``wanted`` is all that remains.

    Parquet finds the fields of a struct by name and gives NULL for those that the file lacks, so that added
    ones are asked for as they are wanted; everything else is read as it was stored, by the name that it has there.
    """
    match stored, wanted:
        case t.StructType(), t.StructType():
            names = pair_names(wanted.names, stored.names)
            return t.StructType(
                [
                    t.StructField(names[field.name], type_to_read(stored[names[field.name]].dataType, field.dataType))
                    if field.name in names
                    else t.StructField(field.name, field.dataType)
                    for field in wanted.fields
                ]
            )
        case t.ArrayType(), t.ArrayType():
            return t.ArrayType(type_to_read(stored.elementType, wanted.elementType))
        case t.MapType(), t.MapType():
            return t.MapType(stored.keyType, type_to_read(stored.valueType, wanted.valueType))
        case _:
            return stored


def _merge(newer: t.DataType, older: t.DataType) -> t.DataType:
    match newer, older:
        case t.StructType(), t.StructType():
            names = pair_names(newer.names, older.names)
            fields = [
                t.StructField(
                    field.name,
                    _merge(field.dataType, older[names[field.name]].dataType)
                    if field.name in names
                    else field.dataType,
                    metadata=field.metadata,
                )
                for field in newer.fields
            ]
            known = set(names.values())
            return t.StructType([*fields, *(field for field in older.fields if field.name not in known)])
        case t.ArrayType(), t.ArrayType():
            return t.ArrayType(_merge(newer.elementType, older.elementType))
        case t.MapType(), t.MapType():
            return t.MapType(newer.keyType, _merge(newer.valueType, older.valueType))
        case _:
            return newer


def _as_nullable(data_type: t.DataType) -> t.DataType:
    match data_type:
        case t.StructType():
            return t.StructType(
                [
                    t.StructField(field.name, _as_nullable(field.dataType), metadata=field.metadata)
                    for field in data_type.fields
                ]
            )
        case t.ArrayType():
            return t.ArrayType(_as_nullable(data_type.elementType))
        case t.MapType():
            return t.MapType(_as_nullable(data_type.keyType), _as_nullable(data_type.valueType))
        case _:
            return data_type
