"""The ports that a run of an ingestion takes from whoever starts it: Spark, and the source's connection."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import Rewriter, Worker
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.source_port import Source
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine(Protocol):
    """A reader and writer by Spark. Nothing starts before the first use."""

    @property
    def master(self) -> str | None:
        """The master that was asked for; None: none was."""
        ...

    @property
    def remote(self) -> str | None:
        """The Connect server that was asked for; None: none was."""
        ...

    def get_session(self, job: JobSpec | None = None) -> "SparkSession":
        """The session of a run of ``job``; started or connected to at the first call. Any thread may call.

        ``job`` None: it reads nothing, and needs no connector.
        """
        ...

    def count_slots(self) -> int | None:
        """The number of tasks that a cluster runs at once for the session. Nothing is opened to learn it.

        None: Spark runs on this machine, or nobody knows.
        """
        ...

    def open_extractor(self, job: JobSpec, stores: Stores) -> Worker:
        """The worker that reads WorkUnits and writes them into staging."""
        ...

    def open_rewriter(self, job: JobSpec, datasets: Mapping[DatasetUrn, DatasetSpec]) -> Rewriter:
        """The rewriter of compactions, which writes published rows into staging."""
        ...

    def interrupt(self, attempt: AttemptRecord) -> None:
        """End the writes of a dead attempt, as far as that is possible."""
        ...


class Connection(Protocol):
    """The connection to a source."""

    def open_source(self, job: JobSpec) -> Source:
        """The job's source over this connection. Nothing is connected to yet."""
        ...


class AnnouncedEngine:
    """``Engine`` that says when its first use starts Spark, and when Spark is ready.

    A start takes a new process many seconds, and has no message of its own.
    """

    def __init__(self, engine: Engine, say: Callable[[str], None]) -> None:
        self._engine = engine
        self._say = say
        self._is_ready = threading.Event()

    @property
    def master(self) -> str | None:
        return self._engine.master

    @property
    def remote(self) -> str | None:
        return self._engine.remote

    def get_session(self, job: JobSpec | None = None) -> "SparkSession":
        with self._starting():
            return self._engine.get_session(job)

    def count_slots(self) -> int | None:
        return self._engine.count_slots()

    def open_extractor(self, job: JobSpec, stores: Stores) -> Worker:
        with self._starting():
            return self._engine.open_extractor(job, stores)

    def open_rewriter(self, job: JobSpec, datasets: Mapping[DatasetUrn, DatasetSpec]) -> Rewriter:
        return self._engine.open_rewriter(job, datasets)

    def interrupt(self, attempt: AttemptRecord) -> None:
        self._engine.interrupt(attempt)

    @contextmanager
    def _starting(self) -> Iterator[None]:
        is_first = not self._is_ready.is_set()
        if is_first:
            self._say("Spark starts, or the session that runs already is taken.")
        yield
        if is_first:
            self._say("Spark is ready.")
        self._is_ready.set()
