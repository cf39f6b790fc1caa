"""The memory of one table in a reader of a slot: its terms, which columns came later, what older rows have in them."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final

import pyarrow as pa

from gobblin_assets.errors import RejectedError
from gobblin_assets.rows.joined_columns import JoinedColumn, write_joined
from gobblin_assets.sources.postgres_log.log_starts import TableStart
from gobblin_assets.sources.postgres_log.logged_table import LoggedTable, list_readings
from gobblin_assets.sources.postgres_log.table_terms import (
    AskServer,
    TableTerms,
    TermsLook,
    find_break,
    look_at_terms,
    take_over,
    write_terms,
)
from gobblin_assets.sources.postgres_log.typed_texts import TextPlace, parse_texts

# The array has one element, and its type is the column's.
_COLUMNS: Final = """
    SELECT a.attname, a.attnum, a.atthasmissing,
           (a.atthasdef AND a.attgenerated = '') OR a.attidentity <> '' OR t.typdefaultbin IS NOT NULL,
           (CAST(CAST(a.attmissingval AS text) AS text[]))[1]
      FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
     WHERE a.attrelid = %s AND a.attname = ANY (%s) AND a.attnum > 0 AND NOT a.attisdropped"""


@dataclass(slots=True)
class ColumnMemory:
    """The columns of one vnode's table.

    ``known`` None: no table is known yet. ``is_reported``: a barrier had what is in ``joined``, and the terms, which
    ``are_new`` if the log has shown more of the table than they had.
    """

    known: frozenset[str] | None
    terms: TableTerms | None
    joined: dict[str, JoinedColumn] = field(default_factory=dict)
    is_reported: bool = False
    are_new: bool = False

    def begin_anew(self, names: Sequence[str], terms: TableTerms | None) -> None:
        """A copy has these columns, with all values, and these terms."""
        self.known, self.terms, self.joined, self.is_reported, self.are_new = frozenset(names), terms, {}, True, False

    def list_news(self) -> Mapping[str, object]:
        """Facts to be kept with the next publication; nothing if a barrier has had them."""
        if self.is_reported or not (self.joined or self.are_new):
            return {}
        self.is_reported = True
        return {**write_joined(self.joined.values()), **(write_terms(self.terms) if self.are_new else {})}

    def meet(
        self, table: LoggedTable, start: TableStart, place: tuple[int, int], ask: AskServer, say: Callable[[str], None]
    ) -> str | None:
        """The log goes on with this table at ``place`` (LSN and number). What it is now is asked of the server, and
        what older rows have in new columns.

        ``start``: of the vnode. What stops the table, as a clause of which it is the subject; None: nothing does.
        """
        now = look_at_terms(ask, start.place.publication, [table.oid]).get(table.oid)
        if now is None:
            return "was dropped, or its publication was"
        was = self.terms
        if was is not None:
            now = replace(now, terms=replace(now.terms, row_filter=was.row_filter))
            if was.publication != now.terms.publication:
                return "is of a publication that is another one, or whose options were altered: changes may be left out"
            if (broken := find_break(was, now)) is not None:
                return broken
        if (broken := self._meet_columns(table, start, place, now, ask, say)) is not None:
            return broken
        if was is not None:
            self.terms = take_over(was, now, is_met=now.columns <= {column.name for column in table.columns})
            if self.terms != was:
                self.are_new, self.is_reported = True, False
        return None

    def _meet_columns(
        self,
        table: LoggedTable,
        start: TableStart,
        place: tuple[int, int],
        now: TermsLook,
        ask: AskServer,
        say: Callable[[str], None],
    ) -> str | None:
        names = [column.name for column in table.columns]
        new = [] if self.known is None else [name for name in names if name not in self.known]
        was = self.terms
        # A name that is used again has the values of before.
        self.known = frozenset(names) | (self.known or frozenset())
        for name, number, has_missing, has_default, text in ask(_COLUMNS, [table.oid, new]) if new else []:
            if was is not None and number <= was.width:
                return (
                    f"has a column {name!r} that had another name before, or was not published: rows of before have no "
                    "value under this name"
                )
            if not has_missing:
                is_written_anew = was is None or was.file != now.terms.file
                if is_written_anew and has_default:
                    return (
                        f"has a new column {name!r}, and its default may have given older rows values that no change "
                        "has: the table was written anew"
                    )
                if is_written_anew:
                    say(
                        f"{start.urn}: the column {name!r} came, and the table was written anew: if the column had a "
                        "default, older rows have values that no change has (sink recopy)"
                    )
                continue
            value = _write_value(table, start, name, text)
            if value is None:
                say(f"{start.urn}: older rows have a value in the new column {name!r} that can't be kept: sink recopy")
                continue
            self.joined[name] = JoinedColumn(name, start.decided.copy, *place, value)
            self.is_reported = False
        return None


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
