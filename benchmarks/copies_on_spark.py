"""One plan of files, copied by this machine, by Spark's executors on the same machine, and by what ``auto`` takes.

Executors on one machine can't be faster than its own processes: the figures are what a Spark job adds to the same work.
The session, its executors and their Python workers are there already, as are the processes of the other way.
"""

import shutil
from collections.abc import Callable
from functools import partial
from typing import Final

from benchmarks.copies import count_processors, plan_directories, stage_items
from benchmarks.copy_trees import KIB, MEMORY, MIB, Load, make_tree, open_place, require_whole
from benchmarks.tables import Options, Samples, Table, in_turns, timed, verdict
from benchmarks.world import World
from gobblin_assets.jobs.copy.transfer.choice import ChosenTransfer
from gobblin_assets.jobs.copy.transfer.local import LocalTransfer
from gobblin_assets.jobs.copy.transfer.transfer_port import TransferWay
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine

AUTO_RATIO_MAX: Final = 1.2

_EXECUTORS: Final = 2
_MEMORY_MIB: Final = 1_024


def measure(world: World, options: Options) -> list[Table]:
    loads = [
        Load("small files", 2_000 if options.quick else 20_000, 4 * KIB),
        Load("large files", 4, 64 * MIB if options.quick else 512 * MIB),
    ]
    cores = max(1, count_processors() // _EXECUTORS)
    master = f"local-cluster[{_EXECUTORS},{cores},{_MEMORY_MIB}]"
    engine = SparkEngine(master=master, work_folder=str(world.home / "spark"))
    said: list[str] = []
    try:
        with LocalTransfer() as local:
            local.prepare(count_processors())
            ways = {way: ChosenTransfer(way, local, engine, said.append) for way in TransferWay}
            return [_measure(load, ways, options, said) for load in loads]
    finally:
        engine.get_session().stop()


def _measure(load: Load, ways: dict[TransferWay, ChosenTransfer], options: Options, said: list[str]) -> Table:
    samples = Samples()
    with open_place(MEMORY) as folder:
        source, target = folder / "source", folder / "target"
        make_tree(source, load)
        items = list(plan_directories(source))
        copies: dict[str, Callable[[], object]] = {
            way.value: partial(stage_items, transfer, items, source, target) for way, transfer in ways.items()
        }
        # The first job starts the Python workers, which import what copies.
        copies[TransferWay.SPARK.value]()
        shutil.rmtree(target)
        for name in in_turns(list(copies), options.runs):
            samples.add(name, timed(copies[name]))
            require_whole(target, load)
            shutil.rmtree(target)
    better = min(samples.median(way.value) for way in (TransferWay.LOCAL, TransferWay.SPARK))
    return Table(
        f"Copies by this machine and by Spark: {load.describe()}",
        ("transfer", "median", "smallest", "largest", "files/s", "GB/s"),
        tuple(samples.row(name, *load.describe_speed(samples.median(name))) for name in copies),
        (
            f"{_EXECUTORS} executors on this machine, tmpfs to tmpfs, with checksums.",
            *dict.fromkeys(said),
            verdict("auto", samples.median(TransferWay.AUTO.value), AUTO_RATIO_MAX * better),
        ),
    )
