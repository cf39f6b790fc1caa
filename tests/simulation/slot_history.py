"""Random histories of workers over one slot: as those of any sink, while the database is written to.

Besides, walsenders are ended, and the database goes away; in some of them a stranger reads the slot, or another server
takes over, after which what is published stays exact, and the tables say what mends them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gobblin_assets.sources.postgres_log.log_starts import PLACE_MIN
from tests.models.lane_traces import Transition
from tests.simulation.sink_history import SinkHistory
from tests.simulation.slot_client import simulated_postgres
from tests.simulation.slot_world import SlotWorld

WILD_SLOT_TURNS: Final = 120
_CALLS_MAX: Final = 60
_AFTER: Final = 25
_TURNS_AFTER: Final = 120
_MENDS: Final = "sink recopy"


class Loss(StrEnum):
    """After which a log can't be followed any more."""

    STRANGER = "a stranger reads the slot"
    FAILOVER = "a standby takes over, with the slot"
    OTHER_SERVER = "another server, with a slot of this name"
    SLOT_GONE = "the slot is gone"
    LOG_GONE = "the log of the slot is removed"
    TABLE_GONE = "a table is dropped and created again"
    TABLE_LEFT = "a table leaves the publication, and comes back"

    @property
    def is_of_one(self) -> bool:
        return self in (Loss.TABLE_GONE, Loss.TABLE_LEFT)


@dataclass
class SlotHistory(SinkHistory):
    wild_turns: int = WILD_SLOT_TURNS
    calls_max: int = _CALLS_MAX

    def _go_wrong(self, turn: int) -> None:
        super()._go_wrong(turn)
        if self.world.chance.random() < 0.03:
            slot_world_of(self).postgres.end_readers()
            self.done.append("walsender ended")

    def _take_turn(self, turn: int) -> None:
        if turn == self.wild_turns:
            slot_world_of(self).postgres.settle()
        super()._take_turn(turn)


def slot_world_of(history: SinkHistory) -> SlotWorld:
    assert isinstance(history.world, SlotWorld)
    return history.world


def run_slot_history(seed: int) -> list[Transition]:
    """AssertionError for what is published and not exact, at any time, and for an end that is not reached."""
    world = SlotWorld(seed)
    with simulated_postgres():
        try:
            return SlotHistory(world).run()
        finally:
            world.stop()


def run_lost_history(seed: int, loss: Loss) -> SlotWorld:
    """A history in which the log is lost while all tables are followed, and work goes on for a while."""
    world = SlotWorld(seed)
    expected = 1 if loss.is_of_one else len(world.postgres.tables)
    with simulated_postgres():
        try:
            worker = world.start_worker()
            while not (len(world.marks()) == len(world.postgres.tables) and min(world.marks().values()) >= PLACE_MIN):
                worker.go_on(_AFTER)
                world.db.advance(0.5)
            worker.go_on(world.chance.randint(1, 4 * _AFTER))
            if world.chance.random() < 0.5:
                worker.kill()
                world.expire()
                worker = world.start_worker()
            world.postgres.lose(loss)
            for _turn in range(_TURNS_AFTER):
                worker.go_on(_AFTER)
                world.db.advance(0.5)
                if sum(_MENDS in line for line in worker.lines) >= expected:
                    break
            else:
                raise AssertionError(f"{loss}: nobody said what mends it: {worker.lines[-4:]}")
            world.require_exact()
        finally:
            world.stop()
    return world
