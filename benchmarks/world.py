"""A private world for the figures: a home with its own embedded Postgres, a source, a destination.

The server is the default one of users, with fsync on. At the end the server is stopped and its home removed.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from gobblin_assets.db import embedded
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import connect
from gobblin_assets.destinations.registry import open_destination
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.arrow_worker import ArrowWorker
from gobblin_assets.jobs.ingest.extractor import SparkExtractor
from gobblin_assets.jobs.ingest.ingest_kind import IngestKind
from gobblin_assets.jobs.ingest.worker import IngestWorker
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.destination import DestinationRequest
from gobblin_assets.run.job_kind import Worker
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.run_values import RunPorts, RunReport, RunRequest
from gobblin_assets.run.runner import run_request
from gobblin_assets.run.stores import Stores
from gobblin_assets.settings import Settings
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.source import JdbcSource
from gobblin_assets.sources.source_port import Source
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets
from gobblin_assets.spec.job_spec import JobSpec

SOURCE = "bench_source"
TABLE = "public.events"
COLUMNS = ("id", "customer", "amount", "noted_at", "note")


@dataclass(frozen=True, slots=True)
class World:
    """``destination`` takes what is published; ``engine`` is the log's."""

    home: Path
    destination: Path
    server: EmbeddedServer
    engine: Engine

    @property
    def connection(self) -> JdbcConnection:
        return connection_of(self.server)

    def written(self) -> list[Path]:
        """The directories at the destination. The file that names its owner stays for the next run."""
        return [child for child in self.destination.iterdir() if child.is_dir()]

    def open_source(self) -> "psycopg.Connection[Any]":
        return open_source(self.server)

    def make_events(self, count: int) -> None:
        """A new table of narrow rows: numbers, a time and a short text."""
        with self.open_source() as connection:
            connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
            connection.execute(f"""
                CREATE TABLE {TABLE} (id bigint PRIMARY KEY, customer int, amount double precision,
                                      noted_at timestamp, note text)
            """)
        add_events(self.server, 0, count)
        with self.open_source() as connection:
            connection.execute(f"VACUUM ANALYZE {TABLE}")


def connection_of(server: EmbeddedServer) -> JdbcConnection:
    return JdbcConnection(url=server.jdbc_url(SOURCE), user=server.user, password=server.password(), name="bench")


def open_source(server: EmbeddedServer) -> "psycopg.Connection[Any]":
    url = server.url(SOURCE).replace("+psycopg", "", 1)
    return psycopg.connect(url, autocommit=True)


def add_events(server: EmbeddedServer, first: int, count: int) -> None:
    with open_source(server) as connection:
        connection.execute(
            f"""
            INSERT INTO {TABLE}
            SELECT n, n %% 100000, n * 0.25, timestamp '2024-01-01' + n * interval '1 second', 'note ' || n %% 1000
              FROM generate_series(%s::bigint, %s::bigint) n
            """,
            [first, first + count - 1],
        )


@contextmanager
def open_world() -> Iterator[World]:
    home = Path(tempfile.mkdtemp(prefix="gobblin-bench-"))
    # If root starts the server, it runs as another user, who must be able to enter the folder.
    home.chmod(0o755)
    try:
        engine = connect(Settings(home), _say_nothing)
        server = embedded.start(home, _say_nothing)
        embedded.create_database(server, SOURCE)
        destination = home / "lake"
        destination.mkdir()
        try:
            yield World(home, destination, server, engine)
        finally:
            engine.dispose()
            embedded.stop(home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def reopen_world(home: Path) -> World:
    """The world of another process; that process still owns and removes it."""
    return World(home, home / "lake", embedded.start(home, _say_nothing), connect(Settings(home), _say_nothing))


def environment_of(world: World) -> dict[str, str]:
    """Of commands in this world. Dagster's instance is the home's own, as for a person who names none."""
    inherited = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    return {
        **inherited,
        "GOBBLIN_HOME": str(world.home),
        "GOBBLIN_JDBC_BENCH_URL": world.server.jdbc_url(SOURCE),
        "GOBBLIN_JDBC_BENCH_USER": world.server.user,
        "GOBBLIN_JDBC_BENCH_PASSWORD": world.server.password(),
    }


def count_events(world: World) -> int:
    with world.open_source() as connection:
        rows = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchall()
    return int(rows[0][0])


def publish_events(
    world: World, spark: SparkSession, job: str, *, split: Mapping[str, Any], destination: str
) -> RunReport:
    """``run_events``, read without Spark: a job does so by itself if the table needs none of Spark's work."""
    spec = parse_job(describe_events(world, job, split, destination))
    fs, root = open_file_system(spec.destination, umask=spec.umask)
    stores = open_stores(world.engine)

    def open_worker() -> Worker:
        return IngestWorker(lambda: SparkExtractor(spark, fs, stores.published), lambda: ArrowWorker(fs))

    source = JdbcSource(world.connection, spec.source)
    return run_all(spec, fs, root, stores=stores, source=source, open_extractor=open_worker, spark=spark)


def describe_events(world: World, job: str, split: Mapping[str, Any], destination: str | None = None) -> dict[str, Any]:
    """The options of a job that appends what is new in the events. ``destination`` None: the world's own."""
    return {
        "job": job,
        "source": {"connection": "bench"},
        "destination": destination or str(world.destination),
        "datasets": [
            {"urn": TABLE, "extract": "append_only", "watermark": {"column": "id"}, "split": dict(split)},
        ],
    }


def run_events(
    world: World,
    spark: SparkSession,
    job: str,
    *,
    split: Mapping[str, Any],
    wrap: Callable[[FileSystem], FileSystem] = lambda fs: fs,
    destination: str | None = None,
) -> RunReport:
    """Append what is new in the events to the dataset of ``job``. ``wrap`` may give another file system.

    RuntimeError unless everything was published: a failed run gives no figure.
    """
    return run_by_spark(world, spark, parse_job(describe_events(world, job, split, destination)), wrap=wrap)


def run_by_spark(
    world: World, spark: SparkSession, spec: JobSpec, *, wrap: Callable[[FileSystem], FileSystem] = lambda fs: fs
) -> RunReport:
    """``run_all`` of a job over tables of the world, all of which Spark reads. ``wrap`` as in ``run_events``."""
    plain, root = open_file_system(spec.destination, umask=spec.umask)
    fs = wrap(plain)
    stores = open_stores(world.engine)
    return run_all(
        spec,
        fs,
        root,
        stores=stores,
        source=JdbcSource(world.connection, spec.source),
        open_extractor=lambda: SparkExtractor(spark, fs, stores.published),
        spark=spark,
    )


def run_all(
    spec: JobSpec,
    fs: FileSystem,
    root: str,
    *,
    stores: Stores,
    source: Source,
    open_extractor: Callable[[], Worker],
    spark: SparkSession,
) -> RunReport:
    """Append what is new in all datasets of a job, by the same parts that its assets use.

    RuntimeError unless every dataset was published: a failed run gives no figure.
    """
    datasets = resolve_datasets(spec, None)
    ports = RunPorts(
        stores=stores,
        destination=open_destination(
            DestinationRequest(
                JobName(spec.job), spec.destination, fs, root, stores, lambda _uri: (fs, root), SystemClock().new_id
            )
        ),
        open_file_system=lambda _uri: (fs, root),
        kind=IngestKind(datasets, source, lambda: spark, open_extractor),
        interrupt=lambda _attempt: None,
        clock=SystemClock(),
        say=_say_nothing,
        on_publication=lambda _report: None,
    )
    selection = dict.fromkeys(datasets, (WHOLE,))
    try:
        report = run_request(RunRequest(spec, selection, mode=Mode.APPEND), ports)
    except GobblinError as error:
        raise RuntimeError(f"the run of {spec.job} failed") from error
    unpublished = [each for each in report.datasets if each.publication is None]
    if report.failed or unpublished:
        raise RuntimeError(f"the run of {spec.job} published less than all: {(*report.failed, *unpublished)[0].error}")
    return report


def new_job() -> str:
    return f"bench_{uuid.uuid4().hex[:12]}"


def _say_nothing(_line: str) -> None:
    pass
