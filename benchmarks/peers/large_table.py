"""A table that is larger than the memory that a load should take, by each of our readers."""

import shutil

from benchmarks.peers.loads import measure_workload, plan_mixed
from benchmarks.peers.tools import OURS_ALONE, list_ours
from benchmarks.tables import Options, Table
from benchmarks.world import World

_ROWS = 20_000_000
_QUICK_ROWS = 200_000
_FRESH = (OURS_ALONE, "ours, by Spark's JDBC")


def measure(world: World, options: Options) -> list[Table]:
    workload = plan_mixed(["large"], _QUICK_ROWS if options.quick else _ROWS)
    tools = [tool for tool in list_ours(world) if tool.name in _FRESH]
    place = world.home / "large"
    try:
        return [measure_workload(world, workload, tools, place, options.runs)]
    finally:
        shutil.rmtree(place, ignore_errors=True)
