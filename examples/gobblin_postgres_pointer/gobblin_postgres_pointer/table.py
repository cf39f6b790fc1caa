"""The table, as what a step asks its world for.

    pointer        one row a dataset: where its newest publication is, and the move that set it. Consumers read this.
    pointer_move   one row a move, for ever: DONE, or UNDONE. Whoever inserts it first decides what becomes of the move.

A move and its row are one transaction. A process that was paused before its move finds the row of whoever went on in
its place, and does nothing: also when the move was undone meanwhile.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

import psycopg

from gobblin_assets.errors import RejectedError, RetryableError

TABLES: Final = """
    CREATE TABLE IF NOT EXISTS pointer (
        dataset text PRIMARY KEY, location text NOT NULL, move_id uuid NOT NULL
    );
    CREATE TABLE IF NOT EXISTS pointer_move (
        move_id uuid, dataset text, state text NOT NULL CHECK (state IN ('DONE', 'UNDONE')), location text,
        old_location text, old_move_id uuid, PRIMARY KEY (move_id)
    );
"""

# Whoever moves the pointer of a dataset, or takes a move back, does so alone, also before there is a row to lock.
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('gobblin_postgres_pointer ' || %(dataset)s, 0))"

_CHANGED_BY_OTHERS: Final = """
    SELECT EXISTS (
        SELECT FROM pointer p
         WHERE p.dataset = %(dataset)s
           AND NOT EXISTS (SELECT FROM pointer_move m
                            WHERE m.move_id = p.move_id AND m.state = 'DONE' AND m.location = p.location))
"""

_BEGIN_MOVE: Final = """
    INSERT INTO pointer_move (move_id, dataset, state, location, old_location, old_move_id)
    SELECT %(move_id)s, %(dataset)s, 'DONE', %(location)s, p.location, p.move_id
      FROM (SELECT) AS one LEFT JOIN pointer p ON p.dataset = %(dataset)s
        ON CONFLICT (move_id) DO NOTHING
"""

_MOVE: Final = """
    INSERT INTO pointer (dataset, location, move_id) VALUES (%(dataset)s, %(location)s, %(move_id)s)
        ON CONFLICT (dataset) DO UPDATE SET location = excluded.location, move_id = excluded.move_id
"""

_FORBID_MOVE: Final = """
    INSERT INTO pointer_move (move_id, dataset, state) VALUES (%(move_id)s, %(dataset)s, 'UNDONE')
        ON CONFLICT (move_id) DO NOTHING
"""

_IS_THE_NEWEST: Final = """
    SELECT m.old_location IS NULL FROM pointer p JOIN pointer_move m USING (move_id)
     WHERE p.dataset = %(dataset)s AND p.move_id = %(move_id)s AND p.location = m.location
"""

_MOVE_BACK: Final = """
    UPDATE pointer p SET location = m.old_location, move_id = m.old_move_id FROM pointer_move m
     WHERE p.dataset = %(dataset)s AND m.move_id = %(move_id)s
"""


class MoveState(StrEnum):
    DONE = "DONE"
    UNDONE = "UNDONE"


class PointerTable:
    """Over one connection, in autocommit mode: each method is one transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def find_move(self, move_id: str) -> MoveState | None:
        with _families():
            row = self._connection.execute("SELECT state FROM pointer_move WHERE move_id = %s", [move_id]).fetchone()
        return None if row is None else MoveState(row[0])

    def is_changed_by_others(self, dataset: str) -> bool:
        """Whether the pointer names something that no move of ours set."""
        with _families():
            row = self._connection.execute(_CHANGED_BY_OTHERS, {"dataset": dataset}).fetchone()
        return row is not None and bool(row[0])

    def find_location(self, dataset: str) -> str | None:
        with _families():
            row = self._connection.execute("SELECT location FROM pointer WHERE dataset = %s", [dataset]).fetchone()
        return None if row is None else str(row[0])

    def move(self, move_id: str, dataset: str, location: str) -> None:
        """Move the pointer, unless this move has happened or was undone, or somebody else changed the pointer."""
        arguments = {"move_id": move_id, "dataset": dataset, "location": location}
        with _families(), self._connection.transaction():
            self._connection.execute(_LOCK, arguments)
            # It looked otherwise when the step was verified: the next look says CONFLICT.
            if self.is_changed_by_others(dataset):
                return
            if self._connection.execute(_BEGIN_MOVE, arguments).rowcount:
                self._connection.execute(_MOVE, arguments)

    def undo(self, move_id: str, dataset: str) -> str:
        """Take the move back, and keep it from ever happening again: ``undone``, ``never_happened`` or ``stranger``."""
        arguments = {"move_id": move_id, "dataset": dataset}
        with _families(), self._connection.transaction():
            self._connection.execute(_LOCK, arguments)
            if self._connection.execute(_FORBID_MOVE, arguments).rowcount:
                return "never_happened"
            if self.find_move(move_id) is MoveState.UNDONE:
                return "never_happened"
            newest = self._connection.execute(_IS_THE_NEWEST, arguments).fetchone()
            if newest is None:
                return "stranger"
            first_of_all = bool(newest[0])
            statement = "DELETE FROM pointer WHERE dataset = %(dataset)s" if first_of_all else _MOVE_BACK
            self._connection.execute(statement, arguments)
            self._connection.execute("UPDATE pointer_move SET state = 'UNDONE' WHERE move_id = %(move_id)s", arguments)
            return "undone"


@contextmanager
def open_pointer_table(variable: str) -> Iterator[PointerTable]:
    """Connect to the database whose URL the environment variable holds; its tables are made if need be."""
    url = os.environ.get(variable)
    if not url:
        raise RejectedError(
            "expected the URL of the database with the pointers, found nothing",
            field=variable,
            hint=f"Set the environment variable {variable} in every process that uses the commit log.",
        )
    with _families(), psycopg.connect(url, autocommit=True) as connection:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('gobblin_postgres_pointer', 0))")
            connection.execute(TABLES)
        yield PointerTable(connection)


@contextmanager
def _families() -> Iterator[None]:
    """A move is repeated by its id, so that also an outcome that is not known is harmless to try again."""
    try:
        yield
    except psycopg.Error as error:
        # Without the text, which may tell of the URL.
        raise RetryableError(
            f"the database with the pointers failed: {type(error).__name__} {error.sqlstate or ''}".rstrip(),
            hint="It goes on at the next try.",
        ) from error
