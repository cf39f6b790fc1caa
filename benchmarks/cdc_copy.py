"""The first copy of a table by a worker that follows its log, beside a run that takes a snapshot of the same table."""

import datetime as dt
import resource
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.cdc_world import LogSource, count_begun, count_rows, last_done_at, open_log_source
from benchmarks.sink_world import WAIT_S_MAX, JobProcess, SinkJob, bound_at_least, start_worker, write_job
from benchmarks.tables import Options, Samples, Table, in_turns, seconds
from benchmarks.world import World, new_job

ROWS, ROWS_QUICK = 5_000_000, 200_000
SHARE_MIN = 0.95

COPY, SNAPSHOT = "sink run: the first copy", "run: a snapshot"
_TABLE: Final = "orders"


@dataclass(frozen=True, slots=True)
class _Spent:
    """From the start of the process until the rows are published; ``cpu_s`` of all of the process."""

    wall_s: float
    cpu_s: float


def measure(world: World, options: Options) -> list[Table]:
    rows = ROWS_QUICK if options.quick else ROWS
    with open_log_source(world) as source:
        source.make_tables()
        source.fill(_TABLE, 1, rows)
        ways: dict[str, Callable[[], _Spent]] = {
            COPY: lambda: _copy(source, rows),
            SNAPSHOT: lambda: _take_snapshot(source, rows),
        }
        wall, cpu = Samples(), Samples()
        for name in in_turns(list(ways), options.runs):
            sys.stderr.write(f"  {name} …\n")
            spent = ways[name]()
            wall.add(name, spent.wall_s)
            cpu.add(name, spent.cpu_s)
    return [_describe(rows, wall, cpu)]


def _copy(source: LogSource, rows: int) -> _Spent:
    job = source.make_job([_TABLE], {})

    def work() -> None:
        with start_worker(job) as worker:
            worker.await_that(lambda: count_begun(job) == 1 and count_rows(job) >= rows, "the copy")
            worker.end()

    return _spend(job, rows, work)


def _take_snapshot(source: LogSource, rows: int) -> _Spent:
    described = {
        "job": new_job(),
        "source": {"type": "jdbc", "connection": "bench"},
        "destination": str(source.world.destination),
        "datasets": [{"urn": f"public.{_TABLE}"}],
    }
    job = write_job(source.world, described, source.variables)

    def work() -> None:
        with JobProcess(job, "run", str(job.file), "--no-dagster") as run:
            if run.process.wait(WAIT_S_MAX):
                raise RuntimeError(f"the run failed: {run.said[-2000:]}")

    return _spend(job, rows, work)


def _spend(job: SinkJob, rows: int, work: Callable[[], None]) -> _Spent:
    begun_at, used_s = dt.datetime.now(dt.UTC), _children_s()
    work()
    if count_rows(job) != rows:
        raise RuntimeError(f"{count_rows(job):,} rows were published of {rows:,}")
    for folder in job.world.written():
        shutil.rmtree(folder)
    return _Spent((last_done_at(job) - begun_at).total_seconds(), _children_s() - used_s)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _describe(rows: int, wall: Samples, cpu: Samples) -> Table:
    lines = [
        (*wall.row(name), f"{rows / wall.median(name):,.0f}", seconds(cpu.median(name)),
         f"{rows / cpu.median(name):,.0f}")
        for name in wall.by_name
    ]  # fmt: skip
    return Table(
        f"{rows:,} rows x 6 columns of Postgres, copied first",
        ("way", "wall, median", "min", "max", "rows/s", "CPU", "rows in a CPU second"),
        tuple(lines),
        (
            "From the start of the command until its rows are published, with all imports.",
            "The run reads by Arrow, as it does by itself; both have their defaults.",
            bound_at_least("rows/s, of the snapshot's", wall.median(SNAPSHOT) / wall.median(COPY), SHARE_MIN),
        ),
    )
