"""The steps that load staged files into a destination with marks: rows and the mark of their lane, in one transaction.

A paused process can't load anything late: the mark is compared in the transaction of the rows, or the process that goes
on has fenced it off before it looked. Before a publication is abandoned, its mark is set to refuse it (``forbid``): the
capture of the staging does not stop a process that has read the files already.

Loads of tables have one stored form, whatever the database or the catalog.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa
from pyarrow import parquet as pq

from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import CapturedStaging, CommitStep, StepFault, StepVerdict, UndoOutcome
from gobblin_assets.destinations.lane_marks import (
    LaneMark,
    LoadBatch,
    MarkPlace,
    PlaceGoneError,
    decide_batch,
    decide_load,
)
from gobblin_assets.destinations.rows_place import PlannedLoad
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.model.files import DataFile, FileIdentity

BATCH_ROWS: Final = 32_768
"""Rows that are read from a staged file at once."""

B = TypeVar("B", bound=LoadBatch)
B_contra = TypeVar("B_contra", bound=LoadBatch, contravariant=True)


class MarkedRows(Protocol[B_contra]):
    """A keeper of rows and of a mark of each lane. Every answer is of what is committed."""

    def find_mark(self, place: MarkPlace) -> LaneMark | None:
        """None: nothing of the lane was ever loaded or given up."""
        ...

    def prepare(self, batch: B_contra, columns: pa.Schema) -> None:
        """Make what takes the rows, and the place of the mark, unless they exist. RejectedError if that can't be."""
        ...

    def load(self, batch: B_contra, rows: Iterable[pa.RecordBatch]) -> None:
        """Add the rows and move the mark, both or neither. ConflictError: the mark refuses the publication."""
        ...

    def give_up(self, batch: B_contra) -> bool:
        """Let the mark refuse the publication from now on. False: its rows are there."""
        ...


@dataclass(frozen=True, slots=True)
class LoadRows(CommitStep, Generic[B]):
    """Load the rows of staged files. ``connection``: the destination's, by its name. ``files``: by their full paths."""

    connection: str
    batch: B
    files: tuple[DataFile, ...]

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the rows go, for a person."""
        ...

    @abstractmethod
    def open_marked(self, world: StepWorld) -> MarkedRows[B]: ...

    def find_gone(self, world: StepWorld) -> str | None:
        """What is wrong with the place, where rows of the dataset were loaded into another one than is there now."""
        del world
        return None

    @property
    def loaded_rows(self) -> int:
        return self.batch.row_count

    def expects(self) -> Iterable[str]:
        return (file.name for file in self.files)

    def prepare(self, world: StepWorld) -> None:
        if not self.files:
            self.open_marked(world).prepare(self.batch, pa.schema([]))
        seen: list[pa.Schema] = []
        for file in self.files:
            with world.fs.open_input(file.name) as stream:
                columns = pq.read_schema(stream)
            # Where a source's columns change, files of one publication differ.
            if not any(columns.equals(each) for each in seen):
                self.open_marked(world).prepare(self.batch, columns)
                seen.append(columns)

    def verify(self, world: StepWorld) -> StepVerdict:
        verdict = self._ask_mark(world)
        if verdict is not StepVerdict.DO:
            return verdict
        if (gone := self.find_gone(world)) is not None:
            raise PlaceGoneError(gone, self.batch.mark.dataset)
        found = [world.find_identity(file.name) for file in self.files]
        if any(identity is None for identity in found):
            return StepVerdict.LOST
        are_ours = all(
            identity is not None and identity.matches(file.identity)
            for identity, file in zip(found, self.files, strict=True)
        )
        return StepVerdict.DO if are_ours else StepVerdict.CONFLICT

    def execute(self, world: StepWorld) -> None:
        self.open_marked(world).load(self.batch, self._read(world))

    def forbid(self, world: StepWorld) -> StepFault | None:
        if self.open_marked(world).give_up(self.batch):
            return None
        return StepFault(self.place, f"has the rows of sequence {self.batch.sequence_id} already")

    def undo(self, world: StepWorld, captured: CapturedStaging) -> UndoOutcome:
        del captured
        return UndoOutcome.NEVER_HAPPENED if self.open_marked(world).give_up(self.batch) else UndoOutcome.STRANGER

    def find_fault(self, world: StepWorld, verdict: StepVerdict) -> StepFault:
        batch = self.batch
        if verdict is StepVerdict.LOST:
            return StepFault(self.files[0].name, f"is gone, and its rows are not in {self.place}")
        mark = self.open_marked(world).find_mark(batch.mark)
        if mark is None or decide_load(mark, batch.version, batch.sequence_id) is StepVerdict.DO:
            return StepFault(self.files[0].name, "is not the file that was staged")
        if batch.sequence_id in mark.recent:
            return StepFault(
                self.place,
                f"has the rows of sequence {batch.sequence_id}",
                "Rows that were loaded are not taken back: complete the publication instead.",
            )
        if batch.sequence_id in mark.given_up:
            return StepFault(str(batch.mark), "says that the publication was given up", "Abandon it.")
        return StepFault(
            str(batch.mark),
            f"is at version {mark.version}, and the publication makes version {batch.version}",
            "The log is older than what was loaded, or another log writes there. Compare the rows with the log.",
        )

    def _ask_mark(self, world: StepWorld) -> StepVerdict:
        return decide_batch(self.open_marked(world).find_mark(self.batch.mark), self.batch)

    def _read(self, world: StepWorld) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            with world.fs.open_input(file.name) as stream, pq.ParquetFile(stream) as parquet:
                yield from parquet.iter_batches(batch_size=BATCH_ROWS)


def write_load(step: LoadRows[Any]) -> dict[str, object]:
    """What the steps of all such kinds store, as plain values."""
    batch, mark = step.batch, step.batch.mark
    return {
        "connection": step.connection,
        "mark": [mark.marks, mark.destination, mark.job, mark.dataset, mark.lane],
        "version": batch.version,
        "sequence": batch.sequence_id,
        "is_marked": batch.is_marked,
        "files": [
            [each.name, each.row_count, each.identity.size_bytes, each.identity.inode, each.identity.mtime_ns]
            for each in step.files
        ],
    }


def read_is_marked(stored: Mapping[str, Any]) -> bool:
    """What ``write_load`` stored; False of a step that an older release stored."""
    return bool(stored.get("is_marked", False))


def read_files(stored: Mapping[str, Any]) -> tuple[DataFile, ...]:
    """The files that ``write_load`` stored."""
    given: Sequence[Any] = stored["files"]
    return tuple(DataFile(name, FileIdentity(*identity), rows) for name, rows, *identity in given)


@dataclass(frozen=True, slots=True)
class TableBatch:
    """The ``LoadBatch`` of a table. ``replaces``: the rows take the place of all rows that are there."""

    table: LoadedTable
    mark: MarkPlace
    version: int
    sequence_id: str
    row_count: int
    is_marked: bool = False
    replaces: bool = False


def table_batch(table: LoadedTable, load: PlannedLoad) -> TableBatch:
    """A planned load of a table."""
    return TableBatch(table, load.mark, load.version, load.sequence_id, load.row_count, load.is_marked, load.replaces)


def write_table_load(step: LoadRows[TableBatch]) -> Mapping[str, object]:
    """A load of a table as plain values."""
    table = step.batch.table
    stored = {**write_load(step), "table": [table.schema, table.table]}
    return {**stored, "replaces": True} if step.batch.replaces else stored


def read_table_load(stored: Mapping[str, Any]) -> tuple[str, TableBatch, tuple[DataFile, ...]]:
    """What ``write_table_load`` stored: the connection, the batch and the files."""
    files = read_files(stored)
    batch = TableBatch(
        LoadedTable(*stored["table"]),
        MarkPlace(*stored["mark"]),
        stored["version"],
        stored["sequence"],
        sum(each.row_count for each in files),
        read_is_marked(stored),
        bool(stored.get("replaces", False)),
    )
    return stored["connection"], batch, files
