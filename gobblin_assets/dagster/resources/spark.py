"""The Spark session of a run: inside its process, on a cluster's master, or on a Spark Connect server."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr
from pyspark.sql import SparkSession

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import Rewriter, Worker
from gobblin_assets.run.stores import Stores
from gobblin_assets.spark.spark_settings import SparkSettings
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec


class GobblinSparkResource(LazyPySparkResource):
    """dagster-pyspark's lazy resource with the sessions that exactly-once needs (UTC, quiet logs), remote ones too.

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

    wait_s: float | None = Field(
        default=None,
        description="How long a cluster may run none of the session's tasks before they fail. Default: 600.",
    )

    _engine: SparkEngine | None = PrivateAttr(default=None)

    @property
    def engine(self) -> SparkEngine:
        """Opens the session. Made at the first use, when an EnvVar has its value."""
        if self._engine is None:
            self._engine = SparkEngine(
                master=self.master,
                remote=self.remote,
                conf={key: str(value) for key, value in self.spark_config.items()},
                capabilities=self.capabilities,
                coordinates=self.coordinates,
                jars=self.jars,
                work_folder=self.work_folder,
                wait_s=self.wait_s,
                say=dg.get_dagster_logger().info,
            )
        return self._engine

    def settings(self, job: JobSpec | None = None) -> SparkSettings:
        """``job``: add its connectors."""
        return self.engine.settings(job)

    def get_session(self, job: JobSpec | None = None) -> SparkSession:
        """The run's session, opened at the first call, from any thread. RejectedError names what Java or Spark lack."""
        return self.engine.get_session(job)

    def count_slots(self) -> int | None:
        """How many tasks a cluster runs at once for the session; None: Spark runs on this machine, or nobody knows."""
        return self.engine.count_slots()

    def is_lost(self) -> bool:
        """Whether the session was opened, and its JVM or server has died since."""
        return self.engine.is_lost()

    def open_extractor(self, job: JobSpec, stores: Stores) -> Worker:
        """The worker that reads the planned WorkUnits and writes them into the job's staging."""
        # This resource is asked for the session, since a subclass may open another one.
        self.get_session(job)
        return self.engine.open_extractor(job, stores)

    def open_rewriter(self, job: JobSpec, datasets: Mapping[DatasetUrn, DatasetSpec]) -> Rewriter:
        """The worker that writes the job's published rows anew, for compaction."""
        self.get_session(job)
        return self.engine.open_rewriter(job, datasets)

    def interrupt(self, attempt: AttemptRecord) -> None:
        """End what a dead attempt may still be writing on the Connect server, if there is one."""
        self.engine.interrupt(attempt)

    @property
    def spark_session(self) -> SparkSession:
        return self.get_session()

    @property
    def spark_context(self) -> Any:
        return self.get_session().sparkContext

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002  Dagster's signature
        self.engine.close()
