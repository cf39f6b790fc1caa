"""Says whether what was seen of lanes, at one moment after another, are moves of the model.

An observation is what the log, the destination and the source show at one moment: it is taken between any two calls
that change one of them. ``check_trace`` then finds each change to be one transition of ``lane_writers``, or raises.
What only processes know (staged data, crashes, lost answers) is not seen, and changes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class ObservedRow:
    """An open row. ``fence``: the one that sealed the row. ``ranges``: by vnode, the start and the end.

    ``files``: ids of the files that the row makes visible; none if the cut is empty. ``is_abandoning``: somebody began
    to give the row up.
    """

    id: str
    fence: int
    ranges: Mapping[str, tuple[int, int]]
    files: frozenset[str]
    is_abandoning: bool = False


@dataclass(frozen=True, slots=True)
class ObservedLane:
    fence: int = 0
    open: ObservedRow | None = None


@dataclass(frozen=True, slots=True)
class ObservedVnode:
    """``moved_by``: the fence, of the lane that it left, under which the vnode was moved last; None: not known."""

    lane: str
    committed: int
    moved_by: int | None = None


@dataclass(frozen=True, slots=True)
class LaneObservation:
    """``truncated``: by vnode, where the log now begins; vnodes of which this is not known are left out."""

    lanes: Mapping[str, ObservedLane]
    vnodes: Mapping[str, ObservedVnode]
    visible: frozenset[str] = frozenset()
    truncated: Mapping[str, int] = field(default_factory=dict)


class Transition(StrEnum):
    NOTHING = "nothing"
    TRUNCATE = "truncate"
    MEET = "meet a vnode"
    SPREAD = "make lanes"
    TAKE = "take a lane"
    SEAL = "seal"
    SHOW = "become visible"
    FINISH = "finish"
    MOVE = "move vnodes"
    BEGIN_ABANDON = "begin to abandon"
    HIDE = "hide files of a row that is given up"
    ABANDON = "abandon"


class _Change:
    """Two observations, one after the other, and what differs: names of lanes, of vnodes, and ids of files."""

    def __init__(self, before: LaneObservation, after: LaneObservation) -> None:
        self.before, self.after = before, after
        names = before.lanes.keys() | after.lanes.keys()
        self.lanes = sorted(name for name in names if _lane(before, name) != _lane(after, name))
        self.vnodes = sorted(name for name, vnode in before.vnodes.items() if after.vnodes.get(name) != vnode)
        self.met = sorted(after.vnodes.keys() - before.vnodes.keys())
        self.shown, self.hidden = after.visible - before.visible, before.visible - after.visible

    def __str__(self) -> str:
        parts = (
            *(f"lane {each}: {_lane(self.before, each)} -> {_lane(self.after, each)}" for each in self.lanes),
            *(f"vnode {each}: {self.before.vnodes[each]} -> {self.after.vnodes.get(each)}" for each in self.vnodes),
            *(f"vnode {each} is new" for each in self.met),
            *(f"file {each} became visible" for each in sorted(self.shown)),
            *(f"file {each} is gone" for each in sorted(self.hidden)),
        )
        return "; ".join(parts)

    def require(self, is_right: bool, rule: str) -> None:
        if not is_right:
            raise AssertionError(f"{rule}: {self}")

    def require_nothing_else(self, *, vnodes: bool = False, shown: bool = False, hidden: bool = False) -> None:
        """True: what may differ beside the lane."""
        self.require(not self.met, "a vnode is met in a transaction of its own")
        self.require(vnodes or not self.vnodes, "vnodes change by a finish or a move only")
        self.require(shown or not self.shown, "files become visible on their own")
        self.require(hidden or not self.hidden, "only files of a row that is given up may go")


def check_trace(trace: Iterable[LaneObservation]) -> list[Transition]:
    """The transition between each two observations.

    Raises:
        AssertionError: an observation, or a step to it from the one before, is not in the model; the message has its
            number, the rule, and what differs.

    """
    found: list[Transition] = []
    before: LaneObservation | None = None
    used: set[str] = set()
    for number, after in enumerate(trace):
        try:
            if before is None:
                check_observation(after)
            else:
                found.append(check_step(before, after))
            used = _check_names(before, after, used)
        except AssertionError as wrong:
            raise AssertionError(f"observation {number}: {wrong}") from None
        before = after
    return found


def check_step(before: LaneObservation, after: LaneObservation) -> Transition:
    """The one transition that leads from an observation to the next."""
    change = _Change(before, after)
    for name, position in before.truncated.items():
        kept = after.truncated.get(name)
        change.require(kept is not None and kept >= position, f"vnode {name} was truncated to {position}, now {kept}")
    if _is_spread(change):
        change.require_nothing_else()
        check_observation(after)
        return Transition.SPREAD
    change.require(len(change.lanes) <= 1, "one transaction changes one lane")
    transition = _check_lane(change, change.lanes[0]) if change.lanes else _check_beside_lanes(change)
    check_observation(after)
    return transition


def split_by_lane(before: LaneObservation, after: LaneObservation) -> list[LaneObservation]:
    """The steps to an observation, if one transaction may act on several lanes, as calls of a worker's store do.

    What it did to one lane, and to the vnodes of that lane's row, is one step. Lanes share nothing, so that the order
    of the steps does not matter. What is left is the last step.
    """
    change = _Change(before, after)
    if len(change.lanes) <= 1 or _is_spread(change):
        return [after]
    steps = [before]
    for name in change.lanes:
        row = _lane(before, name).open
        ended = {vnode: after.vnodes[vnode] for vnode in (row.ranges if row else ()) if vnode in after.vnodes}
        last = steps[-1]
        steps.append(replace(last, lanes={**last.lanes, name: _lane(after, name)}, vnodes={**last.vnodes, **ended}))
    return steps[1:] if steps[-1] == after else [*steps[1:], after]


def check_observation(seen: LaneObservation) -> None:
    """What holds at every moment."""
    for name, position in seen.truncated.items():
        if name not in seen.vnodes or position > seen.vnodes[name].committed:
            raise AssertionError(f"vnode {name} is truncated to {position}, before it is committed: {seen}")
    covered: set[str] = set()
    for name, lane in seen.lanes.items():
        if lane.open is None:
            continue
        if not lane.open.ranges or lane.open.fence > lane.fence:
            raise AssertionError(f"a row has ranges, and a fence that its lane had: {lane}")
        for vnode, (start, end) in lane.open.ranges.items():
            if vnode in covered or vnode not in seen.vnodes or seen.vnodes[vnode].lane != name:
                raise AssertionError(f"the row of lane {name} covers vnode {vnode} of another one: {seen}")
            if not start < end or seen.vnodes[vnode].committed != start:
                raise AssertionError(f"the row of lane {name} starts elsewhere than vnode {vnode} is: {seen}")
            covered.add(vnode)


def _lane(seen: LaneObservation, name: str) -> ObservedLane:
    """A lane that nobody ever took has no row in the log."""
    return seen.lanes.get(name, ObservedLane())


def _is_spread(change: _Change) -> bool:
    """Lanes that there were not begin at the highest fence of the others, with nothing open."""
    fence = max((lane.fence for lane in change.before.lanes.values()), default=0)
    are_new = all(name not in change.before.lanes for name in change.lanes)
    found = [_lane(change.after, name) for name in change.lanes]
    return bool(found) and are_new and fence > 0 and found == [ObservedLane(fence)] * len(found)


def _rows(seen: LaneObservation) -> list[ObservedRow]:
    return [lane.open for lane in seen.lanes.values() if lane.open is not None]


def _check_names(before: LaneObservation | None, after: LaneObservation, used: set[str]) -> set[str]:
    """Every name that was used up to now. A new row and its files have names that nothing ever had."""
    known = {row.id for row in _rows(before)} if before is not None else set()
    new = {name for row in _rows(after) if row.id not in known for name in (row.id, *row.files)}
    if before is not None and new & used:
        raise AssertionError(f"names of rows and files are new: {sorted(new & used)} were used before")
    return used | new | after.visible


def _check_lane(change: _Change, name: str) -> Transition:
    before, after = _lane(change.before, name), _lane(change.after, name)
    if before.open == after.open:
        change.require(after.fence == before.fence + 1, "a taken lane's fence is the next one")
        change.require_nothing_else()
        return Transition.TAKE
    if before.open is None:
        return _check_seal(change, before, after)
    if after.open is not None:
        return _check_begin_abandon(change, before, after)
    if before.open.is_abandoning or before.fence != after.fence:
        return _check_abandon(change, before, before.open, after)
    return _check_finish(change, before.open)


def _check_seal(change: _Change, before: ObservedLane, after: ObservedLane) -> Transition:
    """``check_observation`` looks at the starts, and at whose the vnodes are."""
    row = after.open
    change.require(row is not None and row.fence == before.fence == after.fence, "a row is sealed under its own fence")
    change.require(row is not None and not row.is_abandoning, "a new row is not yet given up")
    change.require_nothing_else()
    return Transition.SEAL


def _check_begin_abandon(change: _Change, before: ObservedLane, after: ObservedLane) -> Transition:
    row = before.open
    is_begun = row is not None and not row.is_abandoning and replace(row, is_abandoning=True) == after.open
    change.require(is_begun, "an open row stays as it was sealed, until it ends")
    change.require(
        row is not None and before.fence == after.fence > row.fence, "a row is given up under a fence after the seal's"
    )
    change.require_nothing_else()
    return Transition.BEGIN_ABANDON


def _check_abandon(change: _Change, before: ObservedLane, row: ObservedRow, after: ObservedLane) -> Transition:
    """In one transaction, under a new fence, or in several: takes the lane, begins, hides the files, ends."""
    fence = before.fence if row.is_abandoning else before.fence + 1
    change.require(after.fence == fence, "a row is given up under the next fence")
    change.require(not row.files & change.after.visible, "a row that was given up leaves no file")
    change.require(change.hidden <= row.files, "a row that is given up takes its own files along")
    change.require_nothing_else(hidden=True)
    return Transition.ABANDON


def _check_finish(change: _Change, row: ObservedRow) -> Transition:
    change.require(row.files <= change.before.visible, "all files of a row are visible before it is finished")
    change.require_nothing_else(vnodes=True)
    vnodes = dict(change.before.vnodes)
    for name, (_, end) in row.ranges.items():
        vnodes[name] = replace(vnodes[name], committed=end)
    change.require(vnodes == change.after.vnodes, "a row goes when exactly its vnodes move to its ends")
    return Transition.FINISH


def _check_beside_lanes(change: _Change) -> Transition:
    if change.vnodes:
        return _check_move(change)
    if change.met:
        change.require(not change.shown and not change.hidden, "a vnode is met in a transaction of its own")
        return Transition.MEET
    if change.shown:
        files = [row.files for row in _rows(change.before)]
        change.require(any(change.shown <= each for each in files), "a file becomes visible while its row is open")
        change.require(not change.hidden, "only files of a row that is given up may go")
        return Transition.SHOW
    if change.hidden:
        files = [row.files for row in _rows(change.before) if row.is_abandoning]
        change.require(any(change.hidden <= each for each in files), "only files of a row that is given up may go")
        return Transition.HIDE
    return Transition.NOTHING if change.before.truncated == change.after.truncated else Transition.TRUNCATE


def _check_move(change: _Change) -> Transition:
    """Vnodes of one lane go to others, in one transaction of the lane's holder."""
    change.require_nothing_else(vnodes=True)
    left = {change.before.vnodes[name].lane for name in change.vnodes}
    change.require(len(left) == 1, "a move takes vnodes of one lane")
    fence = _lane(change.before, left.pop()).fence
    covered = {vnode for row in _rows(change.before) for vnode in row.ranges}
    change.require(covered.isdisjoint(change.vnodes), "no vnode moves that an open row covers")
    for name in change.vnodes:
        before, after = change.before.vnodes[name], change.after.vnodes.get(name)
        change.require(after is not None, "no vnode is ever forgotten")
        if after is not None:
            change.require(after.committed == before.committed, "what is committed moves by a finish only")
            change.require(after.lane != before.lane, "a vnode moves to another lane")
            change.require(after.moved_by in {None, fence}, "a vnode is moved by the holder of the lane that it leaves")
    return Transition.MOVE


def check_split(trace: Sequence[LaneObservation]) -> list[Transition]:
    """As ``check_trace``, of observations between which several lanes may have changed."""
    steps = list(trace[:1])
    for seen in trace[1:]:
        steps += split_by_lane(steps[-1], seen)
    return check_trace(steps)
