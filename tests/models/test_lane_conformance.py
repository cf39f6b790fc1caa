"""Each transition of a sink's code is one of the model's: what is seen after each call of a store or a file system.

The code is the product's, over stores and a disk in memory that pass the contract suites of the real ones. Broken code
is refused by the checker's rule: else a checker that looks at nothing would pass.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from gobblin_assets.commit import abandonment
from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.files.rename_steps import RenameDirectory
from gobblin_assets.destinations.files.rooted import RootedDestination
from gobblin_assets.errors import FencedError
from gobblin_assets.jobs.sink import cut_publishing
from gobblin_assets.jobs.sink.cut_publishing import CutPublisher
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.state.leases import Lease
from tests.models.lane_traces import Transition
from tests.simulation.database import SimDatabase
from tests.simulation.guards import Guard
from tests.simulation.process import Fault
from tests.simulation.sink_history import FAULTS, SinkHistory
from tests.simulation.sink_world import NO_FAULTS, ROOT, NotedLaneStore, SinkWorld
from tests.simulation.stepping import Actor
from tests.simulation.world import stepped
from tests.support.shares import OFTEN_SHARES

SEEDS = range(12)
CALLS_MAX = 2000
CALLS_AT_ONCE = 10

Opened = Callable[..., SinkWorld]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    with stepped():
        yield


@pytest.fixture
def open_world() -> Iterator[Opened]:
    opened: list[SinkWorld] = []

    def open_one(seed: int = 0, without: frozenset[str] = frozenset()) -> SinkWorld:
        opened.append(SinkWorld(seed, SimDatabase(without=without)))
        return opened[-1]

    yield open_one
    for world in opened:
        world.stop()


def test_each_step_of_random_histories_is_one_of_the_model_s(open_world: Opened) -> None:
    found = {transition for seed in SEEDS for transition in SinkHistory(open_world(seed)).run()}
    assert found == set(Transition), "a kind of transition was never seen"


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(1000, 6000, 250))
def test_each_step_of_many_random_histories_is_one_of_the_model_s(open_world: Opened, first: int) -> None:
    for seed in range(first, first + 250):
        SinkHistory(open_world(seed)).run()


@pytest.mark.rotating(of=OFTEN_SHARES)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("label", ["leases.take_lanes", "log.look_at", "log.find_unfinished", "lanes.load"])
def test_lanes_whose_taking_fails_are_not_held_for_ever(open_world: Opened, label: str, fault: Fault) -> None:
    """The worker's heartbeats would keep them."""
    whole = open_world()
    work(whole)
    calls = whole.actors[0].process.calls
    world = open_world()

    number = calls.index(label, calls.index("leases.take_lanes"))
    work(world, {number: fault})

    assert world.actors[0].process.calls[number] == label
    assert world.published() == world.expected


# --- code that is broken, over a log that is not: up to its first open row


def until(actor: Actor, is_there: Callable[[], bool]) -> None:
    """Let the actor go on call by call."""
    for _call in range(CALLS_MAX):
        if is_there():
            return
        assert not actor.is_over, actor.lines[-3:]
        actor.go_on(1)
    raise AssertionError(f"it never came: {actor.process.calls[-5:]} {actor.lines[-3:]}")


def called(actor: Actor, label: str) -> Callable[[], bool]:
    return lambda: actor.process.calls[-1:] == [label]


def has_row_with_files(world: SinkWorld) -> Callable[[], bool]:
    return lambda: any(row.file_count for row in world.list_open())


def has_shown_all(world: SinkWorld) -> Callable[[], bool]:
    """Whether all files of an open row are visible."""
    return lambda: any(
        lane.open is not None and lane.open.files and lane.open.files <= world.trace[-1].visible
        for lane in (world.trace[-1].lanes.values() if world.trace else ())
    )


def work(world: SinkWorld, faults: Mapping[int, Fault] = NO_FAULTS) -> None:
    """Be a worker until all is published. Leases that no heartbeat renews run out meanwhile."""
    world.is_over = world.is_published
    actor = world.start_worker(faults)
    for _turn in range(CALLS_MAX // CALLS_AT_ONCE):
        actor.go_on(CALLS_AT_ONCE)
        world.db.advance(1.0)
    assert actor.is_over, actor.lines[-3:]


def test_rows_end_before_their_files_are_visible(open_world: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RenameDirectory, "verify", lambda *_given: StepVerdict.DONE)
    world = open_world()
    work(world)
    with pytest.raises(AssertionError, match="all files of a row are visible before it is finished"):
        world.check()


def test_files_are_visible_before_the_seal(open_world: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RootedDestination, "stage", lambda _self, attempt_id: f"{ROOT}/sink/records/{attempt_id}")
    world = open_world()
    actor = world.start_worker()
    until(actor, lambda: bool(world.trace and world.trace[-1].visible))
    with pytest.raises(AssertionError, match="a file becomes visible while its row is open"):
        world.check()


def test_the_log_is_truncated_before_the_end(open_world: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    world, publish = open_world(), CutPublisher.publish

    def truncate_first(self: CutPublisher, cuts: Any) -> Any:
        for vnode, span in (each for cut in cuts for each in cut.cut.spans.items()):
            world.log.drop(vnode, span.end)
        return publish(self, cuts)

    monkeypatch.setattr(CutPublisher, "publish", truncate_first)
    work(world)
    with pytest.raises(AssertionError, match="before it is committed"):
        world.check()


def test_a_row_that_is_given_up_leaves_files(open_world: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abandonment, "undo_steps", lambda *_given: None)
    world = open_world()
    worker = world.start_worker()
    until(worker, has_shown_all(world))
    row = next(row for row in world.list_open() if row.file_count)
    world.expire()
    person = world.start_abandonment(row.sequence_id)
    person.go_on(CALLS_MAX)
    assert person.is_over
    with pytest.raises(AssertionError, match="a row that was given up leaves no file"):
        world.check()


def test_a_row_starts_elsewhere_than_its_vnode_is(open_world: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = cut_publishing._move_of
    monkeypatch.setattr(cut_publishing, "_move_of", lambda *given: replace(plan(*given), old=long_watermark(-7)))
    world = open_world(without=frozenset({Guard.SEAL_COMPARES_WATERMARKS}))
    until(world.start_worker(), lambda: bool(world.list_open()))
    with pytest.raises(AssertionError, match="starts elsewhere than vnode"):
        world.check()


# --- code over a log that leaves a guard out, and over one that has them all


def seal_after_another_took_the_lane(world: SinkWorld) -> None:
    first = world.start_worker()
    until(first, called(first, "log.stage"))
    world.expire()
    second = world.start_worker()
    until(second, called(second, "leases.take_lanes"))
    first.go_on(1)


def seal_vnodes_that_moved(world: SinkWorld) -> None:
    worker = world.start_worker()
    until(worker, called(worker, "log.stage"))
    for number, lease in enumerate(leases_of(world)):
        vnodes = [key.name for key in world.db.keys.values() if key.lane_id == lease.lane_id]
        NotedLaneStore(world).move(lease, 1 - number, vnodes)
        world.look()
    worker.go_on(1)


def move_under_an_open_row(world: SinkWorld) -> None:
    until(world.start_worker(), has_row_with_files(world))
    for number, lease in enumerate(leases_of(world)):
        NotedLaneStore(world).move(lease, 1 - number, world.log.vnodes)
        world.look()


def move_after_another_took_the_lane(world: SinkWorld) -> None:
    worker = world.start_worker()
    until(worker, has_row_with_files(world))
    until(worker, lambda: not world.list_open())
    old = leases_of(world)
    world.expire()
    second = world.start_worker()
    until(second, called(second, "leases.take_lanes"))
    NotedLaneStore(world).move(old[0], 1, world.log.vnodes)
    world.look()


def give_up_under_the_seal_s_fence(world: SinkWorld) -> None:
    until(world.start_worker(), has_row_with_files(world))
    world.expire()
    world.start_abandonment(world.list_open()[0].sequence_id).go_on(CALLS_MAX)


def leases_of(world: SinkWorld) -> list[Lease]:
    """As if this process held the lanes, by their numbers."""
    dataset_id = world.dataset_id
    assert dataset_id is not None
    return [
        Lease(dataset_id, world.db.leases[lane_id].fence, None if lane_id == dataset_id else lane_id)
        for lane_id in world.db.lanes
    ]


GUARDED = [
    (seal_after_another_took_the_lane, "sealed under its own fence", {Guard.SEAL_CHECKS_FENCE}),
    (seal_vnodes_that_moved, "of another one", {Guard.SEAL_CHECKS_LANE}),
    (move_under_an_open_row, "no vnode moves that an open row covers", {Guard.MOVE_WAITS_FOR_OPEN}),
    (move_after_another_took_the_lane, "the holder of the lane that it leaves", {Guard.MOVE_CHECKS_FENCE}),
    (give_up_under_the_seal_s_fence, "under a fence after the seal's", {Guard.TAKE_RAISES_FENCE}),
]


@pytest.mark.rotating(of=OFTEN_SHARES)
@pytest.mark.parametrize(("act", "rule", "guards"), GUARDED, ids=[each[0].__name__ for each in GUARDED])
def test_a_log_without_a_guard_is_refused(
    open_world: Opened, act: Callable[[SinkWorld], None], rule: str, guards: set[Guard]
) -> None:
    broken, whole = open_world(without=frozenset(guards)), open_world()
    act(broken)
    with pytest.raises(AssertionError, match=rule):
        broken.check()

    with suppress(FencedError):
        act(whole)
    whole.check()
