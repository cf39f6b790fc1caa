"""One JSON record after another, read exactly by the rules of ``DecoderSpec``: its columns' values, or why it has none.

It decides as ``JsonDecoder`` does on Spark, in the same order of reasons, with the same limits of Spark's parser.

The reasons of dead letters stand in the order in which they are looked for. None shows any content.
"""

import json
import math
import re
import sys
import threading
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NoReturn

import pyarrow as pa

from gobblin_assets.model.column_names import name_key
from gobblin_assets.sources.kafka.json_times import SECONDS_MAX, Unread, read_date, read_moment

NO_UTF8: Final = "it is not UTF-8"
MISFIT: Final = "it is not one JSON value whose fields fit the schema"
ROUNDED: Final = "a number or a time of it is not exact in its column, or beyond it"
DOUBLED: Final = "it has a key twice, or one that differs from a column by case alone"
HALF_PAIR: Final = "it has half of a pair of surrogates"


# The limits of Spark's parser.
DEPTH_MAX: Final = 1_000
NUMBER_DIGITS_MAX: Final = 1_000
NAME_LENGTH_MAX: Final = 50_000

_WRAPPED_DEPTH: Final = 3
"""How deep Spark's decoder puts a value that is no record."""

_FLAT_DEPTH_MAX: Final = 100
"""So deep, no more calls are needed than Python allows by default."""

_DEEP: Final = threading.Lock()
"""How many calls Python allows holds for all threads."""

_KNOWN_NAMES_MAX: Final = 10_000
_COLON: Final = re.compile(r"[ \t\r\n]*+:")
_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_NUMBERS: Final = re.compile(r"-?([0-9]++)(?:[.]([0-9]++))?(?:[eE][+-]?([0-9]++))?")
_ESCAPED_HALF: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
_WHOLE: Final = re.compile("-?[0-9]+")
_NOT_FINITE: Final = {
    "NaN": math.nan,
    **dict.fromkeys(("Infinity", "+Infinity", "+INF"), math.inf),
    **dict.fromkeys(("-Infinity", "-INF"), -math.inf),
}
"""Texts that a floating-point column takes, as Spark does: JSON has no such numbers."""

_DECIMAL: Final = re.compile(r"[-+]?(?:([0-9]+)[.]?([0-9]*)|[.]([0-9]+))(?:[eE]([-+]?[0-9]{1,10}))?")
_INT_MAX: Final = 2**31 - 1
_EXPONENT_DIGITS_MAX: Final = 9
# Spark's writer of JSON has escapes for characters of two units of UTF-16.
_TO_ESCAPE: Final = re.compile(r'[\x00-\x1f"\\\U00010000-\U0010ffff]')
_SHORT_ESCAPES: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


class _MisfitError(Exception):
    pass


class _Number(str):
    """A number's token, as it was sent."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """An object's members, each as often as it was sent."""


class _Lossy:
    """A note that the value that was read last is not exact in its column."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found = False


_Fit = Callable[[Any, _Lossy], Any]
"""A value of the parser (never None) as Arrow takes it for the column. Raises _MisfitError."""


@dataclass(frozen=True, slots=True)
class JsonColumns:
    """Columns of JSON values, and the reasons of those that have none.

    ``columns`` are as long as what was read, NULL where ``reasons`` is not. Without ``reasons`` all are good.
    """

    columns: list[pa.Array]
    reasons: pa.Array | None


class JsonValues:
    """An exact reader of JSON, made once for a schema.

    ``names`` None: the value is no record, and ``types`` has one type.
    """

    def __init__(self, names: Sequence[str] | None, types: Sequence[pa.DataType]) -> None:
        self._types = list(types)
        self._fits = [_fit_of(each) for each in types]
        self._is_record = names is not None
        self._places: dict[str, int | None] = {name: place for place, name in enumerate(names or ())}
        self._keys = frozenset(map(name_key, names or ()))
        self._depth_max = DEPTH_MAX if self._is_record else DEPTH_MAX - _WRAPPED_DEPTH

    def read(self, content: bytes) -> list[Any] | str:
        """A value for each column, or the reason why the record has none."""
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return NO_UTF8
        try:
            if len(text) > NUMBER_DIGITS_MAX or text.count("[") + text.count("{") > _FLAT_DEPTH_MAX:
                depth = _require_within_limits(text, self._depth_max)
                values, reason = self._fit_deep(text, depth)
            else:
                values, reason = self._fit(text)
        except (_MisfitError, ValueError):
            return MISFIT
        if reason is not None:
            return reason
        if "\\u" in text and _has_half_pair(text):
            return HALF_PAIR
        return values

    def read_all(self, contents: pa.BinaryArray) -> JsonColumns:
        """``contents`` has no NULL."""
        rows: list[Sequence[Any]] = []
        reasons: list[str | None] = []
        nothing = [None] * len(self._types)
        for content in contents.to_pylist():
            found = self.read(content)
            if isinstance(found, str):
                rows.append(nothing)
                reasons.append(found)
            else:
                rows.append(found)
                reasons.append(None)
        cells = zip(*rows, strict=True) if rows else ([] for _each in self._types)
        columns = [pa.array(column, type=each) for column, each in zip(cells, self._types, strict=True)]
        return JsonColumns(columns, pa.array(reasons, pa.string()) if any(reasons) else None)

    def _fit_deep(self, text: str, depth: int) -> tuple[list[Any], str | None]:
        if depth <= _FLAT_DEPTH_MAX:
            return self._fit(text)
        with _DEEP:
            before = sys.getrecursionlimit()
            # Reading and writing take one or two calls for each level.
            sys.setrecursionlimit(before + 3 * depth)
            try:
                return self._fit(text)
            finally:
                sys.setrecursionlimit(before)

    def _fit(self, text: str) -> tuple[list[Any], str | None]:
        value = json.loads(
            text, parse_float=_Number, parse_int=_Number, parse_constant=refuse_constant, object_pairs_hook=_Members
        )
        lossy = _Lossy()
        if not self._is_record:
            fitted = None if value is None else self._fits[0](value, lossy)
            return [fitted], ROUNDED if lossy.found else None
        if type(value) is not _Members:
            raise _MisfitError
        values: list[Any] = [None] * len(self._fits)
        rounded, seen, is_doubled = set(), set(), False
        for name, inner in value:
            try:
                place = self._places[name]
            except KeyError:
                if self._is_other(name):
                    is_doubled = True
                continue
            if place is None:
                continue
            is_doubled = is_doubled or place in seen
            seen.add(place)
            # The last of two counts, but each has to fit.
            values[place] = None if inner is None else self._fits[place](inner, lossy)
            if lossy.found:
                rounded.add(place)
                lossy.found = False
            else:
                rounded.discard(place)
        return values, ROUNDED if rounded else DOUBLED if is_doubled else None

    def _is_other(self, name: str) -> bool:
        """Whether a name differs from a column's by case alone. Other names are remembered as such."""
        if name_key(name) in self._keys:
            return True
        if len(self._places) < _KNOWN_NAMES_MAX:
            self._places[name] = None
        return False


def refuse_constant(name: str) -> NoReturn:
    """For a JSON reader that takes ``NaN`` and the infinities unless it is told not to."""
    raise ValueError(f"{name} is no JSON")


def _require_within_limits(text: str, depth_max: int) -> int:
    """The depth of the JSON, which may be none."""
    bare = _STRINGS.sub("s", text)
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", bare):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    if deepest > depth_max:
        raise _MisfitError
    if len(bare) > NUMBER_DIGITS_MAX:
        for whole, fraction, exponent in _NUMBERS.findall(bare):
            digits = len(fraction) + len(exponent) + (0 if whole == "0" else len(whole))
            if digits > NUMBER_DIGITS_MAX:
                raise _MisfitError
    if len(text) > NAME_LENGTH_MAX:
        for found in _STRINGS.finditer(text):
            if len(found[0]) <= NAME_LENGTH_MAX or _COLON.match(text, found.end()) is None:
                continue
            # Java counts in units of UTF-16.
            if len(json.loads(found[0]).encode("utf-16-le", "surrogatepass")) > 2 * NAME_LENGTH_MAX:
                raise _MisfitError
    return deepest


def _has_half_pair(text: str) -> bool:
    plain = text.replace("\\\\", "\\u005c").replace('\\"', "\\u0022")
    return _ESCAPED_HALF.search(plain) is not None


def _fit_of(data_type: pa.DataType) -> _Fit:
    if pa.types.is_list(data_type):
        return _fit_list(_fit_of(data_type.value_type))
    if pa.types.is_integer(data_type):
        return _fit_whole(data_type.bit_width)
    if pa.types.is_decimal(data_type):
        return _fit_decimal(data_type.precision, data_type.scale)
    if pa.types.is_floating(data_type):
        return _fit_float if data_type.bit_width == 32 else _fit_double
    if pa.types.is_timestamp(data_type):
        return _fit_local if data_type.tz is None else _fit_instant
    return {pa.string(): _fit_string, pa.bool_(): _fit_boolean, pa.date32(): _fit_date}[data_type]


def _fit_list(fit: _Fit) -> _Fit:
    def fit_list(value: Any, lossy: _Lossy) -> Any:
        if type(value) is not list:
            raise _MisfitError
        return [None if each is None else fit(each, lossy) for each in value]

    return fit_list


def _fit_whole(bits: int) -> _Fit:
    limit = 1 << (bits - 1)

    def fit_whole(value: Any, lossy: _Lossy) -> Any:  # noqa: ARG001  a whole number is exact
        if type(value) is not _Number or _WHOLE.fullmatch(value) is None:
            raise _MisfitError
        number = int(value)
        if not -limit <= number < limit:
            raise _MisfitError
        return number

    return fit_whole


def _fit_double(value: Any, lossy: _Lossy) -> Any:
    if type(value) is not _Number:
        return _fit_not_finite(value)
    # To Spark, a whole -0 is 0, and has no sign.
    number = 0.0 if value == "-0" else float(value)
    lossy.found = lossy.found or number in {float("inf"), float("-inf")}
    return number


def _fit_not_finite(value: Any) -> float:
    found = _NOT_FINITE.get(value) if type(value) is str else None
    if found is None:
        raise _MisfitError
    return found


def _fit_float(value: Any, lossy: _Lossy) -> Any:
    if type(value) is not _Number:
        return _fit_not_finite(value)
    if value == "-0":
        return 0.0
    try:
        number = pa.scalar(str(value)).cast(pa.float32()).as_py()
    except pa.ArrowInvalid:
        # Beyond the range, or too near to zero.
        number = 0.0 if abs(float(value)) < 1 else float("inf")
    lossy.found = lossy.found or number in {float("inf"), float("-inf")}
    return number


def _fit_string(value: Any, lossy: _Lossy) -> Any:  # noqa: ARG001  a text is exact
    kind = type(value)
    if kind is str:
        return value
    if kind is _Number:
        return str(value)
    return _write(value)


def _write(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _Number():
            return str(value)
        case str():
            return f'"{_TO_ESCAPE.sub(_escape, value)}"'
        case _Members():
            return f"{{{','.join([f'{_write(name)}:{_write(inner)}' for name, inner in value])}}}"
        case _:
            return f"[{','.join(map(_write, value))}]"


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[place : place + 2].hex().upper()}" for place in range(0, len(units), 2))


def _fit_boolean(value: Any, lossy: _Lossy) -> Any:  # noqa: ARG001  true is exact
    if type(value) is not bool:
        raise _MisfitError
    return value


def _fit_decimal(precision: int, scale: int) -> _Fit:
    limit = 10**precision

    def fit_decimal(value: Any, lossy: _Lossy) -> Any:
        if not isinstance(value, str):
            raise _MisfitError
        text = value if value.isascii() else "".join(_ascii_digit(each) for each in value)
        is_odd = text != value or "," in text
        found = _DECIMAL.fullmatch(text.replace(",", ""))
        if found is None:
            raise _MisfitError
        digits = (found[1] or "") + (found[2] or found[3] or "")
        exponent = int(found[4] or 0)
        if abs(exponent) > _INT_MAX:
            raise _MisfitError
        exponent -= len(found[2] or found[3] or "")
        is_odd = is_odd or len((found[4] or "").lstrip("+-")) > _EXPONENT_DIGITS_MAX
        number, is_exact = _scaled(digits.lstrip("0"), exponent + scale, precision)
        if number >= limit:
            raise _MisfitError
        lossy.found = lossy.found or is_odd or not is_exact
        return Decimal((int(text.startswith("-")), tuple(map(int, str(number))), -scale))

    return fit_decimal


def _scaled(digits: str, shift: int, digits_max: int) -> tuple[int, bool]:
    """The digits before the point after it moved by ``shift`` places, rounded half up, and whether none were lost."""
    if not digits:
        return 0, True
    if shift >= 0:
        return (int(digits) * 10**shift if len(digits) + shift <= digits_max else 10**digits_max), True
    kept, cut = digits[:shift], digits[shift:]
    if len(kept) > digits_max:
        return 10**digits_max, True
    if len(digits) + shift < 0:
        return 0, False
    return int(kept or 0) + (cut[:1] >= "5"), not cut.strip("0")


def _ascii_digit(character: str) -> str:
    digit = unicodedata.decimal(character, None)
    return character if digit is None else str(digit)


def _fit_date(value: Any, lossy: _Lossy) -> Any:
    if type(value) is not str:
        raise _MisfitError
    return _judge(read_date(value), lossy)


def _fit_local(value: Any, lossy: _Lossy) -> Any:
    if type(value) is not str:
        raise _MisfitError
    return _judge(read_moment(value, is_local=True), lossy)


def _fit_instant(value: Any, lossy: _Lossy) -> Any:
    if type(value) is str:
        return _judge(read_moment(value, is_local=False), lossy)
    seconds = _fit_whole(64)(value, lossy)
    if abs(seconds) > SECONDS_MAX:
        lossy.found = True
        return None
    return seconds * 1_000_000


def _judge(found: int | Unread, lossy: _Lossy) -> int | None:
    if found is Unread.NO_TIME:
        raise _MisfitError
    if found is Unread.LOSSY:
        lossy.found = True
        return None
    return found
