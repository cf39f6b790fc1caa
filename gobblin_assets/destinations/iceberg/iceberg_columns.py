"""The columns of a table of Iceberg for rows in Arrow's types, and which existing columns hold them. Pure."""

from itertools import count
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from gobblin_assets.errors import RejectedError

_PLAIN: Final[dict[pa.DataType, IcebergType]] = {
    pa.bool_(): BooleanType(),
    pa.int8(): IntegerType(),
    pa.int16(): IntegerType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.large_string(): StringType(),
    pa.binary(): BinaryType(),
    pa.large_binary(): BinaryType(),
    pa.date32(): DateType(),
}


def iceberg_columns(columns: pa.Schema) -> Schema:
    """The columns of a new table, all of which may be null. RejectedError for a type that Iceberg doesn't have."""
    numbers = count(1)
    return Schema(*(_field(column, numbers) for column in columns))


def _field(column: pa.Field, numbers: "count[int]") -> NestedField:
    return NestedField(next(numbers), column.name, _type(column.type, numbers), required=False)


def _type(kind: pa.DataType, numbers: "count[int]") -> IcebergType:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return TimestampType() if kind.tz is None else TimestamptzType()
    if pa.types.is_decimal(kind) and kind.precision <= DECIMAL_DIGITS_MAX and 0 <= kind.scale <= kind.precision:
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ListType(next(numbers), _type(kind.value_type, numbers), element_required=False)
    if pa.types.is_map(kind):
        return MapType(
            *(next(numbers), _type(kind.key_type, numbers), next(numbers), _type(kind.item_type, numbers)),
            value_required=False,
        )
    if pa.types.is_struct(kind):
        return StructType(*(_field(each, numbers) for each in kind))
    raise RejectedError(f"rows have a column of Arrow's type {kind}", field="into", hint="Leave the column out.")


DECIMAL_DIGITS_MAX: Final = 38


def require_iceberg_columns(table: str, found: Schema, wanted: Schema) -> bool:
    """Whether the table must change before it takes the rows: a column joins, or its type becomes wider.

    RejectedError names a column that neither holds the rows' values nor can be changed so that it does.
    """
    changes = False
    for name in wanted.column_names:
        if name not in found.column_names:
            changes = True
            continue
        have, need = found.find_field(name), wanted.find_field(name)
        if have.required and need.optional:
            raise RejectedError(
                f"{table} has the column {name!a}, which may not be null, and rows may have none",
                field="into",
                hint="Let the column be null.",
            )
        if _holds(have.field_type, need.field_type):
            continue
        if not _holds(need.field_type, have.field_type):
            raise RejectedError(
                f"{table} has the column {name!a} as {have.field_type}, and rows have {need.field_type}",
                field="into",
                hint="Give the column another name or type, or cast the rows by a converter.",
            )
        changes = True
    _require_optional(table, found, wanted)
    return changes


def _require_optional(table: str, found: Schema, wanted: Schema) -> None:
    """Columns that rows don't have must be optional."""
    for name in found.column_names:
        parent = name.rpartition(".")[0]
        is_asked = not parent or parent in wanted.column_names
        if name not in wanted.column_names and is_asked and found.find_field(name).required:
            raise RejectedError(
                f"{table} has the column {name!a}, which may not be null, and rows don't have it",
                field="into",
                hint="Let the column be null.",
            )


def _holds(existing: IcebergType, wanted: IcebergType) -> bool:
    """Whether a column of the type ``existing`` keeps each value of ``wanted`` as it is, what is inside it aside."""
    match wanted, existing:
        case (StructType(), StructType()) | (ListType(), ListType()) | (MapType(), MapType()):
            return True
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case (DecimalType(), DecimalType()):
            return existing.scale == wanted.scale and existing.precision >= wanted.precision
        case _:
            return existing == wanted
