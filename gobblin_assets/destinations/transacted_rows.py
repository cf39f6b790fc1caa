"""Rows in tables of a store that changes rows and marks of lanes in one transaction, with one writer at a time.

Whoever adds such a store writes its statements (``TableTransaction``). The order in which a load compares the mark,
adds rows and moves the mark is here.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace, decide_batch, require_row_count
from gobblin_assets.destinations.lane_properties import (
    adopted_marks,
    count_loaded_rows,
    find_lane_mark,
    moved_mark,
    refusing_mark,
)
from gobblin_assets.destinations.load_rows import TableBatch
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.errors import ConflictError
from gobblin_assets.failpoints import Failpoint, reach


class TableTransaction(Protocol):
    """A transaction that nobody else writes beside. What it reads is committed, or its own."""

    def read_marks(self) -> Mapping[str, str]:
        """The marks of all lanes, as texts by their names."""
        ...

    def write_marks(self, marks: Mapping[str, str]) -> None:
        """Set these marks; the others stay."""
        ...

    def list_columns(self, table: LoadedTable) -> Sequence[str]:
        """Empty: there is no such table."""
        ...

    def make_table(self, table: LoadedTable, names: Sequence[str]) -> None:
        """Make it; without names, as a table that takes columns later."""
        ...

    def add_column(self, table: LoadedTable, name: str) -> None: ...

    def insert_rows(self, table: LoadedTable, rows: pa.RecordBatch) -> None: ...

    def delete_rows(self, table: LoadedTable) -> None: ...

    def count_rows(self, table: LoadedTable) -> int: ...


class TransactedRows(ABC):
    """``MarkedRows`` and ``KeptTables`` of such a store."""

    @abstractmethod
    def begin(self) -> AbstractContextManager[TableTransaction]:
        """A transaction that is committed at the end of the block, or rolled back by an error or a death in it."""
        ...

    def require(self, tables: Iterable[LoadedTable]) -> None:
        for table in tables:
            self.count_rows(table)

    def find_mark(self, place: MarkPlace) -> LaneMark | None:
        with self.begin() as transaction:
            return find_lane_mark(transaction.read_marks(), place)

    def prepare(self, batch: TableBatch, columns: pa.Schema) -> None:
        with self.begin() as transaction:
            known = transaction.list_columns(batch.table)
            if columns.names and not known:
                transaction.make_table(batch.table, columns.names)
            for name in columns.names if known else ():
                if name not in known:
                    transaction.add_column(batch.table, name)

    def load(self, batch: TableBatch, rows: Iterable[pa.RecordBatch]) -> None:
        with self.begin() as transaction:
            marks = transaction.read_marks()
            if decide_batch(find_lane_mark(marks, batch.mark), batch) is not StepVerdict.DO:
                raise ConflictError(f"{batch.mark} refuses sequence {batch.sequence_id}")
            if batch.replaces and transaction.list_columns(batch.table):
                transaction.delete_rows(batch.table)
            sent = 0
            for each in rows:
                transaction.insert_rows(batch.table, each)
                sent += each.num_rows
            require_row_count(batch, sent)
            reach(Failpoint.LOAD_COPIED)
            transaction.write_marks(moved_mark(marks, batch))
            reach(Failpoint.LOAD_BEFORE_COMMIT)
        reach(Failpoint.LOAD_COMMITTED)

    def give_up(self, batch: TableBatch) -> bool:
        with self.begin() as transaction:
            marks = transaction.read_marks()
            verdict = decide_batch(find_lane_mark(marks, batch.mark), batch)
            if verdict is StepVerdict.DO:
                transaction.write_marks(refusing_mark(marks, batch))
            reach(Failpoint.GIVE_UP_BEFORE_COMMIT)
        return verdict is not StepVerdict.DONE

    def find_gone(self, table: LoadedTable, place: MarkPlace) -> str | None:
        del place
        with self.begin() as transaction:
            return None if transaction.list_columns(table) else f"{table} is gone"

    def adopt(self, table: LoadedTable, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        with self.begin() as transaction:
            if not transaction.list_columns(table):
                transaction.make_table(table, ())
            transaction.write_marks(adopted_marks(transaction.read_marks(), marks, row_count))

    def count_loaded(self, place: MarkPlace) -> int:
        with self.begin() as transaction:
            return count_loaded_rows(transaction.read_marks(), place)

    def count_rows(self, table: LoadedTable) -> int:
        with self.begin() as transaction:
            return transaction.count_rows(table) if transaction.list_columns(table) else 0
