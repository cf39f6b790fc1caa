"""What Dagster costs a command, and how soon Dagster shows what the command published: copies of one new file.

Commands by default and with ``--no-dagster`` run in turns, beside a `dagster dev` of the same home. The delay is from
the end of the command's process to the moment at which this process finds its run finished in Dagster's storage.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.dagster_dev import DagsterDev, open_dagster
from benchmarks.tables import Options, Samples, Table, seconds
from benchmarks.world import World
from gobblin_assets.settings import HOME_VARIABLE

COMMANDS: Final = 30
COMMANDS_QUICK: Final = 3
SHOWN_S_MAX: Final = 60.0
_POLL_S: Final = 0.05
_LOCATION: Final = "gobblin_assets.definitions"
_WAYS: Final = {"by default": (), "with --no-dagster": ("--no-dagster",)}
_SHOWN: Final = "from the command's end until Dagster shows it"


def measure(world: World, options: Options) -> list[Table]:
    folder, count = world.home / "reports", COMMANDS_QUICK if options.quick else COMMANDS
    source, job = folder / "in", folder / "mirror.yaml"
    source.mkdir(parents=True)
    job.write_text(f"job: mirror\nkind: distcp\nsource: {source}\ndestination: {folder / 'out'}\n", encoding="utf-8")
    samples = Samples()
    with open_dagster(world.home, _LOCATION, {"GOBBLIN_JOBS": str(job)}) as dev:
        for number in range(count):
            for name, given in _WAYS.items():
                (source / f"{number} {name}").write_text("new", encoding="utf-8")
                begun_s = time.monotonic()
                run_id = _run(world, job, given)
                samples.add(f"a command {name}", time.monotonic() - begun_s)
                if not given:
                    samples.add(_SHOWN, _wait_until_shown(dev, run_id))
    shown = samples.by_name[_SHOWN]
    late = statistics.quantiles(shown, n=20)[-1] if len(shown) > 1 else shown[0]
    table = Table(
        "Dagster's part in a command",
        ("what", "median", "min", "max"),
        (*(samples.row(name) for name in samples.by_name), (f"{_SHOWN}, 95th percentile", seconds(late), "", "")),
        (
            f"{count} commands of each kind, in turns, each with a new file; `dagster dev` with the shipped instance.",
            "Goals: Dagster costs a command at most 0.1 s, and shows it within 10 s (95th percentile).",
        ),
    )
    return [table]


def _run(world: World, job: Path, options: tuple[str, ...]) -> str:
    environment = {**os.environ, HOME_VARIABLE: str(world.home)}
    command = [str(Path(sys.executable).with_name("gobblin-assets")), "run", str(job), "--json", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)["run_id"])


def _wait_until_shown(dev: DagsterDev, run_id: str) -> float:
    begun_s = time.monotonic()
    while True:
        run = dev.instance.get_run_by_id(run_id)
        passed_s = time.monotonic() - begun_s
        if run is not None and run.is_finished:
            return passed_s
        if passed_s > SHOWN_S_MAX:
            raise RuntimeError(f"Dagster has not shown the run {run_id} within {SHOWN_S_MAX:.0f} s")
        time.sleep(_POLL_S)
