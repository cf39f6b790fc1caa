"""A random history of a sink. Workers take turns, are killed, sleep past their leases; somebody scales, and gives up.

After a while nothing more goes wrong, and the history ends once all of the log is published.
"""

from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.model.sequence_state import SequenceState
from tests.models.lane_traces import Transition
from tests.simulation.library_errors import LIBRARY_ERRORS
from tests.simulation.process import Fault, Faults, Raised
from tests.simulation.sink_world import SinkWorld
from tests.simulation.stepping import Actor

WORKERS: Final = 2
LANES_MAX: Final = 4

FAULTS: Final = (Fault.ERROR, Fault.UNKNOWN, Fault.REPEATED)

_PLACES: Final = ("lanes.move", "lanes.move", "log.seal", "fs.rename_no_replace", "log.finish_all", "lanes.place")

_OF_THE_DISK: Final = ("fs.make_durable", "fs.make_durable", "fs.sync_directories", "log.seal", "log.finish_all")
_AIMED: Final = 0.7

_FAULTS_MAX: Final = 4
_FAULTY_CALLS: Final = 400
_BEGIN_CALLS: Final = 30
_HALF: Final = 0.5
_CALLS_MAX: Final = 12
_PATIENCE_CALLS: Final = 60
_ABANDON_CALLS_MAX: Final = 80
_TURN_S: Final = 0.5
WILD_TURNS: Final = 120
_TURNS_MAX: Final = 1500
_GIVE_UP_TURNS: Final = 50
"""Between two looks of a person for what somebody else gave up by half."""


def run_sink_history(seed: int) -> list[Transition]:
    """As ``SinkHistory.run``, in a world of its own."""
    world = SinkWorld(seed)
    try:
        return SinkHistory(world).run()
    finally:
        world.stop()


@dataclass
class SinkHistory:
    """``run`` it once. ``wild_turns``: those in which things go wrong. ``done``: what went wrong, for people.

    ``calls_max``: of a worker in one turn. ``places``: calls before which a worker falls asleep with a purpose.
    """

    world: SinkWorld
    wild_turns: int = WILD_TURNS
    calls_max: int = _CALLS_MAX
    places: tuple[str, ...] = _PLACES
    done: list[str] = field(default_factory=list)
    _workers: list[Actor] = field(default_factory=list)
    _asleep: dict[int, int] = field(default_factory=dict)

    def run(self) -> list[Transition]:
        """The transitions that were seen. AssertionError for a step that is none, or an end that is wrong."""
        try:
            return self._run()
        except AssertionError as error:
            error.add_note(f"seed {self.world.seed}: {self.done}")
            raise

    def _run(self) -> list[Transition]:
        for turn in range(_TURNS_MAX):
            self._awake(turn)
            if turn < self.wild_turns:
                self._go_wrong(turn)
            elif turn == self.wild_turns:
                self._asleep.clear()
                self.world.is_over = self.world.is_published
            elif turn % _GIVE_UP_TURNS == 0 and (half := self.world.find_given_up_by_half()) is not None:
                self.world.start_abandonment(half)
            elif self.world.is_published() and all(actor.is_over for actor in self.world.actors):
                return self._end()
            self._take_turn(turn)
        raise AssertionError(f"not all of the log was published: {[each.lines[-3:] for each in self._workers]}")

    def _end(self) -> list[Transition]:
        self.world.check_promises()
        return self.world.check()

    def _take_turn(self, turn: int) -> None:
        world = self.world
        self._workers = [each for each in self._workers if not each.is_over]
        if len(self._workers) < WORKERS and not (turn > self.wild_turns and world.is_published()):
            self._workers.append(world.start_worker(self._plan_faults(turn)))
        ready = [each for place, each in enumerate(world.actors) if not each.is_over and place not in self._asleep]
        if ready:
            world.chance.choice(ready).go_on(world.chance.randint(1, self.calls_max))
        world.db.advance(_TURN_S)

    def _plan_faults(self, turn: int) -> Faults:
        """Calls that fail, whose answers are lost, or that raise what is of no family."""
        chance = self.world.chance
        count = chance.randint(0, _FAULTS_MAX) if turn < self.wild_turns else 0
        faults: dict[int, Fault | Raised] = {
            chance.randrange(_FAULTY_CALLS): chance.choice(FAULTS) for _fault in range(count)
        }
        if count:
            # Behind the calls of a worker that begins, which may end it.
            number = chance.randrange(_BEGIN_CALLS, _FAULTY_CALLS)
            faults[number] = Raised(chance.choice(LIBRARY_ERRORS)(), has_effect=chance.random() < _HALF)
        return faults

    def _awake(self, turn: int) -> None:
        self._asleep = {place: until for place, until in self._asleep.items() if until > turn}

    def _go_wrong(self, turn: int) -> None:
        chance = self.world.chance
        wrong = (
            (0.03, self._kill),
            (0.01, self._cut_power),
            (0.05, lambda: self._sleep(turn)),
            (0.08, lambda: self._sleep_at_a_place(turn)),
            (0.02, self._drain),
            (0.05, lambda: self.world.spread(chance.randint(1, LANES_MAX))),
            (0.2, lambda: self._abandon(turn)),
        )
        for likelihood, act in wrong:
            if chance.random() < likelihood:
                act()

    def _kill(self) -> None:
        if self._workers:
            self.world.chance.choice(self._workers).kill()
            self.done.append("kill")

    def _cut_power(self) -> None:
        """Mostly where something waits for the disk."""
        if self._workers and self.world.chance.random() < _AIMED:
            self._come_to(self.world.chance.choice(self._workers), self.world.chance.choice(_OF_THE_DISK))
        self.world.cut_power()
        self.world.expire()
        self.done.append("power cut")

    def _sleep(self, turn: int) -> None:
        """One of them misses its heartbeats, and the others don't."""
        places = [place for place, each in enumerate(self.world.actors) if not each.is_over]
        if places:
            self._fall_asleep(self.world.chance.choice(places), turn)

    def _sleep_at_a_place(self, turn: int) -> None:
        """The same, before a call that matters, if the worker comes to it soon."""
        chance = self.world.chance
        awake = [each for each in self._workers if self.world.actors.index(each) not in self._asleep]
        if not awake:
            return
        worker = chance.choice(awake)
        if self._come_to(worker, chance.choice(self.places)):
            self._fall_asleep(self.world.actors.index(worker), turn)

    @staticmethod
    def _come_to(worker: Actor, place: str) -> bool:
        """Let it go on until it waits at such a call, if it comes there soon."""
        for _call in range(_PATIENCE_CALLS):
            if worker.is_over or worker.process.next_call == place:
                return not worker.is_over
            worker.go_on(1)
        return False

    def _fall_asleep(self, place: int, turn: int) -> None:
        self._asleep[place] = turn + self.world.chance.randint(5, 40)
        self._expire()
        self.done.append(f"sleep before {self.world.actors[place].process.next_call}")

    def _expire(self) -> None:
        self.world.expire()
        for place, each in enumerate(self.world.actors):
            if not each.is_over and place not in self._asleep:
                each.beat()

    def _drain(self) -> None:
        self.world.drain()
        self.done.append("drain")

    def _abandon(self, turn: int) -> None:
        """A row whose holder is dead, or sleeps."""
        sealed = [row for row in self.world.list_open() if row.state is SequenceState.PREPARED]
        if sealed:
            row = self.world.chance.choice(sealed)
            self._asleep[self.world.find_holder(row.lane_id)] = turn + self.world.chance.randint(1, 40)
            self._expire()
            self.world.start_abandonment(row.sequence_id).go_on(self.world.chance.randint(1, _ABANDON_CALLS_MAX))
            self.done.append("abandon")
