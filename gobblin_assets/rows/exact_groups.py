"""Groups of equal rows, where equal means the same bits: Spark takes -0.0 for 0.0 in whatever it groups by."""

from typing import Final

from pyspark.sql import types as t

_FLOATS: Final = (t.FloatType, t.DoubleType)


def holds_floats(kind: t.DataType) -> bool:
    return isinstance(kind, _FLOATS) or (isinstance(kind, t.ArrayType) and holds_floats(kind.elementType))


def type_to_group_by(kind: t.DataType) -> t.DataType:
    """The type to which values are cast to be grouped by, and from which they are cast back: floats become texts.

    Each number but NaN has a text of its own, which is read as that number again.
    """
    if isinstance(kind, _FLOATS):
        return t.StringType()
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(type_to_group_by(kind.elementType), kind.containsNull)
    return kind
