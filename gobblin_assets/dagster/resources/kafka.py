"""Kafka clusters: each is a resource of its own, under the name that jobs call it by."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import dagster as dg
from pydantic import Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.settings import read_settings
from gobblin_assets.sources.discovery import find_discovery
from gobblin_assets.sources.kafka.confluent import ConfluentCluster
from gobblin_assets.sources.kafka.connection import TIMEOUT_S, KafkaConnection, SaslMechanism, SecurityProtocol
from gobblin_assets.sources.kafka.registry import RegistryConnection, SchemaRegistry
from gobblin_assets.sources.kafka.source import KafkaSource
from gobblin_assets.sources.kafka.watch import TopicWatch
from gobblin_assets.sources.port import Source
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.kafka_spec import KafkaSourceSpec

VARIABLE_PREFIX = "GOBBLIN_KAFKA_"

_SECRETS = ("password", "ssl_client_password", "registry_password", "registry_token")


class KafkaConnectionResource(dg.ConfigurableResource["KafkaConnectionResource"]):
    """How to reach one cluster and, where its records are in Avro or Protobuf, its schema registry.

    Give secrets as ``dg.EnvVar("NAME")``: Dagster shows a resource's configuration in its UI, and of an EnvVar only
    the name.
    """

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

    def connection(self, name: str) -> KafkaConnection:
        """The connection as a value; ``name`` is what errors call it. RejectedError names the field and the fix."""
        return KafkaConnection(
            bootstrap_servers=self.bootstrap_servers,
            security_protocol=cast("SecurityProtocol", self.security_protocol),
            sasl_mechanism=cast("SaslMechanism | None", self.sasl_mechanism),
            username=self.username,
            password=self.password,
            ssl_ca_file=self.ssl_ca_file,
            ssl_client_file=self.ssl_client_file,
            ssl_client_password=self.ssl_client_password,
            ssl_check_hostname=self.ssl_check_hostname,
            options=dict(self.options),
            timeout_s=self.timeout_s,
            name=name,
        )

    def registry(self, name: str) -> SchemaRegistry | None:
        """The schema registry beside the brokers, if there is one."""
        if self.registry_url is None:
            return None
        return SchemaRegistry(
            RegistryConnection(
                url=self.registry_url,
                user=self.registry_user,
                password=self.registry_password,
                token=self.registry_token,
                ca_file=self.registry_ca_file,
                name=name,
            )
        )

    def open_source(self, job: JobSpec) -> Source:
        """The job's topics over this connection. Nothing is connected to yet."""
        source = _source_of(job)
        connection = self.connection(source.connection)
        known = find_discovery(read_settings().discovery_path(job.job)) if source.include else None
        registry = self.registry(source.connection)
        return KafkaSource(ConfluentCluster(connection), connection, source, registry=registry, known=known)

    def open_watch(self, job: JobSpec, *, timeout_s_max: float) -> TopicWatch:
        """What looks at the job's topics without reading them. Nothing is connected to yet."""
        source = _source_of(job)
        connection = self.connection(source.connection)
        bounded = replace(connection, timeout_s=min(connection.timeout_s, timeout_s_max))
        return TopicWatch(ConfluentCluster(bounded), source)


def _source_of(job: JobSpec) -> KafkaSourceSpec:
    if isinstance(job.source, KafkaSourceSpec):
        return job.source
    raise RejectedError(
        f"expected a JDBC connection under this name, found the Kafka cluster that {job.job!r} names",
        field="source.connection",
        hint="Write source: {type: kafka, …}, or name the resource of a database.",
    )


def require_no_written_secret(name: str, resource: KafkaConnectionResource) -> None:
    """A secret that stands in the code is a RejectedError: Dagster would show it to everybody."""
    for field in _SECRETS:
        value = getattr(resource, field)
        if value is not None and not isinstance(value, dg.EnvVar):
            raise RejectedError(
                "the secret is written out",
                field=f"connections[{name}].{field}",
                hint='Put it into an environment variable, and give dg.EnvVar("ITS_NAME").',
            )


def connection_from_environment(name: str, environment: Mapping[str, str] | None = None) -> KafkaConnectionResource:
    """The cluster ``name`` from GOBBLIN_KAFKA_<NAME>_BOOTSTRAP_SERVERS, _USERNAME, _PASSWORD and so on: each field of
    the resource that is a text, and _TIMEOUT_S. Of texts it is only looked at which variables there are.
    """
    variables = os.environ if environment is None else environment
    prefix = f"{VARIABLE_PREFIX}{name.upper()}_"
    texts = [field for field in KafkaConnectionResource.model_fields if field not in _NOT_TEXTS]
    given: dict[str, Any] = {
        field: dg.EnvVar(prefix + field.upper()) for field in texts if variables.get(prefix + field.upper())
    }
    if timeout := variables.get(f"{prefix}TIMEOUT_S"):
        given["timeout_s"] = _read_seconds(timeout, f"{prefix}TIMEOUT_S")
    return KafkaConnectionResource(**{"bootstrap_servers": dg.EnvVar(f"{prefix}BOOTSTRAP_SERVERS"), **given})


def _read_seconds(text: str, variable: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RejectedError(f"expected a number of seconds, found {text!r}", field=variable, hint="Write 30.") from None


_NOT_TEXTS = frozenset({"ssl_check_hostname", "options", "timeout_s"})
