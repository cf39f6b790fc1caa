"""Names of tables as people write them, and as pairs of schema and table."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gobblin_assets.errors import RejectedError

_PART: Final = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table's exact name, in the case the database keeps. ``schema`` None: the connection's default schema."""

    schema: str | None
    table: str

    def __str__(self) -> str:
        """``schema.table``; a part that holds a dot or a quote stands in double quotes, so that it reads back."""
        return _write_name(self.schema, self.table)


@lru_cache(maxsize=1_024)  # a plan writes it some times for each partition
def _write_name(schema: str | None, table: str) -> str:
    return ".".join(_write_part(part) for part in (schema, table) if part is not None)


def parse_table_name(text: str, *, field: str) -> TableName:
    """Read ``table``, ``schema.table`` or ``schema."a.table"``. RejectedError names ``field``."""
    parts: list[str] = []
    position = 0
    while position <= len(text):
        found = _PART.match(text, position)
        if found is None or (found.end() < len(text) and text[found.end()] != "."):
            break
        parts.append(found[2] if found[1] is None else found[1].replace('""', '"'))
        position = found.end() + 1
    if position <= len(text) or not 1 <= len(parts) <= 2:
        raise RejectedError(
            f"{text!r} is not the name of a table",
            field=field,
            hint='Write schema.table; a part that holds a dot or a quote goes into double quotes: public."a.b".',
        )
    return TableName(parts[0] if len(parts) == 2 else None, parts[-1])


def _write_part(part: str) -> str:
    return '"' + part.replace('"', '""') + '"' if not part or re.search(r'[."]', part) else part
