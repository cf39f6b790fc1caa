"""Several runners over several datasets, in any order, with any faults that hypothesis can generate.

``GOBBLIN_PROOF_EXAMPLES`` sets the number of histories; the tests' seed chooses them. A failing history is
printed with the fewest steps that still fail.
"""

import os
from typing import Any

import pytest
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gobblin_assets.model.extract import Mode
from gobblin_assets.model.policy import CommitPolicy
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.urn import DatasetUrn
from tests.simulation.history import Checker
from tests.simulation.process import Fault, Pause
from tests.simulation.sleeping import Sleeper
from tests.simulation.world import SILENT_S_MAX, URNS, World
from tests.support.shares import read_seed

pytestmark = pytest.mark.usefixtures("share")

EXAMPLES = int(os.environ.get("GOBBLIN_PROOF_EXAMPLES", "100"))
_CALLS_MAX = 260
_ZOMBIES_MAX = 3

calls = st.integers(0, _CALLS_MAX)
datasets = st.sampled_from([URNS, URNS[:1], URNS[1:]])
modes = st.sampled_from([Mode.APPEND, Mode.APPEND, Mode.REFRESH])


@seed(read_seed())
class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.checker = Checker()
        self.zombies: list[Sleeper] = []

    @initialize(policy=st.sampled_from(list(CommitPolicy)))
    def choose(self, policy: CommitPolicy) -> None:
        self.world.policy = policy
        self.world.add_rows()

    @rule(urn=st.sampled_from(URNS), count=st.integers(1, 5))
    def rows_arrive(self, urn: DatasetUrn, count: int) -> None:
        self.world.source[urn] += count

    @rule(urns=datasets, mode=modes)
    def somebody_runs(self, urns: tuple[DatasetUrn, ...], mode: Mode) -> None:
        self._acknowledge(self.world.open_process().run(mode, urns))

    @rule(urns=datasets, mode=modes, call=calls, fault=st.sampled_from(Fault), second=st.none() | calls)
    def a_run_meets_faults(
        self, urns: tuple[DatasetUrn, ...], mode: Mode, call: int, fault: Fault, second: int | None
    ) -> None:
        faults = {call: fault} if second is None else {second: Fault.ERROR, call: fault}
        self._acknowledge(self.world.open_process(faults=faults).run(mode, urns))

    @precondition(lambda self: len(self.zombies) < _ZOMBIES_MAX)
    @rule(urns=datasets, mode=modes, call=calls)
    def a_run_is_paused(self, urns: tuple[DatasetUrn, ...], mode: Mode, call: int) -> None:
        zombie = Sleeper(self.world.open_process(), lambda runner: runner.run(mode, urns), Pause(call))
        if not zombie.has_ended:
            self.zombies.append(zombie)

    @precondition(lambda self: bool(self.zombies))
    @rule(which=st.integers(0, _ZOMBIES_MAX - 1))
    def a_zombie_wakes_up(self, which: int) -> None:
        self.zombies.pop(which % len(self.zombies)).wake()

    @rule(call=st.none() | calls, fault=st.sampled_from(Fault))
    def a_sensor_recovers(self, call: int | None, fault: Fault) -> None:
        self.world.open_process(faults={} if call is None else {call: fault}).recover()

    @precondition(lambda self: bool(self.world.list_open()))
    @rule(call=st.none() | calls, fault=st.sampled_from(Fault))
    def a_person_gives_up(self, call: int | None, fault: Fault) -> None:
        self.world.open_process(faults={} if call is None else {call: fault}).abandon(self.world.list_open()[0])

    @rule(seconds=st.sampled_from([1.0, 59.0, 61.0, 4_000.0, -3_600.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.db.advance(seconds)

    @precondition(lambda self: not self.zombies)
    @rule()
    def a_day_passes(self) -> None:
        """Not while a process sleeps: cleanup looks only so long for files that a sleeper may still write."""
        self.world.db.advance(90_000.0)

    @rule(urn=st.sampled_from(URNS), number=st.integers(0, 1), readable=st.booleans())
    def a_unit_turns_bad_or_good(self, urn: DatasetUrn, number: int, readable: bool) -> None:
        bad = {(urn, number)}
        self.world.bad_units = self.world.bad_units - bad if readable else self.world.bad_units | bad

    @rule(random=st.randoms(use_true_random=False))
    def the_power_is_cut(self, random: Any) -> None:
        self._kill_zombies()
        self.world.disk.power_cut(lambda _change: random.random() < 0.5)

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        self.checker.look(self.world)

    def teardown(self) -> None:
        world = self.world
        while self.zombies:
            self.zombies.pop().wake()
            self.checker.look(world)
        world.bad_units = frozenset()
        world.expire_leases()
        world.open_process().recover()
        for sequence_id in world.list_open():
            if world.db.sequences[sequence_id].state is SequenceState.BLOCKED:
                world.open_process().resume(sequence_id)
        for _ in range(2):
            world.expire_leases()
            self._acknowledge(world.open_process().run())
            self.checker.look(world)
        world.db.advance(SILENT_S_MAX)
        world.open_process().run()
        self.checker.look(world)
        self.checker.check_rest(world)

    def _acknowledge(self, report: Any) -> None:
        self.checker.acknowledge(self.world, report)

    def _kill_zombies(self) -> None:
        while self.zombies:
            self.zombies.pop().kill()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=EXAMPLES, stateful_step_count=25, deadline=None)
