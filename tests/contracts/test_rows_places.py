"""Places of rows: what a place promises of its marks, its counts and its steps, whichever kind it is.

One suite for the example's SQLite, tables of Postgres and of Iceberg, and topics.
Steps are executed as the protocol does it, from files that really stand there.
"""

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_assets.commit.step_kinds import get_kind
from gobblin_assets.commit.step_world import StepPorts, StepWorld
from gobblin_assets.commit.steps import CapturedStaging, CommitStep, StepVerdict, UndoOutcome
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace
from gobblin_assets.destinations.rows_place import PlannedLoad, RowsPlace
from gobblin_assets.errors import ConflictError, CorruptionError, GobblinError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import DatasetUrn
from tests.support.rows_places import CAN_REPLACE, ICEBERG, KAFKA, POSTGRES, SQLITE, make_place
from tests.support.shares import often
from tests.support.tried_place import TriedPlace

ORDERS: Final = DatasetUrn("orders")
CLICKS: Final = DatasetUrn("clicks")
NAMES: Final = {ORDERS: "orders", CLICKS: "clicks"}
COLUMNS: Final = ("number",)
NOTHING_CAPTURED: Final = CapturedStaging(SequenceId(uuid.UUID(int=1)), 1, {})
A, B, C, D = (str(uuid.UUID(int=number)) for number in range(1, 5))

WHERE_ROWS_GET_LOST: Final = (SQLITE, POSTGRES, often(ICEBERG), often(KAFKA))
EVERYWHERE: Final = pytest.mark.parametrize("tried", WHERE_ROWS_GET_LOST, indirect=True)


@pytest.fixture
def tried(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TriedPlace:
    made = make_place(request, request.param, tmp_path)
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    return made


@dataclass
class Loads:
    """Publications of lanes into one place, from files of one directory."""

    place: RowsPlace
    tried: TriedPlace
    world: StepWorld
    folder: Path
    count: int = 0

    def mark(self, lane: int = 0, urn: DatasetUrn = ORDERS) -> MarkPlace:
        return MarkPlace(self.place.marks, f"root of {self.folder}", "job", urn, lane)

    def stage(self, numbers: Sequence[int]) -> DataFile:
        self.count += 1
        path = str(self.folder / f"staged-{self.count}.parquet")
        pq.write_table(pa.table({"number": pa.array(numbers, pa.int64())}), path)
        identity = self.world.find_identity(path)
        assert identity is not None
        return DataFile(path, identity, len(numbers))

    def plan(
        self,
        version: int,
        sequence_id: str,
        *files: Sequence[int],
        lane: int = 0,
        urn: DatasetUrn = ORDERS,
        is_marked: bool = False,
        replaces: bool = False,
    ) -> CommitStep:
        staged = tuple(map(self.stage, files))
        mark = self.mark(lane, urn)
        load = PlannedLoad(mark, version, sequence_id, staged, is_marked=is_marked, replaces=replaces)
        step = self.place.make_step(urn, load)
        get_kind(step.kind)  # known from now on, as to whoever reads the log
        return step

    def carry_out(self, step: CommitStep) -> None:
        """As the executor does it."""
        assert step.verify(self.world) is StepVerdict.DO
        step.prepare(self.world)
        step.execute(self.world)
        assert step.verify(self.world) is StepVerdict.DONE

    def has_loaded(self, lane: int = 0) -> bool:
        """Whether a mark says so. A place may make an empty mark before anything is loaded."""
        mark = self.place.find_mark(ORDERS, self.mark(lane))
        return mark is not None and mark.has_loaded

    def rows(self, urn: DatasetUrn = ORDERS) -> list[int]:
        return sorted(number for (number,) in self.tried.read(NAMES[urn], COLUMNS))

    def counted(self) -> dict[DatasetUrn, int]:
        return dict(self.place.count_loaded({urn: self.mark(urn=urn) for urn in NAMES}))


@pytest.fixture
def loads(tried: TriedPlace, tmp_path: Path) -> Iterator[Loads]:
    place = tried.open(NAMES, "number")
    folder = tmp_path / "staging"
    folder.mkdir()
    with StepPorts(open_file_system) as ports:
        yield Loads(place, tried, StepWorld(open_file_system(str(folder))[0], ports), folder)


@EVERYWHERE
def test_a_publication_is_there_as_a_whole_with_its_mark_and_what_counts_it(loads: Loads) -> None:
    place = loads.place
    place.require()
    assert not loads.has_loaded()
    assert loads.counted() == {ORDERS: 0, CLICKS: 0}
    step = loads.plan(1, A, [1, 2], [3])
    codec = get_kind(step.kind).codec
    assert list(codec.from_rows(zip(*codec.to_columns([step], 0), strict=True))) == [step]

    loads.carry_out(step)

    assert loads.rows() == [1, 2, 3]
    assert place.find_mark(ORDERS, loads.mark()) == LaneMark(1, (A,))
    assert loads.counted() == {ORDERS: 3, CLICKS: 0}
    assert place.count_rows(ORDERS) in (3, None)
    assert place.find_gone(ORDERS, loads.mark()) is None
    assert loads.tried.uri_of("orders") == place.uri_of(ORDERS)


@EVERYWHERE
def test_what_was_loaded_is_not_loaded_again_and_what_is_older_is_refused(loads: Loads) -> None:
    first, older = loads.plan(1, A, [1, 2]), loads.plan(1, C, [9])
    loads.carry_out(first)
    loads.carry_out(loads.plan(2, B, [3], is_marked=True))

    with contextlib.suppress(ConflictError):
        first.execute(loads.world)
    assert older.verify(loads.world) is StepVerdict.CONFLICT
    with pytest.raises(ConflictError):
        older.execute(loads.world)

    assert loads.rows() == [1, 2, 3]
    assert loads.place.find_mark(ORDERS, loads.mark()) == LaneMark(2, (B, A))
    assert loads.counted()[ORDERS] == 3


@EVERYWHERE
def test_lanes_and_datasets_have_marks_of_their_own_and_lanes_are_counted_together(loads: Loads) -> None:
    loads.carry_out(loads.plan(1, A, [1, 2]))
    loads.carry_out(loads.plan(1, B, [3], lane=1))
    loads.carry_out(loads.plan(1, C, [7], urn=CLICKS))

    marks = [loads.place.find_mark(ORDERS, loads.mark(lane)) for lane in range(2)]
    assert marks == [LaneMark(1, (A,)), LaneMark(1, (B,))]
    assert not loads.has_loaded(2)
    assert loads.counted() == {ORDERS: 3, CLICKS: 1}
    assert (loads.rows(), loads.rows(CLICKS)) == ([1, 2, 3], [7])


@EVERYWHERE
def test_staged_files_with_other_rows_than_were_sealed_leave_nothing(loads: Loads) -> None:
    step = loads.plan(1, A, [1, 2, 3])
    step.prepare(loads.world)
    Path(str(next(iter(step.expects())))).unlink()
    loads.count -= 1
    loads.stage([1, 2])
    assert step.verify(loads.world) is StepVerdict.CONFLICT

    with pytest.raises(CorruptionError, match="hold 2 rows, and 3 were sealed"):
        step.execute(loads.world)

    assert loads.rows() == []
    assert loads.counted()[ORDERS] == 0
    assert not loads.has_loaded()


@EVERYWHERE
def test_what_was_given_up_is_never_loaded_and_its_lane_goes_on(loads: Loads) -> None:
    step = loads.plan(1, A, [1, 2])
    step.prepare(loads.world)

    assert step.forbid(loads.world) is None

    assert step.verify(loads.world) is StepVerdict.CONFLICT
    with pytest.raises(ConflictError):
        step.execute(loads.world)
    assert step.undo(loads.world, NOTHING_CAPTURED) is UndoOutcome.NEVER_HAPPENED
    assert not loads.has_loaded()
    assert loads.counted()[ORDERS] == 0
    loads.carry_out(loads.plan(1, B, [3]))
    assert loads.rows() == [3]


@EVERYWHERE
def test_what_is_loaded_can_t_be_given_up(loads: Loads) -> None:
    step = loads.plan(1, A, [1, 2])
    loads.carry_out(step)

    assert step.forbid(loads.world) is not None
    assert step.undo(loads.world, NOTHING_CAPTURED) is UndoOutcome.STRANGER

    assert step.verify(loads.world) is StepVerdict.DONE
    assert loads.rows() == [1, 2]


@pytest.mark.parametrize("tried", WHERE_ROWS_GET_LOST, indirect=True)
def test_a_lane_whose_mark_is_gone_loads_nothing_until_a_person_adopts_what_is_there(loads: Loads) -> None:
    loads.carry_out(loads.plan(1, A, [1, 2]))
    loads.carry_out(loads.plan(2, B, [3], is_marked=True))
    loads.tried.lose()
    step = loads.plan(3, C, [4], is_marked=True)
    for act in (step.verify, step.execute, step.forbid):
        with pytest.raises(GobblinError, match="is gone"):
            act(loads.world)
    there = loads.rows()

    adopted = {loads.mark(): LaneMark(2, (B, A)), loads.mark(1): LaneMark(1, (D,))}
    loads.place.adopt(ORDERS, adopted, 3)
    loads.place.adopt(ORDERS, {loads.mark(): LaneMark(1, (A,))}, 3)

    assert loads.place.find_mark(ORDERS, loads.mark(1)) == LaneMark(1, (D,))
    assert loads.place.find_mark(ORDERS, loads.mark()) == LaneMark(2, (B, A)), "marks that are there stay"
    assert loads.counted()[ORDERS] == 3
    assert loads.place.find_gone(ORDERS, loads.mark()) is None
    loads.carry_out(step)
    assert loads.rows() == [*there, 4]
    assert loads.counted()[ORDERS] == 4


@pytest.mark.parametrize("tried", CAN_REPLACE, indirect=True)
def test_rows_of_a_snapshot_take_the_place_of_all_others(loads: Loads) -> None:
    assert loads.place.can_replace
    loads.carry_out(loads.plan(1, A, [1, 2]))

    loads.carry_out(loads.plan(2, B, [3], is_marked=True, replaces=True))
    assert (loads.rows(), loads.counted()[ORDERS]) == ([3], 1)
    loads.carry_out(loads.plan(3, C, is_marked=True, replaces=True))

    assert (loads.rows(), loads.counted()[ORDERS]) == ([], 0)
    assert loads.place.find_mark(ORDERS, loads.mark()) == LaneMark(3, (C, B, A))
