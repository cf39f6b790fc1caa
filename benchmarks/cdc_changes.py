"""A backlog of changes of Postgres, read by a worker of a sink and by ``pg_recvlogical``, which writes what it gets.

Every reading has a slot of its own, made before the changes were; both ways read the same ones.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.cdc_world import PUBLICATION, TABLES, LogSource, count_begun, count_rows, open_log_source
from benchmarks.sink_world import SinkJob, bound_at_least, postgres_s, work_until
from benchmarks.tables import Options, Samples, Table, in_turns, seconds
from benchmarks.world import SOURCE, World
from gobblin_assets.db.cluster import get_binary

ROWS, ROWS_QUICK = 2_000_000, 100_000
WALL_SHARE_MIN, CPU_RATE_MIN = 0.4, 150_000.0

WORKER, RECEIVER = "sink run: Parquet, published", "pg_recvlogical: a file"

# So that the end of the backlog is published soon.
_SINK: Final = {"roll": {"age_s": 2}}
_ROW_BYTES_MIN: Final = 20
"""Of the message of a row: a smaller file has only a part of the backlog."""


@dataclass(frozen=True, slots=True)
class SpentSeconds:
    """Seconds of the way's own process, of the server that is read, and of the clock."""

    cpu_s: float
    server_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class Backlog:
    source: LogSource
    rows: int
    end: int


def measure(world: World, options: Options) -> list[Table]:
    wanted = ROWS_QUICK if options.quick else ROWS
    with open_log_source(world) as source:
        source.make_tables()
        jobs = [begin_job(source) for _run in range(options.runs)]
        slots = [f"receiver_{run}" for run in range(options.runs)]
        for slot in slots:
            source.ask("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')::text", slot)
        backlog = Backlog(source, source.write_changes(wanted, 1), source.find_end())
        ways: dict[str, Callable[[], SpentSeconds]] = {
            WORKER: lambda: read_by_worker(backlog, jobs.pop()),
            RECEIVER: lambda: _by_receiver(backlog, slots.pop()),
        }
        cpu, server, wall = Samples(), Samples(), Samples()
        for name in in_turns(list(ways), options.runs):
            sys.stderr.write(f"  {name} …\n")
            spent = ways[name]()
            cpu.add(name, spent.cpu_s)
            server.add(name, spent.server_s)
            wall.add(name, spent.wall_s)
    return [_describe(backlog.rows, cpu, server, wall)]


def begin_job(source: LogSource) -> SinkJob:
    """Its slot is there, and all that comes from now on belongs to its tables."""
    job = source.make_job(TABLES, {"first_copy": False}, sink=_SINK)
    work_until(job, lambda: count_begun(job) == len(TABLES), "the beginning of the tables' logs")
    return job


def read_by_worker(backlog: Backlog, job: SinkJob) -> SpentSeconds:
    before_s = postgres_s(backlog.source.server)
    cpu_s, wall_s = work_until(job, lambda: count_rows(job) >= backlog.rows, "the end of the backlog")
    spent = SpentSeconds(cpu_s, postgres_s(backlog.source.server) - before_s, wall_s)
    if count_rows(job) != backlog.rows:
        raise RuntimeError(f"{count_rows(job):,} rows were published of {backlog.rows:,}")
    for folder in backlog.source.world.written():
        shutil.rmtree(folder)
    return spent


def _by_receiver(backlog: Backlog, slot: str) -> SpentSeconds:
    server = backlog.source.server
    file = backlog.source.world.home / slot
    before_s, begun_s = postgres_s(server), time.monotonic()
    process = subprocess.Popen(
        [
            *(str(get_binary("pg_recvlogical")), "--start", "--no-loop", "--no-password"),
            *("--host", server.host, "--port", str(server.port), "--username", server.user, "--dbname", SOURCE),
            *("--slot", slot, "--file", str(file), "--endpos", f"{backlog.end >> 32:X}/{backlog.end & 0xFFFFFFFF:X}"),
            *("--option", "proto_version=1", "--option", f"publication_names={PUBLICATION}"),
            *("--option", "messages=true"),
        ],
        env={**os.environ, "PGPASSFILE": str(server.password_file)},
    )
    _pid, status, usage = os.wait4(process.pid, 0)
    wall_s = time.monotonic() - begun_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"pg_recvlogical ended with {process.returncode}")
    if file.stat().st_size < backlog.rows * _ROW_BYTES_MIN:
        raise RuntimeError(f"pg_recvlogical wrote {file.stat().st_size:,} bytes for {backlog.rows:,} rows")
    file.unlink()
    return SpentSeconds(usage.ru_utime + usage.ru_stime, postgres_s(server) - before_s, wall_s)


def _describe(rows: int, cpu: Samples, server: Samples, wall: Samples) -> Table:
    speeds = {name: rows / wall.median(name) for name in wall.by_name}
    rates = {name: rows / cpu.median(name) for name in cpu.by_name}
    lines = [
        (*wall.row(name), f"{speeds[name]:,.0f}", seconds(cpu.median(name)), f"{rates[name]:,.0f}",
         seconds(server.median(name)))
        for name in wall.by_name
    ]  # fmt: skip
    return Table(
        f"{rows:,} changes of Postgres, a backlog",
        ("way", "wall, median", "min", "max", "rows/s", "CPU", "rows in a CPU second", "CPU of the source"),
        tuple(lines),
        (
            (
                f"{len(TABLES)} tables of 6 columns; transactions of 1 to 200 rows on one to three of them; of ten "
                "statements six insert, three update and one deletes."
            ),
            "The worker: without the start of its process and its imports, until the last row is published.",
            "It takes its lanes first, cuts every two seconds, and its wall includes the wait for the last cut.",
            "pg_recvlogical of the same Postgres writes the messages of pgoutput as they come.",
            bound_at_least("rows/s, of pg_recvlogical's", speeds[WORKER] / speeds[RECEIVER], WALL_SHARE_MIN),
            bound_at_least("rows in a CPU second", rates[WORKER], CPU_RATE_MIN),
        ),
    )
