"""Watermarks: typed, comparable positions in a source, with a byte encoding that keeps their order.

The encoding is what the ledger's range constraint compares, so ``encode(a) < encode(b)`` must hold exactly
when ``a < b``. Integers are eight bytes, big-endian, with the sign bit flipped. Text is UTF-8 with every
NUL escaped as ``00 FF`` and ended by ``00 01``: the end sorts below any continuation, so that parts can be
chained. UTF-8 keeps code point order, which is also what ``COLLATE "C"`` compares.

A value of each type, as it stands in JSON:

    long             {"type": "long", "value": 42}
    timestamp        {"type": "timestamp", "value": "2013-01-01T05:00:00.000000Z"}        an instant, in UTC
    local_timestamp  {"type": "local_timestamp", "value": "2013-01-01T05:00:00.000000"}   the source's wall clock
    date             {"type": "date", "value": "2013-01-01"}
    string           {"type": "string", "value": "abc"}; with NULs, which jsonb can't hold, the texts between them:
                     {"type": "string", "value": ["abc", ""]}
    composite        {"type": "composite", "value": [<instant or wall time>, <long or string>]}

Beside these, ``history`` is there where the source says which history the position is a place of, in its own words.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import total_ordering
from typing import Final, assert_never

from gobblin_assets.errors import CorruptionError, RejectedError

_LONG_MIN = -(2**63)
_LONG_MAX = 2**63 - 1
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)

LOST: Final = "lost"
"""In a position's ``history``: why it is no place of the source any more, as it was found out first."""


class WatermarkType(StrEnum):
    """The type of the column of positions."""

    LONG = "long"
    TIMESTAMP = "timestamp"
    LOCAL_TIMESTAMP = "local_timestamp"
    DATE = "date"
    STRING = "string"
    COMPOSITE = "composite"

    @property
    def is_time(self) -> bool:
        """Whether positions of this type can be compared with a clock."""
        return self in (WatermarkType.TIMESTAMP, WatermarkType.LOCAL_TIMESTAMP, WatermarkType.DATE)


# Values that are ordered as their encodings are. A text is not one: some have no encoding.
_ORDERED: Final = frozenset({int, dt.datetime, dt.date})

Scalar = int | dt.datetime | dt.date | str
Value = Scalar | tuple["Watermark", "Watermark"]


@total_ordering
@dataclass(frozen=True, slots=True)
class Watermark:
    """A position of one type. Positions of different types have no order: comparing them is an error.

    ``history``: plain JSON values by which the source tells whether the position is still a place of what it has now.
    None: not known. Positions are compared without it.
    """

    type: WatermarkType
    value: Value
    history: Mapping[str, object] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        _require_valid(self.type, self.value)

    def __lt__(self, other: "Watermark") -> bool:
        if self.type is not other.type:
            raise RejectedError(
                f"a {self.type} position can't be compared with a {other.type} position",
                field="watermark.type",
                hint="A dataset's watermark type can't change; reset the dataset to start it over.",
            )
        mine, others = self.value, other.value
        if type(mine) in _ORDERED and type(mine) is type(others):
            return mine < others  # type: ignore[operator]  # as their encodings are ordered
        return self.encode() < other.encode()

    def encode(self) -> bytes:
        """The order-preserving bytes; never empty, so that ``b""`` can stand for "before everything"."""
        match self.value:
            case bool():
                raise AssertionError("a truth value is no position")
            case int() as number:
                return _encode_long(number)
            case dt.datetime() as moment:
                return _encode_long(to_micros(moment))
            case dt.date() as day:
                return _encode_long(day.toordinal())
            case str() as text:
                return _encode_text(text)
            case tuple() as parts:
                return b"".join(part.encode() for part in parts)
            case _:
                assert_never(self.value)

    def to_json(self) -> dict[str, object]:
        """The JSON object shown in the module's docstring."""
        found: dict[str, object] = {"type": self.type.value, "value": _value_to_json(self.value)}
        return found if self.history is None else {**found, "history": dict(self.history)}

    def successor(self) -> "Watermark":
        """The next position of this type, so that a half-open interval can end just after a seen maximum.

        The last position of a type has none and is its own; ``plan_high`` refuses it.
        """
        match self.value:
            case int() as number:
                return Watermark(self.type, min(number + 1, _LONG_MAX))
            case dt.datetime() as moment:
                last_moment = dt.datetime.max.replace(tzinfo=moment.tzinfo)
                return self if moment == last_moment else Watermark(self.type, moment + _MICROSECOND)
            case dt.date() as day:
                return self if day == dt.date.max else Watermark(self.type, day + dt.timedelta(days=1))
            case str() as text:
                # The smallest text above another is that text with the smallest character behind it; sources
                # that can't hold U+0000 have no row between the two.
                return Watermark(self.type, text + "\x00")
            case (lead, key):
                return Watermark(self.type, (lead, key.successor()))
            case _:
                assert_never(self.value)

    def __str__(self) -> str:
        match self.value:
            case str() as text:
                return text
            case tuple() as parts:
                return ",".join(str(part) for part in parts)
            case _:
                return str(_value_to_json(self.value))


def long_watermark(number: int, history: Mapping[str, object] | None = None) -> Watermark:
    """A position in 64 bits."""
    return Watermark(WatermarkType.LONG, number, history)


def timestamp_watermark(moment: dt.datetime) -> Watermark:
    """An instant; ``moment`` must know its zone and is kept in UTC with microseconds."""
    if moment.tzinfo is None:
        raise RejectedError("an instant needs a zone", field="watermark.value", hint="Give it in UTC, ending in Z.")
    return Watermark(WatermarkType.TIMESTAMP, moment.astimezone(dt.UTC))


def watermark_from(data: Mapping[str, object] | None) -> Watermark | None:
    """``parse_watermark`` of what may be missing."""
    return None if data is None else parse_watermark(data)


def parse_watermark(data: object) -> Watermark:
    """Read what ``to_json`` wrote. Anything else is a CorruptionError: only we write it."""
    if not isinstance(data, Mapping) or set(data) - {"history"} != {"type", "value"}:
        raise CorruptionError("a stored watermark is not an object with type and value", found=data)
    history = data.get("history")
    if not isinstance(history, Mapping | None):
        raise CorruptionError("the history of a stored watermark is no object", found=data)
    try:
        kind = WatermarkType(data["type"])
    except ValueError:
        raise CorruptionError(f"unknown watermark type {data['type']!r}") from None
    return Watermark(kind, _value_from_json(kind, data["value"]), history)


def parse_position(kind: WatermarkType, text: str, *, field: str) -> Watermark:
    """Read a position that a person wrote, such as ``2013-01-01`` or ``42``. RejectedError names ``field``."""
    try:
        match kind:
            case WatermarkType.LONG:
                return long_watermark(int(text))
            case WatermarkType.DATE:
                return Watermark(kind, dt.date.fromisoformat(text))
            case WatermarkType.TIMESTAMP:
                moment = dt.datetime.fromisoformat(text)
                return timestamp_watermark(moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC))
            case WatermarkType.LOCAL_TIMESTAMP:
                moment = dt.datetime.fromisoformat(text)
                if moment.tzinfo is not None:
                    raise ValueError("a wall-clock time has no zone")
                return Watermark(kind, moment)
            case WatermarkType.STRING:
                return Watermark(kind, text)
            case WatermarkType.COMPOSITE:
                raise ValueError("positions of this type are not written by hand")
            case _:
                assert_never(kind)
    except ValueError as error:
        raise RejectedError(
            f"{text!r} is not a {kind} position ({error})",
            field=field,
            hint=f"Write it like {_EXAMPLES.get(kind, 'the stored one')}.",
        ) from error


_EXAMPLES = {
    WatermarkType.LONG: "1200",
    WatermarkType.DATE: "2013-01-31",
    WatermarkType.TIMESTAMP: "2013-01-31T05:00:00Z",
    WatermarkType.LOCAL_TIMESTAMP: "2013-01-31T05:00:00",
    WatermarkType.STRING: "abc",
}


def to_micros(moment: dt.datetime) -> int:
    """Microseconds since 1970, exactly; a wall-clock time counts as if its zone were UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // _MICROSECOND


def from_micros(micros: int, *, local: bool = False) -> dt.datetime:
    """The inverse of ``to_micros``; ``local`` gives a time without a zone."""
    moment = _EPOCH + dt.timedelta(microseconds=micros)
    return moment.replace(tzinfo=None) if local else moment


def _encode_long(number: int) -> bytes:
    return (number - _LONG_MIN).to_bytes(8, "big")


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8").replace(b"\x00", b"\x00\xff") + b"\x00\x01"


def _value_to_json(value: Value) -> object:
    match value:
        case dt.datetime() as moment:
            text = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
            return f"{text}Z" if moment.tzinfo is not None else text
        case dt.date() as day:
            return day.isoformat()
        case str() as text:
            return text.split("\x00") if "\x00" in text else text
        case int():
            return value
        case tuple() as parts:
            return [part.to_json() for part in parts]
        case _:
            assert_never(value)


def _value_from_json(kind: WatermarkType, data: object) -> Value:
    match kind, data:
        case WatermarkType.LONG, int():
            return data
        case WatermarkType.TIMESTAMP | WatermarkType.LOCAL_TIMESTAMP, str():
            return dt.datetime.fromisoformat(data)
        case WatermarkType.DATE, str():
            return dt.date.fromisoformat(data)
        case WatermarkType.STRING, str():
            return data
        case WatermarkType.STRING, [*texts]:
            return "\x00".join(str(text) for text in texts)
        case WatermarkType.COMPOSITE, [first, second]:
            return (parse_watermark(first), parse_watermark(second))
        case _:
            raise CorruptionError(f"a stored {kind} watermark holds {data!r}")


def _require_valid(kind: WatermarkType, value: Value) -> None:
    match kind, value:
        case WatermarkType.LONG, int() if _is_long(value):
            return
        case WatermarkType.TIMESTAMP, dt.datetime() if value.utcoffset() == dt.timedelta(0):
            return
        case WatermarkType.LOCAL_TIMESTAMP, dt.datetime() if value.tzinfo is None:
            return
        case WatermarkType.DATE, dt.date() if not isinstance(value, dt.datetime):
            return
        case WatermarkType.STRING, str():
            return
        case WatermarkType.COMPOSITE, (Watermark() as first, Watermark() as second):
            if first.type in _LEADING and second.type in (WatermarkType.LONG, WatermarkType.STRING):
                return
        case _:
            pass
    raise RejectedError(
        f"{value!r} is not a {kind} position",
        field="watermark.value",
        hint="Longs have 64 bits, instants are in UTC, a composite is a (time, key) pair.",
    )


def _is_long(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and _LONG_MIN <= value <= _LONG_MAX


_LEADING = (WatermarkType.TIMESTAMP, WatermarkType.LOCAL_TIMESTAMP, WatermarkType.DATE, WatermarkType.LONG)


class PositionLostError(RejectedError):
    """The history of the position ``at`` of ``key`` was lost, for this ``reason``. A person decides where to go on."""

    def __init__(
        self, message: str, *, key: str, at: Watermark, reason: str, field: str, hint: str, **fields: object
    ) -> None:
        super().__init__(message, field=field, hint=hint, **fields)
        self.key = key
        self.at = at
        self.reason = reason


def find_reason(at: Watermark) -> str | None:
    """Why the position's history is lost, if that was found out before."""
    found = (at.history or {}).get(LOST)
    return found if isinstance(found, str) else None
