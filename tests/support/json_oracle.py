"""The row that a JSON record must become by the rules of ``DecoderSpec``, by a parser that keeps numbers as text."""

import json
import math
import re
from collections import Counter
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql import types as t

from gobblin_assets.model.column_names import name_key

DEAD: Final = "a dead letter"
WORDS: Final = ("NaN", "Infinity", "+Infinity", "+INF", "-Infinity", "-INF")
"""Texts of floats that JSON's numbers lack."""

_NUMBER: Final = re.compile(r"[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?", re.ASCII)
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Number(str):
    """A number's token, as it was sent. It differs from a text of the same characters."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and str.__eq__(self, other)

    __hash__ = str.__hash__


class Members(list[tuple[str, Any]]):
    """An object's members, each as often as it was sent."""


class _DeadError(Exception):
    pass


def parse(text: str) -> Any:
    return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=_refuse, object_pairs_hook=Members)


def expect(text: str, schema: t.StructType) -> object:
    """The columns' values as a tuple, or ``DEAD``."""
    try:
        value = parse(text)
        if not isinstance(value, Members) or _has_half_pair(value):
            return DEAD
        return _fit(value, schema)
    except (ValueError, _DeadError):
        return DEAD


def same(actual: object, expected: object) -> bool:
    """Whether both are equal. A text that is JSON is compared by its value, since white space is not kept."""
    if isinstance(expected, Members | list) and isinstance(actual, str):
        return bool(parse(actual) == expected)
    if isinstance(expected, tuple | list) and isinstance(actual, Row | list):
        return len(actual) == len(expected) and all(map(same, actual, expected))
    if isinstance(expected, dict) and isinstance(actual, dict):
        return actual.keys() == expected.keys() and all(same(actual[key], expected[key]) for key in expected)
    if isinstance(actual, float) and isinstance(expected, float) and math.isnan(expected):
        return math.isnan(actual)
    return type(actual) is type(expected) and actual == expected


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _has_half_pair(value: object) -> bool:
    match value:
        case Members():
            return any(_has_half_pair(key) or _has_half_pair(inner) for key, inner in value)
        case list():
            return any(map(_has_half_pair, value))
        case str():
            return _LONE_SURROGATE.search(value) is not None
        case _:
            return False


def _fit(value: object, data_type: t.DataType) -> Any:
    if value is None:
        return None
    match data_type, value:
        case t.StringType(), Number():
            return str(value)
        case t.StringType(), bool():
            return "true" if value else "false"
        case t.StringType(), _:
            return value
        case t.BooleanType(), bool():
            return value
        case t.LongType(), Number() if re.fullmatch("-?[0-9]+", value) and -(2**63) <= int(value) < 2**63:
            return int(value)
        case t.DoubleType(), Number() if math.isfinite(float(value)):
            return float(value)
        case t.DoubleType(), str() if not isinstance(value, Number) and value in WORDS:
            return float(value)
        case t.DecimalType(), str() if _NUMBER.fullmatch(value):
            return _fit_decimal(Decimal(value), data_type)
        case t.ArrayType(), list() if not isinstance(value, Members):
            return [_fit(each, data_type.elementType) for each in value]
        case t.MapType(), Members():
            return {key: _fit(inner, data_type.valueType) for key, inner in _once(value, [key for key, _ in value])}
        case t.StructType(), Members():
            known = set(map(name_key, data_type.names))
            ours = [(key, inner) for key, inner in value if name_key(key) in known]
            if not {key for key, _inner in ours} <= set(data_type.names):
                raise _DeadError
            found = dict(_once(ours, [key for key, _ in ours]))
            return tuple(_fit(found.get(each.name), each.dataType) for each in data_type.fields)
        case _:
            raise _DeadError


def _fit_decimal(number: Decimal, data_type: t.DecimalType) -> Decimal:
    sign, digits, exponent = number.as_tuple()
    whole = int("".join(map(str, digits))) * (-1 if sign else 1)
    shift = int(exponent) + data_type.scale
    scaled, rest = (whole * 10**shift, 0) if shift >= 0 else divmod(whole, 10**-shift)
    if rest or abs(scaled) >= 10**data_type.precision:
        raise _DeadError
    return Decimal((int(scaled < 0), tuple(map(int, str(abs(scaled)))), -data_type.scale))


def _once(members: list[tuple[str, Any]], keys: list[str]) -> list[tuple[str, Any]]:
    if any(count > 1 for count in Counter(keys).values()):
        raise _DeadError
    return members
