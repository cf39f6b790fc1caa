"""How long Spark takes until the first Parquet is written, from a fresh process, with and without its class archive."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.child import run_child
from benchmarks.tables import Options, Samples, Table, in_turns
from benchmarks.world import World
from gobblin_assets.spark.class_archive import make_archive
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings

WITH: Final = "with the archive"
WITHOUT: Final = "without"

_CLOCK: Final = "clock"
_PROCESSOR: Final = "processor"
_CHILD_S_MAX: Final = 300.0


def measure(world: World, options: Options) -> list[Table]:
    begun = time.monotonic()
    archive = make_archive(lambda line: print(line, file=sys.stderr))
    made_s = time.monotonic() - begun
    samples = Samples()
    for name in in_turns([WITH, WITHOUT], options.runs):
        order = {"work": str(world.home / "spark"), "cache": "" if name == WITH else str(world.home / "no cache")}
        found = run_child("benchmarks.spark_start", {**order, "begun": time.monotonic()}, timeout_s=_CHILD_S_MAX)[0]
        for what, seconds in found.items():
            samples.add(f"{name}: {what}", seconds)
    return [
        Table(
            "From a fresh process to the first Parquet that Spark wrote",
            ("way", "median", "min", "max", "ratio to without"),
            tuple(
                samples.row(
                    f"{name}: {what}",
                    f"{samples.median(f'{name}: {what}') / samples.median(f'{WITHOUT}: {what}'):.2f}",
                )
                for what in (_CLOCK, _PROCESSOR)
                for name in (WITH, WITHOUT)
            ),
            (
                "local[2], one query, ten rows written and read; processor seconds are those of the JVM.",
                f"The archive has {archive.stat().st_size / 1e6:.0f} MB. Now it was made, or found, in {made_s:.1f} s.",
            ),
        )
    ]


def _main() -> None:
    order = json.loads(sys.stdin.read())
    if order["cache"]:
        os.environ["XDG_CACHE_HOME"] = order["cache"]
    work = Path(order["work"])
    spark = open_session(SparkSettings(work, master="local[2]"))
    target = str(work / f"rows-{os.getpid()}")
    spark.range(10).write.parquet(target)
    assert spark.read.parquet(target).count() == 10
    spent = {_CLOCK: time.monotonic() - float(order["begun"]), _PROCESSOR: _processor_s_of_children()}
    spark.stop()
    sys.stdout.write(json.dumps([spent]) + "\n")


def _processor_s_of_children() -> float:
    """Of the JVM, which this process never waits for."""
    total = 0
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split():
        fields = Path("/proc", pid, "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    _main()
