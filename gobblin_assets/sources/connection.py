"""How one source of a kind is reached: fields that variables of the environment and Dagster's resource give.

A kind's class names its fields once. ``sources.environment`` reads them from variables; Dagster's resource of the kind
has the same ones.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from gobblin_assets.sources.log_watch import LogWatch
from gobblin_assets.sources.port import Source
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.source_spec import SourceSpec


class SourceConnection(BaseModel):
    """Subclasses add the fields. Those that are texts or numbers can stand in variables.

    ``ADDRESS`` is the field that says where the connection leads to, ``ADDRESS_IS`` what it is called in sentences, and
    ``ADDRESS_HINT`` what to set it to. ``SECRETS`` are never shown, nor taken from code.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ADDRESS: ClassVar[str]
    ADDRESS_IS: ClassVar[str]
    ADDRESS_HINT: ClassVar[str]
    SECRETS: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def open_source(self, job: JobSpec) -> Source:
        """The job's source over this connection. Nothing is connected to yet. RejectedError names the field."""

    @classmethod
    def list_capabilities(cls, address: str | None, name: str) -> Sequence[str]:  # noqa: ARG003  for those who need them
        """Spark's connectors (``spark.settings.COORDINATES``) that the connection ``name`` needs.

        ``address``: where it leads to; None where nothing says so yet.
        """
        return ()

    @classmethod
    def list_job_capabilities(cls, job: JobSpec) -> Sequence[str]:  # noqa: ARG003  the same
        """Spark's connectors that a job needs by what it says."""
        return ()

    @classmethod
    def list_jars(cls, source: SourceSpec) -> tuple[Sequence[str], Sequence[str]]:  # noqa: ARG003  the same
        """What Spark needs besides: Maven coordinates, and jar files by path."""
        return (), ()

    @classmethod
    def find_shown_kind(cls, address: str | None) -> str | None:  # noqa: ARG003  the same
        """What Dagster shows as the kind of the asset that is read, such as postgres. None: nothing tells."""
        return None


class LogConnection(SourceConnection):
    """To a source of logs."""

    @abstractmethod
    def open_watch(self, job: JobSpec, *, timeout_s_max: float) -> LogWatch:
        """What looks at the job's logs without reading them, each question bounded. Nothing is connected to yet."""
