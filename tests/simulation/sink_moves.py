"""A history of a sink in which whoever lost a lane wakes up, and moves a vnode away amid the next holder's cut.

It takes a rescaling that is taken back and begun again, which random histories hardly ever have at the right moment.
"""

from collections.abc import Callable
from typing import Final

from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import LaneId
from tests.models.lane_traces import Transition
from tests.simulation.sink_history import SinkHistory
from tests.simulation.sink_world import SinkWorld
from tests.simulation.stepping import Actor

EPOCHS: Final = 12

_LANES: Final = 3
_CALLS_MAX: Final = 1500
_STEPS: Final = 10
_PLACES: Final = ("log.seal", "log.finish_all")
"""Where the next holder is when the vnode goes: its row is not sealed yet, or it is open."""


def run_moves(seed: int) -> list[Transition]:
    """AssertionError as of ``SinkHistory.run``."""
    world = SinkWorld(seed, epoch_count=EPOCHS)
    try:
        return _run(world)
    finally:
        world.stop()


def _run(world: SinkWorld) -> list[Transition]:
    _move_late(world)
    return SinkHistory(world, wild_turns=0).run()


def _move_late(world: SinkWorld) -> None:
    sleeper = world.start_worker()
    if not _go_on_until(sleeper, lambda: world.dataset_id is not None and len(world.db.lanes) > 1):
        return
    world.spread(_LANES)
    if not _go_on_until(sleeper, lambda: _count_placed(world) == _LANES):
        return
    world.spread(_LANES - 1)
    if not _go_on_until(sleeper, lambda: sleeper.process.next_call == "lanes.move"):
        return
    world.expire()
    world.spread(_LANES)
    others = (world.start_worker(), world.start_worker())
    last = list(world.db.lanes)[-1]
    holder = _share(world, others, last)
    place = world.chance.choice(_PLACES)
    if holder is None or not _go_on_until(holder, lambda: _is_cutting(world, holder, last, place)):
        return
    # Else the other one gives the vnode back at once.
    world.spread(_LANES - 1)
    sleeper.go_on(1)
    sleeper.kill()
    (other,) = (each for each in others if each is not holder)
    for _turn in range(world.chance.randint(1, 40)):
        other.go_on(_STEPS)
        holder.beat()
    world.db.advance(1.0)


def _go_on_until(actor: Actor, is_there: Callable[[], bool]) -> bool:
    for _call in range(_CALLS_MAX):
        if is_there() or actor.is_over:
            return is_there()
        actor.go_on(1)
    return False


def _count_placed(world: SinkWorld) -> int:
    """How many lanes have vnodes that are published up to somewhere."""
    return len({key.lane_id for key in world.db.keys.values() if key.watermark is not None})


def _share(world: SinkWorld, others: tuple[Actor, Actor], last: LaneId) -> Actor | None:
    """Let both work until they share the lanes: who holds the last one."""
    for _turn in range(_CALLS_MAX // _STEPS):
        holders = {lane_id: row.run_id for lane_id, row in world.db.leases.items() if row.owner is not None}
        if len(holders) == _LANES and len(set(holders.values())) == len(others):
            return world.actors[world.find_holder(last)]
        for each in others:
            each.go_on(_STEPS)
        world.db.advance(0.2)
    return None


def _is_cutting(world: SinkWorld, holder: Actor, lane_id: LaneId, place: str) -> bool:
    """Whether the holder waits at the place with a cut of the lane that has rows."""
    staged = {each.sequence_id for each in world.db.segments.values()}
    working = (SequenceState.BUILDING, SequenceState.PREPARED)
    return holder.process.next_call == place and any(
        row.lane_id == lane_id and row.state in working and row.sequence_id in staged
        for row in world.db.sequences.values()
    )
