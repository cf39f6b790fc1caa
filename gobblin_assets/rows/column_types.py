"""Finds the type that holds every value of two others. Pure; ``docs/TYPES.md`` shows the table to people.

One rule for writing and reading: a dataset's column is read as the type that holds every value of all its active files.
A file whose type would leave no such type is not written. If a type holds a value exactly, Spark's cast to that type
loses nothing, at any time and in any zone.

The table is that of Delta Lake's type widening, with two more rows: a double holds numbers of up to 32 bits, a float
numbers of up to 16 bits.
"""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import types as t

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
