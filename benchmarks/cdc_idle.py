"""A database in which only a table is written that nobody reads: what the server keeps of its log for the slot."""

import time
from dataclasses import dataclass, field
from typing import Final

from benchmarks.cdc_world import TABLES, LogSource, count_begun, open_log_source, slot_of
from benchmarks.sink_world import JobProcess, bound_at_most, postgres_s, start_worker
from benchmarks.tables import Options, Samples, Table
from benchmarks.world import World, open_source

RETAINED_MB_MAX = 64.0

_MB: Final = 1 << 20
_PUBLICATIONS: Final = """
    SELECT count(*) FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
     WHERE d.job = :job AND s.state = 'DONE'"""
_RETAINED, _WORKER, _SERVER = "retained for the slot", "the worker", "the source"


@dataclass(frozen=True, slots=True)
class Pace:
    """So much log in so much time, in equal steps. What the server keeps is looked at with each."""

    seconds: float
    log_mb: int
    steps_per_s: int


PACE, PACE_QUICK = Pace(180.0, 500, 4), Pace(30.0, 50, 4)
PACE_OF_AN_HOUR = Pace(3600.0, 1000, 1)
"""Slow, so that checkpoints and waits for the next publication are in it many times."""


@dataclass(slots=True)
class _Found:
    retained: Samples = field(default_factory=Samples)
    cores: Samples = field(default_factory=Samples)
    written_mb: float = 0.0
    publications: int = 0


def measure(world: World, options: Options) -> list[Table]:
    """Once: it takes as long as it takes."""
    return _measure(world, PACE_QUICK if options.quick else PACE)


def measure_an_hour(world: World, options: Options) -> list[Table]:
    return _measure(world, PACE_QUICK if options.quick else PACE_OF_AN_HOUR)


def _measure(world: World, pace: Pace) -> list[Table]:
    found = _Found()
    with open_log_source(world) as source:
        source.make_tables()
        source.do("CREATE TABLE unread (id bigint, filler text)")
        job = source.make_job(TABLES, {"first_copy": False})
        with start_worker(job) as worker:
            worker.await_that(lambda: count_begun(job) == len(TABLES), "the beginning of the tables' logs")
            before = job.scalar(_PUBLICATIONS)
            _write(source, worker, slot_of(job), found, pace)
            found.publications = job.scalar(_PUBLICATIONS) - before
            worker.end()
    return [_describe(found, pace.seconds)]


def _write(source: LogSource, worker: JobProcess, slot: str, found: _Found, pace: Pace) -> None:
    """The same number of bytes in each step."""
    begin = source.find_end()
    steps = round(pace.seconds * pace.steps_per_s)
    rows = round(pace.log_mb * _MB / steps / 1_000)
    begun_s, worker_s, server_s = time.monotonic(), worker.cpu_s(), postgres_s(source.server)
    with open_source(source.server) as connection:
        for step in range(steps):
            time.sleep(max(0.0, begun_s + step / pace.steps_per_s - time.monotonic()))
            connection.execute(
                "INSERT INTO unread SELECT n, repeat('x', 930) FROM generate_series(1, %s::int) n", [rows]
            )
            found.retained.add(_RETAINED, source.measure_retained(slot) / _MB)
    spent_s = time.monotonic() - begun_s
    found.cores.add(_WORKER, (worker.cpu_s() - worker_s) / spent_s)
    found.cores.add(_SERVER, (postgres_s(source.server) - server_s) / spent_s)
    found.written_mb = (source.find_end() - begin) / _MB


def _describe(found: _Found, seconds: float) -> Table:
    retained = found.retained.by_name[_RETAINED]
    sizes = (found.retained.median(_RETAINED), min(retained), max(retained))
    return Table(
        f"{found.written_mb:,.0f} MiB of log in {seconds:.0f} s, of a table that nobody reads",
        ("", "median", "min", "max"),
        (
            (_RETAINED, *(f"{value:,.1f} MiB" for value in sizes)),
            *((name, f"{found.cores.median(name):.2f} cores", "", "") for name in found.cores.by_name),
        ),
        (
            f"A job of {len(TABLES)} tables with its defaults; it published {found.publications} times, without rows.",
            "The server itself writes down only each 15 s from where a slot could go on.",
            bound_at_most("retained at most", max(retained), RETAINED_MB_MAX, " MiB"),
        ),
    )
