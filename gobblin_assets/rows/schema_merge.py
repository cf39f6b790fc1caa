"""One schema for files that were written under several: the newest says which columns there are, and in which order.

A column's type is the narrowest that holds every value of all files. One rule is for writing and reading: a file whose
type leaves no such type is not written. All columns come back as nullable: a file may lack a column that others have.

If a type holds a value exactly, Spark's cast to that type loses nothing, at any time and in any zone. The table of
types is that of Delta Lake's type widening, with two more rows: a double holds numbers of up to 32 bits, a float
numbers of up to 16 bits. ``docs/TYPES.md`` shows the table to people.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from pyspark.sql import types as t

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.model.column_names import pair_names

DECIMAL_DIGITS_MAX: Final = 38

# From narrow to wide: the digits that a decimal needs to hold the type.
_DIGITS: Final[dict[type[t.DataType], int]] = {t.ByteType: 3, t.ShortType: 5, t.IntegerType: 10, t.LongType: 19}
_WHOLE: Final = tuple(_DIGITS)
_IN_FLOAT: Final = (t.ByteType, t.ShortType)
_IN_DOUBLE: Final = (*_IN_FLOAT, t.IntegerType, t.FloatType)


def join_types(one: t.DataType, other: t.DataType) -> t.DataType | None:
    """The narrowest type that holds every value of both; None: there is none. Symmetric, and associative.

    Structs, arrays and maps hold each other only where they are equal; ``schema_merge`` goes down into them.
    """
    if one == other:
        return one
    return _join(one, other) or _join(other, one)


def join_all(types: Iterable[t.DataType]) -> t.DataType | None:
    """``join_types`` of all of them; None also where there are no types."""
    joined: t.DataType | None = None
    for number, each in enumerate(types):
        joined = each if number == 0 else join_types(joined, each) if joined is not None else None
    return joined


def describe_holders(stored: t.DataType) -> str:
    """The types that hold every value of ``stored``, for a message: ``int, bigint, decimal(10,0) …``."""
    own = stored.simpleString()
    match stored:
        case t.DecimalType():
            before = stored.precision - stored.scale
            return f"{own}, or a decimal with at least {before} digits before the point and {stored.scale} behind it"
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            wider = [kind().simpleString() for kind in _WHOLE[_WHOLE.index(type(stored)) + 1 :]]
            floats = ["float"] * isinstance(stored, _IN_FLOAT) + ["double"] * isinstance(stored, _IN_DOUBLE)
            decimal = f"a decimal with at least {_DIGITS[type(stored)]} digits before the point"
            return f"{', '.join([own, *wider, *floats])}, or {decimal}"
        case t.FloatType():
            return f"{own} or double"
        case t.DateType():
            return f"{own} or timestamp_ntz"
        case _:
            return own


def _join(narrow: t.DataType, wide: t.DataType) -> t.DataType | None:
    match narrow, wide:
        case ((t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType()), t.DecimalType()):
            return _decimal(max(_DIGITS[type(narrow)], wide.precision - wide.scale), wide.scale)
        case t.DecimalType(), t.DecimalType():
            before = max(narrow.precision - narrow.scale, wide.precision - wide.scale)
            return _decimal(before, max(narrow.scale, wide.scale))
        case t.IntegerType(), t.FloatType():
            return t.DoubleType()
        case t.DateType(), t.TimestampNTZType():
            return wide
        case _, t.FloatType() if isinstance(narrow, _IN_FLOAT):
            return wide
        case _, t.DoubleType() if isinstance(narrow, _IN_DOUBLE):
            return wide
        case _ if type(narrow) in _WHOLE and type(wide) in _WHOLE:
            return max((narrow, wide), key=lambda each: _DIGITS[type(each)])
        case _:
            return None


def _decimal(before: int, scale: int) -> t.DecimalType | None:
    """With ``before`` digits before the point and ``scale`` behind it."""
    return t.DecimalType(before + scale, scale) if before + scale <= DECIMAL_DIGITS_MAX else None


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two schemas' types at one place, such as ``address.zip``; structs, arrays and maps are taken apart."""

    place: str
    newer: t.DataType
    older: t.DataType


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
    """The columns of the newest schema, followed by those that only older ones have.

    RejectedError where no type holds what two of them have under one name.
    """
    merged = t.StructType([])
    for schema in newest_first:
        for pair in _pair_up(merged, schema):
            if join_types(pair.newer, pair.older) is None:
                newer, older = pair.newer.simpleString(), pair.older.simpleString()
                raise RejectedError(
                    f"files hold {pair.place!r} as {newer} and as {older}, and no type holds every value of both",
                    field="partitions",
                    hint="Read partitions that were written with one of the two; refresh those written with the other.",
                )
        merged = cast("t.StructType", _merge(merged, schema))
    return merged


def require_joinable(
    new: t.StructType, stored: Sequence[t.StructType], *, allow_retyped: bool, label: str, field: str
) -> None:
    """Refuse to write files of the schema ``new`` beside active ones of ``stored`` if a value would be lost by it.

    A type that holds every value of the stored types is a widening, and is always allowed. With ``allow_retyped``, a
    type is allowed if some type holds all values. A type that active files already have makes nothing worse.
    """
    found: dict[str, list[_Pair]] = {}
    for schema in stored:
        for pair in _pair_up(new, schema):
            found.setdefault(pair.place, []).append(pair)
    for place, pairs in found.items():
        now, before = pairs[0].newer, list(dict.fromkeys(pair.older for pair in pairs))
        joined = join_all([now, *before])
        if now in before or joined == now or (joined is not None and allow_retyped):
            continue
        held = " and ".join(each.simpleString() for each in before)
        known = join_all(before)
        holders = held if known is None else describe_holders(known)
        if joined is None:
            reason = "no type holds every value of both"
            hint = (
                f"Cast it, at the source or by a converter, to {holders}; or give it another name. A refresh may change"
                " it where no other partition has files."
            )
        else:
            reason = f"{now.simpleString()} does not hold all of its values"
            hint = (
                f"Cast it, at the source or by a converter, to {holders}; or write schema_change: {{allow_retyped: "
                f"true}}: the dataset then reads as {joined.simpleString()}."
            )
        raise RejectedError(
            f"{label}: {place!r} is {now.simpleString()} now, its published files hold {held}, and {reason}",
            field=field,
            hint=hint,
            column=place,
        )


def type_to_read(stored: t.DataType, wanted: t.DataType) -> t.DataType:
    """The type to read a file's column as, so that only a cast to ``wanted`` remains.

    Parquet finds the fields of a struct by name and gives NULL for fields that the file lacks. So added fields are
    read as they are wanted; everything else is read as it was stored, by its name in the file.
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


def _pair_up(newer: t.DataType, older: t.DataType, place: str = "") -> Iterator[_Pair]:
    """All places that both have, from the outside in."""
    match newer, older:
        case t.StructType(), t.StructType():
            names = pair_names(newer.names, older.names)
            for field in newer.fields:
                if field.name in names:
                    below = f"{place}.{field.name}" if place else field.name
                    yield from _pair_up(field.dataType, older[names[field.name]].dataType, below)
        case t.ArrayType(), t.ArrayType():
            yield from _pair_up(newer.elementType, older.elementType, f"{place}.element")
        case t.MapType(), t.MapType():
            # A key with more fields than it was written with would be another key.
            yield _Pair(f"{place}.key", newer.keyType, older.keyType)
            yield from _pair_up(newer.valueType, older.valueType, f"{place}.value")
        case _:
            yield _Pair(place, newer, older)


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
            key = join_types(newer.keyType, older.keyType) or newer.keyType
            return t.MapType(key, _merge(newer.valueType, older.valueType))
        case _:
            return join_types(newer, older) or newer


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
