"""The ports that assets need as resources, with their keys, besides the source's own connection.

``resources`` vends them; a test may hand over anything that has the methods.
"""

from typing import Final, Protocol

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.jobs.ingest.engine_port import Connection
from gobblin_assets.sources.log_watch import LogWatch
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.source_spec import SourceSpec

STORES_KEY: Final = "gobblin_stores"
"""Gives ``Stores``."""

SPARK_KEY: Final = "gobblin_spark"
"""Gives an ``Engine``."""

FILE_SYSTEMS_KEY: Final = "gobblin_file_systems"

RESERVED_KEYS: Final = frozenset({STORES_KEY, SPARK_KEY, FILE_SYSTEMS_KEY, "io_manager"})


class FileSystems(Protocol):
    """Under ``FILE_SYSTEMS_KEY``."""

    def open(self, uri: str, *, umask: int | None = None) -> tuple[FileSystem, str]:
        """The file system of a destination, and its root's path there. Nothing is connected to or made yet."""
        ...


class WatchedConnection(Connection, Protocol):
    """Under the name that the job's ``source.connection`` gives: a connection to a source of logs."""

    def open_watch(self, job: JobSpec, *, timeout_s_max: float) -> LogWatch:
        """The watch of the job's logs: it reads no records, and each request is bounded. Nothing connects yet."""
        ...


def connection_key(source: SourceSpec) -> str:
    """The resource key of a source's connection: its name. RejectedError when no resource can be called so."""
    name = source.connection
    if not name.isidentifier() or name.startswith("_") or name in RESERVED_KEYS:
        raise RejectedError(
            f"expected the name of a resource, found {name!r}",
            field="source.connection",
            hint=f"Letters, digits and underscores, not first a digit, and none of {', '.join(sorted(RESERVED_KEYS))}.",
        )
    return name
