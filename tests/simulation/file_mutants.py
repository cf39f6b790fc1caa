"""Mutants of the example's place of rows in a file of SQLite: histories of sinks and faults of runs notice each."""

from collections.abc import Mapping
from typing import Final

from tests.simulation.mutant import Mutant, patched
from tests.support.sqlite_rows import example


def _marks_apart(self: example.SqliteTransaction, marks: Mapping[str, str]) -> None:
    """Rows are committed, and the mark in a transaction after that."""
    self.sql.execute("COMMIT")
    self.sql.execute("BEGIN IMMEDIATE")
    _WRITE_MARKS(self, marks)


_WRITE_MARKS: Final = example.SqliteTransaction.write_marks
_APART: Final = patched(example.SqliteTransaction, "write_marks", _marks_apart)

IN_A_FILE: Final = (Mutant("in a file, a mark apart from its rows", _APART),)
