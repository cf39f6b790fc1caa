"""The simulated world of runs whose rows are loaded into tables: in memory, each load with the mark of its lane.

The run, ``LoadedDestination``, ``LoadRows`` and the operations of the log are the product's own. Each call of
the place is one that can fail. What a transaction does to rows and mark is one effect.
"""

import io
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from gobblin_assets.commit.step_kinds import JsonCodec, register_step
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import CommitStep, StepKind, StepVerdict
from gobblin_assets.destinations.lane_marks import RECENT_MAX, LaneMark, MarkPlace, decide_batch, require_row_count
from gobblin_assets.destinations.load_rows import LoadRows, TableBatch, read_table_load, table_batch, write_table_load
from gobblin_assets.destinations.loaded_destination import LoadedDestination, open_loaded_destination
from gobblin_assets.destinations.rows_place import PlannedLoad
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.errors import ConflictError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.destination import Destination, DestinationRequest, Target
from gobblin_assets.run.job_kind import Output, WorkOrder
from tests.simulation.history import Checker, Rows
from tests.simulation.mutant import Mutant
from tests.simulation.process import Fault, Process
from tests.simulation.scenarios import Scenario, open_sequence
from tests.simulation.world import JOB, ROOT, URNS, Runner, SimRows, World

LOAD: Final = "tests.load"
_TABLES: Final = {urn: LoadedTable("shop", str(urn)) for urn in URNS}

_thread: Final = threading.local()


@dataclass
class MemoryTables:
    """``rows``: of each table, with the sequence that loaded them. ``loaded``: how many, by a mark."""

    rows: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    marks: dict[MarkPlace, LaneMark] = field(default_factory=dict)
    loaded: Counter[MarkPlace] = field(default_factory=Counter)

    def copy(self) -> "MemoryTables":
        rows = {table: list(each) for table, each in self.rows.items()}
        return MemoryTables(rows, dict(self.marks), Counter(self.loaded))

    def load(self, batch: TableBatch, numbers: Sequence[int]) -> None:
        if decide_batch(self.marks.get(batch.mark), batch) is not StepVerdict.DO:
            raise ConflictError(f"{batch.mark} refuses sequence {batch.sequence_id}")
        table = self.rows.setdefault(batch.table.table, [])
        if batch.replaces:
            table.clear()
            self.loaded[batch.mark] = 0
        table += [(batch.sequence_id, number) for number in numbers]
        before = self.marks.get(batch.mark, LaneMark(0))
        self.marks[batch.mark] = LaneMark(batch.version, (batch.sequence_id, *before.recent)[:RECENT_MAX])
        self.loaded[batch.mark] += len(numbers)

    def give_up(self, batch: TableBatch) -> bool:
        mark = self.marks.get(batch.mark, LaneMark(0))
        verdict = decide_batch(mark, batch)
        if verdict is StepVerdict.DO:
            self.marks[batch.mark] = replace(mark, given_up=(*mark.given_up, batch.sequence_id))
        return verdict is not StepVerdict.DONE


@dataclass
class ReachedTables:
    """``MarkedRows`` as a process reaches it: each act is a call of it."""

    process: Process
    tables: MemoryTables

    def find_mark(self, place: MarkPlace) -> LaneMark | None:
        found: LaneMark | None = self.process.call("tables.find_mark", lambda: self.tables.marks.get(place))
        return found

    def prepare(self, batch: TableBatch, columns: pa.Schema) -> None:
        del columns
        self.process.call("tables.prepare", lambda: self.tables.rows.setdefault(batch.table.table, []))

    def load(self, batch: TableBatch, rows: Iterable[pa.RecordBatch]) -> None:
        numbers = [number for each in rows for number in each.column("number").to_pylist()]
        require_row_count(batch, len(numbers))
        self.process.call("tables.load", lambda: self.tables.load(batch, numbers))

    def give_up(self, batch: TableBatch) -> bool:
        return bool(self.process.call("tables.give_up", lambda: self.tables.give_up(batch)))


@dataclass(frozen=True, slots=True)
class LoadMemory(LoadRows[TableBatch]):
    @property
    def kind(self) -> str:
        return LOAD

    @property
    def place(self) -> str:
        return str(self.batch.table)

    def open_marked(self, world: StepWorld) -> ReachedTables:
        return world.get(ReachedTables, self.connection)


@contextmanager
def _open_tables(_connection: str) -> Iterator[ReachedTables]:
    """Of the process whose turn it is: each has a thread of its own, or acts alone."""
    runner: LoadingRunner = _thread.runner
    yield ReachedTables(runner.process, runner.tables)


LOAD_KIND: Final = StepKind(
    LOAD,
    JsonCodec(write_table_load, lambda stored: LoadMemory(*read_table_load(stored))),
    opens={ReachedTables: _open_tables},
)
register_step(LOAD_KIND)


@dataclass(frozen=True)
class MemoryPlace:
    runner: "LoadingRunner"
    tables: Mapping[DatasetUrn, LoadedTable] = field(default_factory=lambda: _TABLES)
    marks: str = "marks"
    can_replace: bool = True

    def require(self) -> None:
        self.runner.process.call("tables.require", lambda: None)

    def uri_of(self, urn: DatasetUrn) -> str:
        return f"memory:{self.tables[urn]}"

    def make_step(self, urn: DatasetUrn, load: PlannedLoad) -> CommitStep:
        return LoadMemory("memory", table_batch(self.tables[urn], load), load.files)

    def find_mark(self, urn: DatasetUrn, mark: MarkPlace) -> LaneMark | None:
        del urn
        return ReachedTables(self.runner.process, self.runner.tables).find_mark(mark)

    def find_gone(self, urn: DatasetUrn, mark: MarkPlace) -> str | None:
        del urn, mark
        return None

    def adopt(self, urn: DatasetUrn, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        raise AssertionError("nothing is lost in this world")

    def count_loaded(self, marks: Mapping[DatasetUrn, MarkPlace]) -> Mapping[DatasetUrn, int]:
        found: Mapping[DatasetUrn, int] = self.runner.process.call(
            "tables.count_loaded", lambda: {urn: self._count_loaded(mark) for urn, mark in marks.items()}
        )
        return found

    def _count_loaded(self, mark: MarkPlace) -> int:
        """Of all lanes of the dataset."""
        loaded = self.runner.tables.loaded.items()
        return sum(count for place, count in loaded if replace(place, lane=mark.lane) == mark)

    def count_rows(self, urn: DatasetUrn) -> int | None:
        return len(self.runner.tables.rows.get(self.tables[urn].table, ()))


@dataclass
class LoadedRowsWorld(World):
    """``tables``: what the processes load."""

    tables: MemoryTables = field(default_factory=MemoryTables)

    def copy(self) -> Self:
        return replace(super().copy(), tables=self.tables.copy())

    def fingerprint(self) -> object:
        return super().fingerprint(), str(self.tables)

    def open_process(self, **options: Any) -> "LoadingRunner":
        self.process_count += 1
        return LoadingRunner(self, Process(f"process {self.process_count}", **options), self.process_count)


class LoadingRunner(Runner):
    """A process of the world that loads rows."""

    world: LoadedRowsWorld

    @property
    def tables(self) -> MemoryTables:
        return self.world.tables

    def _destination(self) -> Destination:
        places = (self._fs, ROOT, self._stores, self._open_file_system, self._clock.new_id)
        return open_loaded_destination(DestinationRequest(JobName(JOB), ROOT, *places), MemoryPlace(self))

    def _rows(self) -> SimRows:
        return _ParquetRows(self)

    def take_turn(self) -> None:
        """Let steps of this thread find the place of this process."""
        _thread.runner = self

    def _alive(self, work: Callable[[], Any]) -> Any:
        self.take_turn()
        return super()._alive(work)


class _ParquetRows(SimRows):
    def write(self, order: WorkOrder, path: str, rows: Sequence[list[Any]]) -> tuple[DataFile, CommitStep | None]:
        del order
        content = io.BytesIO()
        pq.write_table(pa.table({"number": pa.array([number for _urn, number in rows], pa.int64())}), content)
        identity = self._runner.write_file(path, content.getvalue())
        return DataFile(path.rpartition("/")[2], identity, len(rows)), None


@dataclass
class LoadedRowsChecker(Checker):
    """A load is seen before its publication is DONE: until then, rows are those of before it or behind it."""

    def look_at_files(self, world: World, disk: Any, when: str) -> None:
        del disk
        assert isinstance(world, LoadedRowsWorld)
        for dataset in world.db.datasets.values():
            keys = [key for key in world.db.keys.values() if key.dataset_id == dataset.dataset_id]
            reached = max((self.watermarks[key.key_id] for key in keys), default=0)
            found = _rows_in(world, dataset.urn)
            wanted = {reached}
            for row in world.db.sequences.values():
                if row.dataset_id == dataset.dataset_id and row.state is not SequenceState.DONE:
                    wanted.add(world.source[dataset.urn])
            possible = [Counter((str(dataset.urn), number) for number in range(end)) for end in wanted]
            assert found in possible, f"{dataset.urn} has {sorted(found.elements())} at its watermark {reached}{when}"

    def check_files_at_rest(self, world: World) -> None:
        assert isinstance(world, LoadedRowsWorld)
        for urn, count in world.source.items():
            expected = Counter((str(urn), number) for number in range(count))
            assert _rows_in(world, urn) == expected, f"{urn} is not its source"
        left = [path for path in self.contents_of(world, world.disk) if "/.markers/" not in path]
        assert not left, f"files are left: {left}"


def _rows_in(world: LoadedRowsWorld, urn: DatasetUrn) -> Rows:
    return Counter((str(urn), number) for _sequence, number in world.tables.rows.get(str(urn), ()))


def _empty() -> LoadedRowsWorld:
    world = LoadedRowsWorld()
    world.add_rows()
    return world


def _with_new_rows() -> LoadedRowsWorld:
    world = _empty()
    report = world.open_process().run()
    assert report is not None
    assert not report.failed, [each.error for each in report.datasets]
    world.add_rows()
    return world


def _half_published() -> LoadedRowsWorld:
    """A process died before its second load; its lease has run out."""
    world = _with_new_rows()
    trial = world.copy().open_process()
    trial.run()
    found = [number for number, call in enumerate(trial.process.calls) if call == "tables.load"]
    world.open_process(faults={found[1]: Fault.KILLED_BEFORE}).run()
    world.expire_leases()
    return world


LOADED_ROWS_SCENARIOS: Final = (
    Scenario("first load", _empty, lambda runner: runner.run(), LoadedRowsChecker),
    Scenario("load more", _with_new_rows, lambda runner: runner.run(), LoadedRowsChecker),
    Scenario("load a refresh", _with_new_rows, lambda runner: runner.run(Mode.REFRESH), LoadedRowsChecker),
    Scenario("recover a load", _half_published, lambda runner: runner.recover(), LoadedRowsChecker),
    Scenario(
        "abandon a load",
        _half_published,
        lambda runner: runner.abandon(open_sequence(runner.world)),
        LoadedRowsChecker,
    ),
)


def _a_step_for_each_task() -> AbstractContextManager[Any]:
    """A task knows the version that its sequence will have, and gets a step of its own."""
    steps_for = LoadedDestination.steps_for

    def mutant(self: LoadedDestination, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        return steps_for(self, outputs, target if target.version is not None else replace(target, version=1))

    return mock.patch.multiple(LoadedDestination, steps_for=mutant, loads_rows=property(lambda _self: False))


def _marks_are_not_asked() -> AbstractContextManager[Any]:
    return mock.patch(f"{__name__}.decide_batch", return_value=StepVerdict.DO)


IN_THE_WORLD_OF_LOADED_ROWS: Final = (
    Mutant("each task has a load of its own", _a_step_for_each_task),
    Mutant("a load does not ask its mark", _marks_are_not_asked),
)
