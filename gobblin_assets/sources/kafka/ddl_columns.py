"""A Spark DDL of JSON records, read without Spark where it names only types that Arrow's decoder has.

Those are scalars and arrays of them. What is left to Spark: structs and maps; ``binary``, which is Base64 in JSON, and
``variant``; comments and constraints; texts that are no DDL, and names that Spark can't tell apart, which Spark's
decoder refuses.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gobblin_assets.model.column_names import find_alike

_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z_][A-Za-z0-9_]*)|([0-9]+)|([<>(),]))")
_END: Final = ""
_NAMES: Final = MappingProxyType({
    "boolean": "boolean", "tinyint": "tinyint", "byte": "tinyint",
    "smallint": "smallint", "short": "smallint", "int": "int", "integer": "int",
    "bigint": "bigint", "long": "bigint", "float": "float", "real": "float", "double": "double", "string": "string",
    "date": "date", "timestamp": "timestamp", "timestamp_ltz": "timestamp", "timestamp_ntz": "timestamp_ntz",
})  # fmt: skip
_DECIMALS: Final = frozenset({"decimal", "dec", "numeric"})
_DIGITS_MAX: Final = 38


@dataclass(frozen=True, slots=True)
class DdlColumns:
    """The columns that a DDL names.

    ``columns``: name and type as ``simpleString`` writes it. Without ``is_record``, the one column ``value``.
    """

    columns: tuple[tuple[str, str], ...]
    is_record: bool


def read_ddl(ddl: str) -> DdlColumns | None:
    """None: Spark has to read it."""
    tokens = _split(ddl)
    if tokens is None:
        return None
    try:
        # An array alone is the only DDL that is a type and no column.
        if len(tokens) > 1 and tokens[1] == "<":
            return DdlColumns((("value", _Reader(iter(tokens)).read_all_as_type()),), is_record=False)
        columns = _Reader(iter(tokens)).read_columns()
    except _UnreadError:
        return None
    if find_alike([name for name, _type in columns]) is not None:
        return None
    return DdlColumns(tuple(columns), is_record=True)


class _UnreadError(Exception):
    pass


def _split(ddl: str) -> list[str] | None:
    tokens, position, text = [], 0, ddl.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            return None
        tokens.append(found[0].strip())
        position = found.end()
    return tokens


class _Reader:
    """A cursor over the words of a DDL.

    ``_next`` is the next one, ``_END`` behind the last.
    """

    def __init__(self, tokens: Iterator[str]) -> None:
        self._tokens = tokens
        self._next = next(tokens, _END)

    def read_all_as_type(self) -> str:
        found = self._read_type()
        self._expect(_END)
        return found

    def read_columns(self) -> list[tuple[str, str]]:
        columns = []
        while True:
            name = self._read_name()
            columns.append((name, self._read_type()))
            if self._next == _END:
                return columns
            self._expect(",")

    def _read_name(self) -> str:
        token = self._take()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not token or not (token[0].isalpha() or token[0] == "_"):
            raise _UnreadError
        return token

    def _read_type(self) -> str:
        name = self._take().lower()
        if name == "array":
            self._expect("<")
            element = self._read_type()
            self._expect(">")
            return f"array<{element}>"
        if name in _DECIMALS:
            return self._read_decimal()
        if name not in _NAMES:
            raise _UnreadError
        return _NAMES[name]

    def _read_decimal(self) -> str:
        precision, scale = 10, 0
        if self._next == "(":
            self._take()
            precision = self._read_number()
            if self._next == ",":
                self._take()
                scale = self._read_number()
            self._expect(")")
        if not 1 <= precision <= _DIGITS_MAX or scale > precision:
            raise _UnreadError
        return f"decimal({precision},{scale})"

    def _read_number(self) -> int:
        token = self._take()
        if not token.isdecimal():
            raise _UnreadError
        return int(token)

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise _UnreadError

    def _take(self) -> str:
        token, self._next = self._next, next(self._tokens, _END)
        return token
