"""The Spark session of a run: inside its process, on a cluster's master, or on a Spark Connect server."""

import threading
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr
from pyspark.sql import SparkSession

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.ingest.extraction import Extractor
from gobblin_assets.ingest.job_spec import JobSpec
from gobblin_assets.ingest.run_values import Stores
from gobblin_assets.ingest.sources.port import PlanSession
from gobblin_assets.ingest.spark.extractor import SparkExtractor, interrupt_attempt
from gobblin_assets.ingest.spark.session import open_session
from gobblin_assets.ingest.spark.settings import SparkSettings
from gobblin_assets.settings import make_home, read_settings
from resources.connections import list_capabilities


class GobblinSparkResource(LazyPySparkResource):
    """dagster-pyspark's lazy resource with sessions that exactly-once needs (UTC, quiet logs), and remote ones too.

    ``spark_config`` is as there. Nothing starts before the first use.
    """

    spark_config: dict[str, Any] = Field(default_factory=dict, description="Spark's own configuration, by its keys.")
    master: str | None = Field(
        default=None,
        description="local[n], spark://host:7077, yarn, k8s://…; not used with `remote`. Default: local[*].",
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
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    def settings(self, job: JobSpec | None = None) -> SparkSettings:
        """``job``: its connectors belong to it as well."""
        needed = [] if job is None else list_capabilities([job])
        folder = Path(self.work_folder) if self.work_folder is not None else read_settings().home / "spark"
        return SparkSettings(
            work_folder=folder.expanduser().absolute(),
            master=self.master or "local[*]",
            remote=self.remote,
            conf={key: str(value) for key, value in self.spark_config.items()},
            capabilities=tuple(dict.fromkeys([*self.capabilities, *needed])),
            coordinates=self.coordinates,
            jars=None if self.jars is None else Path(self.jars),
        )

    def get_session(self, job: JobSpec | None = None) -> SparkSession:
        """The run's session, opened at the first call, from any thread. RejectedError names what Java or Spark miss.

        ``job`` is what the run reads for, and says which connectors a session of this process gets.
        """
        with self._lock:
            if self._session is None:
                if self.work_folder is None:
                    make_home(read_settings().home)
                self._session = open_session(self.settings(job))
            return self._session

    def open_extractor(self, job: JobSpec, stores: Stores, session: PlanSession) -> Extractor:
        """What reads what ``session`` planned, and writes it into the job's staging."""
        fs, _root = open_file_system(job.destination, umask=job.umask)
        return SparkExtractor(self.get_session(job), fs, stores.published, session)

    def interrupt(self, attempt: AttemptRecord) -> None:
        """End what a dead attempt may still be writing on the Connect server, if there is one."""
        interrupt_attempt(self.remote, attempt)

    @property
    def spark_session(self) -> SparkSession:
        return self.get_session()

    @property
    def spark_context(self) -> Any:
        return self.get_session().sparkContext

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002  Dagster's signature
        # A classic session is its process's, which may have more runs to serve; a server keeps a remote one for hours.
        if self._session is not None and self.remote is not None:
            self._session.stop()
