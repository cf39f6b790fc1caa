"""The database of the simulated world: the tables of the commit log in memory, with a clock of their own.

    db = SimDatabase()                       db = SimDatabase(without=frozenset({Guard.SEAL_CHECKS_FENCE}))
    db.advance(30.0)                         the only clock that decides about leases; seconds in ``db.now_s``
    twin = db.copy()                         a world of its own; rows are shared, because they never change
    db.restore(backup)                       the tables of an earlier copy; the clock goes on
    db.fingerprint()                         equal for equal tables, in every process; times count from now

The tables are public (``db.sequences``, ``db.ledger``, …: dicts of the frozen rows of ``tests.simulation.rows``, in
the order of their making), for code that looks; only the stores write. ``SimCommitStepStore``, ``SimLaneStore``,
``SimLeaseStore``, ``SimDatasetStore``, ``SimRunStore`` and ``SimPublishedFiles`` are made from one ``SimDatabase`` and
share it.

This module draws no random number, reads no real clock and makes no id. The clock moves only when it is moved;
otherwise "oldest first" means first made.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Final, Generic, Self, TypeVar

from gobblin_assets.db.statement_texts import to_jsonb
from gobblin_assets.model.state import AttemptId, DatasetId, KeyId, LaneId, RunId, SequenceId
from gobblin_assets.model.urn import JobName
from tests.simulation.guards import Guard
from tests.simulation.rows import (
    AttemptRow,
    CountedWorkerRow,
    DatasetRow,
    DestinationRow,
    KeyRow,
    LaneRow,
    LeaseRow,
    LedgerRow,
    MoveRow,
    PastSequenceRow,
    RateShareRow,
    RunDatasetRow,
    RunRow,
    SegmentRow,
    SequenceRow,
    WorkUnitRow,
)

__all__ = ["ConstraintError", "Guard", "SimDatabase", "Table", "json_text"]

K = TypeVar("K")
R = TypeVar("R")

_ABSENT: Final = object()
# A segment's digest stands for its payload.
_LEFT_OUT: Final = frozenset({"payload"})


class ConstraintError(Exception):
    """A constraint of Postgres for which the adapter has no family: the caller made a mistake."""


def json_text(value: object) -> str:
    """A value as a jsonb column keeps it, as one text for equal values."""
    return json.dumps(json.loads(to_jsonb(value)), sort_keys=True)


class Table(dict[K, R], Generic[K, R]):
    """Rows by primary key. If their transaction is refused, ``put`` and ``drop`` are undone."""

    def __init__(self, rows: "Table[K, R] | None" = None) -> None:
        super().__init__(() if rows is None else rows)
        self._texts: dict[K, tuple[R, str, tuple[float | None, ...]]] = {} if rows is None else dict(rows._texts)
        self._undo: list[tuple[Table[Any, Any], object, object]] = []

    def join(self, undo: "list[tuple[Table[Any, Any], object, object]]") -> None:
        self._undo = undo

    def put(self, key: K, row: R) -> None:
        self._undo.append((self, key, self.get(key, _ABSENT)))
        self[key] = row

    def drop(self, key: K) -> None:
        self._undo.append((self, key, self.pop(key)))

    def facts(self, now_s: float) -> Iterator[str]:
        """Each row as text, with its times as seconds from now."""
        for key, row in self.items():
            known = self._texts.get(key)
            if known is None or known[0] is not row:
                known = self._texts[key] = (row, *_describe(row))
            _row, text, times = known
            yield text
            yield ",".join("-" if at_s is None else f"{at_s - now_s:.6f}" for at_s in times)


class SimDatabase:
    """``without``: the guards that are switched off, by name."""

    def __init__(self, *, now_s: float = 0.0, without: frozenset[str] = frozenset()) -> None:
        unknown = without - set(Guard)
        if unknown:
            raise ValueError(f"no such guards: {sorted(unknown)}")
        self.now_s = now_s
        self.without = without
        self.destinations: Table[JobName, DestinationRow] = Table()
        self.datasets: Table[DatasetId, DatasetRow] = Table()
        self.lanes: Table[LaneId, LaneRow] = Table()
        self.leases: Table[LaneId, LeaseRow] = Table()
        self.keys: Table[KeyId, KeyRow] = Table()
        self.runs: Table[RunId, RunRow] = Table()
        self.run_datasets: Table[tuple[RunId, DatasetId, str], RunDatasetRow] = Table()
        self.sequences: Table[SequenceId, SequenceRow] = Table()
        self.past_sequences: Table[SequenceId, PastSequenceRow] = Table()
        self.attempts: Table[AttemptId, AttemptRow] = Table()
        self.work_units: Table[uuid.UUID, WorkUnitRow] = Table()
        self.segments: Table[uuid.UUID, SegmentRow] = Table()
        self.moves: Table[tuple[SequenceId, KeyId], MoveRow] = Table()
        self.ledger: Table[int, LedgerRow] = Table()
        self.rate_shares: Table[tuple[str, int], RateShareRow] = Table()
        self.sink_workers: Table[RunId, CountedWorkerRow] = Table()
        self._undo: list[tuple[Table[Any, Any], object, object]] = []
        self._join_tables()

    def holds(self, guard: Guard) -> bool:
        """Whether the guard is on."""
        return guard not in self.without

    def advance(self, seconds: float) -> None:
        """Move the database's clock; a negative number sets it back."""
        self.now_s += seconds

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """All or nothing: if an exception leaves the block, nothing has changed."""
        self._undo.clear()
        try:
            yield self
        except BaseException:
            for table, key, row in reversed(self._undo):
                if row is _ABSENT:
                    del table[key]
                else:
                    table[key] = row
            raise
        finally:
            self._undo.clear()

    def copy(self) -> "SimDatabase":
        """The same tables, clock and guards; from now on neither sees changes of the other."""
        twin = SimDatabase(now_s=self.now_s, without=self.without)
        twin.restore(self)
        return twin

    def restore(self, backup: "SimDatabase") -> None:
        """Go back to the tables of an earlier copy, as a restored backup does."""
        for name, table in backup._tables():
            setattr(self, name, Table(table))
        self._join_tables()

    def fingerprint(self) -> str:
        """A digest of all tables. The clock counts only by its distance to times in the tables."""
        digest = hashlib.sha256()
        for name, table in self._tables():
            digest.update(f"\n{name}\n".encode())
            digest.update("\n".join(table.facts(self.now_s)).encode())
        return digest.hexdigest()

    def _tables(self) -> Iterator[tuple[str, Table[Any, Any]]]:
        return ((name, table) for name, table in vars(self).items() if isinstance(table, Table))

    def _join_tables(self) -> None:
        for _name, table in self._tables():
            table.join(self._undo)


def _describe(row: Any) -> tuple[str, tuple[float | None, ...]]:
    names = [field.name for field in fields(row) if field.name not in _LEFT_OUT]
    text = repr([getattr(row, name) for name in names if not name.endswith("_at")])
    return text, tuple(getattr(row, name) for name in names if name.endswith("_at"))
