"""Mutants of the example's place of rows in a file of SQLite: histories of sinks and faults of runs notice each."""

import sqlite3
from typing import Any, Final

from tests.simulation.mutant import Mutant, patched
from tests.support.sqlite_rows import example


def _marks_apart(sql: sqlite3.Connection, *given: Any) -> None:
    """Rows are committed, and the mark in a transaction after that."""
    sql.execute("COMMIT")
    sql.execute("BEGIN IMMEDIATE")
    _WRITE_MARK(sql, *given)


_WRITE_MARK: Final = example._write_mark

IN_A_FILE: Final = (Mutant("in a file, a mark apart from its rows", patched(example, "_write_mark", _marks_apart)),)
