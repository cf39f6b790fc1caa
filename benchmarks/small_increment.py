"""How long a small increment takes: from the call of the run function to T3 acknowledged.

The session is one of a warm Spark Connect server. PySpark allows a process one kind of session, so all runs are in
child processes: a warm process with many runs, fresh processes with one run each, and processes that Dagster
launches (``daemon_launch``).
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import daemon_launch
from benchmarks.child import run_child
from benchmarks.increment_phases import AFTER, ALL, ENDS, FRESH_ALL, POSTGRES, ROWS, SESSION, SPLIT
from benchmarks.tables import Laps, Options, Samples, Table, verdict
from benchmarks.world import World, add_events, count_events, new_job, reopen_world, run_events
from gobblin_assets import failpoints
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.spark import connect_server
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings

WARM_S_MAX = 1.0
WARM_UP_RUNS = 5
_CHILD_S_MAX = 600
_START = ("interpreter and imports", POSTGRES, SESSION, FRESH_ALL)


def measure(world: World, options: Options) -> list[Table]:
    world.make_events(ROWS)
    settings = SparkSettings(world.home / "spark", master="local[2]", capabilities=("postgres",))
    server = connect_server.start_connect(world.home, settings, lambda _line: None)
    try:
        warm, fresh = Samples(), Samples()
        job = new_job()
        for laps in _run_child(world, server.url, job, options.runs + WARM_UP_RUNS)[WARM_UP_RUNS:]:
            warm.add_all(laps)
        for _run in range(options.runs):
            add_events(world.server, count_events(world), ROWS)
            for laps in _run_child(world, server.url, job, 1):
                fresh.add_all(laps)
        launched = daemon_launch.measure(world, options, server.url, job)
    finally:
        connect_server.stop_connect(world.home)
    return [
        Table(
            f"{ROWS:,} rows, in a warm process with an open Connect session",
            ("phase", "median", "min", "max"),
            tuple(warm.row(name) for name in warm.by_name if name not in _START),
            (
                f"Each run appends {ROWS:,} new rows of a growing table; {WARM_UP_RUNS} earlier runs are not counted.",
                verdict(ALL, warm.median(ALL), WARM_S_MAX),
            ),
        ),
        Table(
            f"{ROWS:,} rows, from a fresh process against the same warm server",
            ("phase", "median", "min", "max"),
            tuple(fresh.row(name) for name in fresh.by_name),
        ),
        launched,
    ]  # fmt: skip


def _run_child(world: World, url: str, job: str, runs: int) -> list[dict[str, float]]:
    # The child's time starts with its process; on Linux all processes share the monotonic clock.
    order = {"home": str(world.home), "url": url, "job": job, "runs": runs, "begun": time.monotonic()}
    return run_child("benchmarks.small_increment", order, timeout_s=_CHILD_S_MAX)


def _main() -> None:
    order = json.loads(sys.stdin.read())
    start = Laps(last=float(order["begun"]))
    start.lap("interpreter and imports")
    world = reopen_world(Path(order["home"]))
    start.lap(POSTGRES)
    spark = open_session(SparkSettings(world.home / "spark", remote=order["url"]))
    start.lap(SESSION)
    results = []
    for run in range(int(order["runs"])):
        if run > 0:
            add_events(world.server, count_events(world), ROWS)
        spent = _run_once(world, spark, str(order["job"]))
        if run == 0:
            spent = {**start.spent, **spent, FRESH_ALL: sum(start.spent.values()) + spent[ALL]}
        results.append(spent)
    spark.stop()
    world.engine.dispose()
    sys.stdout.write(json.dumps(results) + "\n")


def _run_once(world: World, spark: SparkSession, job: str) -> dict[str, float]:
    laps, whole = Laps(), Laps()

    def hook(point: Failpoint) -> None:
        if point in ENDS:
            laps.lap(ENDS[point])
        if point is Failpoint.FINISH_COMMITTED:
            whole.lap(ALL)

    with failpoints.install(hook):
        report = run_events(world, spark, job, split=SPLIT)
    laps.lap(AFTER)
    publication = report.datasets[0].publication
    if publication is None or publication.row_count != ROWS:
        raise RuntimeError(f"expected {ROWS} rows, published {publication}")
    return {**laps.spent, **whole.spent}


if __name__ == "__main__":
    _main()
