"""What `gobblin-assets plan` takes for many partitions of many tables: time, processor, and memory of its process."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.tables import Options, Samples, Table, verdict
from benchmarks.world import SOURCE, World

TABLES = 200
TABLES_QUICK = 4
DAYS = 365
PROCESSOR_S_MAX = 10.0
MEMORY_MB_MAX = 300.0

WALL, PROCESSOR, MEMORY = "elapsed", "processor", "largest memory (MB)"


def measure(world: World, options: Options) -> list[Table]:
    count = TABLES_QUICK if options.quick else TABLES
    _make_tables(world, count)
    job = _write_job(world, count)
    samples = Samples()
    for _run in range(options.runs):
        samples.add_all(_plan(world, job))
    spent, memory = samples.median(PROCESSOR), samples.median(MEMORY)
    notes = (
        f"{count * DAYS:,} partitions, each of one row.",
        "Before plans asked for many partitions at once, 200 tables took 88 s of a processor and 806 MB.",
        verdict("processor", spent, PROCESSOR_S_MAX),
        verdict("memory", memory, MEMORY_MB_MAX, "MB"),
    )
    rows = (samples.row(WALL), samples.row(PROCESSOR), (MEMORY, *_megabytes_of(samples)))
    return [Table(f"Plan {count} tables of {DAYS} days", ("", "median", "smallest", "largest"), rows, notes)]


def _make_tables(world: World, count: int) -> None:
    with world.open_source() as connection:
        for number in range(count):
            connection.execute(
                f"CREATE TABLE public.t{number:03} AS"
                f" SELECT n AS id, timestamp '2024-01-01' + n * interval '1 day' AS at"
                f" FROM generate_series(0, {DAYS - 1}) n"
            )
            connection.execute(f"ALTER TABLE public.t{number:03} ALTER at SET NOT NULL")
            connection.execute(f"CREATE INDEX ON public.t{number:03} (at)")
        connection.execute("ANALYZE")


def _write_job(world: World, count: int) -> Path:
    datasets = [
        {
            "urn": f"public.t{number:03}",
            "extract": "append_only",
            "watermark": {"column": "at"},
            "primary_key": ["id"],
            "partitions": {"kind": "daily", "start": "2024-01-01"},
        }
        for number in range(count)
    ]
    job = {
        "job": "many",
        "source": {"connection": "bench"},
        "destination": str(world.destination),
        "datasets": datasets,
    }
    path = world.home / "many.yaml"
    path.write_text(json.dumps(job))
    return path


def _plan(world: World, job: Path) -> dict[str, float]:
    variables = {
        "GOBBLIN_HOME": str(world.home),
        "GOBBLIN_JDBC_BENCH_URL": world.server.jdbc_url(SOURCE),
        "GOBBLIN_JDBC_BENCH_USER": world.server.user,
        "GOBBLIN_JDBC_BENCH_PASSWORD": world.server.password(),
    }
    days = "2024-01-01...2024-12-30"
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "gobblin_assets.cli", "plan", str(job), "--partition-range", days],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
    )
    _pid, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"plan failed: {status}")
    return {
        WALL: time.monotonic() - began,
        PROCESSOR: used.ru_utime + used.ru_stime,
        MEMORY: used.ru_maxrss / 1024,
    }


def _megabytes_of(samples: Samples) -> tuple[str, str, str]:
    values = samples.by_name[MEMORY]
    return (_megabytes(samples.median(MEMORY)), _megabytes(min(values)), _megabytes(max(values)))


def _megabytes(value: float) -> str:
    return f"{value:,.0f}"
