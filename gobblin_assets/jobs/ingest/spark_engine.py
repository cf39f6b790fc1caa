"""The Spark of a run: inside its process, on a cluster's master, or on a Spark Connect server; and its workers."""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from pyspark.sql import SparkSession

from gobblin_assets.commit.published.port import PublishedFiles
from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import Rewriter, Worker
from gobblin_assets.run.progress import unheard
from gobblin_assets.run.stores import Stores
from gobblin_assets.settings import make_home, read_settings
from gobblin_assets.sources.environment import list_capabilities, plan_driver_jars
from gobblin_assets.spark.settings import SparkSettings, merge_jars
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec


class _SparkWork(Protocol):
    """The module ``spark_work``."""

    def SparkExtractor(self, spark: SparkSession, fs: FileSystem, published: PublishedFiles) -> Worker: ...  # noqa: N802  a class of the module

    def SparkRewriter(  # noqa: N802  the same
        self, spark: SparkSession, fs: FileSystem, datasets: Mapping[DatasetUrn, DatasetSpec]
    ) -> Rewriter: ...

    def find_warm(self, needed: Iterable[str], say: Callable[[str], None]) -> str | None: ...

    def interrupt_attempt(self, remote: str | None, attempt: AttemptRecord) -> None: ...

    def open_session(self, settings: SparkSettings) -> SparkSession: ...

    def runs_spark_itself(self) -> bool: ...


def _import_spark() -> _SparkWork:
    # Half a second, for gRPC and pandas: most of what a run without Spark would spend on imports.
    return cast("_SparkWork", import_module("gobblin_assets.jobs.ingest.spark_work"))


@dataclass(slots=True)
class SparkEngine:
    """Nothing starts before the first use; any thread may call.

    ``master``: ``local[n]``, ``spark://host:7077``, …, for a session inside this process. ``remote``: a Spark Connect
    server, ``sc://host:port/;token=…``. Without both: the warm server of GOBBLIN_HOME if it runs and has the
    connectors that the job needs, else ``local[*]``. ``conf`` is Spark's own configuration. ``more_jars`` is that of
    jars for a session of this process (``spark.settings.plan_jars``): a server has those that it was started with, and
    is taken all the same. ``capabilities`` are connectors beside those that a job needs, ``coordinates`` their
    Maven coordinates where those are not ours.
    ``jars``: a folder with jars instead of the resolver. ``work_folder``: for logs and Spark's warehouse; default:
    GOBBLIN_HOME/spark. ``say`` is shown a line on which Spark is taken.
    """

    master: str | None = None
    remote: str | None = field(default=None, repr=False)
    conf: Mapping[str, str] = field(default_factory=dict)
    more_jars: Mapping[str, str] = field(default_factory=dict)
    capabilities: Sequence[str] = ()
    coordinates: Mapping[str, str] = field(default_factory=dict)
    jars: str | None = None
    work_folder: str | None = None
    say: Callable[[str], None] = unheard
    _session: SparkSession | None = field(default=None, init=False, repr=False)
    _url: str | None = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def has_session(self) -> bool:
        return self._session is not None

    def settings(self, job: JobSpec | None = None) -> SparkSettings:
        """``job``: its connectors belong to it as well."""
        jobs = [] if job is None else [job]
        needed = list_capabilities(jobs, os.environ)
        folder = Path(self.work_folder) if self.work_folder is not None else read_settings().home / "spark"
        return SparkSettings(
            work_folder=folder.expanduser().absolute(),
            master=self.master or "local[*]",
            remote=self.remote,
            conf=merge_jars(plan_driver_jars(jobs), self.more_jars, self.conf),
            capabilities=tuple(dict.fromkeys([*self.capabilities, *needed])),
            coordinates=self.coordinates,
            jars=None if self.jars is None else Path(self.jars),
        )

    def get_session(self, job: JobSpec | None = None) -> SparkSession:
        """The session, opened at the first call. RejectedError names what Java or Spark miss."""
        with self._lock:
            if self._session is None:
                if self.work_folder is None:
                    make_home(read_settings().home)
                self._url = self.find_server(job)
                self._session = _import_spark().open_session(replace(self.settings(job), remote=self._url))
            return self._session

    def open_extractor(self, job: JobSpec, stores: Stores) -> Worker:
        """The worker that reads WorkUnits and writes them into the job's staging."""
        fs, _root = open_file_system(job.destination, umask=job.umask)
        return _import_spark().SparkExtractor(self.get_session(job), fs, stores.published)

    def open_rewriter(self, job: JobSpec, datasets: Mapping[DatasetUrn, DatasetSpec]) -> Rewriter:
        """The rewriter of the job's published rows, for compaction."""
        fs, _root = open_file_system(job.destination, umask=job.umask)
        return _import_spark().SparkRewriter(self.get_session(job), fs, datasets)

    def interrupt(self, attempt: AttemptRecord) -> None:
        """End the writes of a dead attempt on the Connect server, if there is one."""
        if attempt.interruption is not None:
            _import_spark().interrupt_attempt(self.remote or self._url, attempt)

    def close(self) -> None:
        """Give a server's session back. A session inside this process stays, since the process may need it again."""
        if self._session is not None and self._url is not None:
            self._session.stop()
        self._session = None

    def find_server(self, job: JobSpec | None = None) -> str | None:
        """The URL of the Connect server that the session uses; None: Spark runs inside this process.

        Who says how the session shall be gets one inside this process, whatever server is warm.
        """
        if self.remote:
            return self.remote
        if self.master or self.conf or self.coordinates or self.jars or _import_spark().runs_spark_itself():
            return None
        return _import_spark().find_warm(self.settings(job).capabilities, self.say)
