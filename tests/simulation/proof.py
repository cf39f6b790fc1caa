"""``make proof``: every pair of faults, ten thousand random histories a machine, and every mutant; with the counts.

Prints a line for each part as it ends, then the tables. Exit code 1: a history breaks the promise, a call is no
longer reached, or a mutant survives.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tests.simulation.copy_mutants import IN_COPY_HISTORIES, IN_THE_COPY_WORLD
from tests.simulation.copy_scenarios import COPY_SCENARIOS
from tests.simulation.counts import read_counts
from tests.simulation.exploring import FAULTS, Tally, explore_pairs, explore_singles
from tests.simulation.file_mutants import IN_A_FILE
from tests.simulation.hunting import (
    Catch,
    hunt_among_loaded_rows,
    hunt_among_stored_rows,
    hunt_by_a_promise,
    hunt_in_an_adapter,
    hunt_in_copy_histories,
    hunt_in_marked_histories,
    hunt_in_object_histories,
    hunt_in_service_histories,
    hunt_in_sink_histories,
    hunt_in_slot_histories,
    hunt_in_the_copy_world,
    hunt_in_the_object_world,
    hunt_in_the_simulated_world,
)
from tests.simulation.loaded_rows import IN_THE_WORLD_OF_LOADED_ROWS
from tests.simulation.marked_mutants import IN_MARKED_HISTORIES
from tests.simulation.mutants import BY_A_PROMISE, IN_AN_ADAPTER, IN_THE_SIMULATED_WORLD
from tests.simulation.object_mutants import IN_OBJECT_HISTORIES, IN_THE_OBJECT_WORLD
from tests.simulation.object_scenarios import OBJECT_SCENARIOS
from tests.simulation.scenarios import SCENARIOS, Scenario
from tests.simulation.service_mutants import IN_SERVICE_HISTORIES
from tests.simulation.sink_faults import (
    SINK_OVERLAPS,
    SINK_SCENARIOS,
    SinkScenario,
    explore_sink_pairs,
    explore_sink_singles,
    explore_sink_zombies,
)
from tests.simulation.sink_mutants import IN_SINK_HISTORIES, IN_SINK_MOVES
from tests.simulation.slot_mutants import IN_SLOT_HISTORIES
from tests.simulation.stored_rows import IN_THE_WORLD_OF_STORED_ROWS
from tests.simulation.world import stepped
from tests.simulation.zombies import OVERLAPS, TAKEOVERS, VISITS, explore_overlaps, explore_visits, explore_zombies
from tests.support.shares import SEED_VARIABLE, Share

T = TypeVar("T")
S = TypeVar("S", Scenario, SinkScenario)

RANDOM_HISTORIES = 10_000
SINK_PAIRS_OF = 100
"""The share of the pairs of faults of sinks that is tried."""

_CAUGHT_BY_WIDTH = 110
_MACHINES = ("test_random_histories.py", "test_copy_histories.py", "test_object_histories.py")
"""Of hypothesis: rows, copies, and copies to an object store."""

_EXPLORED_WHOLE = {
    "overlaps": explore_overlaps,
    "singles": explore_singles,
    "zombies": explore_zombies,
    "visits": explore_visits,
}
_PER_CALL = {
    "singles": len(FAULTS),
    "zombies": len(TAKEOVERS),
    "visits": len(VISITS),
    "overlaps": len(OVERLAPS),
    "singles of sinks": len(FAULTS),
    "zombies of sinks": len(SINK_OVERLAPS),
}


@dataclass(frozen=True)
class Part:
    """One piece of the proof that a worker carries out."""

    kind: str
    name: str
    work: Callable[[], object]


def main() -> int:
    parser = argparse.ArgumentParser(prog="proof", description=__doc__)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--random-histories", type=int, default=RANDOM_HISTORIES)
    parser.add_argument("--sinks-only", action="store_true", help="faults and mutants of sinks, and nothing else")
    options = parser.parse_args()
    started = time.monotonic()
    everything = partial(_list_parts, options.workers, options.random_histories)
    list_parts = _list_sink_parts if options.sinks_only else everything
    parts = list_parts()
    results: dict[str, list[object]] = {}
    failures: list[str] = []
    with ProcessPoolExecutor(options.workers) as pool:
        futures = {pool.submit(_carry_out, list_parts, number): part for number, part in enumerate(parts)}
        for done, future in enumerate(as_completed(futures), start=1):
            part = futures[future]
            try:
                results.setdefault(part.kind, []).append(future.result())
            except Exception as error:  # noqa: BLE001  every part is tried, whatever another one found
                failures.append(f"{part.kind}, {part.name}: {error}")
            _say(f"{time.monotonic() - started:6.0f} s  {done} of {len(parts)}  {part.kind}, {part.name}")
    failures += _print_tables(results)
    for failure in failures:
        _say(f"FAILED: {failure}")
    _say(f"{'not proved' if failures else 'proved'}, in {(time.monotonic() - started) / 60:.1f} min")
    return 1 if failures else 0


def _list_parts(workers: int, random_histories: int) -> list[Part]:
    """The longest first."""
    parts = [
        Part(
            "pairs",
            f"{each.name}, part {shard + 1} of {workers}",
            lambda each=each, shard=shard: _explore(
                lambda scenario: explore_pairs(scenario, shard=shard, shards=workers), each
            ),
        )
        for each in (*SCENARIOS, *COPY_SCENARIOS, *OBJECT_SCENARIOS)
        for shard in range(workers)
    ]
    share = -(-random_histories // workers)
    parts += [
        Part("random", f"seed {seed}", lambda seed=seed: _explore_at_random(share, seed)) for seed in range(workers)
    ]
    for kind, explore in _EXPLORED_WHOLE.items():
        parts += [
            Part(kind, each.name, lambda explore=explore, each=each: _explore(explore, each)) for each in SCENARIOS
        ]
    parts += _list_sink_parts()
    parts += [Part("mutants", m.name, lambda m=m: hunt_in_service_histories(m)) for m in IN_SERVICE_HISTORIES]
    parts += [Part("mutants", m.name, lambda m=m: hunt_in_an_adapter(m)) for m in IN_AN_ADAPTER]
    parts += [Part("mutants", m.name, lambda m=m: hunt_in_the_simulated_world(m)) for m in IN_THE_SIMULATED_WORLD]
    parts += [Part("mutants", m.name, lambda m=m: hunt_in_the_copy_world(m)) for m in IN_THE_COPY_WORLD]
    parts += [Part("mutants", m.name, lambda m=m: hunt_in_copy_histories(m)) for m in IN_COPY_HISTORIES]
    parts += [Part("mutants", m.name, lambda m=m: hunt_in_the_object_world(m)) for m in IN_THE_OBJECT_WORLD]
    parts += [Part("mutants", m.name, lambda m=m: hunt_in_object_histories(m)) for m in IN_OBJECT_HISTORIES]
    parts += [Part("mutants", m.name, lambda m=m: hunt_among_stored_rows(m)) for m in IN_THE_WORLD_OF_STORED_ROWS]
    parts += [Part("mutants", m.name, lambda m=m: hunt_among_loaded_rows(m)) for m in IN_THE_WORLD_OF_LOADED_ROWS]
    parts += [Part("mutants", guard, lambda guard=guard: hunt_by_a_promise(guard)) for guard in BY_A_PROMISE]
    return parts


def _list_sink_parts() -> list[Part]:
    parts: list[Part] = []
    for each in SINK_SCENARIOS:
        parts += [
            Part("pairs of sinks", each.name, lambda each=each: _explore(_explore_some_sink_pairs, each)),
            Part("zombies of sinks", each.name, lambda each=each: _explore(explore_sink_zombies, each)),
            Part("singles of sinks", each.name, lambda each=each: _explore(explore_sink_singles, each)),
        ]
    mutants = (*IN_SINK_HISTORIES, *IN_SINK_MOVES)
    parts += [Part("mutants", m.name, lambda m=m: hunt_in_sink_histories(m)) for m in mutants]
    parts += [
        Part("mutants", m.name, lambda m=m: hunt_in_marked_histories(m)) for m in (*IN_MARKED_HISTORIES, *IN_A_FILE)
    ]
    return [*parts, *(Part("mutants", m.name, lambda m=m: hunt_in_slot_histories(m)) for m in IN_SLOT_HISTORIES)]


def _explore_some_sink_pairs(scenario: SinkScenario) -> Tally:
    return explore_sink_pairs(scenario, share=Share(0, of=SINK_PAIRS_OF))


def _carry_out(list_parts: Callable[[], list[Part]], number: int) -> object:
    """The list is made anew, since what its parts do can't be sent."""
    part = list_parts()[number]
    return part.name, part.work()


def _explore(explore: Callable[[S], Tally], scenario: S) -> Tally:
    with stepped():
        return explore(scenario)


def _explore_at_random(histories: int, seed: int) -> Tally:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            "--timeout",
            "0",
            *(f"tests/simulation/{name}" for name in _MACHINES),
        ],
        env={**os.environ, "GOBBLIN_PROOF_EXAMPLES": str(histories), SEED_VARIABLE: str(seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(done.stdout[-6000:])
    return Tally(histories=len(_MACHINES) * histories, executed=len(_MACHINES) * histories)


def _print_tables(results: dict[str, list[object]]) -> list[str]:
    failures: list[str] = []
    total = Tally()
    _say("\n| histories | scenario | tried | carried on to their own end |\n| --- | --- | ---: | ---: |")
    for kind in (*_PER_CALL, "pairs", "pairs of sinks", "random"):
        merged: dict[str, Tally] = {}
        for name, tally in _of(results, kind, Tally):
            found = merged.setdefault(name.partition(", part")[0], Tally())
            found += tally
        for name, tally in merged.items():
            _say(f"| {kind} | {name} | {tally.histories:,} | {tally.executed:,} |")
            total += Tally(tally.histories, tally.executed)
            failures += _fewer_than_counted(kind, name, tally)
    _say(f"| all | | {total.histories:,} | {total.executed:,} |")
    _say("\n| mutant | caught by | after histories |\n| --- | --- | ---: |")
    catches = [catch for _name, catch in _of(results, "mutants", Catch)]
    for catch in catches:
        by = "SURVIVED" if catch.by is None else catch.by.replace("|", "/")[:_CAUGHT_BY_WIDTH]
        _say(f"| {catch.name} | {by} | {'' if catch.histories is None else catch.histories} |")
        failures += [f"the mutant survived: {catch.name}"] if catch.by is None else []
    _say(f"\n{len(catches)} mutants, {sum(catch.by is None for catch in catches)} survived.")
    return failures


def _fewer_than_counted(kind: str, name: str, tally: Tally) -> list[str]:
    times = _PER_CALL.get(kind)
    if times is None:
        return []
    expected = sum(read_counts()[name].values()) * times
    return [] if tally.histories == expected else [f"{kind}, {name}: {tally.histories} histories, expected {expected}"]


def _of(results: dict[str, list[object]], kind: str, wanted: type[T]) -> Sequence[tuple[str, T]]:
    return [each for each in results.get(kind, []) if isinstance(each, tuple) and isinstance(each[1], wanted)]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
