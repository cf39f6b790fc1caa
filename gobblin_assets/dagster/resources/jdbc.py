"""JDBC connections: each is a resource of its own, under the name that jobs call it by."""

import os
from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.settings import read_settings
from gobblin_assets.sources.discovery import find_discovery
from gobblin_assets.sources.jdbc.connection import JdbcConnection, find_subprotocol
from gobblin_assets.sources.jdbc.drivers import find_driver
from gobblin_assets.sources.jdbc.source import JdbcSource
from gobblin_assets.sources.port import Source
from gobblin_assets.spec.job_spec import JdbcSourceSpec, JobSpec

VARIABLE_PREFIX = "GOBBLIN_JDBC_"


class JdbcConnectionResource(dg.ConfigurableResource["JdbcConnectionResource"]):
    """How to reach one database.

    Give the password as ``dg.EnvVar("NAME")``: Dagster shows a resource's configuration in its UI, and of an
    EnvVar only the name. A password inside the URL is refused.
    """

    url: str = Field(description="Such as jdbc:postgresql://host:5432/database, without user and password.", repr=False)
    user: str | None = None
    password: str | None = Field(default=None, repr=False, description='Always as EnvVar: dg.EnvVar("SALES_PASSWORD").')
    driver: str | None = Field(default=None, description="The driver's class, where the URL does not tell.")
    properties: dict[str, str] = Field(default_factory=dict, repr=False, description="The driver's own options.")

    def connection(self, name: str) -> JdbcConnection:
        """The connection as a value; ``name`` is what errors call it. RejectedError names the field and the fix."""
        return JdbcConnection(
            url=self.url,
            user=self.user,
            password=self.password,
            driver=self.driver,
            properties=dict(self.properties),
            name=name,
        )

    def list_capabilities(self, name: str) -> list[str]:
        """As the function of that name; a URL in an environment variable is read now."""
        return list_capabilities(self.url.get_value() if isinstance(self.url, dg.EnvVar) else self.url, name)

    def open_source(self, job: JobSpec) -> Source:
        """The job's tables over this connection. Nothing is connected to yet."""
        if not isinstance(job.source, JdbcSourceSpec):
            raise RejectedError(
                f"expected a Kafka connection under this name, found the JDBC connection of {job.job!r}",
                field="source.connection",
                hint="Name the resource of the Kafka cluster.",
            )
        known = find_discovery(read_settings().discovery_path(job.job)) if job.source.include else None
        return JdbcSource(self.connection(job.source.connection), job.source, known=known)


def list_capabilities(url: str | None, name: str) -> list[str]:
    """What Spark needs for the URL's driver: Postgres' where there is no URL yet, nothing where Spark has the driver.

    RejectedError if the URL is none of JDBC's.
    """
    if not url:
        return ["postgres"]
    known = find_driver(find_subprotocol(url, name=name))
    return [known.capability] if known is not None and known.capability is not None else []


def require_no_written_secret(name: str, resource: JdbcConnectionResource) -> None:
    """A password that stands in the code is a RejectedError: Dagster would show it to everybody."""
    if resource.password is not None and not isinstance(resource.password, dg.EnvVar):
        raise RejectedError(
            "the password is written out",
            field=f"connections[{name}].password",
            hint='Put it into an environment variable, and give dg.EnvVar("ITS_NAME").',
        )


def connection_from_environment(name: str, environment: Mapping[str, str] | None = None) -> JdbcConnectionResource:
    """The connection ``name`` from GOBBLIN_JDBC_<NAME>_URL, _USER, _PASSWORD and _DRIVER; the URL must be there.

    Only which variables there are is looked at; their values are read when a run starts.
    """
    variables = os.environ if environment is None else environment
    prefix = f"{VARIABLE_PREFIX}{name.upper()}_"
    given: dict[str, Any] = {
        field: dg.EnvVar(prefix + field.upper())
        for field in ("user", "password", "driver")
        if variables.get(prefix + field.upper())
    }
    return JdbcConnectionResource(url=dg.EnvVar(f"{prefix}URL"), **given)
