"""The ports that assets need as resources, with their keys, besides the source's own connection.

``resources`` vends them; a test may hand over anything that has the methods.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from pyspark.sql import SparkSession

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import Rewriter, Worker
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.log_watch import LogWatch
from gobblin_assets.sources.port import Source
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec

STORES_KEY: Final = "gobblin_stores"
"""Gives ``Stores``."""

SPARK_KEY: Final = "gobblin_spark"
FILE_SYSTEMS_KEY: Final = "gobblin_file_systems"

RESERVED_KEYS: Final = frozenset({STORES_KEY, SPARK_KEY, FILE_SYSTEMS_KEY, "io_manager"})


class Engine(Protocol):
    """Under ``SPARK_KEY``: what reads and writes. Nothing starts before the first use."""

    def get_session(self, job: JobSpec) -> SparkSession:
        """The session of a run of ``job``; started or connected to at the first call. Any thread may call."""
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


class FileSystems(Protocol):
    """Under ``FILE_SYSTEMS_KEY``."""

    def open(self, uri: str, *, umask: int | None = None) -> tuple[FileSystem, str]:
        """The file system of a destination, and its root's path there. Nothing is connected to or made yet."""
        ...


class Connection(Protocol):
    """Under the name that the job's ``source.connection`` gives."""

    def open_source(self, job: JobSpec) -> Source:
        """The job's source over this connection. Nothing is connected to yet."""
        ...


class WatchedConnection(Connection, Protocol):
    """A ``Connection`` to a source of logs."""

    def open_watch(self, job: JobSpec, *, timeout_s_max: float) -> LogWatch:
        """The watch of the job's logs: it reads no records, and each request is bounded. Nothing connects yet."""
        ...


def connection_key(job: JobSpec) -> str:
    """The resource key of the job's connection: its name. RejectedError when no resource can be called so."""
    name = job.source.connection
    if not name.isidentifier() or name.startswith("_") or name in RESERVED_KEYS:
        raise RejectedError(
            f"expected the name of a resource, found {name!r}",
            field="source.connection",
            hint=f"Letters, digits and underscores, not first a digit, and none of {', '.join(sorted(RESERVED_KEYS))}.",
        )
    return name
