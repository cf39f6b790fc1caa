"""Whole runs over a real broker: a job of topics, composed as its entry points do it, and its published rows."""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import text

from demo.kafka.broker import KafkaBroker
from gobblin_assets.db.engine import open_external
from gobblin_assets.destinations.registry import open_destination
from gobblin_assets.failpoints import Failpoint, arm, install
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.extractor import SparkExtractor
from gobblin_assets.jobs.ingest.ingest_kind import IngestKind
from gobblin_assets.jobs.ingest.stream_job import plan_stream_job
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.clock import Clock, SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.rows.dataset_reader import read_dataset
from gobblin_assets.run.destination import DestinationRequest
from gobblin_assets.run.job_kind import Restart, StartAt
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.run_values import DatasetReport, RunPorts, RunReport, RunRequest
from gobblin_assets.run.runner import run_request, stream_request
from gobblin_assets.run.streaming import WaitForStop
from gobblin_assets.sources.kafka.confluent import ConfluentCluster
from gobblin_assets.sources.kafka.kafka_spec import KafkaSourceSpec
from gobblin_assets.sources.kafka.registry import SchemaRegistry
from gobblin_assets.sources.kafka.source import KafkaSource
from gobblin_assets.sources.source_port import Source
from gobblin_assets.spark.cancellation import interrupt_described
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.partition_keys import asset_partition, open_partition
from tests.support.spark import SMALL

JOB = "events"
CHILD_S_MAX = 120.0

Open = Callable[..., "Ingestion"]


@dataclass
class Ingestion:
    """One job over one cluster, into one destination.

    ``connection`` replaces the one made from ``bootstrap`` alone, and ``open_source`` the source over it.
    """

    spark: SparkSession
    database_url: str
    bootstrap: str
    root: str
    datasets: Sequence[Mapping[str, Any]]
    source: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    registry: SchemaRegistry | None = None
    connection: KafkaConnection | None = None
    open_source: Callable[[JobSpec], Source] | None = None
    remote: str | None = None
    clock: Clock = field(default_factory=SystemClock)
    lines: list[str] = field(default_factory=list)
    events: list[DatasetReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = open_external(self.database_url)
        self.stores = open_stores(self.engine)

    def run(
        self,
        *urns: str,
        mode: Mode = Mode.AUTO,
        restart: Restart | StartAt | None = None,
        partitions: Sequence[str] | None = None,
    ) -> RunReport:
        """``partitions`` None: the windows that are open now."""
        job = self._parse_job()
        request = self._request(job, urns, partitions)
        return run_request(replace(request, mode=mode, restart=restart), self._ports(job))

    def stream(self, wait_for_stop: WaitForStop, *urns: str) -> RunReport:
        """Follow the topics, as the command does."""
        job = plan_stream_job(self._parse_job())
        request = replace(self._request(job, urns, None), mode=Mode.APPEND, by_hand=False)
        return stream_request(request, self._ports(job), wait_for_stop)

    def _parse_job(self) -> JobSpec:
        return parse_job(
            {
                "job": JOB,
                "source": {"type": "kafka", "connection": "kafka", **self.source},
                "destination": self.root,
                "datasets": list(self.datasets),
                "retry": {"back_off_s": 0.0, "task_tries_max": 2},
                "retire_grace_s": 0.0,
                **self.options,
            }
        )

    def _request(self, job: JobSpec, urns: Sequence[str], partitions: Sequence[str] | None) -> RunRequest:
        datasets = resolve_datasets(job, None)
        selection = {
            urn: (open_partition(spec, self.clock.now()),)
            if partitions is None
            else tuple(asset_partition(spec, key) for key in partitions)
            for urn, spec in datasets.items()
            if not urns or urn in urns
        }
        return RunRequest(job, selection)

    def _ports(self, job: JobSpec) -> RunPorts:
        fs, root = open_file_system(job.destination, umask=job.umask)
        return RunPorts(
            stores=self.stores,
            destination=open_destination(
                DestinationRequest(
                    JobName(JOB), job.destination, fs, root, self.stores, open_file_system, self.clock.new_id
                )
            ),
            open_file_system=open_file_system,
            kind=IngestKind(
                resolve_datasets(job, None),
                (self.open_source or self._open_source)(job),
                lambda: self.spark,
                lambda: SparkExtractor(self.spark, fs, self.stores.published),
            ),
            interrupt=lambda attempt: interrupt_described(self.remote, attempt.interruption),
            clock=self.clock,
            say=self.lines.append,
            on_publication=self.events.append,
        )

    def read(self, urn: str, *, role: Role = Role.DATA) -> DataFrame:
        return read_dataset(self.spark, urn, job=JOB, database=self.engine, role=role)

    def rows(self, urn: str, *columns: str, role: Role = Role.DATA) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row) for row in self.read(urn, role=role).select(*(columns or ("*",))).collect())

    def watermarks(self, urn: str) -> dict[str, str]:
        state = self.stores.datasets.load(JobName(JOB), [DatasetUrn(urn)])[DatasetUrn(urn)]
        return {name: str(key.watermark) for (name, _partition), key in state.keys.items()}

    def notes(self, urn: str) -> list[str]:
        """The notes of the dataset's publications in the history, oldest first."""
        query = text(
            "SELECT s.details->'notes' FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)"
            " WHERE d.urn = :urn AND s.state = 'DONE' ORDER BY s.done_at"
        )
        with self.engine.connect() as connection:
            return [note for (notes,) in connection.execute(query, {"urn": urn}) for note in notes]

    def expire_leases(self) -> None:
        """Let the leases of dead owners run out, as waiting would."""
        with self.engine.begin() as connection:
            connection.execute(text("UPDATE gobblin.lease SET expires_at = clock_timestamp() - interval '1 second'"))

    def close(self) -> None:
        self.engine.dispose()

    def _open_source(self, job: JobSpec) -> Source:
        assert isinstance(job.source, KafkaSourceSpec)
        connection = self.connection or KafkaConnection(self.bootstrap, timeout_s=15.0)
        return KafkaSource(
            ConfluentCluster(connection), connection, job.source, registry=self.registry, clock=self.clock
        )


@pytest.fixture
def ingest(spark: SparkSession, database_url: str, kafka_broker: KafkaBroker, tmp_path: Path) -> Iterator[Open]:
    """``ingest(dataset, ..., bootstrap=the shared broker's, **options of Ingestion)``."""
    opened: list[Ingestion] = []

    def make(
        *datasets: Mapping[str, Any], bootstrap: str | None = None, root: str | None = None, **options: Any
    ) -> Ingestion:
        servers, lake = bootstrap or kafka_broker.bootstrap, root or str(tmp_path / "lake")
        opened.append(Ingestion(spark, database_url, servers, lake, datasets, **options))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@contextmanager
def between_planning_and_reading(act: Callable[[], object]) -> Iterator[None]:
    """Call ``act`` once, when the first task of a run in the block is registered and has read nothing yet."""
    lock, done = threading.Lock(), threading.Event()

    def hook(point: Failpoint) -> None:
        if point is Failpoint.ATTEMPT_REGISTERED:
            with lock:
                if not done.is_set():
                    act()
                    done.set()

    with install(hook):
        yield
    assert done.is_set(), "no task was ever registered"


class Child:
    """A process with a session of its own. It runs one job when it is told to, so it may be started in advance.

    Its session is on ``remote``, or in its own JVM, without any connector.
    """

    def __init__(self, work: Path, remote: str | None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.topics", str(work), remote or ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, settings: Mapping[str, Any]) -> tuple[int, str]:
        """``settings`` are those of ``Ingestion``, and ``failpoint``. Returns the exit code and the output."""
        said, _ = self._process.communicate(f"{json.dumps(settings)}\n", CHILD_S_MAX)
        return self._process.returncode, said

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


def _main(work: Path, remote: str | None) -> int:
    spark = open_session(SparkSettings(work, master="local[1]", remote=remote, conf=SMALL))
    return _run(spark, remote, json.loads(sys.stdin.readline()))


def run_on_connect(work: str, remote: str, settings: dict[str, Any]) -> int:
    """The work of a ``Child``, for any process; returns its exit code."""
    return _run(open_session(SparkSettings(Path(work), remote=remote, conf=SMALL)), remote, settings)


def _run(spark: SparkSession, remote: str | None, settings: dict[str, Any]) -> int:
    arm(settings.pop("failpoint", ""))
    ingestion = Ingestion(spark, **settings, remote=remote)
    report = ingestion.run()
    for line in [*ingestion.lines, *(f"{d.urn}: {d.outcome} {d.error or ''}" for d in report.datasets)]:
        print(line)
    spark.stop()
    return 1 if report.failed else 0


if __name__ == "__main__":
    raise SystemExit(_main(Path(sys.argv[1]), sys.argv[2] or None))
