"""Copies to an object store in any order: few names, runs with faults, sleepers, strangers and abandonments.

A machine of hypothesis. After each deed each name has the old or the new version, or what a stranger put there, and
what a stranger put there is never lost.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gobblin_assets.model.sequence_state import SequenceState
from tests.simulation.copy_world import KEEP_S, SOURCE, URN
from tests.simulation.object_history import ObjectChecker, list_steps, list_visible
from tests.simulation.object_world import BUCKET_PLACE, ObjectWorld
from tests.simulation.process import Fault, Pause
from tests.simulation.sleeping import Sleeper
from tests.simulation.world import SILENT_S_MAX

OBJECT_DEEDS_MAX = 15
_CALLS_MAX = 110
_ZOMBIES_MAX = 2
_DAY_S = 90_000.0

NAMES = ("one", "two", "_SUCCESS")

calls = st.integers(0, _CALLS_MAX)
names = st.sampled_from(NAMES)
faults = st.sampled_from(Fault)
acts = st.sampled_from(["complete_upload", "copy_object", "remove_object", "abort_upload"])


class ObjectHistories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = ObjectWorld()
        # A copy of an empty source would be refused.
        self.world.write_source(*NAMES, "kept")
        self.checker = ObjectChecker()
        self.zombies: list[Sleeper] = []
        self.slept = 0

    @rule(name=names)
    def a_file_changes(self, name: str) -> None:
        self.world.write_source(name)

    @rule(name=names)
    def a_file_goes(self, name: str) -> None:
        if self.world.disk.exists(f"{SOURCE}/{URN}/{name}"):
            self.world.remove_source(name)

    @rule(name=names)
    def a_stranger_writes(self, name: str) -> None:
        self.world.write_as_a_stranger(name)

    @rule(name=names)
    def a_stranger_removes(self, name: str) -> None:
        self.world.remove_as_a_stranger(name)

    @rule()
    def somebody_runs(self) -> None:
        self._acknowledge(self.world.open_process().run())

    @rule(call=calls, fault=faults, second=st.none() | calls)
    def a_run_meets_faults(self, call: int, fault: Fault, second: int | None) -> None:
        planned = {call: fault} if second is None else {second: Fault.ERROR, call: fault}
        self._acknowledge(self.world.open_process(faults=planned).run())

    @precondition(lambda self: len(self.zombies) < _ZOMBIES_MAX)
    @rule(call=calls)
    def a_run_is_paused(self, call: int) -> None:
        self._put_to_sleep(Sleeper(self.world.open_process(), lambda runner: runner.run(), Pause(call)))

    @rule(act=acts, number=st.integers(0, 3), name=names, removes=st.booleans(), gives_up=st.booleans())
    def a_stranger_comes_between(self, act: str, number: int, name: str, removes: bool, gives_up: bool) -> None:
        """Between a process's look at a name and its act there."""
        opened = self.world.list_open()[:1] if gives_up else []
        runner = self.world.open_process()
        sleeper = Sleeper(
            runner, lambda one: one.abandon(opened[0]) if opened else one.run(), Pause(number, f"store.{act}")
        )
        if not sleeper.has_ended:
            (self.world.remove_as_a_stranger if removes else self.world.write_as_a_stranger)(name)
            sleeper.wake()

    @precondition(lambda self: len(self.zombies) < _ZOMBIES_MAX and bool(self.world.list_open()))
    @rule(call=calls)
    def a_person_who_gives_up_is_paused(self, call: int) -> None:
        opened = self.world.list_open()[0]
        self._put_to_sleep(Sleeper(self.world.open_process(), lambda runner: runner.abandon(opened), Pause(call)))

    @precondition(lambda self: bool(self.zombies))
    @rule(which=st.integers(0, _ZOMBIES_MAX - 1))
    def a_zombie_wakes_up(self, which: int) -> None:
        self.zombies.pop(which % len(self.zombies)).wake()

    @precondition(lambda self: bool(self.zombies))
    @rule(which=st.integers(0, _ZOMBIES_MAX - 1), count=st.integers(1, 3))
    def a_zombie_makes_some_calls(self, which: int, count: int) -> None:
        zombie = self.zombies[which % len(self.zombies)]
        for _ in range(count):
            zombie.step()
        if zombie.has_ended:
            self.zombies.remove(zombie)

    @rule(call=st.none() | calls, fault=faults)
    def a_sensor_recovers(self, call: int | None, fault: Fault) -> None:
        self.world.open_process(faults={} if call is None else {call: fault}).recover()

    @precondition(lambda self: bool(self.world.list_open()))
    @rule(call=st.none() | calls, fault=faults)
    def a_person_gives_up(self, call: int | None, fault: Fault) -> None:
        self.world.open_process(faults={} if call is None else {call: fault}).abandon(self.world.list_open()[0])

    @precondition(lambda self: bool(self.world.list_open()))
    @rule()
    def a_person_resumes(self) -> None:
        self.world.open_process().resume(self.world.list_open()[0])

    @rule(seconds=st.sampled_from([1.0, 61.0, 4_000.0, 4_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.db.advance(seconds)

    @precondition(lambda self: not self.zombies)
    @rule(cleans=st.booleans())
    def a_day_passes(self, cleans: bool) -> None:
        """Not while a process sleeps: cleanup looks only so long for files that a sleeper may still write."""
        self.world.db.advance(max(KEEP_S, _DAY_S) + 1)
        if cleans:
            self.world.open_process().clean()

    @invariant()
    def each_name_has_what_it_may_have(self) -> None:
        self.checker.look(self.world)

    def teardown(self) -> None:
        world = self.world
        while self.zombies:
            self.zombies.pop().wake()
            self.checker.look(world)
        self._end_what_is_open()
        for _ in range(2):
            world.expire_leases()
            self._acknowledge(world.open_process().run())
            self.checker.look(world)
        world.db.advance(SILENT_S_MAX)
        world.open_process().run()
        self.checker.look(world)
        self.checker.late_max = self.slept
        self.checker.check_rest(world)

    def _end_what_is_open(self) -> None:
        """A sequence that a stranger stopped is given up; what can't be taken back, because a stranger removed it, is
        put there again.
        """
        world = self.world
        world.expire_leases()
        world.open_process().recover()
        self.checker.look(world)
        for sequence_id in world.list_open():
            world.expire_leases()
            world.open_process().abandon(sequence_id)
            self.checker.look(world)
        for sequence_id in world.list_open():
            row = world.db.sequences[sequence_id]
            assert row.state is SequenceState.ABANDONING, f"can't be given up: {row.last_error}"
            for step in list_steps(world, row):
                if step.target not in list_visible(world):
                    world.write_as_a_stranger(step.target.removeprefix(f"{BUCKET_PLACE}/"))
            world.expire_leases()
            world.open_process().abandon(sequence_id)
            self.checker.look(world)

    def _put_to_sleep(self, sleeper: Sleeper) -> None:
        self.slept += 1
        if not sleeper.has_ended:
            self.zombies.append(sleeper)

    def _acknowledge(self, report: Any) -> None:
        self.checker.acknowledge(self.world, report)
