"""The simulated world of runs whose rows are loaded into tables of an SQLite file, each load with the mark of its lane.

The run, ``LoadedDestination``, ``LoadRows`` and the operations of the log are the product's own, and the place of rows
is the example's. Each of its statements is a call that can fail.
"""

import io
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from gobblin_assets.commit.steps import CommitStep, StepVerdict
from gobblin_assets.destinations import transacted_rows
from gobblin_assets.destinations.loaded_destination import LoadedDestination, open_loaded_destination
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.destination import Destination, DestinationRequest, Target
from gobblin_assets.run.job_kind import Output, WorkOrder
from tests.simulation.file_mutants import IN_A_FILE
from tests.simulation.history import Checker, Rows
from tests.simulation.mutant import Mutant
from tests.simulation.process import Fault, Process
from tests.simulation.scenarios import Scenario, open_sequence
from tests.simulation.sink_world import is_given_up_by_half
from tests.simulation.sqlite_file import SimFile, take_turn
from tests.simulation.world import JOB, ROOT, URNS, Runner, SimRows, World
from tests.support.sqlite_rows import CONNECTION, SqlitePlace

_PLACE: Final = SqlitePlace(CONNECTION, {urn: LoadedTable("main", str(urn)) for urn in URNS})


@dataclass
class LoadedRowsWorld(World):
    """``file``: what the processes load."""

    file: SimFile = field(default_factory=SimFile)

    def copy(self) -> Self:
        return replace(super().copy(), file=self.file.copy())

    def fingerprint(self) -> object:
        return super().fingerprint(), self.file.fingerprint()

    def open_process(self, **options: Any) -> "LoadingRunner":
        self.process_count += 1
        return LoadingRunner(self, Process(f"process {self.process_count}", **options), self.process_count)


class LoadingRunner(Runner):
    """A process of the world that loads rows."""

    world: LoadedRowsWorld

    def _destination(self) -> Destination:
        places = (self._fs, ROOT, self._stores, self._open_file_system, self._clock.new_id)
        return open_loaded_destination(DestinationRequest(JobName(JOB), ROOT, *places), _PLACE)

    def _rows(self) -> SimRows:
        return _ParquetRows(self)

    def _alive(self, work: Callable[[], Any]) -> Any:
        take_turn(self.world.file, self.process)
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

    def check_rest(self, world: World) -> None:
        """Whoever died between telling the place and the log gives up once more, as the error says."""
        half = [row.sequence_id for row in world.db.sequences.values() if is_given_up_by_half(row)]
        for sequence_id in half:
            world.open_process().abandon(sequence_id)
        if half:
            world.open_process().run()
            self.look(world)
        super().check_rest(world)

    def check_files_at_rest(self, world: World) -> None:
        assert isinstance(world, LoadedRowsWorld)
        for urn, count in world.source.items():
            expected = Counter((str(urn), number) for number in range(count))
            assert _rows_in(world, urn) == expected, f"{urn} is not its source"
        left = [path for path in self.contents_of(world, world.disk) if "/.markers/" not in path]
        assert not left, f"files are left: {left}"


def _rows_in(world: LoadedRowsWorld, urn: DatasetUrn) -> Rows:
    return Counter((str(urn), number) for (number,) in world.file.list_rows(str(urn), "number"))


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
    """A process died in its second load; its lease has run out."""
    world = _with_new_rows()
    trial = world.copy().open_process()
    trial.run()
    found = [number for number, call in enumerate(trial.process.calls) if call == "sqlite.replace"]
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
    return mock.patch.object(transacted_rows, "decide_batch", return_value=StepVerdict.DO)


IN_THE_WORLD_OF_LOADED_ROWS: Final = (
    Mutant("each task has a load of its own", _a_step_for_each_task),
    Mutant("a load does not ask its mark", _marks_are_not_asked),
    *IN_A_FILE,
)
