"""Spark's start, for whoever waits: it takes a new process many seconds without any message of its own."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.jobs.ingest.engine_port import Engine
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import Rewriter, Worker
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ToldEngine:
    """``Engine`` that says when its first use starts Spark, and when Spark is ready."""

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
