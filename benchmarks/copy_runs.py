"""Whole runs of a copy beside rclone, cp and rsync: listed, compared, copied, synced and published.

The target is new each time. A run publishes whole directories by a rename for each.
"""

import shutil
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.copies import SMALL_RCLONE_RATIO_MIN, judge_copies, write_copy_table
from benchmarks.copy_jobs import describe_copy, run_command, run_copy
from benchmarks.copy_trees import KIB, MEMORY, Copy, Load, make_tree, open_place, require_whole, time_copy
from benchmarks.machine import find_file_system
from benchmarks.peers.copy_tools import CP, CopyTools, list_copy_tools
from benchmarks.tables import Options, Samples, Table, in_turns
from benchmarks.world import World

_WARM: Final = "ours, in a warm process"
_COMMAND: Final = "ours, the command"
_NOTES: Final = (
    "Ours: a job's defaults (4 workers, attributes p and t, a CRC32C of each file, a journal), synced and published.",
    "The command starts a process, as the other tools do; a warm process is what a Dagster run or a stream has.",
    "After each copy the file system of the target is synced, which counts.",
)


def measure(world: World, options: Options) -> list[Table]:
    tools = list_copy_tools(world.home / "copies").without_distcp()
    many = Load("files", 4_000 if options.quick else 100_000, 4 * KIB)
    fewer = Load("files", 2_000 if options.quick else 20_000, 4 * KIB)
    return [
        _measure(world, many, MEMORY, tools, options, SMALL_RCLONE_RATIO_MIN),
        _measure(world, fewer, world.home, tools, options, 1.0),
    ]


def _measure(world: World, load: Load, parent: Path, tools: CopyTools, options: Options, rclone_min: float) -> Table:
    samples, unsynced = Samples(), Samples()
    ours: dict[str, Copy] = {_WARM: partial(_run_warm, world), _COMMAND: partial(_run_command, world)}
    copies = {**ours, **tools.copies}
    with open_place(parent) as folder:
        source, target = folder / "source", folder / "target"
        make_tree(source, load)
        for name in in_turns(list(copies), options.runs):
            time_copy(name, copies[name], source, target, samples, unsynced)
            require_whole(target, load)
            shutil.rmtree(target)
    place = find_file_system(parent)
    verdicts = [line for name in ours for line in judge_copies(name, samples, rclone_min, None)]
    beside = (
        f"cp -r takes {samples.median(CP) / samples.median(_WARM):.2f} of a warm run's time." if CP in copies else ""
    )
    title = f"Whole runs of a copy: {load.describe()}, {place} to {place}"
    notes = (*_NOTES, *tools.notes, *([beside] if beside else []), *verdicts)
    return write_copy_table(title, load, samples, unsynced, notes)


def _run_warm(world: World, source: Path, target: Path) -> None:
    target.mkdir()
    run_copy(world, describe_copy(source, str(target)))


def _run_command(world: World, source: Path, target: Path) -> None:
    target.mkdir()
    run_command(world, describe_copy(source, str(target)))
