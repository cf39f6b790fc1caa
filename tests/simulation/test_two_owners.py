"""A zombie's last rename, at each moment of the recovery that took its sequence over."""

from tests.simulation.exploring import list_calls
from tests.simulation.history import Checker
from tests.simulation.process import Pause
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.sleeping import Sleeper
from tests.simulation.world import Runner


def test_a_rename_between_an_owners_two_looks_is_no_contradiction() -> None:
    (scenario,) = (each for each in SCENARIOS if each.name == "recover")
    base = scenario.prepare()
    for number, call in enumerate(list_calls(scenario, base)):
        world = base.copy()
        zombie = Sleeper(world.open_process(), recover, Pause(0, "fs.rename_no_replace"))
        world.expire_leases()
        owner = Sleeper(world.open_process(), recover, Pause(number))
        assert not zombie.has_ended
        assert not owner.has_ended

        zombie.wake()
        owner.wake()

        Checker().look(world)
        assert not world.list_open(), f"the zombie woke up before {call}: {owner.runner.lines}"
        assert not owner.runner.process.refusals


def recover(runner: Runner) -> None:
    runner.recover()
