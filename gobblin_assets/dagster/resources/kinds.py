"""The connections of tables and of topics: each is a resource of its own, by the name that jobs give it."""

from typing import ClassVar

from pydantic import Field

from gobblin_assets.dagster.resources.connections import SourceConnectionResource
from gobblin_assets.kafka.connection import TIMEOUT_S
from gobblin_assets.sources.connection import SourceConnection
from gobblin_assets.sources.jdbc.database_connection import DatabaseConnection
from gobblin_assets.sources.kafka.cluster_connection import ClusterConnection


class JdbcConnectionResource(SourceConnectionResource):
    """The connection of one database.

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


class KafkaConnectionResource(SourceConnectionResource):
    """The connection of one cluster and, where its records are in Avro or Protobuf, of its schema registry.

    Give secrets as ``dg.EnvVar("NAME")``: Dagster shows a resource's configuration in its UI, but shows only the name
    of an EnvVar.
    """

    FIELDS: ClassVar[type[SourceConnection]] = ClusterConnection
    KIND: ClassVar[str] = "kafka"

    bootstrap_servers: str = Field(description="host:port,host:port")
    security_protocol: str = Field(default="PLAINTEXT", description="Or SSL, SASL_PLAINTEXT, SASL_SSL.")
    sasl_mechanism: str | None = Field(default=None, description="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.")
    username: str | None = None
    password: str | None = Field(default=None, repr=False, description="Always as EnvVar.")
    ssl_ca_file: str | None = Field(default=None, description="PEM file of the authorities to trust.")
    ssl_client_file: str | None = Field(default=None, description="PEM file of the client's key and certificates.")
    ssl_client_password: str | None = Field(default=None, repr=False, description="Of the key, as EnvVar.")
    ssl_check_hostname: bool = True
    options: dict[str, str] = Field(default_factory=dict, repr=False, description="Further options of both clients.")
    timeout_s: float = TIMEOUT_S
    registry_url: str | None = Field(default=None, description="https://host:port of a Confluent-compatible registry.")
    registry_user: str | None = None
    registry_password: str | None = Field(default=None, repr=False, description="Always as EnvVar.")
    registry_token: str | None = Field(default=None, repr=False, description="Instead of user and password, as EnvVar.")
    registry_ca_file: str | None = None
