"""A copy that is killed half-way, and how much of what it had finished the next run copies again.

The killed run is a process of its own. The next one waits until the lease of the killed one is over.
"""

import os
import re
import shutil
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.copy_jobs import RUN_S_MAX, describe_copy, run_copy, start_command
from benchmarks.copy_trees import KIB, MEMORY, Load, make_tree, open_place, require_whole
from benchmarks.tables import Options, Samples, Table, verdict
from benchmarks.world import World
from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.jobs.copy.transfer.journal import JOURNAL_NAME

AGAIN_MAX: Final = 0.05

_LEASE_S: Final = 5.0
_POLL_S: Final = 0.05
_TAKEN: Final = re.compile(r"([\d,]+) of ([\d,]+) files were there from an earlier attempt")

_KILLED: Final = "the run that is killed"
_NEXT: Final = "the next run"
_WHOLE: Final = "a run that nobody kills"


def measure(world: World, options: Options) -> list[Table]:
    load = Load("files", 4_000 if options.quick else 100_000, 4 * KIB)
    samples, finished, again = Samples(), Samples(), Samples()
    with open_place(MEMORY) as folder:
        source, target = folder / "source", folder / "target"
        make_tree(source, load)
        for _run in range(options.runs):
            _measure_kill(world, load, source, target, (samples, finished, again))
            os.sync()
            target.mkdir()
            begun = time.monotonic()
            run_copy(world, describe_copy(source, str(target)))
            samples.add(_WHOLE, time.monotonic() - begun)
            shutil.rmtree(target)
    share = again.median(_NEXT) / finished.median(_KILLED)
    return [
        Table(
            f"A copy of {load.describe()} that is killed half-way",
            ("run", "median", "min", "max"),
            tuple(samples.row(name) for name in (_KILLED, _NEXT, _WHOLE)),
            (
                f"When it was killed, {finished.median(_KILLED):,.0f} files were finished (median).",
                f"Of these, {again.median(_NEXT):,.0f} were copied again (median).",
                "The next run's time is without the wait for the killed one's lease. It reads what it takes again.",
                verdict("Copied again, of what was finished", 100 * share, 100 * AGAIN_MAX, "%"),
            ),
        )
    ]


def _measure_kill(
    world: World, load: Load, source: Path, target: Path, measured: tuple[Samples, Samples, Samples]
) -> None:
    samples, finished, again = measured
    os.sync()
    target.mkdir()
    options = describe_copy(source, str(target), lease={"ttl_s": _LEASE_S})
    begun = time.monotonic()
    _run_until_half(world, options, target, load.file_count // 2)
    samples.add(_KILLED, time.monotonic() - begun)
    staged = _count_staged(target)
    finished.add(_KILLED, staged)
    time.sleep(2 * _LEASE_S)
    lines: list[str] = []
    begun = time.monotonic()
    run_copy(world, options, lines.append)
    samples.add(_NEXT, time.monotonic() - begun)
    taken = sum(int(found[1].replace(",", "")) for found in map(_TAKEN.search, lines) if found)
    again.add(_NEXT, staged - taken)
    require_whole(target, load)
    shutil.rmtree(target)


def _run_until_half(world: World, options: dict[str, Any], target: Path, count: int) -> None:
    """Kill the run when it has staged so many files. Its writers end with it."""
    process = start_command(world, options)
    end = time.monotonic() + RUN_S_MAX
    try:
        while process.poll() is None and time.monotonic() < end and _count_staged(target) < count:
            time.sleep(_POLL_S)
        if process.poll() is not None:
            raise RuntimeError(f"the run ended before it could be killed: {process.communicate()[0][-2000:]}")
    finally:
        process.kill()
        process.communicate()


def _count_staged(target: Path) -> int:
    """Files of attempts, which writers have in directories of their own."""
    count = 0
    for folder, _directories, names in os.walk(target / WORK_NAME):
        if any(part.startswith("w0") for part in Path(folder).parts):
            count += sum(name != JOURNAL_NAME for name in names)
    return count
