"""Losses of Spark's reading of JSON: found and mended by Spark's own expressions over the schema's type.

``from_json`` takes 128 to 255 for negative bytes: a byte is read as a wider number. It rounds a decimal to the column's
scale. It reads a number beyond a double as infinity, as it does the word for it, and takes such words without quotation
marks. It cuts a time to microseconds, and takes ``10:30`` for today. It silently keeps the last of two fields of one
name. In a text column, it writes a number with the digits of the nearest double. Only the record's text has the values
that were sent. So a second reading takes the places that can lose something, all as text. Before it, numbers that are
not whole become texts that begin with ``MARK``, since a text loses nothing. The second reading costs as much as the
first: it is made only where the record's text, or its value, shows that something may have been lost.

A condition that is None has nothing to look at in the type: nothing can be lost there.

Spark also keeps the last of two equal keys, and ignores a key in another case than the schema's. Names are compared by
the rule of ``column_names``. Listing a record's keys costs half as much as reading the record, so keys are listed only
where the text may have more keys than the row has values.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add, and_, or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.model.column_names import name_key

MARK: Final = "\x01"
"""Precedes a number that was turned into a text. A text that has it gets it twice; JSON never holds it unescaped."""

_ESCAPED_MARK: Final = "\\u0001"
_TIMES: Final = (t.DateType, t.TimestampType, t.TimestampNTZType)
_FLOATS: Final = (t.FloatType, t.DoubleType)
_REREAD: Final = (t.StringType, t.DecimalType, *_TIMES, *_FLOATS)
_STRING: Final = '"[^"]*+"'

# A number that Spark may write differently: one with a point or an exponent, or a zero with a sign.
_NOT_WHOLE: Final = "-?[0-9]++[.eE]|-0"
_BEFORE_VALUE: Final = r"(?:^|[:\[,])[ \t\r\n]*+"
_STRING_OR_NUMBER: Final = r'("[^"]*+")|(?<![0-9])(-?[0-9]++[.eE][0-9.eE+-]*+|-0)'
# Texts that Spark may have made of a number, an object or an array, each on a line of its own.
_MADE_OF_OTHER: Final = r'(?m)^(?:-?[0-9]++[.][0-9]++(?:E-?[0-9]++)?|0|"-?Infinity")$|^[{\[]'
# Numbers in texts that only Java accepts: with commas of thousands, or with the digits of other scripts.
_ODD_NUMBER: Final = r'"(?=[-+.,]*+[0-9])[-+0-9.eE]*+,|"[-+0-9.,eE]*+[^\x00-\x7f]'
_HALF_PAIR: Final = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)

_NUMBER: Final = r"^[-+]?([0-9]*)[.]?([0-9]*)(?:[eE]([-+]?[0-9]{1,9}))?$"
_DATE: Final = r"[+-]?[0-9]{4,}-[0-9]{1,2}-[0-9]{1,2}"
_CLOCK: Final = r"[0-9]{1,2}:[0-9]{1,2}(?::[0-9]{1,2}(?:[.][0-9]{0,6}0*)?)?"
_ZONE: Final = r"(?: ?[A-Za-z+-][A-Za-z0-9/_+:-]*)?"
_MOMENT: Final = f"{_DATE}(?:[T ]{_CLOCK}{_ZONE})?"
_TIME: Final = f"^{_MOMENT}$"

_SPACE: Final = r"[ \t\r\n]*+"
_SPELLED_OTHERWISE: Final = re.compile(r'["\\/\x00-\x1f]')
"""Characters that JSON can also escape without their number."""

_PLAIN_TEXT: Final = '(?:null|true|false|"[^"]*+"|0|-?[1-9][0-9]*+)'
_SOUGHT_APART_MAX: Final = 4

_Check = Callable[[tuple[Column, ...], t.DataType], Column | None]


def apart(value: Column, make: Callable[[Column], Column]) -> Column:
    """``make(value)``, with ``value`` evaluated once, outside the compiled code of the row.

    Java leaves a method of more than 8,000 bytes uncompiled, with all that every row needs, so that code for few rows
    must not be in it. Spark interprets the functions that are given to array functions.
    """
    return f.get(f.transform(f.array(value), make), f.lit(0))


def text_type(data_type: t.DataType) -> t.DataType | None:
    """The type of the second reading: the places that can lose something, as text. None: there is no such place."""
    match data_type:
        case t.StructType():
            inner = [(each.name, text_type(each.dataType)) for each in data_type.fields]
            fields = [t.StructField(name, kind) for name, kind in inner if kind is not None]
            return t.StructType(fields) if fields else None
        case t.ArrayType():
            elements = text_type(data_type.elementType)
            return None if elements is None else t.ArrayType(elements)
        case t.MapType():
            values = text_type(data_type.valueType)
            return None if values is None else t.MapType(t.StringType(), values)
        case _:
            return t.StringType() if isinstance(data_type, _REREAD) else None


def plain_escapes(text: Column) -> Column:
    """The same JSON with escaped backslashes and quotation marks written by their numbers.

    Then each quotation mark begins or ends a string, and each backslash begins another escape.
    """
    plain = f.replace(f.replace(text, f.lit("\\\\"), f.lit("\\u005c")), f.lit('\\"'), f.lit("\\u0022"))
    return f.when(text.contains("\\"), plain).otherwise(text)


def mark_numbers(text: Column) -> Column:
    """The JSON in which numbers that are not whole became strings that begin with ``MARK``."""
    doubled = f.replace(plain_escapes(text), f.lit(_ESCAPED_MARK), f.lit(_ESCAPED_MARK * 2))
    # Every string and number gets a bare MARK before and behind the place of a number: two adjacent ones hold none.
    around = f.regexp_replace(doubled, _STRING_OR_NUMBER, f"$1{MARK}$2{MARK}")
    numbers = f.replace(around, f.lit(MARK * 2), f.lit(""))
    return f.regexp_replace(numbers, f"{MARK}([^{MARK}]*+){MARK}", r'"\\u0001$1"')


def has_half_pair(text: Column) -> Column:
    """Whether an escape names half of a pair of surrogates, which no UTF-8 holds."""
    return text.contains("\\u") & plain_escapes(text).rlike(_HALF_PAIR)


def may_lose_text(text: Column, value: Column, data_type: t.DataType) -> Column | None:
    """Whether a text column may hold a number, or JSON with one, in other digits than were sent."""
    leaves = _text_leaves(value, data_type)
    if not leaves:
        return None
    begins = reduce(or_, (f.coalesce(_begins_like_other(leaf), f.lit(False)) for leaf in leaves))
    made = f.concat_ws("\n", *leaves).rlike(_MADE_OF_OTHER)
    may_lose = begins & made & text.rlike(f"{_BEFORE_VALUE}(?:{_NOT_WHOLE})")
    texts = [each for each in _leaf_types(data_type) if isinstance(each, t.StringType)]
    names = [name for name, each in _fields(data_type) if isinstance(each, t.StringType)]
    if len(names) < len(texts):
        return may_lose
    return may_lose & _is_sent_otherwise(text, [(name, _PLAIN_TEXT) for name in names])


def may_lose_digits(text: Column, data_type: t.DataType) -> Column | None:
    """Whether a number may have more digits than some decimal column."""
    scales = [each.scale for each in _leaf_types(data_type) if isinstance(each, t.DecimalType)]
    if not scales:
        return None
    kinds = [(name, each.scale) for name, each in _fields(data_type) if isinstance(each, t.DecimalType)]
    if len(kinds) == len(scales):
        return _is_sent_otherwise(text, [(name, _plain_decimal(scale)) for name, scale in kinds])
    longer = rf"[0-9]*+[.][0-9]{{{min(scales) + 1}}}"
    number = rf'(?:^|[:\[,"])[ \t\r\n]*+[-+]?(?:{longer}|(?:[0-9]++[.]?+[0-9]*+|[.][0-9]++)[eE])'
    return text.contains("\\") | text.rlike(f"{number}|{_ODD_NUMBER}")


def may_lose_time(text: Column, data_type: t.DataType) -> Column | None:
    """Whether a time may be written in another way than the usual ones, which lose nothing."""
    times = [each for each in _leaf_types(data_type) if isinstance(each, _TIMES)]
    if not times:
        return None
    kinds = [(name, each) for name, each in _fields(data_type) if isinstance(each, _TIMES)]
    if len(kinds) < len(times):
        return f.lit(True)
    return _is_sent_otherwise(text, [(name, _plain_time(each)) for name, each in kinds])


def has_floats(data_type: t.DataType) -> bool:
    return any(isinstance(each, _FLOATS) for each in _leaf_types(data_type))


def has_bare_word(text: Column) -> Column:
    """Whether NaN or an infinity stands in the JSON without quotation marks, where Spark takes them for numbers."""
    may_have = text.contains("NaN") | text.contains("Inf") | text.contains("INF")
    return may_have & apart(text, lambda whole: f.regexp_replace(plain_escapes(whole), _STRING, "").rlike("[NI]"))


def has_texts(data_type: t.DataType) -> bool:
    return any(isinstance(each, t.StringType) for each in _leaf_types(data_type))


def read_type(data_type: t.DataType) -> t.DataType:
    """The type to read by: a wider one in place of a byte, so that ``fits_bytes`` can find what is beyond it."""
    match data_type:
        case t.StructType():
            return t.StructType([t.StructField(each.name, read_type(each.dataType)) for each in data_type.fields])
        case t.ArrayType():
            return t.ArrayType(read_type(data_type.elementType))
        case t.MapType():
            return t.MapType(data_type.keyType, read_type(data_type.valueType))
        case _:
            return t.ShortType() if isinstance(data_type, t.ByteType) else data_type


def fits_bytes(value: Column, data_type: t.DataType) -> Column | None:
    """Whether each number of a byte column is within a byte. ``value`` was read by ``read_type``."""

    def check(leaves: tuple[Column, ...], kind: t.DataType) -> Column | None:
        (leaf,) = leaves
        return leaf.between(-128, 127) if isinstance(kind, t.ByteType) else None

    return _every((value,), data_type, check)


def is_finite(value: Column, data_type: t.DataType) -> Column | None:
    """Whether every floating-point number is finite."""

    def check(leaves: tuple[Column, ...], kind: t.DataType) -> Column | None:
        (leaf,) = leaves
        return f.abs(leaf) < f.lit(float("inf")) if isinstance(kind, _FLOATS) else None

    return _every((value,), data_type, check)


def keys_differ(value: Column, data_type: t.DataType) -> Column | None:
    """Whether no map has a key twice. Spark would keep both."""

    def check(leaves: tuple[Column, ...], kind: t.DataType) -> Column | None:
        if not isinstance(kind, t.MapType):
            return None
        (leaf,) = leaves
        return f.size(f.array_distinct(f.map_keys(leaf))) == f.size(leaf)

    return _every((value,), data_type, check)


def fits_exactly(value: Column, text: Column, data_type: t.DataType) -> Column | None:
    """Whether no decimal, no time and no float lost anything, by the second reading, ``text``.

    A float that is not finite was sent as a word, and not as a number that is beyond it.
    """

    def check(leaves: tuple[Column, ...], kind: t.DataType) -> Column | None:
        read, sent = leaves
        match kind:
            case t.DecimalType():
                return _digits_fit(f.ltrim(sent, f.lit(MARK)), kind.scale)
            case t.DateType():
                return sent.rlike(f"^{_DATE}$")
            case t.TimestampType():
                # A number counts seconds, and Spark lets it overflow.
                return sent.rlike(_TIME) | f.coalesce(sent.try_cast("bigint") == f.unix_seconds(read), f.lit(False))
            case t.TimestampNTZType():
                return sent.rlike(_TIME)
            case t.FloatType() | t.DoubleType():
                return (f.abs(read) < f.lit(float("inf"))) | ~sent.rlike("[0-9]")
            case _:
                return None

    return _every((value, text), data_type, check)


def restore_texts(value: Column, text: Column, data_type: t.DataType) -> Column:
    """``value`` with its texts as they were sent, from the second reading."""
    if not has_texts(data_type):
        return value
    match data_type:
        case t.StructType():
            fields = [
                restore_texts(value[each.name], text[each.name], each.dataType).alias(each.name)
                if text_type(each.dataType) is not None
                else value[each.name].alias(each.name)
                for each in data_type.fields
            ]
            return f.when(value.isNotNull(), f.struct(*fields))
        case t.ArrayType():
            return f.zip_with(value, text, lambda one, other: restore_texts(one, other, data_type.elementType))
        case t.MapType():
            values = restore_texts(f.map_values(value), f.map_values(text), t.ArrayType(data_type.valueType))
            return f.when(value.isNotNull(), f.map_from_arrays(f.map_keys(value), values))
        case _:
            return _as_sent(value, text)


def _digits_fit(number: Column, scale: int) -> Column:
    """Whether a number's digits end at or before ``scale`` places behind the point."""
    whole, fraction = f.regexp_extract(number, _NUMBER, 1), f.regexp_extract(number, _NUMBER, 2)
    exponent = f.coalesce(f.regexp_extract(number, _NUMBER, 3).try_cast("int"), f.lit(0))
    behind, zeros = f.rtrim(fraction, f.lit("0")), f.lit("0")
    places = f.when(behind != "", f.length(behind)).otherwise(f.length(f.rtrim(whole, zeros)) - f.length(whole))
    is_zero = f.translate(f.concat(whole, fraction), "0", "") == ""
    return number.rlike(_NUMBER) & (is_zero | (places - exponent <= scale))


def _is_sent_otherwise(text: Column, kinds: Sequence[tuple[str, str]]) -> Column:
    """Whether some key of these names has a value that its expression does not describe, anywhere in the record.

    Java finds an expression that begins with one name quickly, and one for several names slowly.
    """
    escape = "\\u" if all(_SPELLED_OTHERWISE.search(name) is None for name, _plain in kinds) else "\\"
    keys = list(dict.fromkeys(f'{re.escape(name)}"{_SPACE}:(?!{_SPACE}{plain}{_SPACE}[,}}])' for name, plain in kinds))
    sought = [f'"{key}' for key in keys] if len(keys) <= _SOUGHT_APART_MAX else [f'"(?:{"|".join(keys)})']
    return reduce(or_, (text.rlike(each) for each in sought), text.contains(escape))


def _plain_decimal(scale: int) -> str:
    number = f"-?[0-9]++(?:[.][0-9]{{0,{scale}}}+)?+"
    return f'(?:null|{number}|"{number}")'


def _plain_time(data_type: t.DataType) -> str:
    match data_type:
        case t.DateType():
            return f'(?:null|"{_DATE}")'
        case t.TimestampType():
            # A number of so few digits is never beyond a timestamp's range.
            return f'(?:null|-?[0-9]{{1,11}}+|"{_MOMENT}")'
        case _:
            return f'(?:null|"{_MOMENT}")'


def _begins_like_other(leaf: Column) -> Column:
    """Whether a text begins like a number, an object, an array or a text in quotation marks; or with a sign."""
    return (leaf < f.lit(":")) | leaf.startswith("[") | leaf.startswith("{")


def _as_sent(value: Column, text: Column) -> Column:
    in_json = f.replace(
        f.regexp_replace(text, r'"\\u0001([0-9.eE+-]++)"', "$1"), f.lit(_ESCAPED_MARK * 2), f.lit(_ESCAPED_MARK)
    )
    # A text with MARK in its value was sent as a text, and is unchanged.
    return (
        f.when(text.isNull() | (text == value) | value.contains(MARK), value)
        .when(text.startswith(MARK), f.substring(text, 2, 2**31 - 1))
        .otherwise(in_json)
    )


def _text_leaves(value: Column, data_type: t.DataType) -> list[Column]:
    """Texts that only structs lead to. An array or map with texts counts as the text ``0``: it may hold any text."""
    match data_type:
        case t.StringType():
            return [value]
        case t.StructType():
            return [leaf for each in data_type.fields for leaf in _text_leaves(value[each.name], each.dataType)]
        case t.ArrayType() | t.MapType() if has_texts(data_type):
            return [f.lit("0")]
        case _:
            return []


def _fields(data_type: t.DataType) -> list[tuple[str, t.DataType]]:
    """Name and type of each field of all structs, wherever they stand."""
    match data_type:
        case t.StructType():
            own = [(each.name, each.dataType) for each in data_type.fields]
            return own + [found for _name, inner in own for found in _fields(inner)]
        case t.ArrayType():
            return _fields(data_type.elementType)
        case t.MapType():
            return _fields(data_type.valueType)
        case _:
            return []


def _leaf_types(data_type: t.DataType) -> list[t.DataType]:
    match data_type:
        case t.StructType():
            return [leaf for each in data_type.fields for leaf in _leaf_types(each.dataType)]
        case t.ArrayType():
            return _leaf_types(data_type.elementType)
        case t.MapType():
            return _leaf_types(data_type.valueType)
        case _:
            return [data_type]


def _every(values: tuple[Column, ...], data_type: t.DataType, check: _Check) -> Column | None:
    """Whether a check holds for all values that it looks at, at any depth; NULLs pass.

    ``values``: one, or several of the same shape that are compared place by place.
    """
    conditions: list[Column] = []
    own = check(values, data_type)
    if own is not None:
        conditions.append(f.coalesce(own, f.lit(True)))
    match data_type:
        case t.StructType():
            for each in data_type.fields:
                found = _every(tuple(value[each.name] for value in values), each.dataType, check)
                conditions += [] if found is None else [found]
        case t.ArrayType() if _every(values, data_type.elementType, check) is not None:
            conditions.append(f.coalesce(_every_element(values, data_type.elementType, check), f.lit(True)))
        case t.MapType():
            inner = _every(tuple(f.map_values(value) for value in values), t.ArrayType(data_type.valueType), check)
            conditions += [] if inner is None else [inner]
        case _:
            pass
    return reduce(and_, conditions) if conditions else None


def _every_element(values: tuple[Column, ...], element: t.DataType, check: _Check) -> Column:
    def hold(each: tuple[Column, ...]) -> Column:
        found = _every(each, element, check)
        return f.lit(True) if found is None else found

    first, *others = values
    if not others:
        return f.forall(first, lambda one: hold((one,)))
    (second,) = others
    return f.forall(f.zip_with(first, second, lambda one, other: hold((one, other))), lambda holds: holds)


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
