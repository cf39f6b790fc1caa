"""What a reader of a slot remembers of a table's columns: which came later, and what older rows have in them."""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from gobblin_assets.errors import RejectedError
from gobblin_assets.rows.joined_columns import JoinedColumn
from gobblin_assets.sources.postgres_log.log_starts import TableStart
from gobblin_assets.sources.postgres_log.logged_table import LoggedTable, list_readings
from gobblin_assets.sources.postgres_log.typed_texts import TextPlace, parse_texts

AskServer = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

# The array has one element, and its type is the column's.
_COLUMNS: Final = """
    SELECT a.attname, a.atthasmissing, a.atthasdef AND a.attgenerated = '',
           (CAST(CAST(a.attmissingval AS text) AS text[]))[1]
      FROM pg_attribute a
     WHERE a.attrelid = %s AND a.attname = ANY (%s) AND a.attnum > 0 AND NOT a.attisdropped"""


@dataclass(slots=True)
class ColumnMemory:
    """Of one vnode. ``known`` None: no table is known yet. ``is_told``: a barrier has had what is in ``joined``."""

    known: frozenset[str] | None
    joined: dict[str, JoinedColumn] = field(default_factory=dict)
    is_told: bool = False

    def begin_anew(self, names: Sequence[str]) -> None:
        """A copy has these columns, with all values."""
        self.known, self.joined, self.is_told = frozenset(names), {}, True

    def meet(
        self, table: LoggedTable, start: TableStart, place: tuple[int, int], ask: AskServer, say: Callable[[str], None]
    ) -> None:
        """The log goes on with this table at ``place`` (LSN and number). What older rows have is asked of the server.

        ``start``: of the vnode.
        """
        names = [column.name for column in table.columns]
        new = [] if self.known is None else [name for name in names if name not in self.known]
        # A name that is used again has the values of before.
        self.known = frozenset(names) | (self.known or frozenset())
        for name, has_missing, has_default, text in ask(_COLUMNS, [table.oid, new]) if new else []:
            if not has_missing:
                if has_default:
                    say(
                        f"{start.urn}: the column {name!r} came, and its default may have given older rows values that "
                        "no change has: compare, or copy the table again (sink recopy)"
                    )
                continue
            value = _write_value(table, start, name, text)
            if value is None:
                say(f"{start.urn}: older rows have a value in the new column {name!r} that can't be kept: sink recopy")
                continue
            self.joined[name] = JoinedColumn(name, start.copy, *place, value)
            self.is_told = False


def _write_value(table: LoggedTable, start: TableStart, name: str, text: str) -> str | None:
    """The value as a text that Spark casts to the column's type. None: it has no such text."""
    try:
        (reading,) = [each for each in list_readings(table, start.casts, urn=start.urn) if each.name == name]
        value = parse_texts(pa.array([text.encode()], pa.binary()), TextPlace(start.urn, table.label, reading))[0]
    except RejectedError:
        # The table's decoder refuses it, for this table alone.
        return None
    match value.as_py():
        case bool() as flag:
            return str(flag).lower()
        case dt.datetime() as moment if moment.tzinfo is not None:
            return moment.astimezone(dt.UTC).isoformat(sep=" ")
        case dt.datetime() | dt.date() | int() | float() | str() as plain:
            return str(plain)
        case Decimal() as number:
            return format(number, "f")
        case _:
            return None
