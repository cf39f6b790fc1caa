"""JDBC connections: each is a resource of its own, by the name that jobs give it."""

from typing import ClassVar

from pydantic import Field

from gobblin_assets.dagster.resources.connections import SourceConnectionResource
from gobblin_assets.sources.connection import SourceConnection
from gobblin_assets.sources.jdbc.database_connection import DatabaseConnection


class JdbcConnectionResource(SourceConnectionResource):
    """How to reach one database.

    Give the password as ``dg.EnvVar("NAME")``: Dagster shows a resource's configuration in its UI, but shows only the
    name of an EnvVar. A password inside the URL is refused.
    """

    FIELDS: ClassVar[type[SourceConnection]] = DatabaseConnection
    KIND: ClassVar[str] = "jdbc"

    url: str = Field(description="Such as postgresql://host:5432/database, without user and password.", repr=False)
    user: str | None = None
    password: str | None = Field(default=None, repr=False, description='Always as EnvVar: dg.EnvVar("SALES_PASSWORD").')
    driver: str | None = Field(default=None, description="The driver's class, where the URL does not tell.")
    properties: dict[str, str] = Field(default_factory=dict, repr=False, description="The driver's own options.")
