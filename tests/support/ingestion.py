"""Whole runs on Spark over a real database: the product's own parts, composed as its entry points do it."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.db.engine import open_external
from gobblin_assets.destinations.registry import open_destination
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.extractor import SparkExtractor
from gobblin_assets.jobs.ingest.ingest_kind import IngestKind
from gobblin_assets.jobs.ingest.rewriter import SparkRewriter
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.rows.dataset_reader import read_dataset
from gobblin_assets.run.destination import DestinationRequest
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.run_values import DatasetReport, RunPorts, RunReport, RunRequest
from gobblin_assets.run.runner import run_request
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.source import JdbcSource
from gobblin_assets.spark.cancellation import interrupt_described
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets
from gobblin_assets.spec.partition_keys import asset_partition

JOB = "shop"


@dataclass
class Ingestion:
    """One job over one connection, into one destination."""

    spark: SparkSession
    database_url: str
    connection: JdbcConnection
    root: str
    datasets: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any] = field(default_factory=dict)
    remote: str | None = None
    lines: list[str] = field(default_factory=list)
    events: list[DatasetReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = open_external(self.database_url)
        self.stores = open_stores(self.engine)

    def run(
        self,
        partitions: Mapping[str, Iterable[str | None]] | None = None,
        *,
        mode: Mode = Mode.AUTO,
        by_hand: bool = True,
    ) -> RunReport:
        """``partitions``: keys by URN; None: all datasets as a whole."""
        job = parse_job(
            {
                "job": JOB,
                "source": {"connection": "shop"},
                "destination": self.root,
                "datasets": list(self.datasets),
                "retry": {"back_off_s": 0.0, "task_tries_max": 1},
                "retire_grace_s": 0.0,
                **self.options,
            }
        )
        datasets = resolve_datasets(job, None)
        chosen = partitions or {urn: [None] for urn in datasets}
        selection = {
            DatasetUrn(urn): tuple(asset_partition(datasets[DatasetUrn(urn)], key) for key in keys)
            for urn, keys in chosen.items()
        }
        fs, root = open_file_system(job.destination, umask=job.umask)
        ports = RunPorts(
            stores=self.stores,
            destination=open_destination(
                DestinationRequest(
                    JobName(JOB), job.destination, fs, root, self.stores, open_file_system, SystemClock().new_id
                )
            ),
            open_file_system=open_file_system,
            kind=IngestKind(
                datasets,
                JdbcSource(self.connection, job.source),
                lambda: self.spark,
                lambda: SparkExtractor(self.spark, fs, self.stores.published),
                lambda: SparkRewriter(self.spark, fs, datasets),
            ),
            interrupt=lambda attempt: interrupt_described(self.remote, attempt.interruption),
            clock=SystemClock(),
            say=self.lines.append,
            on_publication=self.events.append,
        )
        return run_request(RunRequest(job, selection, mode=mode, by_hand=by_hand), ports)

    def read(self, urn: str, *, role: Role = Role.DATA, partitions: Sequence[str] | None = None) -> DataFrame:
        return read_dataset(self.spark, urn, job=JOB, database=self.engine, role=role, partitions=partitions)

    def rows(self, urn: str, *columns: str, role: Role = Role.DATA) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row) for row in self.read(urn, role=role).select(*(columns or ("*",))).collect())

    def close(self) -> None:
        self.engine.dispose()


def run_in_child(
    work: Path, settings: Mapping[str, Any], *, failpoint: str = "", timeout_s: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """A run in a process and a JVM of its own. ``settings``: see ``_main``."""
    process = start_in_child(work, settings, failpoint=failpoint)
    try:
        output, errors = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def start_in_child(work: Path, settings: Mapping[str, Any], *, failpoint: str = "") -> "subprocess.Popen[str]":
    """The same, without waiting for its end."""
    environment = {**os.environ, "GOBBLIN_FAILPOINT_LOG": str(work / "failpoints.log")}
    if failpoint:
        environment["GOBBLIN_FAILPOINT"] = failpoint
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.ingestion", json.dumps(settings)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _main(settings: Mapping[str, Any]) -> int:
    remote = settings.get("remote")
    spark = open_session(
        SparkSettings(
            Path(settings["work"]),
            master=settings.get("master", "local[2]"),
            remote=remote,
            conf=settings.get("conf", {}),
            capabilities=() if remote else ("postgres",),
        )
    )
    ingestion = Ingestion(
        spark=spark,
        database_url=settings["database_url"],
        connection=JdbcConnection(**settings["connection"]),
        root=settings["root"],
        datasets=settings["datasets"],
        options=settings.get("options", {}),
        remote=remote,
    )
    report = ingestion.run(settings.get("partitions"))
    for line in [*ingestion.lines, *(f"{d.urn}: {d.outcome} {d.error or ''}" for d in report.datasets)]:
        print(line)
    spark.stop()
    return 1 if report.failed else 0


if __name__ == "__main__":
    raise SystemExit(_main(json.loads(sys.argv[1])))
