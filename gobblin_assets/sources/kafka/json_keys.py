"""A search for fields of the schema that a JSON object has twice, and for keys that differ from one by case alone.

Spark keeps the last of two equal keys, and ignores a key in another case. Names are compared by the rule of
``column_names``. Listing a record's keys costs half as much as reading the record, so keys are listed only where the
text may have more keys than the row has values.
"""

import re
import secrets
from functools import reduce
from operator import add, and_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.model.column_names import name_key
from gobblin_assets.sources.kafka.json_exactness import apart

_OBJECT: Final = "map<string,string>"
_BETWEEN: Final = f"\n{secrets.token_hex(8)}\n"
"""Separates keys; unknown to those who write records."""


def has_more_keys(text: Column, count: Column) -> Column:
    """Whether the JSON may have more than ``count`` keys.

    Each key has a colon, but texts may have colons too. So a quotation mark followed by a colon is counted as well,
    unless there may be white space between the two.
    """
    return _has_more(text, ":", count) & (_has_more(text, '":', count) | _has_loose_colon(text))


def count_keys(value: Column, data_type: t.DataType) -> Column:
    """How many keys of the JSON became fields that are not NULL, or keys of a map."""
    match data_type:
        case t.StructType():
            return reduce(add, [_count_field(value[each.name], each.dataType) for each in data_type.fields], f.lit(0))
        case t.ArrayType() if _has_keys(data_type):
            element = data_type.elementType
            inner = f.aggregate(value, f.lit(0), lambda total, each: total + count_keys(each, element))
            return f.coalesce(inner, f.lit(0))
        case t.MapType():
            inner = count_keys(f.map_values(value), t.ArrayType(data_type.valueType))
            return f.when(value.isNull(), f.lit(0)).otherwise(f.size(value) + inner)
        case _:
            return f.lit(0)


def names_are_plain(text: Column, data_type: t.DataType) -> Column:
    """Whether no object has a field of the schema twice, or a key that differs from one by case alone."""
    match data_type:
        case t.StructType():
            nested = [each for each in data_type.fields if _has_keys(each.dataType)]
            names = [each.name for each in data_type.fields]
            if not nested:
                plain = apart(f.json_object_keys(text), lambda keys: keys_are_plain(keys, names))
            else:
                plain = apart(f.from_json(text, _OBJECT), lambda found: _object_is_plain(found, names, nested))
        case t.ArrayType() if _has_keys(data_type):
            element = data_type.elementType
            found = f.from_json(text, t.ArrayType(t.StringType()))
            plain = f.forall(found, lambda each: names_are_plain(each, element))
        case t.MapType() if _has_keys(data_type.valueType):
            values = f.map_values(f.from_json(text, _OBJECT))
            plain = f.forall(values, lambda each: names_are_plain(each, data_type.valueType))
        case _:
            return f.lit(True)
    return f.when(text.isNull(), f.lit(True)).otherwise(f.coalesce(plain, f.lit(False)))


def keys_are_plain(keys: Column, names: list[str]) -> Column:
    """Whether no name comes twice among an object's keys, and no key differs from a name by case alone. NULL: False."""
    exact, alike = "|".join(map(re.escape, names)), "|".join(map(_alike, names))
    listed = f.concat(f.lit(_BETWEEN), f.array_join(keys, _BETWEEN), f.lit(_BETWEEN))
    is_twice = listed.rlike(f"(?s){_BETWEEN}({exact}){_BETWEEN}(?:.*{_BETWEEN})?\\1{_BETWEEN}")
    is_other = listed.rlike(f"{_BETWEEN}(?!(?:{exact}){_BETWEEN})(?iu:{alike}){_BETWEEN}")
    is_wrong = ((f.size(f.array_distinct(keys)) < f.size(keys)) & is_twice) | is_other
    return f.coalesce(~is_wrong, f.lit(False))


def is_flat(data_type: t.DataType) -> bool:
    """Whether the type is a record without objects inside."""
    return isinstance(data_type, t.StructType) and not any(_has_keys(each.dataType) for each in data_type.fields)


def _has_more(text: Column, part: str, count: Column) -> Column:
    # With fewer parts, substring_index gives the whole text; otherwise it gives a shorter one.
    before = f.call_function("substring_index", text, f.lit(part), count + 1)
    return f.octet_length(before) < f.octet_length(text)


def _has_loose_colon(text: Column) -> Column:
    return text.contains(" :") | text.contains("\n:") | text.contains("\t:") | text.contains("\r:")


def _count_field(value: Column, data_type: t.DataType) -> Column:
    if not _has_keys(data_type):
        return value.isNotNull().cast("int")
    return f.when(value.isNull(), f.lit(0)).otherwise(f.lit(1) + count_keys(value, data_type))


def _object_is_plain(found: Column, names: list[str], nested: list[t.StructField]) -> Column:
    plain = apart(f.map_keys(found), lambda keys: keys_are_plain(keys, names))
    inner = [names_are_plain(f.try_element_at(found, f.lit(each.name)), each.dataType) for each in nested]
    return reduce(and_, inner, plain)


def _alike(name: str) -> str:
    """A Java regular expression for the names that have this name's ``name_key``.

    Where Java ignores case, it folds characters as ``name_key`` does.
    """
    return "".join("i\u0307*+" if character == "i" else re.escape(character) for character in name_key(name))


def _has_keys(data_type: t.DataType) -> bool:
    match data_type:
        case t.StructType() | t.MapType():
            return True
        case t.ArrayType():
            return _has_keys(data_type.elementType)
        case _:
            return False
