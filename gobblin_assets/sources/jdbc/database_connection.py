"""The fields of a JDBC connection to a database."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from gobblin_assets.db.jdbc_url import is_postgres_url, read_postgres_url
from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.connection import SourceConnection
from gobblin_assets.sources.discovery import discovery_of
from gobblin_assets.sources.jdbc.connection import JDBC_DATABASES, JdbcConnection, find_jdbc_database, find_subprotocol
from gobblin_assets.sources.jdbc.jdbc_kind import JdbcSourceSpec
from gobblin_assets.sources.jdbc.source import JdbcSource
from gobblin_assets.sources.source_port import Source
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.source_spec import SourceSpec


class DatabaseConnection(SourceConnection):
    """A database over JDBC: its address, its user, its driver.

    ``url`` is without user and password; a password inside the URL is refused.
    """

    ADDRESS: ClassVar[str] = "url"
    ADDRESS_IS: ClassVar[str] = "the URL"
    ADDRESS_HINT: ClassVar[str] = "Set it to jdbc:postgresql://host:5432/database, and beside it …_USER and …_PASSWORD."
    SECRETS: ClassVar[frozenset[str]] = frozenset({"password"})

    url: str = Field(repr=False)
    user: str | None = None
    password: str | None = Field(None, repr=False)
    driver: str | None = None
    properties: dict[str, str] = Field(default_factory=dict, repr=False)

    def connection(self, name: str) -> JdbcConnection:
        """The connection as a value; ``name`` is what errors call it. RejectedError names the field and the fix."""
        read = read_postgres_url(
            self.url, field=f"connections[{name}].url", beside="`user` and `password`, from variables"
        )
        return JdbcConnection(
            url=read or self.url,
            user=self.user,
            password=self.password,
            driver=self.driver,
            properties=dict(self.properties),
            name=name,
        )

    def open_source(self, job: JobSpec) -> Source:
        source = job.source
        if not isinstance(source, JdbcSourceSpec):
            raise RejectedError("expected jdbc", field="source.type", hint="Name a connection of the source's kind.")
        return JdbcSource(self.connection(source.connection), source, known=discovery_of(job))

    @classmethod
    def list_capabilities(cls, address: str | None, name: str) -> Sequence[str]:
        """The connector of the URL's database; Postgres if there is no URL yet. None if Spark has it, or if unknown."""
        if not address or is_postgres_url(address):
            return ["postgres"]
        known = find_jdbc_database(find_subprotocol(address, name=name), name=name)
        return [known.capability] if known is not None and known.capability is not None else []

    @classmethod
    def list_jars(cls, source: SourceSpec) -> tuple[Sequence[str], Sequence[str]]:
        return (source.packages, source.jars) if isinstance(source, JdbcSourceSpec) else ((), ())

    @classmethod
    def find_shown_kind(cls, address: str | None) -> str | None:
        """The database that the URL names, as Dagster calls it; None: it is not known."""
        if is_postgres_url(address or ""):
            return "postgres"
        named = (address or "").removeprefix("jdbc:").partition(":")[0]
        return named if JDBC_DATABASES.has(named) else None
