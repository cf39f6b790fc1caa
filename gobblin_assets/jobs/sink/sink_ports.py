"""Everything a worker of a sink needs from outside."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import SparkSession

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.commit.step_world import OpenFileSystem
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.state import RunId
from gobblin_assets.run.destination import Destination
from gobblin_assets.run.job_kind import Worker
from gobblin_assets.run.run_values import NO_SINKS, Events
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_spec import JobSpec


class SinkSpark(Protocol):
    """The Spark of a worker. Nothing starts before the first use."""

    def get_session(self, job: JobSpec | None = None) -> SparkSession:
        """The session of ``job``, started or connected to at the first call."""
        ...

    def open_extractor(self, job: JobSpec, stores: Stores) -> Worker:
        """The worker that reads WorkUnits and writes them into the job's staging."""
        ...

    def interrupt(self, attempt: AttemptRecord) -> None:
        """End the writes of a dead attempt, as far as that is possible."""
        ...


@dataclass(frozen=True, slots=True)
class SinkPorts:
    """The ports of one worker. ``fs`` is the destination's file system.

    ``wait(seconds)`` waits at most so long, and says whether to stop. ``configuration``: a digest of what the worker
    does to records. ``spark`` None: no dataset needs it. ``dagster_run_id``: of the Dagster run that the worker is, if
    it is one. ``run_id`` as of ``RunRequest``.
    """

    job: JobSpec
    stores: Stores
    destination: Destination
    open_file_system: OpenFileSystem
    fs: FileSystem
    interrupt: Callable[[AttemptRecord], None]
    clock: Clock
    say: Callable[[str], None]
    wait: Callable[[float], bool]
    configuration: str
    events: Events = NO_SINKS
    spark: SinkSpark | None = None
    dagster_run_id: str | None = None
    run_id: RunId | None = None
