"""The kind of steps that load staged files into a table, in one transaction with the mark of their lane.

A paused process can't load anything late: the mark is compared and set in the transaction of the rows. Before a
publication is abandoned, its mark is told so (``forbid``), since the capture of the staging does not stop a process
that has read the files already.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
from pyarrow import parquet as pq

from gobblin_assets.commit.step_kinds import JsonCodec
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import (
    CapturedStaging,
    CommitStep,
    StepFault,
    StepKind,
    StepVerdict,
    UndoOutcome,
)
from gobblin_assets.destinations.tables.marks import LaneMark, LoadedTable, MarkPlace, TableBatch, decide_load
from gobblin_assets.destinations.tables.postgres_tables import open_tables
from gobblin_assets.model.files import DataFile, FileIdentity

LOAD_TABLE: Final = "load_table"

BATCH_ROWS: Final = 32_768
"""Rows that are read from a staged file at once."""


class MarkedTables(Protocol):
    """The tables of a database that keeps a mark of each lane. Every answer is of what is committed."""

    def find_mark(self, place: MarkPlace) -> LaneMark | None:
        """None: nothing of the lane was ever loaded or given up."""
        ...

    def prepare_table(self, batch: TableBatch, columns: pa.Schema) -> None:
        """Make the table, its missing columns and the place of the mark, unless they exist. RejectedError if not."""
        ...

    def load(self, batch: TableBatch, rows: Iterable[pa.RecordBatch]) -> None:
        """Add the rows and move the mark, both or neither. ConflictError: the mark refuses the publication."""
        ...

    def give_up(self, batch: TableBatch) -> bool:
        """Let the mark refuse the publication from now on. False: its rows are there."""
        ...


@dataclass(frozen=True, slots=True)
class LoadTable(CommitStep):
    """Load the rows of staged files. ``connection``: the name of the database's. ``files``: by their full paths."""

    connection: str
    batch: TableBatch
    files: tuple[DataFile, ...]

    @property
    def kind(self) -> str:
        return LOAD_TABLE

    @property
    def loaded_rows(self) -> int:
        return self.batch.row_count

    def expects(self) -> Iterable[str]:
        return (file.name for file in self.files)

    def prepare(self, world: StepWorld) -> None:
        with world.fs.open_input(self.files[0].name) as stream:
            columns = pq.read_schema(stream)
        self._tables(world).prepare_table(self.batch, columns)

    def verify(self, world: StepWorld) -> StepVerdict:
        verdict = self._ask_mark(world)
        if verdict is not StepVerdict.DO:
            return verdict
        found = [world.find_identity(file.name) for file in self.files]
        if any(identity is None for identity in found):
            return StepVerdict.LOST
        are_ours = all(
            identity is not None and identity.matches(file.identity)
            for identity, file in zip(found, self.files, strict=True)
        )
        return StepVerdict.DO if are_ours else StepVerdict.CONFLICT

    def execute(self, world: StepWorld) -> None:
        self._tables(world).load(self.batch, self._read(world))

    def forbid(self, world: StepWorld) -> StepFault | None:
        if self._tables(world).give_up(self.batch):
            return None
        return StepFault(str(self.batch.table), f"has the rows of sequence {self.batch.sequence_id} already")

    def undo(self, world: StepWorld, captured: CapturedStaging) -> UndoOutcome:
        del captured
        return UndoOutcome.NEVER_HAPPENED if self._tables(world).give_up(self.batch) else UndoOutcome.STRANGER

    def find_fault(self, world: StepWorld, verdict: StepVerdict) -> StepFault:
        batch = self.batch
        if verdict is StepVerdict.LOST:
            return StepFault(self.files[0].name, f"is gone, and its rows are not in {batch.table}")
        mark = self._tables(world).find_mark(batch.mark)
        if mark is None or decide_load(mark, batch.version, batch.sequence_id) is StepVerdict.DO:
            return StepFault(self.files[0].name, "is not the file that was staged")
        if batch.sequence_id in mark.recent:
            return StepFault(
                str(batch.table),
                f"has the rows of sequence {batch.sequence_id}",
                "Rows that were loaded are not taken back: complete the publication instead.",
            )
        if batch.sequence_id in mark.given_up:
            return StepFault(str(batch.mark), "says that the publication was given up", "Abandon it.")
        return StepFault(
            str(batch.mark),
            f"is at version {mark.version}, and the publication makes version {batch.version}",
            "The log is older than the database, or another log writes there. Compare the rows with the log.",
        )

    def _ask_mark(self, world: StepWorld) -> StepVerdict:
        mark = self._tables(world).find_mark(self.batch.mark)
        return decide_load(mark, self.batch.version, self.batch.sequence_id)

    def _tables(self, world: StepWorld) -> MarkedTables:
        """A kind of tables of its own has a port of its own."""
        return world.get(MarkedTables, self.connection)

    def _read(self, world: StepWorld) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            with world.fs.open_input(file.name) as stream, pq.ParquetFile(stream) as parquet:
                yield from parquet.iter_batches(batch_size=BATCH_ROWS)


def load_codec(load: type[LoadTable]) -> JsonCodec:
    """How the log keeps loads of this type."""
    return JsonCodec(_write, lambda stored: _read(load, stored))


def _write(step: LoadTable) -> Mapping[str, object]:
    batch, mark = step.batch, step.batch.mark
    return {
        "connection": step.connection,
        "table": [batch.table.schema, batch.table.table],
        "mark": [mark.schema, mark.destination, mark.job, mark.dataset, mark.lane, mark.table],
        "version": batch.version,
        "sequence": batch.sequence_id,
        "files": [
            [each.name, each.row_count, each.identity.size_bytes, each.identity.inode, each.identity.mtime_ns]
            for each in step.files
        ],
    }


def _read(load: type[LoadTable], stored: Mapping[str, Any]) -> LoadTable:
    files = tuple(DataFile(name, FileIdentity(*identity), rows) for name, rows, *identity in stored["files"])
    batch = TableBatch(
        LoadedTable(*stored["table"]),
        MarkPlace(*stored["mark"]),
        stored["version"],
        stored["sequence"],
        sum(each.row_count for each in files),
    )
    return load(stored["connection"], batch, files)


LOAD_TABLE_KIND: Final = StepKind(LOAD_TABLE, load_codec(LoadTable), opens={MarkedTables: open_tables})
