"""What a person types, as it is typed: a run that finds nothing new, and copies of small files.

The command by default comes first, which tells Dagster; then the same with ``--no-dagster``, then the other tools. All
of them take turns in one run.
"""

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.copy_jobs import describe_copy, run_command
from benchmarks.copy_trees import KIB, Copy, Load, make_tree, open_place, require_whole, time_copy
from benchmarks.peers.copy_tools import RCLONE, find_rclone, run_rclone
from benchmarks.peers.environments import DLT, make_environment
from benchmarks.peers.loads import make_tables, plan_mixed
from benchmarks.peers.tools import OURS, OURS_ALONE, list_dlt, list_ours
from benchmarks.tables import Options, Samples, Table, in_turns, seconds, timed, verdict
from benchmarks.world import World

NOTHING_NEW_S_MAX: Final = 0.9
NOTHING_NEW_DLT_RATIO_MAX: Final = 1.0
UNCHANGED_S_MAX: Final = 1.0
FIRST_COPY_RCLONE_RATIO_MAX: Final = 1.5

_ROWS: Final = 50_000
_COLUMNS: Final = ("way", "median", "min", "max")


def measure(world: World, options: Options) -> list[Table]:
    nothing, runs = _measure_nothing_new(world, options)
    copies, repeated = _measure_copies(world, options)
    return [nothing, *copies, _write_cost({"a run that finds nothing new": runs, "an unchanged copy": repeated})]


def _measure_nothing_new(world: World, options: Options) -> tuple[Table, Samples]:
    """Everything is loaded before; then each tool looks again, and finds nothing."""
    folder = world.home / "typed"
    workload = plan_mixed(["typed"], _ROWS)
    make_tables(world, workload)
    ours = [tool for tool in list_ours(world) if tool.name in {OURS, OURS_ALONE}]
    dlt, *_others = list_dlt(world, make_environment(folder / "dlt", DLT))
    tools = {tool.name: tool for tool in (*ours, dlt)}
    places = {name: folder / f"place{number}" for number, name in enumerate(tools)}
    samples = Samples()
    for name, tool in tools.items():
        tool.load(workload.tables, places[name], 0)
    for name in in_turns(list(tools), options.runs):
        samples.add(name, tools[name].load(workload.tables, places[name], _ROWS).wall_s)
    notes = (
        *(verdict(name, samples.median(name), NOTHING_NEW_S_MAX) for name in (OURS, OURS_ALONE)),
        *_judge_ratios(samples, dlt.name, NOTHING_NEW_DLT_RATIO_MAX),
    )
    return _write_table(f"A run that finds nothing new: {workload.title}", samples, dlt.name, notes), samples


def _measure_copies(world: World, options: Options) -> tuple[list[Table], Samples]:
    load = Load("files", 2_000 if options.quick else 20_000, 4 * KIB)
    rclone = find_rclone(world.home / "rclone")
    first, unsynced, repeated = Samples(), Samples(), Samples()
    with open_place(world.home) as folder:
        source = folder / "source"
        make_tree(source, load)

        def copy_by_rclone(source: Path, target: Path) -> None:
            run_rclone(rclone, ["copy", str(source), str(target)])

        copies: dict[str, Copy] = {
            OURS: partial(_copy_anew, world, True),
            OURS_ALONE: partial(_copy_anew, world, False),
            RCLONE: copy_by_rclone,
        }
        for name in in_turns(list(copies), options.runs):
            time_copy(name, copies[name], source, folder / "target", first, unsynced)
            require_whole(folder / "target", load)
            shutil.rmtree(folder / "target")
        jobs = {name: _describe(source, folder / name.replace(" ", "_")) for name in (OURS, OURS_ALONE)}
        again = {name: partial(_run, world, name == OURS, job) for name, job in jobs.items()}
        again[RCLONE] = partial(copy_by_rclone, source, folder / "copied")
        for copy in again.values():
            copy()
        for name in in_turns(list(again), options.runs):
            repeated.add(name, timed(again[name]))
    notes = (rclone.version, "After each copy the file system of the target is synced, which counts.")
    return [
        _write_table(
            f"A first copy: {load.describe()}",
            first,
            RCLONE,
            (*notes, *_judge_ratios(first, RCLONE, FIRST_COPY_RCLONE_RATIO_MAX)),
        ),
        _write_table(
            f"An unchanged copy: {load.describe()}",
            repeated,
            RCLONE,
            tuple(verdict(name, repeated.median(name), UNCHANGED_S_MAX) for name in (OURS, OURS_ALONE)),
        ),
    ], repeated


def _describe(source: Path, target: Path) -> Mapping[str, Any]:
    target.mkdir()
    return describe_copy(source, str(target))


def _copy_anew(world: World, with_dagster: bool, source: Path, target: Path) -> None:  # noqa: FBT001  given by position to partial
    _run(world, with_dagster, _describe(source, target))


def _run(world: World, with_dagster: bool, options: Mapping[str, Any]) -> None:  # noqa: FBT001  given by position to partial
    run_command(world, options, with_dagster=with_dagster)


def _judge_ratios(samples: Samples, peer: str, ratio_max: float) -> Sequence[str]:
    return [
        verdict(f"{name}, beside {peer}", samples.median(name) / samples.median(peer), ratio_max, "times")
        for name in (OURS, OURS_ALONE)
    ]


def _write_table(title: str, samples: Samples, peer: str, notes: Sequence[str]) -> Table:
    ratios = {name: f"{samples.median(name) / samples.median(peer):.2f}" for name in samples.by_name}
    order = (OURS, OURS_ALONE, peer)
    rows = tuple(samples.row(name, ratios[name]) for name in order)
    return Table(title, (*_COLUMNS, f"ratio to {peer}"), rows, tuple(notes))


def _write_cost(commands: Mapping[str, Samples]) -> Table:
    rows = [
        (title, *map(seconds, (told, alone, told - alone)))
        for title, samples in commands.items()
        for told, alone in [(samples.median(OURS), samples.median(OURS_ALONE))]
    ]
    return Table("Dagster's cost per command", ("command", "by default", "--no-dagster", "Dagster's cost"), tuple(rows))
