"""The Spark of a run, and its workers: inside the run's process, on a cluster, or on a Spark Connect server."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import Rewriter, Worker
from gobblin_assets.run.progress import unheard
from gobblin_assets.run.stores import Stores
from gobblin_assets.settings import make_home, read_settings
from gobblin_assets.sources.environment import list_capabilities, plan_driver_jars
from gobblin_assets.spark.hdfs import find_place_user
from gobblin_assets.spark.spark_settings import (
    SparkSettings,
    count_conf_slots,
    list_place_capabilities,
    merge_jars,
    read_site_conf,
    read_wait_s,
)
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class SparkEngine:
    """Nothing starts before the first use. Any thread may call the methods.

    ``master``: ``local[n]``, ``spark://host:7077``, …, for a session inside this process. ``remote``: a Spark Connect
    server, ``sc://host:port/;token=…``. Without both: the warm server of GOBBLIN_HOME if it runs and has the
    connectors that the job needs, else ``local[*]``. ``conf`` is Spark's own configuration. ``more_jars`` is Spark's
    configuration of jars for a session of this process (``spark_settings.plan_jars``); a server keeps the jars that it
    was started with. ``capabilities`` are connectors beside those that a job needs, ``coordinates`` their Maven
    coordinates if they differ from the product's.
    ``jars``: a folder with jars instead of the resolver. ``work_folder``: for logs and Spark's warehouse; default:
    GOBBLIN_HOME/spark. ``wait_s``: how long a cluster may run none of the session's tasks before they fail; None: what
    GOBBLIN_SPARK_WAIT_S says, or ten minutes. ``say`` gets a line about the Spark that is used, and about such waits.
    """

    master: str | None = None
    remote: str | None = field(default=None, repr=False)
    conf: Mapping[str, str] = field(default_factory=dict)
    more_jars: Mapping[str, str] = field(default_factory=dict)
    capabilities: Sequence[str] = ()
    coordinates: Mapping[str, str] = field(default_factory=dict)
    jars: str | None = None
    work_folder: str | None = None
    wait_s: float | None = None
    say: Callable[[str], None] = unheard
    _session: "SparkSession | None" = field(default=None, init=False, repr=False)
    _url: str | None = field(default=None, init=False, repr=False)
    _end_watch: Callable[[], None] | None = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def has_session(self) -> bool:
        return self._session is not None

    def settings(self, job: JobSpec | None = None) -> SparkSettings:
        """The settings of the session, with the connectors of ``job``: of its source, and of its destination."""
        jobs = [] if job is None else [job]
        places = list_place_capabilities(each.destination for each in jobs)
        needed = [*list_capabilities(jobs, os.environ), *places]
        folder = Path(self.work_folder) if self.work_folder is not None else read_settings().home / "spark"
        return SparkSettings(
            work_folder=folder.expanduser().absolute(),
            master=self.master or "local[*]",
            remote=self.remote,
            conf=merge_jars(plan_driver_jars(jobs), self.more_jars, self.conf),
            capabilities=tuple(dict.fromkeys([*self.capabilities, *needed])),
            coordinates=self.coordinates,
            jars=None if self.jars is None else Path(self.jars),
            hdfs_user=find_place_user([each.destination for each in jobs], os.environ),
        )

    def get_session(self, job: JobSpec | None = None) -> "SparkSession":
        """The session, opened at the first call. RejectedError names what is missing of Java or Spark."""
        from gobblin_assets.jobs.ingest.spark_work import find_ui, open_session, watch_executors  # noqa: PLC0415  Spark takes half a second

        with self._lock:
            if self._session is None:
                if self.work_folder is None:
                    make_home(read_settings().home)
                self._url = self.find_server(job)
                wait_s = read_wait_s(os.environ) if self.wait_s is None else self.wait_s
                self._session = open_session(replace(self.settings(job), remote=self._url))
                if shown := find_ui(self._session):
                    self.say(f"Spark's UI: {shown}")
                watch = watch_executors(self._session, wait_s, self.say)
                self._end_watch = None if watch is None else watch.close
            return self._session

    def count_slots(self) -> int | None:
        """The number of tasks that a cluster runs at once; None: Spark runs on this machine, or nobody knows.

        Nothing is opened to learn it: before the session is, settings say it, or nobody.
        """
        if self._session is not None:
            from gobblin_assets.jobs.ingest.spark_work import count_session_slots  # noqa: PLC0415  Spark takes half a second

            return count_session_slots(self._session)
        if self.remote or self.master is None:
            return None
        return count_conf_slots(self.master, {**read_site_conf(os.environ), **self.conf})

    def is_lost(self) -> bool:
        """Whether the session was opened, and its JVM or server has died since. No other one follows it."""
        if self._session is None:
            return False
        from gobblin_assets.jobs.ingest.spark_work import is_session_lost  # noqa: PLC0415  Spark takes half a second

        return is_session_lost(self._session)

    def open_extractor(self, job: JobSpec, stores: Stores) -> Worker:
        """The worker that reads WorkUnits and writes them into the job's staging."""
        from gobblin_assets.jobs.ingest.spark_work import SparkExtractor  # noqa: PLC0415  Spark takes half a second

        fs, _root = open_file_system(job.destination, umask=job.umask)
        return SparkExtractor(self.get_session(job), fs, stores.published, umask=job.umask)

    def open_rewriter(self, job: JobSpec, datasets: Mapping[DatasetUrn, DatasetSpec]) -> Rewriter:
        """The rewriter of the job's published rows, for compaction."""
        from gobblin_assets.jobs.ingest.spark_work import SparkRewriter  # noqa: PLC0415  Spark takes half a second

        fs, _root = open_file_system(job.destination, umask=job.umask)
        return SparkRewriter(self.get_session(job), fs, datasets)

    def interrupt(self, attempt: AttemptRecord) -> None:
        """End the writes of a dead attempt on the Connect server, if there is one."""
        if attempt.interruption is not None:
            from gobblin_assets.jobs.ingest.spark_work import interrupt_attempt  # noqa: PLC0415  Spark takes half a second

            interrupt_attempt(self.remote or self._url, attempt)

    def close(self) -> None:
        """End a server's session. A session inside this process stays, because the process may need it again."""
        if self._end_watch is not None:
            self._end_watch()
        if self._session is not None and self._url is not None:
            self._session.stop()
        self._session = None

    def find_server(self, job: JobSpec | None = None) -> str | None:
        """The URL of the Connect server that the session uses; None: Spark runs inside this process.

        With ``master``, ``conf``, ``coordinates`` or ``jars``, Spark runs inside this process even if a server is warm.
        """
        if self.remote:
            return self.remote
        if self.master or self.conf or self.coordinates or self.jars:
            return None
        from gobblin_assets.jobs.ingest.spark_work import find_warm, runs_spark_itself  # noqa: PLC0415  Spark takes half a second

        if runs_spark_itself():
            return None
        settings = self.settings(job)
        return find_warm(settings.capabilities, self.say, hdfs_user=settings.hdfs_user)
