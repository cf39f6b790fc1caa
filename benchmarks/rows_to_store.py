"""What publishing to an object store costs: the same Spark read, written by Spark itself and published by a run."""

import os
import secrets
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.tables import Options, Samples, Table, in_turns, timed, verdict
from benchmarks.world import COLUMNS, TABLE, World, new_job, publish_events, run_events
from demo.s3.gateway import REGION, run_gateway
from gobblin_assets.fs.s3.client import S3Client
from gobblin_assets.fs.s3.requests import Repeat, S3Request
from gobblin_assets.fs.s3.s3_settings import PREFIX, read_s3_settings
from gobblin_assets.rows.parquet_writer import write_parquet
from gobblin_assets.run.run_values import RunReport
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings

PARTITIONS: Final = 4
FETCH_SIZE_ROWS: Final = 10_000
SHARE_MAX: Final = 0.05
FIXED_S_MAX: Final = 0.5
BUCKET: Final = "bench"

RENAMED: Final = "Spark, files renamed (Hadoop's default committer)"
MAGIC: Final = "Spark, S3A's magic committer"
OURS: Final = "published by a run, read by Spark"
WITHOUT_SPARK: Final = "published by a run, read without Spark"

_CLOUD: Final = "hadoop-cloud"
_COMMITTERS: Final = {
    "spark.hadoop.fs.s3a.committer.name": "magic",
    "spark.hadoop.fs.s3a.committer.magic.enabled": "true",
    # Spark's binding of them; what it asks for besides is there, or is for other stores.
    "spark.jars.excludes": "org.apache.hadoop:hadoop-cloud-storage",
}
_BINDING: Final = {
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
}


def measure(world: World, options: Options) -> list[Table]:
    rows = 40_000 if options.quick else 4_000_000
    world.make_events(rows)
    with _store(world):
        settings = SparkSettings(
            world.home / "spark",
            master="local[2]",
            conf={"spark.driver.memory": "2g", **_COMMITTERS},
            capabilities=("postgres", "s3", _CLOUD),
            coordinates={_CLOUD: "org.apache.spark:spark-hadoop-cloud_2.13:4.0.2"},
        )
        spark = open_session(settings)
        try:
            return [_measure(world, options, spark, rows)]
        finally:
            spark.stop()


@contextmanager
def _store(world: World) -> Iterator[None]:
    secret = secrets.token_urlsafe(24)
    with run_gateway(world.home / "store", "bench", secret) as port:
        given = {
            "ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "REGION": REGION,
            "ACCESS_KEY_ID": "bench",
            "SECRET_ACCESS_KEY": secret,
        }
        os.environ |= {f"{PREFIX}{name}": value for name, value in given.items()}
        S3Client(read_s3_settings(os.environ), "destination").send(S3Request("make", "PUT", BUCKET, "", Repeat.ANY))
        yield


def _measure(world: World, options: Options, spark: SparkSession, rows: int) -> Table:
    samples = Samples()
    ways: dict[str, Callable[[], object]] = {
        RENAMED: lambda: _write_bare(world, spark, rows, is_magic=False),
        MAGIC: lambda: _write_bare(world, spark, rows, is_magic=True),
        OURS: lambda: _publish(world, spark, rows, run_events),
        WITHOUT_SPARK: lambda: _publish(world, spark, rows, publish_events),
    }
    for way in ways.values():
        way()  # the first of each compiles
    for name in in_turns(list(ways), options.runs):
        samples.add(name, timed(ways[name]))
    base = samples.median(MAGIC)
    return Table(
        f"The same read of {rows:,} rows, written to a bucket of versitygw on this machine",
        ("way", "median", "min", "max", "over the magic committer"),
        tuple(samples.row(name, f"{samples.median(name) - base:+.3f} s") for name in ways),
        (
            f"One JDBC read of a local Postgres in {PARTITIONS} partitions, fetch size {FETCH_SIZE_ROWS:,}.",
            "Into zstd Parquet; Spark's own writer, and the tasks of a run.",
            "Spark's own writes have no plan, no shared snapshot and no counting; ours has all parts of a run.",
            "This table needs none of Spark's work: a job that says nothing else reads it without Spark.",
            verdict("Read by Spark and published by a run, against Spark's own write by the magic committer",
                    samples.median(OURS), base * (1 + SHARE_MAX) + FIXED_S_MAX),
            verdict("Read without Spark, against the same",
                    samples.median(WITHOUT_SPARK), base * (1 + SHARE_MAX) + FIXED_S_MAX),
        ),
    )  # fmt: skip


def _write_bare(world: World, spark: SparkSession, rows: int, *, is_magic: bool) -> None:
    bounds = [rows * part // PARTITIONS for part in range(PARTITIONS + 1)]
    frame = spark.read.jdbc(
        world.connection.url,
        f"(SELECT {', '.join(COLUMNS)} FROM {TABLE}) source",
        predicates=[f"id >= {bounds[part]} AND id < {bounds[part + 1]}" for part in range(PARTITIONS)],
        properties={**world.connection.spark_properties(), "fetchsize": str(FETCH_SIZE_ROWS)},
    )
    for name, value in _BINDING.items():
        if is_magic:
            spark.conf.set(name, value)
        else:
            spark.conf.unset(name)
    try:
        write_parquet(frame, f"s3://{BUCKET}/bare/{uuid.uuid4().hex}")
    finally:
        for name in _BINDING:
            spark.conf.unset(name)


def _publish(world: World, spark: SparkSession, rows: int, run: Callable[..., RunReport]) -> None:
    split = {"work_unit_rows": rows // PARTITIONS, "max_partitions": PARTITIONS, "max_multi_work_units": 1,
             "fetch_size_rows": FETCH_SIZE_ROWS}  # fmt: skip
    report = run(world, spark, new_job(), split=split, destination=f"s3://{BUCKET}/{uuid.uuid4().hex}")
    publication = report.datasets[0].publication
    if publication is None or publication.row_count != rows:
        raise RuntimeError(f"expected {rows} rows, published {publication}")
