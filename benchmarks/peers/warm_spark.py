"""The Spark script beside our run by Spark's JDBC, in one warm session: what is left is reading and writing."""

import shutil
import uuid
from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import SparkSession

from benchmarks.peers.loads import Workload, list_workloads, make_tables
from benchmarks.peers.spark_load import PARTITIONS, copy
from benchmarks.tables import Options, Samples, Table, in_turns, timed, verdict_at_least
from benchmarks.world import World, new_job, run_by_spark
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings
from gobblin_assets.spec.job_parsing import parse_job

OF_BARE_MIN = 0.97
SCRIPT, OURS = "a Spark script (no state)", "ours, by Spark's JDBC"


def measure(world: World, options: Options) -> list[Table]:
    """``mixed`` has 12 columns, ``wide`` has 200."""
    mixed, _small, wide = list_workloads(quick=options.quick)
    scale = 100 if options.quick else 1
    workloads = [replace(mixed, rows=2_000_000 // scale), replace(mixed, rows=500_000 // scale), wide]
    conf = {"spark.driver.memory": "2g", "spark.sql.parquet.compression.codec": "zstd"}
    spark = open_session(SparkSettings(world.home / "spark", master="local[2]", conf=conf, capabilities=("postgres",)))
    try:
        return [_measure_one(world, spark, workload, options.runs) for workload in workloads]
    finally:
        spark.stop()


def _measure_one(world: World, spark: SparkSession, workload: Workload, runs: int) -> Table:
    make_tables(world, workload)
    (table,) = workload.tables
    samples = Samples()
    ways: dict[str, Callable[[], object]] = {
        SCRIPT: lambda: _run_script(world, spark, table),
        OURS: lambda: _run_ours(world, spark, table),
    }
    for way in ways.values():
        way()  # the first of each compiles
    for name in in_turns(list(ways), runs):
        samples.add(name, timed(ways[name]))
        for directory in world.written():
            shutil.rmtree(directory)
    bare = samples.median(SCRIPT)
    return Table(
        f"{workload.rows:,} rows of the table `{table}`, by Spark in a warm session",
        ("way", "median", "min", "max", "of the script's speed"),
        tuple(samples.row(name, f"{bare / samples.median(name):.2f}") for name in ways),
        (
            f"One session, local[2]. The script reads {PARTITIONS} partitions by `id`; ours has all parts of a run.",
            verdict_at_least("Ours, of the script's speed", bare / samples.median(OURS), OF_BARE_MIN, "times"),
        ),
    )


def _run_script(world: World, spark: SparkSession, table: str) -> None:
    known = world.connection
    folder = world.destination / "script" / uuid.uuid4().hex
    copy(spark, known.url, known.user or "", known.password or "", str(folder), -1, [table])


def _run_ours(world: World, spark: SparkSession, table: str) -> None:
    spec = parse_job(
        {
            "job": new_job(),
            "source": {"connection": "bench", "reader": "jdbc"},
            "destination": str(world.destination),
            "datasets": [{"urn": f"public.{table}", "extract": "append_only", "watermark": {"column": "id"}}],
        }
    )
    run_by_spark(world, spark, spec)
