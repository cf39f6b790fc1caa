"""Where a mutant is noticed, and after how many histories."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from hypothesis import Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.contracts.test_guards import find_broken
from tests.simulation.copy_machine import COPY_DEEDS_MAX, CopyHistories
from tests.simulation.copy_scenarios import COPY_OVERLAPS, COPY_SCENARIOS, COPY_TAKEOVERS
from tests.simulation.exploring import Tally, explore_singles
from tests.simulation.file_mutants import IN_A_FILE
from tests.simulation.guards import Guard
from tests.simulation.loaded_rows import LOADED_ROWS_SCENARIOS
from tests.simulation.marked_world import run_file_history, run_marked_history
from tests.simulation.mutant import Mutant
from tests.simulation.mutated import VARIABLE
from tests.simulation.object_machine import OBJECT_DEEDS_MAX, ObjectHistories
from tests.simulation.object_scenarios import OBJECT_OVERLAPS, OBJECT_SCENARIOS, OBJECT_TAKEOVERS
from tests.simulation.scenarios import SCENARIOS, Scenario
from tests.simulation.service_history import run_service_history
from tests.simulation.sink_history import run_sink_history
from tests.simulation.sink_moves import run_moves
from tests.simulation.sink_mutants import IN_SINK_MOVES
from tests.simulation.slot_history import run_slot_history
from tests.simulation.stored_rows import STORED_ROWS_SCENARIOS
from tests.simulation.world import stepped
from tests.simulation.zombies import explore_overlaps, explore_visits, explore_zombies
from tests.support.shares import Share

SUITE_S_MAX = 900

_SEEDS_MAX = 40
_EXAMPLES_OF_A_SEED = 100
_SINK_SEEDS_MAX = 500
_LOOK_OF = 200


Hunt = tuple[Callable[[Scenario, Tally], Tally], Scenario]


@dataclass(frozen=True)
class Catch:
    """``by`` None: the mutant survived. ``histories`` counts those tried in the simulated world until then."""

    name: str
    by: str | None
    histories: int | None = None


def hunt_in_the_simulated_world(mutant: Mutant) -> Catch:
    return _hunt(mutant, _hunts())


def hunt_in_the_copy_world(mutant: Mutant) -> Catch:
    return _hunt(mutant, _copy_hunts())


def _hunt(mutant: Mutant, hunts: Iterable[Hunt]) -> Catch:
    tally = Tally()
    with stepped(), mutant.change():
        for explore, scenario in hunts:
            try:
                explore(scenario, tally)
            except (TypeError, AttributeError, NameError) as error:
                # Nothing was noticed: the mutant does not fit the code any more.
                raise RuntimeError(f"{mutant.name} can't be carried out: mend it") from error
            except Exception as error:  # noqa: BLE001  whatever it is, the change was noticed
                return Catch(mutant.name, str(error) or type(error).__name__, tally.histories)
    return Catch(mutant.name, None, tally.histories)


def hunt_in_the_object_world(mutant: Mutant) -> Catch:
    return _hunt(mutant, _object_hunts())


def hunt_in_copy_histories(mutant: Mutant) -> Catch:
    return _hunt_at_random(mutant, CopyHistories, COPY_DEEDS_MAX)


def hunt_in_object_histories(mutant: Mutant) -> Catch:
    return _hunt_at_random(mutant, ObjectHistories, OBJECT_DEEDS_MAX)


def _hunt_at_random(mutant: Mutant, machine: type[RuleBasedStateMachine], deeds_max: int) -> Catch:
    """``histories``: those of the seeds before."""
    # A failing history is not made shorter, since nobody reads it.
    play = settings(
        max_examples=_EXAMPLES_OF_A_SEED,
        stateful_step_count=deeds_max,
        deadline=None,
        database=None,
        phases=[Phase.generate],
    )
    for number in range(_SEEDS_MAX):
        with stepped(), mutant.change():
            try:
                run_state_machine_as_test(seed(number)(machine), settings=play)
            except Exception as error:  # noqa: BLE001  whatever it is, the change was noticed
                return Catch(mutant.name, str(error) or type(error).__name__, number * _EXAMPLES_OF_A_SEED)
    return Catch(mutant.name, None, _SEEDS_MAX * _EXAMPLES_OF_A_SEED)


def hunt_in_sink_histories(mutant: Mutant, seeds: Iterable[int] = range(_SINK_SEEDS_MAX)) -> Catch:
    """One history for each seed, until one notices."""
    return _hunt_by_seed(mutant, run_moves if mutant in IN_SINK_MOVES else run_sink_history, seeds)


def _hunt_by_seed(mutant: Mutant, play: Callable[[int], object], seeds: Iterable[int]) -> Catch:
    number = 0
    for number, each in enumerate(seeds, start=1):
        with stepped(), mutant.change():
            try:
                play(each)
            except (TypeError, AttributeError, NameError) as error:
                raise RuntimeError(f"{mutant.name} can't be carried out: mend it") from error
            except Exception as error:  # noqa: BLE001  whatever it is, the change was noticed
                return Catch(mutant.name, str(error) or type(error).__name__, number)
    return Catch(mutant.name, None, number)


def hunt_in_slot_histories(mutant: Mutant, seeds: Iterable[int] = range(_SINK_SEEDS_MAX)) -> Catch:
    """The same with one slot for several tables."""
    return _hunt_by_seed(mutant, run_slot_history, seeds)


def hunt_in_marked_histories(mutant: Mutant, seeds: Iterable[int] = range(_SINK_SEEDS_MAX)) -> Catch:
    """The same of sinks that load a table of Postgres, or the example's file."""
    return _hunt_by_seed(mutant, run_file_history if mutant in IN_A_FILE else run_marked_history, seeds)


def hunt_in_service_histories(mutant: Mutant, seeds: Iterable[int] = range(_SINK_SEEDS_MAX)) -> Catch:
    """The same of the service."""
    return _hunt_by_seed(mutant, run_service_history, seeds)


def hunt_among_stored_rows(mutant: Mutant) -> Catch:
    return _hunt(mutant, _stored_rows_hunts())


def hunt_among_loaded_rows(mutant: Mutant) -> Catch:
    return _hunt(mutant, _loaded_rows_hunts())


def hunt_in_an_adapter(mutant: Mutant) -> Catch:
    """Only exit code 1 of pytest means that a test failed; any other is a mistake here."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.simulation.mutated",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, "-x", "-q", "--no-header", *mutant.suite],
        env={**os.environ, VARIABLE: mutant.name},
        capture_output=True,
        text=True,
        timeout=SUITE_S_MAX,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{mutant.name}: pytest could not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return Catch(mutant.name, failed[1] if failed else None)


def hunt_by_a_promise(guard: Guard) -> Catch:
    return Catch(f"the guard {guard} is left out", find_broken(frozenset({guard})))


def _hunts() -> Iterator[Hunt]:
    """The shortest first. Two owners at once are tried last, since few mutants need them."""
    by_name = {each.name: each for each in SCENARIOS}
    order = ["fold", "recover", "abandon", "first", "append", "together", "partial", "refresh", "refresh in part"]
    for name in order:
        yield explore_singles, by_name[name]
        yield explore_zombies, by_name[name]
    for name in order:
        yield explore_visits, by_name[name]
        yield explore_overlaps, by_name[name]


def _copy_hunts() -> Iterator[Hunt]:
    """Recoveries first: they are short."""
    for scenario in (*COPY_SCENARIOS[3:], *COPY_SCENARIOS[:3]):
        yield explore_singles, scenario
        yield partial(explore_zombies, takeovers=COPY_TAKEOVERS), scenario
        yield partial(explore_overlaps, overlaps=COPY_OVERLAPS), scenario


def _object_hunts() -> Iterator[Hunt]:
    """Recoveries first: they are short."""
    for scenario in (*OBJECT_SCENARIOS[2:], *OBJECT_SCENARIOS[:2]):
        yield explore_singles, scenario
        yield partial(explore_zombies, takeovers=OBJECT_TAKEOVERS), scenario
        yield partial(explore_overlaps, overlaps=OBJECT_OVERLAPS), scenario


def _loaded_rows_hunts() -> Iterator[Hunt]:
    """A look at all that a first load does, and recoveries then: they are short."""
    yield partial(explore_singles, share=Share(0, of=_LOOK_OF)), LOADED_ROWS_SCENARIOS[0]
    for scenario in (*LOADED_ROWS_SCENARIOS[3:], *LOADED_ROWS_SCENARIOS[:3]):
        yield explore_zombies, scenario
        yield explore_singles, scenario


def _stored_rows_hunts() -> Iterator[Hunt]:
    """Recoveries first: they are short."""
    for scenario in (*STORED_ROWS_SCENARIOS[2:], *STORED_ROWS_SCENARIOS[:2]):
        yield explore_singles, scenario
        yield explore_zombies, scenario
