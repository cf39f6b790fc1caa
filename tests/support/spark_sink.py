"""A sink over topics of a broker whose worker works in this process, with a Spark session that is open already."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from gobblin_assets import failpoints
from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.db.engine import open_external
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.extractor import SparkExtractor
from gobblin_assets.jobs.sink.running import open_worker, read_sink_datasets
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.rows.dataset_reader import read_dataset
from gobblin_assets.run.job_kind import Worker
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.connection import LogConnection
from gobblin_assets.sources.environment import read_connection
from gobblin_assets.spark.cancellation import interrupt_described
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.spec.job_spec import JobSpec
from tests.support.spark import SMALL

PATIENCE_S = 120.0

Row = tuple[Any, ...]


@dataclass
class OpenSpark:
    """``SinkSpark`` over one session. ``jobs`` counts what Spark was asked to write."""

    session: SparkSession
    remote: str | None = None
    opened: list[Worker] = field(default_factory=list)

    def get_session(self, job: JobSpec | None = None) -> SparkSession:
        del job
        return self.session

    def open_extractor(self, job: JobSpec, stores: Stores) -> Worker:
        fs, _root = open_file_system(job.destination, umask=job.umask)
        self.opened.append(SparkExtractor(self.session, fs, stores.published, umask=job.umask))
        return self.opened[-1]

    def interrupt(self, attempt: AttemptRecord) -> None:
        interrupt_described(self.remote, attempt.interruption)


@dataclass
class SparkSink:
    """``ends``: where the worker's work is over, by vnode; it is asked again and again.

    ``by_spark``: Spark makes the rows, also of datasets that Arrow could make them of.
    """

    database_url: str
    root: str
    datasets: Sequence[Mapping[str, Any]]
    spark: OpenSpark
    ends: Callable[[], Mapping[str, int]]
    options: Mapping[str, Any] = field(default_factory=dict)
    by_spark: bool = False
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = open_external(self.database_url)
        self.stores = open_stores(self.engine)

    @property
    def job(self) -> JobSpec:
        return parse_job(
            {
                "job": "lake",
                "source": {"type": "kafka", "connection": "shop"},
                "destination": self.root,
                "datasets": list(self.datasets),
                "lease": {"ttl_s": 20},
                "retire_grace_s": 0.0,
                "sink": {"lanes": 2, "every_s": 0.3, "roll": {"age_s": 0.0}},
                **self.options,
            }
        )

    def work(self, is_over: Callable[[], bool] | None = None) -> None:
        """Be a worker until all is published."""
        until_s = time.monotonic() + PATIENCE_S
        ask = is_over or self.is_published

        def wait(seconds: float) -> bool:
            time.sleep(seconds)
            assert time.monotonic() < until_s, f"the worker did not get on: {self.lines[-8:]}"
            return ask()

        with self.opened(wait) as run:
            run()

    @contextmanager
    def opened(self, wait: Callable[[float], bool]) -> Iterator[Callable[[], None]]:
        specs = read_sink_datasets(self.job)
        with open_worker(self.job, specs, self.stores, wait, self.lines.append, self.spark) as worker:
            if self.by_spark:
                connection = read_connection(self.job.source, os.environ)
                assert isinstance(connection, LogConnection)
                for each in worker.sinks.values():
                    each.lane_format, each.spans = None, connection.open_spans(self.job, each.urn, each.spec)
            yield worker.run

    def watermarks(self) -> dict[str, int]:
        urns = [DatasetUrn(each["urn"] if "urn" in each else each["topic"]) for each in self.datasets]
        states = self.stores.datasets.load(JobName(self.job.job), urns)
        return {
            name: int(str(key.watermark))
            for state in states.values()
            for (name, _partition), key in state.keys.items()
            if key.watermark is not None
        }

    def is_published(self) -> bool:
        return self.watermarks() == self.ends()

    def columns(self, urn: str) -> Mapping[str, str] | None:
        return self.stores.datasets.load(JobName(self.job.job), [DatasetUrn(urn)])[DatasetUrn(urn)].published_columns

    def files(self, urn: str, role: Role = Role.DATA) -> list[str]:
        found = self.stores.published.find(JobName(self.job.job), DatasetUrn(urn), role=role)
        return [file.path for segment in (found.segments if found else ()) for file in segment.files()]

    def rows(self, urn: str, *columns: str, role: Role = Role.DATA) -> Counter[Row]:
        """The content of the ledger's files, read without Spark."""
        found: Counter[Row] = Counter()
        for path in self.files(urn, role):
            table = pq.ParquetFile(path).read()
            names = columns or tuple(table.column_names)
            known = [table[name].to_pylist() if name in table.column_names else [None] * len(table) for name in names]
            found.update(tuple(map(_hashable, row)) for row in zip(*known, strict=True))
        return found

    def read(self, urn: str, role: Role = Role.DATA) -> DataFrame:
        return read_dataset(self.spark.session, urn, job=self.job.job, database=self.engine, role=role)

    def count(self, condition: str = "state = 'DONE'") -> int:
        with self.engine.connect() as connection:
            query = f"SELECT count(*) FROM gobblin.commit_sequence WHERE {condition}"
            return int(connection.exec_driver_sql(query).scalar_one())

    def count_attempts(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.exec_driver_sql("SELECT count(*) FROM gobblin.attempt").scalar_one())

    def expire(self) -> None:
        """Let all leases run out, as waiting would."""
        with self.engine.begin() as connection:
            for table in ("lease", "sink_worker"):
                connection.exec_driver_sql(
                    f"UPDATE gobblin.{table} SET expires_at = clock_timestamp() - interval '1 second'"
                )

    def close(self) -> None:
        self.engine.dispose()


def _hashable(value: Any) -> Any:
    return repr(value) if isinstance(value, list | dict) else value


def work_on_connect(
    work: str, remote: str, failpoint: str, settings: Mapping[str, Any], ends: Mapping[str, int]
) -> None:
    """Be a worker in this process, with a session on the server, until all is published, with the failpoint armed."""
    session = open_session(SparkSettings(Path(work), remote=remote, conf=SMALL))
    sink = SparkSink(**settings, spark=OpenSpark(session, remote), ends=lambda: ends)
    failpoints.arm(failpoint)
    sink.work()
