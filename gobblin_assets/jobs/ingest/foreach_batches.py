"""Batches of Spark Structured Streaming, each published exactly once as a publication of a dataset.

from gobblin_assets import foreach_batch
events.writeStream.foreachBatch(foreach_batch("jobs/clicks.yaml", "clicks")).option("checkpointLocation", …).start()

A batch is a run of one WorkUnit: lease, recovery, staging, seal, execution and finish are those of every run. A
sequence that a dead process left open is completed or given up first. Only then it is decided whether the batch is
published.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import DataFrame, SparkSession, is_remote

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.errors import ErrorFamily, RejectedError, error_of
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.extractor import SparkExtractor
from gobblin_assets.jobs.ingest.rewriter import SparkRewriter
from gobblin_assets.jobs.ingest.running import Job, open_run, read_job, read_job_datasets
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import Rewriter, Worker
from gobblin_assets.run.log import open_log
from gobblin_assets.run.progress import unheard
from gobblin_assets.run.run_values import DatasetReport, RunRequest
from gobblin_assets.run.runner import run_request
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.spark_stream.batch_decision import QueryBatch
from gobblin_assets.sources.spark_stream.batch_source import BatchSource
from gobblin_assets.sources.spark_stream.spark_stream_kind import SparkStreamSpec
from gobblin_assets.spark.spark_settings import SESSION_CONF
from gobblin_assets.spec.job_options import LeaseSpec
from gobblin_assets.spec.job_parsing import find_datasets
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.selection import select_open_partitions

_QUERY_ID: Final = "sql.streaming.queryId"

_LEASE_MARGIN_S: Final = 5.0


def find_query_id(frame: DataFrame) -> str:
    """The id, kept in the checkpoint, of the query whose ``foreachBatch`` calls. RejectedError if none calls.

    Spark runs the function in the thread that runs the query, and sets the query's id there as a local property.
    """
    if is_remote():
        raise RejectedError(
            "expected a session inside this process, found one on a Spark Connect server, which does not say which "
            "query hands a batch over",
            field="foreachBatch",
            hint="Start the query in a program with a session of its own, by SparkSession.builder.master(...).",
        )
    found = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not found:
        raise RejectedError(
            "expected a call by foreachBatch of a running query, found none in this thread",
            field="foreachBatch",
            hint="Give the function to writeStream.foreachBatch, or call it in a function that you give there, in the "
            "same thread. With PYSPARK_PIN_THREAD=false, Spark does not say which query calls: leave that out.",
        )
    return str(found)


def find_planned_at_ms(frame: DataFrame, query_id: str, batch_id: int) -> int | None:
    """When Spark planned the batch, in milliseconds since 1970; the same each time that it hands the batch over.

    It stands in the query's log of offsets, for which PySpark has no call: the log is reached through the queries that
    the JVM lists. None where the JVM does not show it.
    """
    session = cast("Any", frame.sparkSession)
    try:
        number = session._jvm.java.util.UUID.fromString(query_id)  # noqa: SLF001  the only way to the JVM's queries
        query = session._jsparkSession.sharedState().activeStreamingQueries().get(number)  # noqa: SLF001  the same
        return int(query.offsetLog().get(batch_id).get().metadata().get().batchTimestampMs())
    except (Py4JError, AttributeError, TypeError, ValueError):
        return None


@contextmanager
def session_with(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings inside the block, and as it was behind it."""
    before: dict[str, str | None] = {key: spark.conf.get(key, None) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def foreach_batch(
    job: Job,
    urn: str,
    *,
    takes_over: str | None = None,
    first_batch: int = 0,
    say: Callable[[str], None] = unheard,
    on_publication: Callable[[DatasetReport], None] = unheard,
) -> Callable[[DataFrame, int], None]:
    """The function for ``foreachBatch`` that publishes each batch of a query into the dataset ``urn``.

    ``job``: its ``source`` has ``type: spark_stream``. A batch that was published is skipped; a batch behind a gap, or
    of another query than the one that published before (a new checkpoint), is refused, and the error says what to do.
    ``takes_over``: the id of that other query, where a new checkpoint was made on purpose; the new query begins with
    batch 0. ``first_batch``: the batch with which the query begins here, where its earlier ones are not wanted. Both
    may stay in the program: they count until the query has published.

    The rest is as in ``run_job``. The function raises a family of ``GobblinError``, which ends the query; started again
    with its checkpoint, the query goes on where it ended. RejectedError here, if the job or the dataset is none of a
    query.
    """
    spec = read_job(job)
    if not isinstance(spec.source, SparkStreamSpec):
        raise RejectedError(
            f"expected spark_stream, found {spec.source.type}",
            field="source.type",
            hint="A query publishes into a job of its own: write source: {type: spark_stream}.",
        )
    datasets = read_job_datasets(spec)
    (name,) = find_datasets(spec.job, datasets, [urn])
    publisher = _Publisher(spec, datasets, name, takes_over, first_batch, say, on_publication)
    return publisher.publish


@dataclass(frozen=True, slots=True)
class _Publisher:
    job: JobSpec
    datasets: Mapping[DatasetUrn, DatasetSpec]
    urn: DatasetUrn
    takes_over: str | None
    first_batch: int
    say: Callable[[str], None]
    on_publication: Callable[[DatasetReport], None]

    def publish(self, frame: DataFrame, batch_id: int) -> None:
        """Publish one batch, or skip it."""
        query_id = find_query_id(frame)
        planned_at_ms = find_planned_at_ms(frame, query_id, batch_id)
        batch = QueryBatch(query_id, batch_id, planned_at_ms, self.takes_over, self.first_batch)
        source = BatchSource(frame, batch, SystemClock().new_id)
        # What is published depends on these settings, and the session is the query's, with what its program set.
        with session_with(frame.sparkSession, SESSION_CONF), open_log(self.say) as log:
            engine = _BatchEngine(frame.sparkSession)
            with open_run(
                *(self.job, self.datasets, engine, log.stores, self.say, self.on_publication), connection=source
            ) as ports:
                report = run_request(self._request(), ports)
        (published,) = report.datasets
        _require_good(published)

    def _request(self) -> RunRequest:
        # Who starts a query again after a kill does so at once, and the dead process' lease has to run out first.
        lease = self.job.lease
        wait_s = max(lease.wait_s, lease.ttl_s + _LEASE_MARGIN_S)
        job = self.job.model_copy(update={"lease": LeaseSpec(ttl_s=lease.ttl_s, wait_s=wait_s)})
        selection = select_open_partitions(job, self.datasets, urns=[self.urn])
        # A batch that was published has no news.
        return RunRequest(job, selection, mode=Mode.APPEND, news_only=True)


def _require_good(report: DatasetReport) -> None:
    """Raise what kept the batch from being published. One that was published before is good."""
    if report.error is None:
        return
    raise error_of(report.error_family or ErrorFamily.RETRYABLE, report.error)


@dataclass(frozen=True, slots=True)
class _BatchEngine:
    """``Engine`` of a query's own session, whose frames are read in no other."""

    spark: SparkSession

    @property
    def master(self) -> str | None:
        return None

    @property
    def remote(self) -> str | None:
        return None

    def get_session(self, job: JobSpec | None = None) -> SparkSession:
        del job
        return self.spark

    def count_slots(self) -> int | None:
        """Not known: a batch is read as its query has divided it."""
        return None

    def open_extractor(self, job: JobSpec, stores: Stores) -> Worker:
        fs, _root = open_file_system(job.destination, umask=job.umask)
        return SparkExtractor(self.spark, fs, stores.published, umask=job.umask)

    def open_rewriter(self, job: JobSpec, datasets: Mapping[DatasetUrn, DatasetSpec]) -> Rewriter:
        fs, _root = open_file_system(job.destination, umask=job.umask)
        return SparkRewriter(self.spark, fs, datasets)

    def interrupt(self, attempt: AttemptRecord) -> None:
        """Nothing: what a session inside a process does ends with the process."""
