"""The Spark session of a run: inside its process, on a cluster's master, or on a Spark Connect server."""

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr
from pyspark.sql import SparkSession

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.extractor import SparkExtractor
from gobblin_assets.jobs.ingest.rewriter import SparkRewriter
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import Rewriter, Worker
from gobblin_assets.run.stores import Stores
from gobblin_assets.settings import make_home, read_settings
from gobblin_assets.sources.environment import list_capabilities, plan_driver_jars
from gobblin_assets.spark import connect_server
from gobblin_assets.spark.cancellation import interrupt_described
from gobblin_assets.spark.session import open_session, runs_spark_itself
from gobblin_assets.spark.settings import SparkSettings, merge_jars
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec


class GobblinSparkResource(LazyPySparkResource):
    """dagster-pyspark's lazy resource with sessions that exactly-once needs (UTC, quiet logs), and remote ones too.

    ``spark_config`` is as there. Nothing starts before the first use.
    """

    spark_config: dict[str, Any] = Field(default_factory=dict, description="Spark's own configuration, by its keys.")
    master: str | None = Field(
        default=None,
        description="local[n], spark://host:7077, yarn, k8s://…; not used with `remote`. Default: the warm server of "
        "GOBBLIN_HOME, if it runs, else local[*].",
    )
    remote: str | None = Field(
        default=None, repr=False, description="Spark Connect, as EnvVar since it holds a token: sc://host:port/;token=…"
    )
    capabilities: list[str] = Field(
        default_factory=list, description="Connectors from Maven beside those that a run's job needs, such as avro."
    )
    coordinates: dict[str, str] = Field(default_factory=dict, description="Maven coordinates by capability.")
    jars: str | None = Field(default=None, description="A folder with jars, instead of the resolver.")
    work_folder: str | None = Field(
        default=None, description="For logs and Spark's warehouse. Default: GOBBLIN_HOME/spark."
    )

    _session: SparkSession | None = PrivateAttr(default=None)
    _url: str | None = PrivateAttr(default=None)
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    def settings(self, job: JobSpec | None = None) -> SparkSettings:
        """``job``: its connectors belong to it as well."""
        jobs = [] if job is None else [job]
        needed = list_capabilities(jobs, os.environ)
        folder = Path(self.work_folder) if self.work_folder is not None else read_settings().home / "spark"
        return SparkSettings(
            work_folder=folder.expanduser().absolute(),
            master=self.master or "local[*]",
            remote=self.remote,
            conf=merge_jars(plan_driver_jars(jobs), {key: str(value) for key, value in self.spark_config.items()}),
            capabilities=tuple(dict.fromkeys([*self.capabilities, *needed])),
            coordinates=self.coordinates,
            jars=None if self.jars is None else Path(self.jars),
        )

    def get_session(self, job: JobSpec | None = None) -> SparkSession:
        """The run's session, opened at the first call, from any thread. RejectedError names what Java or Spark miss.

        Where neither ``remote`` nor anything else says otherwise, it is one of GOBBLIN_HOME's warm server, if that runs
        and has the connectors that ``job`` needs.
        """
        with self._lock:
            if self._session is None:
                if self.work_folder is None:
                    make_home(read_settings().home)
                settings = self.settings(job)
                self._url = self.remote or self._find_warm(settings)
                self._session = open_session(replace(settings, remote=self._url))
            return self._session

    def open_extractor(self, job: JobSpec, stores: Stores) -> Worker:
        """What reads what was planned, and writes it into the job's staging."""
        fs, _root = open_file_system(job.destination, umask=job.umask)
        return SparkExtractor(self.get_session(job), fs, stores.published)

    def open_rewriter(self, job: JobSpec, datasets: Mapping[DatasetUrn, DatasetSpec]) -> Rewriter:
        """What writes the job's published rows anew, for compaction."""
        fs, _root = open_file_system(job.destination, umask=job.umask)
        return SparkRewriter(self.get_session(job), fs, datasets)

    def interrupt(self, attempt: AttemptRecord) -> None:
        """End what a dead attempt may still be writing on the Connect server, if there is one."""
        remote = self.remote or self._url
        if remote is None and attempt.interruption is not None:
            # Whoever made it may have had the warm server's session, whatever this process would take.
            server = connect_server.find(read_settings().home)
            remote = None if server is None else server.url
        interrupt_described(remote, attempt.interruption)

    def _find_warm(self, settings: SparkSettings) -> str | None:
        """The warm server's URL. A resource that says how its session shall be gets one of its own."""
        if self.master or self.spark_config or self.coordinates or self.jars or runs_spark_itself():
            return None
        return find_warm(settings.capabilities, dg.get_dagster_logger().info)

    @property
    def spark_session(self) -> SparkSession:
        return self.get_session()

    @property
    def spark_context(self) -> Any:
        return self.get_session().sparkContext

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002  Dagster's signature
        # A classic session is its process's, which may have more runs to serve; a server keeps a remote one for hours.
        if self._session is not None and self._url is not None:
            self._session.stop()


def find_warm(needed: Iterable[str], report: Callable[[str], None]) -> str | None:
    """The URL of GOBBLIN_HOME's warm server, if it answers and has these connectors."""
    server = connect_server.find(read_settings().home)
    if server is None:
        return None
    missing = sorted(set(needed) - set(server.capabilities))
    if missing:
        options = " ".join(f"--capability {name}" for name in (*server.capabilities, *missing))
        report(
            f"Spark: a session of this process, since the warm server has no connector for {', '.join(missing)}; "
            f"to use it: gobblin-assets spark stop, then spark start {options}"
        )
        return None
    report(f"Spark: the warm Connect server on port {server.port}")
    return server.url
