"""A database with a steady light load: from a commit until its rows are published, with a cut a second."""

import datetime as dt
import time
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from benchmarks.cdc_world import TABLES, LogSource, count_begun, count_rows, open_log_source
from benchmarks.sink_world import (
    JobProcess,
    PublishedVnode,
    SinkJob,
    bound_at_most,
    percentile,
    postgres_s,
    start_worker,
)
from benchmarks.tables import Options, Samples, Table
from benchmarks.world import World, open_source

COMMITS_PER_S: Final = 50.0
ROWS_OF_A_COMMIT: Final = 4
ROUND_S, ROUND_S_QUICK = 20.0, 5.0
VISIBLE_S_MAX = 2.0
EVERY_S: Final = 1.0
WARM_S: Final = 3.0

_P50, _P95, _CPU, _SOURCE_CPU = "commit to visible, p50", "p95", "cores of the worker", "cores of the source"


def measure(world: World, options: Options) -> list[Table]:
    samples = Samples()
    seconds = ROUND_S_QUICK if options.quick else ROUND_S
    with open_log_source(world) as source:
        source.make_tables()
        job = source.make_job(TABLES, {}, sink={"every_s": EVERY_S, "roll": {"age_s": 0}})
        with start_worker(job) as worker:
            worker.await_that(lambda: count_begun(job) == len(TABLES), "the beginning of the tables' logs")
            written = write_steadily(source, 0, WARM_S)
            await_rows(job, worker, written)
            for _run in range(options.runs):
                written += _measure_round(source, job, worker, samples, written, seconds)
            worker.end()
    return [_describe(samples, options, seconds)]


def _measure_round(
    source: LogSource, job: SinkJob, worker: JobProcess, samples: Samples, before: int, seconds: float
) -> int:
    begun_at, begun_s = dt.datetime.now(dt.UTC), time.monotonic()
    worker_s, server_s = worker.cpu_s(), postgres_s(source.server)
    written = write_steadily(source, before, seconds)
    await_rows(job, worker, before + written)
    spent_s = time.monotonic() - begun_s
    samples.add(_CPU, (worker.cpu_s() - worker_s) / spent_s)
    samples.add(_SOURCE_CPU, (postgres_s(source.server) - server_s) / spent_s)
    delays = list_delays(source, job, begun_at)
    if len(delays) != written:
        raise RuntimeError(f"{len(delays):,} rows of {written:,} were found")
    samples.add(_P50, percentile(delays, 0.5))
    samples.add(_P95, percentile(delays, 0.95))
    return written


def write_steadily(source: LogSource, first: int, seconds: float) -> int:
    """Commit at a steady pace for so long; returns how many rows were inserted."""
    begun_s = time.monotonic()
    commits = round(COMMITS_PER_S * seconds)
    number = first
    with open_source(source.server) as connection:
        for commit in range(commits):
            time.sleep(max(0.0, begun_s + commit / COMMITS_PER_S - time.monotonic()))
            with connection.transaction():
                for _row in range(ROWS_OF_A_COMMIT):
                    connection.execute(
                        f"INSERT INTO {TABLES[number % 3]} VALUES (%s, 1, 2.5, now(), 'new', 'note')".encode(),
                        [number],
                    )
                    number += 1
    return number - first


def await_rows(job: SinkJob, worker: JobProcess, rows: int) -> None:
    worker.await_that(lambda: count_rows(job) >= rows, f"the publication of {rows:,} rows")


def list_delays(source: LogSource, job: SinkJob, after: dt.datetime) -> list[float]:
    """Of each row that was committed since: seconds until it was published."""
    return [
        delay
        for table in TABLES
        for delay in find_delays(_read_commits(source, table, after), _list_ends(job, table, after))
    ]


def _list_ends(job: SinkJob, table: str, after: dt.datetime) -> list[PublishedVnode]:
    return [each for each in job.list_published(after) if each.vnode.startswith(f"public.{table}:")]


def _read_commits(source: LogSource, table: str, after: dt.datetime) -> list[tuple[int, float]]:
    """Of each row that was committed since: where its commit is in the log, and when it was."""
    found: list[tuple[int, float]] = []
    for folder in source.world.written():
        for file in Path(folder).rglob("*.parquet"):
            if table in str(file.relative_to(source.world.destination)):
                rows = pq.read_table(file, columns=["_lsn", "_commit_at"]).to_pylist()
                found += [(row["_lsn"], row["_commit_at"].timestamp()) for row in rows if row["_commit_at"] >= after]
    return found


def find_delays(commits: Sequence[tuple[int, float]], published: Sequence[PublishedVnode]) -> list[float]:
    """Of each (place, time) of a commit: seconds until the publication that covers it was DONE."""
    ends = sorted((each.upto, each.done_at.timestamp()) for each in published)
    return [ends[bisect_right(ends, lsn, key=_end_of)][1] - at_s for lsn, at_s in commits]


def _end_of(publication: tuple[int, float]) -> int:
    return publication[0]


def _describe(samples: Samples, options: Options, seconds: float) -> Table:
    return Table(
        f"{COMMITS_PER_S:.0f} commits a second, published each second",
        ("", "median", "min", "max"),
        tuple(
            (name, *(f"{value:.2f} {unit}" for value in (samples.median(name), min(each), max(each))))
            for name, each in samples.by_name.items()
            for unit in ["cores" if name in (_CPU, _SOURCE_CPU) else "s"]
        ),
        (
            (
                f"Transactions of {ROWS_OF_A_COMMIT} rows over {len(TABLES)} tables; every barrier is a cut. "
                f"{options.runs} rounds of {seconds:.0f} s."
            ),
            "From the server's own time of the commit until T3 of the publication that has its rows.",
            bound_at_most("commit to visible, p95", samples.median(_P95), VISIBLE_S_MAX, " s"),
        ),
    )
