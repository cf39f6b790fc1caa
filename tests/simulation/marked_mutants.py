"""Mutants of the rules of marks: random histories of sinks that load a table must notice each."""

from contextlib import AbstractContextManager
from typing import Any, Final

from gobblin_assets.destinations.load_rows import TableBatch
from gobblin_assets.destinations.postgres import postgres_tables
from gobblin_assets.destinations.postgres.postgres_tables import PostgresTables
from tests.simulation.mutant import Change, Mutant, patched


def _marks_apart(self: PostgresTables, batch: TableBatch, rows: Any) -> None:
    """Rows are committed, and the mark in a transaction after that."""
    with self._judging(), self._transaction() as session:
        postgres_tables._copy(session, batch.table, rows)
    with self._judging(), self._transaction() as session:
        self._move_mark(session, batch)


def _only_looks(self: PostgresTables, batch: TableBatch) -> bool:
    """Whoever abandons looks whether the rows are there, and tells the destination nothing."""
    mark = self.find_mark(batch.mark)
    return mark is None or batch.sequence_id not in mark.recent


def _compares_less(left_out: str) -> Change:
    """ValueError if the statement compares otherwise by now: mend the mutant."""

    def change() -> AbstractContextManager[Any]:
        statement = postgres_tables._MOVE_MARK
        if left_out not in statement:
            raise ValueError(f"the move of a mark no longer has {left_out!r}")
        return patched(postgres_tables, "_MOVE_MARK", statement.replace(left_out, ""))()

    return change


_VERSION: Final = " AND version < %(version)s"
_GIVEN_UP: Final = " AND %(sequence)s::uuid <> ALL (given_up)"

IN_MARKED_HISTORIES = (
    Mutant("a mark apart from its data", patched(PostgresTables, "_load", _marks_apart)),
    Mutant("a publication is abandoned and its mark not told", patched(PostgresTables, "give_up", _only_looks)),
    Mutant("a mark is set and not compared", _compares_less(_VERSION + _GIVEN_UP)),
    Mutant("a mark's version is not compared", _compares_less(_VERSION)),
    Mutant("what was given up is not compared", _compares_less(_GIVEN_UP)),
)
