"""Copies in any order: few names, runs with faults, sleepers, strangers, abandonments and power cuts.

A machine of hypothesis. After each deed each name has the old or the new version, or what a stranger put there, and
what a stranger put there is never lost.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gobblin_assets.destinations.fixed_names.named_directory_steps import PlaceDirectory
from gobblin_assets.destinations.fixed_names.named_steps import NamedStep, RemoveFile, ReplaceFile
from gobblin_assets.model.sequence_state import SequenceState
from tests.simulation.copy_history import CopyChecker, list_published, list_steps
from tests.simulation.copy_world import KEEP_S, PLACE, SOURCE, URN, CopyWorld
from tests.simulation.process import Fault, Pause
from tests.simulation.sleeping import Sleeper
from tests.simulation.world import SILENT_S_MAX

COPY_DEEDS_MAX = 15
_CALLS_MAX = 200
_ZOMBIES_MAX = 2
_DAY_S = 90_000.0

NAMES = ("one", "new/one", "new/two", "_SUCCESS")

calls = st.integers(0, _CALLS_MAX)
moves = st.sampled_from(("fs.exchange", "fs.rename_no_replace", "fs.rename_onto_empty", "fs.change_mode"))
pauses = st.builds(Pause, calls) | st.builds(Pause, st.integers(0, 3), moves)
names = st.sampled_from(NAMES)
faults = st.sampled_from(Fault)


class CopyHistories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = CopyWorld()
        # A copy of an empty source would be refused.
        self.world.write_source("one", "_SUCCESS", "kept")
        self.checker = CopyChecker()
        self.zombies: list[Sleeper] = []

    @initialize(exchanges=st.booleans(), is_closed=st.booleans())
    def choose(self, exchanges: bool, is_closed: bool) -> None:
        self.world.disk.exchanges = exchanges
        if is_closed:
            self.world.close_directory()

    @rule(name=names)
    def a_file_changes(self, name: str) -> None:
        self.world.write_source(name)

    @rule(name=names)
    def a_file_goes(self, name: str) -> None:
        if self.world.disk.exists(f"{SOURCE}/{URN}/{name}"):
            self.world.remove_source(name)

    @rule(name=names)
    def a_stranger_writes(self, name: str) -> None:
        self.world.write_as_a_stranger(name, list_published(self.world).get(f"{PLACE}/{name}"))

    @rule(name=names)
    def a_stranger_removes(self, name: str) -> None:
        self.world.remove_as_a_stranger(name, list_published(self.world).get(f"{PLACE}/{name}"))

    @rule()
    def somebody_runs(self) -> None:
        self._acknowledge(self.world.open_process().run())

    @rule(call=calls, fault=faults, second=st.none() | calls)
    def a_run_meets_faults(self, call: int, fault: Fault, second: int | None) -> None:
        planned = {call: fault} if second is None else {second: Fault.ERROR, call: fault}
        self._acknowledge(self.world.open_process(faults=planned).run())

    @precondition(lambda self: len(self.zombies) < _ZOMBIES_MAX)
    @rule(pause=pauses)
    def a_run_is_paused(self, pause: Pause) -> None:
        self._put_to_sleep(Sleeper(self.world.open_process(), lambda runner: runner.run(), pause))

    @precondition(lambda self: len(self.zombies) < _ZOMBIES_MAX and bool(self.world.list_open()))
    @rule(pause=pauses)
    def a_person_who_gives_up_is_paused(self, pause: Pause) -> None:
        opened = self.world.list_open()[0]
        self._put_to_sleep(Sleeper(self.world.open_process(), lambda runner: runner.abandon(opened), pause))

    @rule(number=st.integers(0, 3), move=moves, name=names)
    def a_stranger_writes_amid_a_run(self, number: int, move: str, name: str) -> None:
        """Between the run's look at its places and its move."""
        sleeper = Sleeper(self.world.open_process(), lambda runner: runner.run(), Pause(number, move))
        self.a_stranger_writes(name)
        sleeper.wake()

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

    @precondition(lambda self: bool(self.zombies))
    @rule(which=st.integers(0, _ZOMBIES_MAX - 1))
    def a_zombie_is_killed(self, which: int) -> None:
        self.zombies.pop(which % len(self.zombies)).kill()

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

    @rule(random=st.randoms(use_true_random=False))
    def the_power_is_cut(self, random: Any) -> None:
        while self.zombies:
            self.zombies.pop().kill()
        self.world.disk.power_cut(lambda _change: random.random() < 0.5)

    @invariant()
    def each_name_has_what_it_may_have(self) -> None:
        self.checker.look(self.world)

    def teardown(self) -> None:
        world = self.world
        while self.zombies:
            self.zombies.pop().wake()
            self.checker.look(world)
        world.expire_leases()
        world.open_process().recover()
        self.checker.look(world)
        self._give_up_what_is_open()
        # What stood in a directory that lost all its entries at once waits for a person.
        for confirms in (False, True):
            world.expire_leases()
            self._acknowledge(world.open_process().run(confirm_deletes=confirms))
            self.checker.look(world)
        world.db.advance(SILENT_S_MAX)
        world.open_process().run()
        self.checker.look(world)
        self.checker.check_rest(world)

    def _give_up_what_is_open(self) -> None:
        """A sequence that a stranger stopped. What can't be taken back since a stranger is in the way waits for a
        person, who puts the old versions back by hand.
        """
        for _time in range(2):
            for sequence_id in self.world.list_open():
                self.world.expire_leases()
                self.world.open_process().abandon(sequence_id)
                self.checker.look(self.world)
            for sequence_id in self.world.list_open():
                row = self.world.db.sequences[sequence_id]
                assert row.state is SequenceState.ABANDONING, f"can't be given up: {row.last_error}"
                disturbed = [each for each in list_steps(self.world, row) if self._was_disturbed(each)]
                assert disturbed, f"no stranger is in the way: {row.last_error}"
                for step in disturbed:
                    self._restore(step)

    def _was_disturbed(self, step: NamedStep) -> bool:
        return any(path == step.target or path.startswith(f"{step.target}/") for path in self.world.foreign.last)

    def _restore(self, step: NamedStep) -> None:
        name, disk = step.target.removeprefix(f"{PLACE}/"), self.world.disk
        before = list_published(self.world).get(step.target)
        if isinstance(step, PlaceDirectory):
            for path in [path for path in disk.files() if path.startswith(f"{step.target}/")]:
                self.world.remove_as_a_stranger(path.removeprefix(f"{PLACE}/"), None)
            if disk.is_directory(step.target):
                disk.remove_tree(step.target)
        elif isinstance(step, ReplaceFile | RemoveFile):
            (found,) = [path for path in disk.files() if disk.find_identity(path) == step.old] or [""]
            if found == step.target:
                return
            self.world.remove_as_a_stranger(name, before)
            if found:
                disk.rename(found, step.target)
            else:
                self.world.write_as_a_stranger(name, before)
        for path in disk.files():
            disk.sync_file(path)

    def _put_to_sleep(self, sleeper: Sleeper) -> None:
        if not sleeper.has_ended:
            self.zombies.append(sleeper)

    def _acknowledge(self, report: Any) -> None:
        self.checker.acknowledge(self.world, report)
