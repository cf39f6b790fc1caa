"""Connections to a Kafka cluster and its schema registry: their fields."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, cast

from pydantic import Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.kafka.connection import TIMEOUT_S, KafkaConnection, SaslMechanism, SecurityProtocol
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.sources.connection import LogConnection, LogWatch
from gobblin_assets.sources.discovery import discovery_of
from gobblin_assets.sources.kafka.confluent import ConfluentCluster
from gobblin_assets.sources.kafka.epoch_log import TopicEpochs
from gobblin_assets.sources.kafka.kafka_kind import Decoder, KafkaSourceSpec, topic_options
from gobblin_assets.sources.kafka.registry import RegistryConnection, SchemaRegistry
from gobblin_assets.sources.kafka.source import KafkaSource
from gobblin_assets.sources.kafka.topic_spans import TopicSpans
from gobblin_assets.sources.kafka.watch import TopicWatch
from gobblin_assets.sources.log_port import EpochSource, SpanSource
from gobblin_assets.sources.source_port import Source
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec


class ClusterConnection(LogConnection):
    """A Kafka cluster and its schema registry: their addresses, users and certificates.

    ``bootstrap_servers`` is host:port,host:port; certificates are PEM files.
    """

    ADDRESS: ClassVar[str] = "bootstrap_servers"
    ADDRESS_IS: ClassVar[str] = "the brokers"
    ADDRESS_HINT: ClassVar[str] = (
        "Set it to host:port,host:port, and beside it …_SECURITY_PROTOCOL, …_USERNAME, …_REGISTRY_URL and so on."
    )
    SECRETS: ClassVar[frozenset[str]] = frozenset(
        {"password", "ssl_client_password", "registry_password", "registry_token"}
    )

    bootstrap_servers: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    username: str | None = None
    password: str | None = Field(None, repr=False)
    ssl_ca_file: str | None = None
    ssl_client_file: str | None = None
    ssl_client_password: str | None = Field(None, repr=False)
    ssl_check_hostname: bool = True
    options: dict[str, str] = Field(default_factory=dict, repr=False)
    timeout_s: float = TIMEOUT_S
    registry_url: str | None = None
    registry_user: str | None = None
    registry_password: str | None = Field(None, repr=False)
    registry_token: str | None = Field(None, repr=False)
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
        source = _source_of(job)
        connection = self.connection(source.connection)
        registry = self.registry(source.connection)
        return KafkaSource(ConfluentCluster(connection), connection, source, registry=registry, known=discovery_of(job))

    def open_watch(self, job: JobSpec, *, timeout_s_max: float) -> LogWatch:
        source = _source_of(job)
        connection = self.connection(source.connection)
        bounded = replace(connection, timeout_s=min(connection.timeout_s, timeout_s_max))
        return TopicWatch(ConfluentCluster(bounded), source)

    def open_epochs(self, job: JobSpec, urn: DatasetUrn, dataset: DatasetSpec) -> EpochSource:
        source = _source_of(job)
        connection = self.connection(source.connection)
        return TopicEpochs(ConfluentCluster(connection), connection, source, job.sink, urn, dataset)

    def open_spans(self, job: JobSpec, urn: DatasetUrn, dataset: DatasetSpec) -> SpanSource:
        source = _source_of(job)
        registry = self.registry(source.connection)
        return TopicSpans(self.connection(source.connection), registry, source, job.sink, urn, dataset)

    @classmethod
    def list_job_capabilities(cls, job: JobSpec) -> Sequence[str]:
        read = [topic_options(dataset).kafka for dataset in (job.defaults, *job.datasets)]
        has_avro = any(Decoder.AVRO in (each.key.format, each.value.format) for each in read)
        return ["avro", "kafka"] if has_avro else ["kafka"]


def _source_of(job: JobSpec) -> KafkaSourceSpec:
    if isinstance(job.source, KafkaSourceSpec):
        return job.source
    raise RejectedError("expected kafka", field="source.type", hint="Name the connection of its own kind.")
