"""The fields of a connection to a Postgres database whose change log is followed."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar

from pydantic import Field
from pyspark.sql import SparkSession

from gobblin_assets.db.jdbc_url import read_postgres_url
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.sources.connection import LogConnection, LogNews, LogWatch
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.postgres import postgres_families
from gobblin_assets.sources.log_port import EpochSource, SpanPlan, SpanSource
from gobblin_assets.sources.postgres_log.postgres_log_kind import PostgresLogSourceSpec
from gobblin_assets.sources.postgres_log.server_state import (
    find_publication,
    list_publications,
    open_log_session,
    require_publication,
)
from gobblin_assets.sources.postgres_log.slot_epochs import SlotEpochs
from gobblin_assets.sources.source_port import PlanSession, Source, SourceRequest
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec


class LogDatabase(LogConnection):
    """A Postgres whose change log is followed: its address, its user.

    ``url`` is without user and password; a password inside the URL is refused. The user may replicate.
    """

    ADDRESS: ClassVar[str] = "url"
    ADDRESS_IS: ClassVar[str] = "the URL"
    ADDRESS_HINT: ClassVar[str] = "Set it to postgresql://host:5432/database, and beside it …_USER and …_PASSWORD."
    SECRETS: ClassVar[frozenset[str]] = frozenset({"password"})

    url: str = Field(repr=False)
    user: str | None = None
    password: str | None = Field(None, repr=False)
    properties: dict[str, str] = Field(default_factory=dict, repr=False)

    def connection(self, name: str) -> JdbcConnection:
        """The connection as a value; ``name`` is what errors call it. RejectedError names the field and the fix."""
        url = read_postgres_url(
            self.url, field=f"connections[{name}].url", beside="`user` and `password`, from variables"
        )
        found = JdbcConnection(
            url=url or self.url, user=self.user, password=self.password, properties=dict(self.properties), name=name
        )
        if found.subprotocol != "postgresql":
            raise RejectedError(
                f"expected jdbc:postgresql, found jdbc:{found.subprotocol}",
                field=f"connections[{name}].url",
                hint="Only Postgres has such a change log. Others write theirs to Kafka by Debezium: follow the topic.",
            )
        return found

    def list_publications(self, name: str) -> Mapping[str, Sequence[str]]:
        connection = self.connection(name)
        with open_log_session(connection) as session, postgres_families(connection):
            return {each: list(map(str, tables)) for each, tables in list_publications(session).items()}

    def open_source(self, job: JobSpec) -> Source:
        source = _log_of(job)
        return PublishedTables(self.connection(source.connection), source)

    def open_watch(self, job: JobSpec, *, timeout_s_max: float) -> LogWatch:  # noqa: ARG002  sessions have their own
        source = _log_of(job)
        return PublicationWatch(PublishedTables(self.connection(source.connection), source))

    def open_epochs(self, job: JobSpec, urn: DatasetUrn, dataset: DatasetSpec) -> EpochSource:
        source = _log_of(job)
        return SlotEpochs(self.connection(source.connection), source, job, urn, dataset)

    def open_spans(self, job: JobSpec, urn: DatasetUrn, dataset: DatasetSpec) -> SpanSource:  # noqa: ARG002  none has
        return _NoSpans()

    @classmethod
    def find_shown_kind(cls, address: str | None) -> str | None:  # noqa: ARG003  it is always the same
        return "postgres"


class PublishedTables:
    """``Source`` for discovery: a run reads nothing of a change log."""

    def __init__(self, connection: JdbcConnection, source: PostgresLogSourceSpec) -> None:
        self._connection = connection
        self._source = source

    def open_plan(
        self,
        spark: Callable[[], SparkSession],
        say: Callable[[str], None],
        requests: Sequence[SourceRequest] = (),
    ) -> AbstractContextManager[PlanSession]:
        del spark, say, requests
        raise refuse_run()

    def discover(self, spark: Callable[[], SparkSession]) -> Sequence[str]:
        del spark
        return self.list_tables()

    def list_tables(self) -> list[str]:
        """The tables of the publication, sorted. RejectedError if there is no such publication."""
        with open_log_session(self._connection) as session, postgres_families(self._connection):
            found = find_publication(session, self._source.publication)
        return sorted(map(str, require_publication(self._source.publication, found).tables))


class PublicationWatch:
    """``LogWatch`` for discovery: what is new is the workers' to say."""

    def __init__(self, tables: PublishedTables) -> None:
        self._tables = tables

    def find_news(self, requests: Sequence[SourceRequest]) -> dict[DatasetUrn, LogNews | GobblinError]:
        return {request.urn: refuse_run() for request in requests}

    def list_names(self) -> list[str]:
        return self._tables.list_tables()


class _NoSpans:
    """``SpanSource``: rows of changes are made in the worker."""

    @property
    def spark_need(self) -> None:
        return None

    def plan_spans(
        self, spark: Callable[[], SparkSession], spans: Mapping[str, Sequence[WorkUnit]], state: DatasetState
    ) -> SpanPlan:
        del spark, spans, state
        raise refuse_run()


def refuse_run() -> RejectedError:
    return RejectedError(
        "a run reads no change log",
        field="source.type",
        hint="Workers follow it: gobblin-assets sink run, or in Dagster sink: {workers: 1} and the job's sink sensor.",
    )


def _log_of(job: JobSpec) -> PostgresLogSourceSpec:
    if isinstance(job.source, PostgresLogSourceSpec):
        return job.source
    raise RejectedError("expected postgres_log", field="source.type", hint="Name the connection of its own kind.")
