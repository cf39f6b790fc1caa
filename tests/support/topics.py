"""Whole runs over a real broker: a job of topics, put together as its entry points do, and what it published."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.db.engine import open_external
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.ingest.dataset_reader import read_dataset
from gobblin_assets.ingest.job_parsing import parse_job, resolve_datasets
from gobblin_assets.ingest.kafka_spec import KafkaSourceSpec
from gobblin_assets.ingest.run_values import DatasetReport, RunPorts, RunReport, RunRequest
from gobblin_assets.ingest.runner import run_job
from gobblin_assets.ingest.sources.kafka.confluent import ConfluentCluster
from gobblin_assets.ingest.sources.kafka.connection import KafkaConnection
from gobblin_assets.ingest.sources.kafka.registry import SchemaRegistry
from gobblin_assets.ingest.sources.kafka.source import KafkaSource
from gobblin_assets.ingest.sources.port import Restart
from gobblin_assets.ingest.spark.extractor import SparkExtractor
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from resources.stores import open_stores

JOB = "events"


@dataclass
class Ingestion:
    """One job over one cluster, into one destination."""

    spark: SparkSession
    database_url: str
    bootstrap: str
    root: str
    datasets: Sequence[Mapping[str, Any]]
    source: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    registry: SchemaRegistry | None = None
    lines: list[str] = field(default_factory=list)
    events: list[DatasetReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = open_external(self.database_url)
        self.stores = open_stores(self.engine)

    def run(self, *urns: str, mode: Mode = Mode.AUTO, restart: Restart | None = None) -> RunReport:
        job = parse_job(
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
        assert isinstance(job.source, KafkaSourceSpec)
        datasets = resolve_datasets(job, None)
        connection = KafkaConnection(self.bootstrap, timeout_s=15.0)
        fs, root = open_file_system(job.destination, umask=job.umask)
        ports = RunPorts(
            stores=self.stores,
            fs=fs,
            root=root,
            open_file_system=open_file_system,
            source=KafkaSource(ConfluentCluster(connection), connection, job.source, registry=self.registry),
            open_extractor=lambda session: SparkExtractor(self.spark, fs, self.stores.published, session),
            interrupt=lambda _attempt: None,
            spark=lambda: self.spark,
            clock=SystemClock(),
            report=self.lines.append,
            on_publication=self.events.append,
        )
        selection = {urn: (WHOLE,) for urn in datasets if not urns or urn in urns}
        return run_job(RunRequest(job, datasets, selection, mode=mode, restart=restart), ports)

    def read(self, urn: str, *, role: Role = Role.DATA) -> DataFrame:
        return read_dataset(self.spark, urn, job=JOB, database=self.engine, role=role)

    def rows(self, urn: str, *columns: str, role: Role = Role.DATA) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row) for row in self.read(urn, role=role).select(*(columns or ("*",))).collect())

    def watermarks(self, urn: str) -> dict[str, str]:
        state = self.stores.datasets.load(JobName(JOB), [DatasetUrn(urn)])[DatasetUrn(urn)]
        return {name: str(key.watermark) for (name, _partition), key in state.keys.items()}

    def close(self) -> None:
        self.engine.dispose()
