"""The types of Postgres' columns for rows in Arrow's types, and which existing columns hold them unchanged. Pure."""

import re
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from gobblin_assets.errors import RejectedError

_PLAIN: Final = MappingProxyType(
    {
        pa.bool_(): "boolean",
        pa.int8(): "smallint",
        pa.int16(): "smallint",
        pa.int32(): "integer",
        pa.int64(): "bigint",
        pa.float32(): "real",
        pa.float64(): "double precision",
        pa.string(): "text",
        pa.large_string(): "text",
        pa.binary(): "bytea",
        pa.large_binary(): "bytea",
        pa.date32(): "date",
    }
)

_WIDER: Final = MappingProxyType(
    {
        "smallint": frozenset({"integer", "bigint", "numeric"}),
        "integer": frozenset({"bigint", "numeric"}),
        "bigint": frozenset({"numeric"}),
        "real": frozenset({"double precision"}),
        "text": frozenset({"character varying"}),
        "jsonb": frozenset({"json"}),
    }
)
"""Types that hold every value of the first, by the names of ``format_type``."""

_NUMERIC: Final = re.compile(r"numeric\((\d+),(\d+)\)")

NAME_BYTES_MAX: Final = 63
"""Postgres cuts longer names off."""


def column_type(kind: pa.DataType) -> str:
    """The type of a column for values of ``kind``, as ``format_type`` writes it.

    Nested values other than lists of plain ones are kept as JSON.
    """
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return "timestamp without time zone" if kind.tz is None else "timestamp with time zone"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if is_array(kind):
        return f"{column_type(kind.value_type)}[]"
    if pa.types.is_nested(kind):
        return "jsonb"
    raise RejectedError(f"rows have a column of Arrow's type {kind}", field="into", hint="Leave the column out.")


def is_array(kind: pa.DataType) -> bool:
    """Whether it becomes an array of Postgres, and not JSON."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return is_list and not pa.types.is_nested(kind.value_type)


def holds(existing: str, wanted: str) -> bool:
    """Whether a column of the type ``existing`` keeps each value of ``wanted`` as it is."""
    if existing == wanted or existing in _WIDER.get(wanted, ()):
        return True
    if wanted.endswith("[]") and existing.endswith("[]"):
        return holds(existing[:-2], wanted[:-2])
    needed, found = _NUMERIC.fullmatch(wanted), _NUMERIC.fullmatch(existing)
    if needed is None:
        return False
    if found is None:
        return existing == "numeric"
    whole = int(found[1]) - int(found[2]) >= int(needed[1]) - int(needed[2])
    return whole and int(found[2]) >= int(needed[2])
