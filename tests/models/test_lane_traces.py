"""The checker of traces takes every transition of the model, and nothing that breaks one of its rules."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from tests.models import lane_variants as variants
from tests.models.exhaustive_search import search
from tests.models.lane_traces import (
    LaneObservation,
    ObservedLane,
    ObservedRow,
    ObservedVnode,
    Transition,
    check_step,
    check_trace,
    split_by_lane,
)
from tests.models.lane_writers import Guard, Lanes, Move
from tests.models.lanes import LaneWorld, Row, Writer

ROW = ObservedRow("first", 1, {"a": (0, 5), "b": (3, 4)}, frozenset({"first-1", "first-2"}))
NEXT = ObservedRow("second", 2, {"a": (5, 6)}, frozenset({"second-1"}))
EMPTY = ObservedRow("empty", 1, {"b": (3, 9)}, frozenset())
LEFT = {"a": ObservedVnode("left", 0), "b": ObservedVnode("left", 3), "c": ObservedVnode("right", 7)}
DONE = LEFT | {"a": ObservedVnode("left", 5), "b": ObservedVnode("left", 4)}
FILES = frozenset({"first-1", "first-2"})
OTHER = ObservedLane(4)

Vnodes = dict[str, ObservedVnode]


def seen(
    left: ObservedLane | None = None,
    vnodes: Vnodes = LEFT,
    visible: frozenset[str] = frozenset(),
    right: ObservedLane | None = OTHER,
    **truncated: int,
) -> LaneObservation:
    lanes = {name: lane for name, lane in (("left", left), ("right", right)) if lane is not None}
    return LaneObservation(lanes, vnodes, visible, truncated)


UNTAKEN = seen()
TAKEN = seen(ObservedLane(1))
SEALED = seen(ObservedLane(1, ROW))
HALF = seen(ObservedLane(1, ROW), visible=frozenset({"first-1"}))
SHOWN = seen(ObservedLane(1, ROW), visible=FILES)
FINISHED = seen(ObservedLane(1), DONE, FILES)
GIVING_UP = seen(ObservedLane(2, replace(ROW, is_abandoning=True)), visible=FILES)


def moved(vnodes: Vnodes, name: str, to: str, moved_by: int | None) -> Vnodes:
    return vnodes | {name: replace(vnodes[name], lane=to, moved_by=moved_by)}


def test_a_row_goes_from_its_seal_to_its_end() -> None:
    retaken = seen(ObservedLane(2, ROW), visible=frozenset({"first-1"}))
    shown = seen(ObservedLane(2, ROW), visible=FILES)
    finished = seen(ObservedLane(2), DONE, FILES)
    trace = [
        UNTAKEN,
        TAKEN,
        TAKEN,
        SEALED,
        HALF,
        retaken,
        shown,
        finished,
        seen(ObservedLane(2), DONE, FILES, a=5, c=6),
    ]
    second = ObservedLane(2, NEXT)
    trace.append(seen(second, DONE, FILES, a=5, c=7))
    assert check_trace(trace) == [
        Transition.TAKE,
        Transition.NOTHING,
        Transition.SEAL,
        Transition.SHOW,
        Transition.TAKE,
        Transition.SHOW,
        Transition.FINISH,
        Transition.TRUNCATE,
        Transition.SEAL,
    ]


def test_an_empty_cut_is_finished_without_files() -> None:
    after = seen(ObservedLane(1), LEFT | {"b": ObservedVnode("left", 9)})
    assert check_trace([TAKEN, seen(ObservedLane(1, EMPTY)), after]) == [Transition.SEAL, Transition.FINISH]


@pytest.mark.parametrize("moved_by", [1, None])
def test_a_vnode_is_met_and_moves(moved_by: int | None) -> None:
    met = LEFT | {"d": ObservedVnode("left", 2)}
    there = seen(ObservedLane(1, EMPTY), moved(met, "d", "right", moved_by))
    trace = [TAKEN, seen(ObservedLane(1), met), seen(ObservedLane(1, EMPTY), met), there]
    assert check_trace(trace) == [Transition.MEET, Transition.SEAL, Transition.MOVE]


def test_a_row_is_given_up_at_once_or_step_by_step() -> None:
    assert check_trace([SHOWN, seen(ObservedLane(2))]) == [Transition.ABANDON]
    hidden = replace(GIVING_UP, visible=frozenset())
    retaken = seen(ObservedLane(2, ROW), visible=FILES)
    assert check_trace([SHOWN, retaken, GIVING_UP, hidden, seen(ObservedLane(2))]) == [
        Transition.TAKE,
        Transition.BEGIN_ABANDON,
        Transition.HIDE,
        Transition.ABANDON,
    ]


def test_new_lanes_begin_at_the_highest_fence() -> None:
    more = replace(SHOWN, lanes={**SHOWN.lanes, "third": ObservedLane(4), "fourth": ObservedLane(4)})
    assert check_trace([SHOWN, more]) == [Transition.SPREAD]
    for wrong in (ObservedLane(3), ObservedLane(5), ObservedLane(4, replace(NEXT, fence=4))):
        with pytest.raises(AssertionError):
            check_step(SHOWN, replace(more, lanes={**SHOWN.lanes, "third": wrong}))


def test_one_transaction_may_be_steps_of_several_lanes() -> None:
    row = ObservedRow("other", 4, {"c": (7, 9)}, frozenset())
    both = seen(ObservedLane(1, ROW), visible=FILES, right=ObservedLane(4, row))
    ended = seen(ObservedLane(1), DONE | {"c": ObservedVnode("right", 9)}, FILES)
    steps = split_by_lane(both, ended)
    assert steps[-1] == ended
    assert check_trace([both, *steps]) == [Transition.FINISH, Transition.FINISH]
    for wrong in (
        replace(ended, vnodes=ended.vnodes | {"c": LEFT["c"]}),
        replace(ended, visible=FILES | {"other"}),
        replace(ended, lanes={**ended.lanes, "right": ObservedLane(5)}),
    ):
        with pytest.raises(AssertionError):
            check_trace([both, *split_by_lane(both, wrong)])


def test_one_step_is_not_split() -> None:
    assert split_by_lane(SHOWN, FINISHED) == [FINISHED]
    assert split_by_lane(SHOWN, SHOWN) == [SHOWN]


BAD = [
    ("fence is the next one", [TAKEN, seen(ObservedLane(3))]),
    ("fence is the next one", [TAKEN, UNTAKEN]),
    ("one transaction changes one lane", [UNTAKEN, seen(ObservedLane(1), right=ObservedLane(5))]),
    ("vnodes change by a finish or a move only", [UNTAKEN, seen(ObservedLane(1), DONE)]),
    ("sealed under its own fence", [seen(ObservedLane(2)), seen(ObservedLane(2, ROW))]),
    ("sealed under its own fence", [UNTAKEN, SEALED]),
    ("not yet given up", [TAKEN, seen(ObservedLane(1, replace(ROW, is_abandoning=True)))]),
    ("starts elsewhere", [seen(ObservedLane(1), DONE), seen(ObservedLane(1, ROW), DONE)]),
    ("starts elsewhere", [TAKEN, seen(ObservedLane(1, replace(ROW, ranges={"a": (0, 0)})))]),
    ("of another one", [TAKEN, seen(ObservedLane(1, replace(ROW, ranges={"c": (7, 8)})))]),
    ("of another one", [TAKEN, seen(ObservedLane(1, replace(ROW, ranges={"unknown": (0, 8)})))]),
    ("a row has ranges", [TAKEN, seen(ObservedLane(1, replace(ROW, ranges={})))]),
    ("a row has ranges", [seen(ObservedLane(1, NEXT), DONE)]),
    ("files become visible on their own", [TAKEN, SHOWN]),
    ("stays as it was sealed", [SEALED, seen(ObservedLane(1, replace(ROW, ranges={"a": (0, 5)})))]),
    ("stays as it was sealed", [SEALED, seen(ObservedLane(2, EMPTY))]),
    ("stays as it was sealed", [GIVING_UP, seen(ObservedLane(2, ROW), visible=FILES)]),
    ("while its row is open", [TAKEN, seen(ObservedLane(1), visible=FILES)]),
    ("while its row is open", [SEALED, replace(SEALED, visible=frozenset({"first-1", "other"}))]),
    ("files of a row that is given up may go", [SHOWN, HALF]),
    ("files of a row that is given up may go", [HALF, replace(SHOWN, visible=frozenset({"first-2"}))]),
    ("files of a row that is given up may go", [SHOWN, seen(ObservedLane(1), DONE)]),
    ("files of a row that is given up may go", [FINISHED, seen(ObservedLane(2), DONE)]),
    ("all files of a row are visible", [HALF, seen(ObservedLane(1), DONE, frozenset({"first-1"}))]),
    ("exactly its vnodes move to its ends", [SHOWN, seen(ObservedLane(1), visible=FILES)]),
    ("exactly its vnodes move to its ends", [SHOWN, seen(ObservedLane(1), DONE | {"b": LEFT["b"]}, FILES)]),
    ("exactly its vnodes move to its ends", [SHOWN, seen(ObservedLane(1), moved(DONE, "c", "left", None), FILES)]),
    ("vnodes change by a finish or a move only", [SHOWN, seen(ObservedLane(2), DONE, FILES - FILES)]),
    ("moves by a finish only", [TAKEN, seen(ObservedLane(1), DONE)]),
    ("moves by a finish only", [seen(ObservedLane(1), DONE), seen(ObservedLane(1))]),
    ("moves to another lane", [TAKEN, seen(ObservedLane(1), moved(LEFT, "a", "left", 1))]),
    ("by the holder of the lane that it leaves", [TAKEN, seen(ObservedLane(1), moved(LEFT, "a", "right", 4))]),
    ("no vnode moves that an open row covers", [SEALED, seen(ObservedLane(1, ROW), moved(LEFT, "a", "right", 1))]),
    ("a move takes vnodes of one lane", [TAKEN, seen(ObservedLane(1), moved(moved(LEFT, "a", "x", 1), "c", "x", 4))]),
    ("no vnode is ever forgotten", [TAKEN, seen(ObservedLane(1), {"a": LEFT["a"], "c": LEFT["c"]})]),
    ("a vnode is met in", [TAKEN, seen(ObservedLane(2), LEFT | {"d": ObservedVnode("left", 0)})]),
    ("a vnode is met in", [HALF, seen(ObservedLane(1, ROW), LEFT | {"d": ObservedVnode("left", 0)}, FILES)]),
    ("given up under the next fence", [SHOWN, seen(ObservedLane(3))]),
    ("given up under the next fence", [GIVING_UP, seen(ObservedLane(3))]),
    ("given up under a fence after the seal's", [SHOWN, seen(GIVING_UP.lanes["left"], visible=FILES)]),
    ("given up under a fence after the seal's", [SEALED, seen(ObservedLane(1, replace(ROW, is_abandoning=True)))]),
    ("leaves no file", [SHOWN, seen(ObservedLane(2), visible=FILES)]),
    ("leaves no file", [GIVING_UP, seen(ObservedLane(2), visible=frozenset({"first-2"}))]),
    ("takes its own files along", [replace(SHOWN, visible=FILES | {"other"}), seen(ObservedLane(2))]),
    ("before it is committed", [SEALED, replace(SEALED, truncated={"a": 5})]),
    ("before it is committed", [seen(ObservedLane(1), unknown=1)]),
    ("was truncated to 2, now 1", [seen(c=2), seen(c=1)]),
    ("was truncated to 2, now None", [seen(c=2), seen()]),
    ("names of rows and files are new", [SHOWN, seen(ObservedLane(2)), seen(ObservedLane(2, replace(ROW, fence=2)))]),
    (
        "names of rows and files are new",
        [FINISHED, seen(ObservedLane(1, ObservedRow("new", 1, {"a": (5, 6)}, FILES)), DONE, FILES)],
    ),
]


@pytest.mark.parametrize(("rule", "trace"), BAD, ids=range(len(BAD)))
def test_what_breaks_a_rule_is_no_trace(rule: str, trace: list[LaneObservation]) -> None:
    with pytest.raises(AssertionError, match=f"observation {len(trace) - 1}: .*{re.escape(rule)}"):
        check_trace(trace)


@pytest.mark.parametrize("after", [SHOWN, FINISHED, GIVING_UP], ids=["shown", "finished", "giving up"])
def test_two_transitions_at_once_are_none(after: LaneObservation) -> None:
    """A trace with a gap is refused."""
    with pytest.raises(AssertionError):
        check_step(TAKEN, after)


# --- the model's own transitions


@dataclass(frozen=True)
class Checked(Lanes):
    """Each transition of the model goes through the checker. ``found``: which there were."""

    found: set[Transition] = field(default_factory=set)
    done: set[tuple[LaneWorld, LaneWorld]] = field(default_factory=set)

    def list_moves(self, world: LaneWorld, writer: Writer) -> Iterator[Move]:
        for after, moved_on in super().list_moves(world, writer):
            self.note(world, after)
            yield after, moved_on

    def list_changes(self, world: LaneWorld) -> Iterator[LaneWorld]:
        for after in super().list_changes(world):
            self.note(world, after)
            yield after

    def note(self, world: LaneWorld, after: LaneWorld) -> None:
        if (world, after) not in self.done:
            self.done.add((world, after))
            self.found.add(check_step(self.observe(world), self.observe(after)))

    def observe(self, world: LaneWorld) -> LaneObservation:
        lanes = {
            str(number): ObservedLane(lane.fence, None if lane.open is None else self.observe_row(lane.open))
            for number, lane in enumerate(world.lanes)
        }
        vnodes = {
            str(number): ObservedVnode("+".join(map(str, sorted(of))), committed)
            for number, (of, committed) in enumerate(zip(world.lanes_of, world.committed, strict=True))
        }
        visible = frozenset(str(name) for name, _ in world.visible)
        return LaneObservation(lanes, vnodes, visible, {str(each): at for each, at in enumerate(world.truncated)})

    def observe_row(self, row: Row) -> ObservedRow:
        ranges = {str(each.vnode): (each.start, each.end) for each in row.ranges}
        files = frozenset({str(self.name_of(row))}) if self.has_data(row) else frozenset()
        return ObservedRow(str(row), row.fence, ranges, files)


def checked(variant: type[Lanes]) -> Callable[..., Lanes]:
    return type(f"Checked{variant.__name__}", (Checked, variant), {})


def test_every_transition_of_the_model_passes() -> None:
    model = Checked(epochs=1, abandonments=1)
    found = search(model)
    assert found.fault is None, found
    of_code = {Transition.TRUNCATE, Transition.MEET, Transition.SPREAD, Transition.BEGIN_ABANDON, Transition.HIDE}
    assert model.found == set(Transition) - of_code


@pytest.mark.thorough
def test_every_transition_of_a_longer_model_passes() -> None:
    assert search(Checked(abandonments=1)).fault is None


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        (Checked(without=frozenset({Guard.SEAL_FENCE})), "sealed under its own fence"),
        (Checked(without=frozenset({Guard.FINISH_FENCE, Guard.FINISH_OPEN})), "all files of a row are visible"),
        (checked(variants.ReadsBeforeItResolves)(without=frozenset({Guard.SEAL_OPEN})), "stays as it was sealed"),
        (checked(variants.MovesAreCopies)(), "of another one"),
        (checked(variants.RewindsWhatIsNotVisible)(), "all files of a row are visible"),
        (checked(variants.NoRow)(), "while its row is open"),
        (checked(variants.RowBeforeData)(), "all files of a row are visible"),
        (checked(variants.OneStartForAll)(without=frozenset({Guard.SEAL_STARTS})), "starts elsewhere"),
        (checked(variants.SealsAgain)(without=frozenset({Guard.SEAL_OPEN})), "stays as it was sealed"),
        (checked(variants.AttemptsRecur)(fences=3, epochs=1, abandonments=1), "while its row is open"),
        (checked(variants.TruncatesAtTheSeal)(), "before it is committed"),
        (checked(variants.GivesUpWithoutCapture)(abandonments=1), "while its row is open"),
        (checked(variants.EmptyCutsAreNoRows)(), "before it is committed"),
        (checked(variants.ReplacesByName)(), "all files of a row are visible"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Lanes) else "",
)
def test_a_broken_rule_of_the_protocol_shows_in_a_trace(model: Lanes, rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        search(model)
