"""The ports that assets need as resources, with their keys, besides the source's own connection.

``resources`` vends them; a test may hand over anything that has the methods.
"""

from typing import Final, Protocol

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.jobs.ingest.engine_port import Connection
from gobblin_assets.sources.connection import LogWatch
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.source_spec import SourceSpec

STORES_KEY: Final = "gobblin_stores"
"""Gives ``Stores``."""

SPARK_KEY: Final = "gobblin_spark"
"""Gives an ``Engine``."""

FILE_SYSTEMS_KEY: Final = "gobblin_file_systems"

GOBBLIN_KEY: Final = "gobblin"
"""Gives what runs a job inside a function of a user's own."""

_KIND_END: Final = "__"
"""Between the kind and the name in the key of a connection. No other resource's key has it behind a kind."""


class FileSystems(Protocol):
    """The resource under ``FILE_SYSTEMS_KEY``."""

    def open(self, uri: str, *, umask: int | None = None) -> tuple[FileSystem, str]:
        """The file system of a destination, and its root's path there. Nothing is connected to or made yet."""
        ...


class WatchedConnection(Connection, Protocol):
    """A connection to a source of logs, under the key of the job's source."""

    def open_watch(self, job: JobSpec, *, timeout_s_max: float) -> LogWatch:
        """The watch of the job's logs: it reads no records, and each request is bounded. Nothing connects yet."""
        ...


def connection_key(source: SourceSpec) -> str:
    """The resource key of a source's connection. RejectedError when no resource can be called so."""
    key = key_of_kind(source.type, source.connection)
    if not key.isidentifier():
        raise RejectedError(
            f"expected a name for a resource of Dagster, found {source.connection!r}",
            field="source.connection",
            hint="Write it with letters, digits and underscores alone.",
        )
    return key


def key_of_kind(kind: str, name: str) -> str:
    """The resource key of a connection of a kind: a database and a cluster may have the same name, such as ``shop``."""
    return f"{kind}{_KIND_END}{name}"
