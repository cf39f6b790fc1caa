"""Texts of Postgres as Arrow arrays of the types that table sources read, with the same values.

The session that sends them has ``postgres_sessions.SETTINGS``. Values that table sources refuse are refused:
RejectedError names the column and the cast. A text that is none of its type is a CorruptionError.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.rows.arrow_types import arrow_type
from gobblin_assets.sources.jdbc.postgres_tables import PgType
from gobblin_assets.sources.postgres_log.logged_table import LoggedReading, write_cast_option

_VALUE_CHARACTERS_MAX: Final = 100
_DAY_US: Final = 86_400_000_000
# The ten days that the calendar reform left out: 1582-10-05 to 1582-10-14, in days since 1970.
_REFORM_BEGIN, _REFORM_END = -141_437, -141_427
# An item of an array's text, which ends at a delimiter: in quotes, with escapes, or plain.
_ITEM: Final = r'"((?:[^"\\]|\\.)*)"|([^{}{{}}"\\]+)'
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_BOUNDS: Final = re.compile(r"\[-?\d+:-?\d+\]=")
# What a time looks like that may be held; others are infinite, before Christ, or have more than four digits of a year.
_TIME_SHAPE: Final = r"^\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?(\+00)?)?$"
_NUMBER_SHAPE: Final = r"^-?\d+(\.\d+)?$"
_DECIMAL_CONTEXT_DIGITS: Final = 200_000
"""Beyond all digits that a numeric has: 131,072 before the point and 16,383 behind it."""
_HEX: Final = np.full(256, 255, np.uint8)
for _digits in (b"0123456789abcdef", b"0123456789ABCDEF"):
    _HEX[list(_digits)] = range(16)


@dataclass(frozen=True, slots=True)
class TextPlace:
    """The owner of texts, for messages."""

    urn: str
    table: str
    reading: LoggedReading

    def refuse(self, value: str) -> RejectedError:
        reading = self.reading
        shown = value[:_VALUE_CHARACTERS_MAX]
        return RejectedError(
            f"{self.table}.{reading.name} ({reading.held.text}) holds {shown}, which Spark can't hold unchanged",
            field=f"datasets[{self.urn}].casts",
            hint=f"Write casts: {write_cast_option(reading.name, reading.text_cast)}. A column of another type needs "
            "a new copy of the table: gobblin-assets sink recopy.",
            table=self.table,
            column=reading.name,
            value=shown,
        )

    def corrupt(self, fault: object) -> CorruptionError:
        shown = str(fault)[:_VALUE_CHARACTERS_MAX]
        return CorruptionError(
            f"{self.table}.{self.reading.name} ({self.reading.sent.text}) has a text that is none of its type: {shown}"
        )


def parse_texts(binaries: pa.BinaryArray, place: TextPlace) -> pa.Array:
    """The values of a column, of the Arrow type of its Spark type."""
    reading = place.reading
    if reading.sent.name == "bytea" and not reading.is_cast:
        return _parse_bytea(binaries, place)
    try:
        texts = binaries.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise RejectedError(
            f"{place.table}.{reading.name} holds a text that is no UTF-8",
            field=f"datasets[{place.urn}]",
            hint="Correct the value in the table. A database of the encoding SQL_ASCII takes any bytes.",
            table=place.table,
            column=reading.name,
        ) from error
    if reading.held.element is None:
        return _parse_scalars(texts, reading.sent, place)
    return _parse_arrays(texts, place)


def _parse_scalars(texts: pa.StringArray, sent: PgType, place: TextPlace) -> pa.Array:
    """``sent``: the type whose texts they are, or the array whose elements' texts they are."""
    held = place.reading.held
    target = held.element or held.name
    parse = _PARSERS.get(target)
    if parse is not None:
        return parse(texts, place)
    # Everything else is held as a text. Only arrays as a whole keep the texts that they have.
    is_whole = held.element is None and sent.element is not None
    write = None if is_whole else _find_text_rule(sent, is_cast=place.reading.is_cast)
    return texts if write is None else write(texts)


def _find_text_rule(sent: PgType, *, is_cast: bool) -> "Callable[[pa.StringArray], pa.Array] | None":
    """How ``::text`` differs from the text that is sent."""
    name = sent.element or sent.name
    return _ALWAYS_RULES.get(name) or (_CAST_RULES.get(name) if is_cast else None)


def _parse_bool(texts: pa.StringArray, place: TextPlace) -> pa.BooleanArray:
    is_true = pc.equal(texts, "t")
    if not pc.all(pc.or_(is_true, pc.equal(texts, "f"))).as_py() and pc.count(texts).as_py():
        raise place.corrupt("it is neither t nor f")
    return is_true


def _parse_number(texts: pa.StringArray, place: TextPlace) -> pa.Array:
    try:
        return texts.cast(_element_type(place))
    except pa.ArrowInvalid as error:
        raise place.corrupt(error) from error


def _parse_numeric(texts: pa.StringArray, place: TextPlace) -> pa.Array:
    wanted = _element_type(place)
    # Of a number that the column's scale makes longer than 128 bits, Arrow's cast makes another number, in silence.
    if pc.all(pc.match_substring_regex(texts, _fitting_shape(wanted))).as_py() is not False:
        return texts.cast(wanted)
    _require_shape(texts, _NUMBER_SHAPE, place)
    values = [None if each is None else _round(each, wanted, place) for each in texts.to_pylist()]
    return pa.array(values, wanted)


def _fitting_shape(wanted: pa.Decimal128Type) -> str:
    """What a number of Postgres looks like that has no more digits than the type, before the point and behind it."""
    whole, scale = wanted.precision - wanted.scale, wanted.scale
    digits = rf"(?:0|[1-9]\d{{0,{whole - 1}}})" if whole else "0"
    return rf"^-?{digits}(\.\d{{1,{scale}}})?$" if scale else f"^-?{digits}$"


def _round(text: str, wanted: pa.Decimal128Type, place: TextPlace) -> Decimal:
    """As Postgres casts: half of the last digit is rounded away from zero. Keys, and what is not cast, stay equal."""
    with localcontext(prec=_DECIMAL_CONTEXT_DIGITS):
        try:
            given = Decimal(text)
            rounded = given.quantize(Decimal(1).scaleb(-wanted.scale), rounding=ROUND_HALF_UP)
        except InvalidOperation as error:
            raise place.corrupt(text) from error
        is_rounded = rounded != given and (place.reading.in_key or not place.reading.is_cast)
        if is_rounded or abs(rounded) >= Decimal(1).scaleb(wanted.precision - wanted.scale):
            raise place.refuse(text)
    return rounded


def _parse_date(texts: pa.StringArray, place: TextPlace) -> pa.Array:
    days = _parse_time(texts, place)
    _refuse_reform(texts, days.view(pa.int32()), 1, place)
    return days


def _parse_timestamp(texts: pa.StringArray, place: TextPlace) -> pa.Array:
    times = _parse_time(texts, place)
    _refuse_reform(texts, times.view(pa.int64()), _DAY_US, place)
    return times


def _parse_time(texts: pa.StringArray, place: TextPlace) -> pa.Array:
    try:
        return texts.cast(_element_type(place))
    except pa.ArrowInvalid as error:
        _require_shape(texts, _TIME_SHAPE, place)
        raise place.corrupt(error) from error


def _refuse_reform(texts: pa.StringArray, numbers: pa.Array, per_day: int, place: TextPlace) -> None:
    lowest = pc.min(numbers).as_py()
    if lowest is None or lowest >= _REFORM_END * per_day:
        return
    after, before = pc.greater_equal(numbers, _REFORM_BEGIN * per_day), pc.less(numbers, _REFORM_END * per_day)
    found = texts.filter(pc.and_(after, before))
    if len(found):
        raise place.refuse(found[0].as_py())


def _require_shape(texts: pa.StringArray, shape: str, place: TextPlace) -> None:
    """Refuse the first text that is not of the shape."""
    odd = texts.filter(pc.invert(pc.match_substring_regex(texts, shape)))
    if len(odd):
        raise place.refuse(odd[0].as_py())


def _parse_bytea(texts: pa.BinaryArray | pa.StringArray, place: TextPlace) -> pa.BinaryArray:
    """Texts of two hexadecimal digits for each byte, behind a backslash and an x."""
    lengths = pc.binary_length(texts).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    taken = int(lengths.sum())
    buffers = texts.buffers()
    begin = 0 if len(texts) == 0 else int(np.frombuffer(buffers[1], np.int32)[texts.offset])
    # The texts of NULLs have no characters: they come from a gather.
    characters = np.frombuffer(buffers[2] or b"", np.uint8)[begin : begin + taken]
    is_given = texts.is_valid().to_numpy(zero_copy_only=False)
    stops = np.cumsum(lengths)
    firsts = (stops - lengths)[is_given]
    if np.any(lengths % 2) or np.any(lengths[is_given] < 2):
        raise place.corrupt("it has an odd number of characters, or none")
    if np.any(characters[firsts] != ord("\\")) or np.any(characters[firsts + 1] != ord("x")):
        raise place.corrupt("it does not begin with \\x")
    is_digit = np.ones(taken // 2, np.bool_)
    is_digit[firsts // 2] = False
    nibbles = _HEX[characters.reshape(-1, 2)[is_digit]]
    if np.any(nibbles == 255):
        raise place.corrupt("it has other characters than hexadecimal digits")
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(np.where(is_given, lengths // 2 - 1, 0), out=offsets[1:])
    data = (nibbles[:, 0] << 4 | nibbles[:, 1]).tobytes()
    bits = pa.py_buffer(np.packbits(is_given, bitorder="little"))
    return pa.BinaryArray.from_buffers(pa.binary(), len(texts), [bits, pa.py_buffer(offsets), pa.py_buffer(data)])


def _parse_arrays(texts: pa.StringArray, place: TextPlace) -> pa.Array:
    items: list[str | None] = []
    stops = [0]
    pattern = re.compile(_ITEM.format(re.escape(place.reading.sent.delimiter)), re.DOTALL)
    for text in texts.to_pylist():
        if text is not None:
            items.extend(_split_array(text, pattern, place))
        stops.append(len(items))
    values = _parse_scalars(pa.array(items, pa.string()), place.reading.sent, place)
    kind: Any = arrow_type(place.reading.spark_type)
    is_null = texts.is_null() if texts.null_count else None
    return pa.ListArray.from_arrays(pa.array(stops, pa.int32()), values, type=kind, mask=is_null)


def _split_array(text: str, pattern: "re.Pattern[str]", place: TextPlace) -> list[str | None]:
    """The items of a text such as ``{1,NULL,"a b"}``. Bounds in front of it say nothing that Spark can hold."""
    bounds = _BOUNDS.match(text)
    begin = 0 if bounds is None else bounds.end()
    # Two arrays of a key may differ by their bounds alone.
    if text.startswith(("[", "{{"), begin) or (bounds is not None and place.reading.in_key):
        raise place.refuse(text)
    if not (text.startswith("{", begin) and text.endswith("}")):
        raise place.corrupt(text)
    found: list[str | None] = []
    at, end = begin + 1, len(text) - 1
    while at < end:
        item = pattern.match(text, at, end)
        if item is None or (item.end() < end and text[item.end()] != place.reading.sent.delimiter):
            raise place.corrupt(text)
        plain = item[2]
        found.append(_ESCAPE.sub(r"\1", item[1]) if plain is None else None if plain == "NULL" else plain)
        at = item.end() + 1
    return found


def _element_type(place: TextPlace) -> Any:
    kind: Any = arrow_type(place.reading.spark_type)
    return kind.value_type if pa.types.is_list(kind) else kind


def _with_mask(texts: pa.StringArray) -> pa.Array:
    """A single address of the type inet is sent without the bits of its network, and is cast with them."""
    bits = pc.if_else(pc.match_substring(texts, ":"), "/128", "/32")
    return pc.if_else(pc.match_substring(texts, "/"), texts, pc.binary_join_element_wise(texts, bits, ""))


def _spelled_out(texts: pa.StringArray) -> pa.Array:
    return pc.if_else(pc.is_valid(texts), pc.if_else(pc.equal(texts, "t"), "true", "false"), None)


def _unpadded(texts: pa.StringArray) -> pa.Array:
    return pc.utf8_rtrim(texts, characters=" ")


_PARSERS: Final[Mapping[str, Callable[[Any, TextPlace], pa.Array]]] = MappingProxyType({
    "bool": _parse_bool,
    "int2": _parse_number,
    "int4": _parse_number,
    "int8": _parse_number,
    "float4": _parse_number,
    "float8": _parse_number,
    "numeric": _parse_numeric,
    "bytea": _parse_bytea,
    "date": _parse_date,
    "timestamp": _parse_timestamp,
    "timestamptz": _parse_timestamp,
})  # fmt: skip
# Types that table sources read by ``::text``.
_ALWAYS_RULES: Final = MappingProxyType({"inet": _with_mask})
_CAST_RULES: Final = MappingProxyType({"bool": _spelled_out, "bpchar": _unpadded})
