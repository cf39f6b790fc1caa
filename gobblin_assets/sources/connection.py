"""Connections to sources: the fields that variables of the environment and Dagster's resource give.

A kind's class names its fields once. ``sources.environment`` reads them from variables; Dagster's resource of the kind
has the same fields.

A ``LogWatch`` shows sensors what is new in logs, without reading records.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict

from gobblin_assets.errors import GobblinError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.lag import Lag, Unread, measure_lag
from gobblin_assets.sources.log_port import EpochSource, SpanSource
from gobblin_assets.sources.source_port import Source, SourceRequest
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_spec import SourceSpec


@dataclass(frozen=True, slots=True)
class LogNews:
    """The news of a log: what a run would find in it now.

    ``begins``: some position is still to be set, by the rule for a log's first run. ``unread`` omits offsets that this
    rule finds by a time, since no time is asked for here. ``mark`` shows whether a run got any further: it changes
    whenever a position with something unread behind it moves.
    """

    unread: Unread
    begins: bool
    mark: str

    @property
    def count(self) -> int:
        return sum(end - first for first, end in self.unread.values())

    @property
    def lag(self) -> Lag | None:
        return measure_lag(self.unread)


class LogWatch(Protocol):
    """A watch over the logs of one connection, which is opened by the first question."""

    def find_news(self, requests: Sequence[SourceRequest]) -> dict[DatasetUrn, LogNews | GobblinError]:
        """By URN, what is new, or the error that planning would end with. One question to the source.

        Raises:
            RejectedError: the source refuses the login.
            RetryableError: it does not answer.

        """
        ...

    def list_names(self) -> list[str]:
        """The names of all logs, sorted. Raises as ``find_news`` does."""
        ...


class SourceConnection(BaseModel):
    """One source, as it is reached.

    Subclasses add the fields. Fields that are texts or numbers can be given by variables.

    ``ADDRESS`` is the field with the place that the connection leads to; ``ADDRESS_IS`` names it in sentences, and
    ``ADDRESS_HINT`` says what to set it to. ``SECRETS`` are never shown, nor taken from code.
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
        """Spark's connectors that the connection ``name`` needs, by ``spark_settings.COORDINATES`` or as Maven's own.

        ``address``: the place that the connection leads to; None where it is not known yet.
        """
        return ()

    @classmethod
    def list_job_capabilities(cls, job: JobSpec) -> Sequence[str]:  # noqa: ARG003  the same
        """Spark's connectors that a job's options need."""
        return ()

    @classmethod
    def list_jars(cls, source: SourceSpec) -> tuple[Sequence[str], Sequence[str]]:  # noqa: ARG003  the same
        """Further jars for Spark: Maven coordinates, and jar files by path."""
        return (), ()

    @classmethod
    def find_shown_kind(cls, address: str | None) -> str | None:  # noqa: ARG003  the same
        """The kind that Dagster shows for the asset that is read, such as postgres. None: it is not known."""
        return None


@runtime_checkable
class OpensEpochs(Protocol):
    """A connection to logs that sinks can follow, as a value or as Dagster's resource."""

    def open_epochs(self, job: JobSpec, urn: DatasetUrn, dataset: DatasetSpec) -> EpochSource:
        """The log of one dataset. Nothing is connected to yet.

        RejectedError names an option of the dataset that sinks do not have.
        """
        ...

    def open_spans(self, job: JobSpec, urn: DatasetUrn, dataset: DatasetSpec) -> SpanSource:
        """The same log, for rows that come from Spark. Nothing is connected to yet."""
        ...


@runtime_checkable
class OffersPublications(Protocol):
    """A connection to a database that publishes the changes of some of its tables."""

    def list_publications(self, name: str) -> Mapping[str, Sequence[str]]:
        """The publications of the database, each with its tables. ``name``: what errors call the connection.

        RejectedError or RetryableError as by ``LogWatch``.
        """
        ...


class LogConnection(SourceConnection):
    """A connection to a source of logs."""

    @abstractmethod
    def open_watch(self, job: JobSpec, *, timeout_s_max: float) -> LogWatch:
        """A watch that looks at the job's logs without reading them, in bounded time. Nothing is connected to yet."""

    @abstractmethod
    def open_epochs(self, job: JobSpec, urn: DatasetUrn, dataset: DatasetSpec) -> EpochSource:
        """As ``OpensEpochs`` has it."""

    @abstractmethod
    def open_spans(self, job: JobSpec, urn: DatasetUrn, dataset: DatasetSpec) -> SpanSource:
        """The same."""
