"""Types of Postgres: which reach Spark unchanged, and how each column is read. Pure.

Values that Spark would change without a word (infinite dates, times outside the years 1 to 9999 or in the
ten days that the calendar reform left out) or that it can't hold (NaN numerics, arrays of arrays) make the
query itself fail with a marked message: ``gobblin_value:<column number>=<value>``.
"""

import re
from dataclasses import dataclass
from typing import Final

from gobblin_assets.model.watermark import WatermarkType

# Spark writes the state of its own error behind the value. Some drivers add the query to their message, which has the
# mark in quotes of its own.
VALUE_MARK: Final = re.compile(r'(?<!\')gobblin_value:(\d+)=([^"\n]*?)(?: SQLSTATE: [0-9A-Z]{5})?(?=["\n]|$)')

_PLAIN: Final = frozenset({"bool", "int2", "int4", "int8", "float4", "float8", "text", "varchar", "bpchar", "bytea"})
_AS_TEXT: Final = frozenset({
    "uuid", "json", "jsonb", "xml", "inet", "cidr", "macaddr", "macaddr8", "name", "char", "citext",
})  # fmt: skip
_TIMES: Final = frozenset({"date", "timestamp", "timestamptz"})
_ORDERS: Final = {
    "int2": WatermarkType.LONG,
    "int4": WatermarkType.LONG,
    "int8": WatermarkType.LONG,
    "date": WatermarkType.DATE,
    "timestamp": WatermarkType.LOCAL_TIMESTAMP,
    "timestamptz": WatermarkType.TIMESTAMP,
    "text": WatermarkType.STRING,
    "varchar": WatermarkType.STRING,
}
_SPARK_TYPES: Final = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
_LONG_DIGITS_MAX: Final = 18
_DECIMAL_DIGITS_MAX: Final = 38
# Nearly every time is one of these: found by two comparisons, where it takes four to see that it is not outside.
_USUAL: Final = "{0} >= '1582-10-15' AND {0} < '10000-01-01'"
_OUTSIDE: Final = "{0} < '0001-01-01' OR {0} >= '10000-01-01' OR ({0} >= '1582-10-05' AND {0} < '1582-10-15')"


@dataclass(frozen=True, slots=True)
class PgType:
    """A type below all domains. ``kind`` and ``element_kind`` are pg_type.typtype; ``modifier`` is its typmod.

    ``name`` and ``element`` have their schema in front where it is not pg_catalog, citext excepted: a domain may well
    be called ``numeric``. ``text`` is the type as SQL writes it, with its modifier and its brackets. ``delimiter``
    stands between the elements in the text of an array.
    """

    name: str
    kind: str
    text: str
    modifier: int
    element: str | None = None
    element_kind: str | None = None
    delimiter: str = ","


def find_order(found: PgType) -> WatermarkType | None:
    """How positions of the type compare; None: not in a way that is usable."""
    if found.name == "numeric" and found.modifier >= 0:
        precision, scale = _digits(found.modifier)
        return WatermarkType.LONG if scale == 0 and precision <= _LONG_DIGITS_MAX else None
    return _ORDERS.get(found.name)


def find_problem(found: PgType) -> str | None:
    """Why Spark can't hold the type; None if it can."""
    name = found.element or found.name
    kind = found.element_kind or found.kind
    if name == "numeric":
        return _judge_numeric(found.modifier)
    if name in _PLAIN or name in _AS_TEXT or name in _TIMES or kind == "e":
        return None
    return "Spark has no type that holds it unchanged"


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column that tells rows apart: ``quoted`` and ``type_text`` as SQL writes its name and its type."""

    quoted: str
    type_text: str

    def is_changed(self, cast: str) -> str:
        """A condition: the cast of the column does not lead back to its value."""
        return f"{cast}::{self.type_text} IS DISTINCT FROM {self.quoted}"


def write_read(found: PgType, column: str, number: int, *, key: KeyColumn | None = None) -> str:
    """The expression that reads ``column`` (quoted); ``number`` is its place in the message when a value is refused.

    ``key``: the column itself, if it is of a key; ``column`` may be a cast of it. What two rows may have that the key
    tells apart is refused, too: a value that the cast changes, and an array whose bounds are lost.
    """
    name = found.element or found.name
    kind = found.element_kind or found.kind
    is_array = found.element is not None
    as_text = name in _AS_TEXT or kind == "e"
    target = ("text[]" if is_array else "text") if as_text else found.text
    # A domain's own modifier is lost inside of an expression, and numeric without one would be rounded by Spark.
    value = f"{column}::{target}"
    refused = []
    if is_array:
        refused.append(f"array_ndims({column}) > 1")
        if key is not None:
            refused.append(f"array_lower({column}, 1) <> 1")
    if key is not None and column != key.quoted:
        refused.append(key.is_changed(column))
    if name == "numeric":
        refused.append(f"'NaN' = ANY({value})" if is_array else f"{column} = 'NaN'")
    if name in _TIMES:
        outside = _OUTSIDE.format("e" if is_array else column)
        refused.append(f"EXISTS (SELECT 1 FROM unnest({value}) AS e WHERE {outside})" if is_array else outside)
    if not refused:
        return value if as_text else column
    # The message holds the row's own value: of a constant the planner would compute the failing cast up front. It is no
    # number, whatever the column's type is.
    shown = column if key is None else key.quoted
    failure = f"CAST('gobblin_value:{number}=' || left({shown}::text, 100) AS int)::text::{target}"
    is_plain_time = name in _TIMES and not is_array and (key is None or column == key.quoted)
    usual = f"WHEN {_USUAL.format(column)} THEN {value} " if is_plain_time else ""
    return f"CASE {usual}WHEN {' OR '.join(refused)} THEN {failure} ELSE {value} END"


def _judge_numeric(modifier: int) -> str | None:
    if modifier < 0:
        return "a numeric without precision may hold more digits than Spark's 38"
    precision, scale = _digits(modifier)
    if precision > _DECIMAL_DIGITS_MAX:
        return f"it has {precision} digits, and Spark's decimals have at most {_DECIMAL_DIGITS_MAX}"
    if not 0 <= scale <= precision:
        return f"a scale of {scale} with {precision} digits is none that Spark's decimals have"
    return None


def _digits(modifier: int) -> tuple[int, int]:
    """Precision and scale, as pg_attribute.atttypmod packs them (the scale is a signed 11-bit number since 15)."""
    packed = modifier - 4
    return packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024


def suggest_cast(found: PgType, column: str, *, in_key: bool = False) -> str:
    """What to write under ``casts``: for an array, an array of what its elements are cast to.

    The text of a key tells apart what the key does; a number with fewer digits would not, nor an array without bounds.
    """
    if in_key:
        return f"{column}::text"
    target = "numeric(38, 10)" if (found.element or found.name) == "numeric" else "text"
    return f"{column}::{target}{'' if found.element is None else '[]'}"


def find_spark_type(found: PgType) -> str:
    """What Spark's reader makes of ``write_read``, as Spark writes types. The type is without a problem."""
    name = found.element or found.name
    if name == "numeric":
        precision, scale = _digits(found.modifier)
        spark_type = f"decimal({precision},{scale})"
    else:
        spark_type = _SPARK_TYPES.get(name, "string")
    return spark_type if found.element is None else f"array<{spark_type}>"
