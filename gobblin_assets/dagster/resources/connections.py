"""A job's connection, whatever its kind: the resource that answers to its name."""

from collections.abc import Iterable, Mapping

from gobblin_assets.dagster.resources import jdbc, kafka
from gobblin_assets.dagster.resources.jdbc import JdbcConnectionResource
from gobblin_assets.dagster.resources.kafka import KafkaConnectionResource
from gobblin_assets.errors import RejectedError
from gobblin_assets.spark.settings import plan_jars
from gobblin_assets.spec.job_spec import JobSpec, SourceSpec
from gobblin_assets.spec.kafka_spec import Decoder

ConnectionResource = JdbcConnectionResource | KafkaConnectionResource


def require_no_written_secret(name: str, resource: ConnectionResource) -> None:
    """A secret that stands in the code is a RejectedError: Dagster would show it to everybody."""
    if isinstance(resource, KafkaConnectionResource):
        kafka.require_no_written_secret(name, resource)
    else:
        jdbc.require_no_written_secret(name, resource)


def connection_from_environment(source: SourceSpec, environment: Mapping[str, str] | None = None) -> ConnectionResource:
    """The source's connection by the variables of its name. Only which variables there are is looked at."""
    if source.type == "kafka":
        return kafka.connection_from_environment(source.connection, environment)
    return jdbc.connection_from_environment(source.connection, environment)


def require_variables(source: SourceSpec, environment: Mapping[str, str]) -> None:
    """RejectedError that names the variable which says where the connection leads to, if it is not set."""
    name = source.connection.upper()
    if source.type == "kafka":
        variable, what = f"{kafka.VARIABLE_PREFIX}{name}_BOOTSTRAP_SERVERS", "the brokers"
        hint = "Set it to host:port,host:port, and beside it …_SECURITY_PROTOCOL, …_USERNAME, …_REGISTRY_URL and so on."
    else:
        variable, what = url_variable(source.connection), "the URL"
        hint = "Set it to jdbc:postgresql://host:5432/database, and beside it …_USER and …_PASSWORD."
    if not environment.get(variable):
        raise RejectedError(
            f"expected {what} of the connection {source.connection!r} in the environment, found none",
            field=variable,
            hint=hint,
        )


def list_capabilities(jobs: Iterable[JobSpec], environment: Mapping[str, str]) -> list[str]:
    """The connectors that Spark needs for these jobs, by the names of ``GobblinSparkResource.capabilities``.

    Of a JDBC connection the URL's database tells; Postgres where no URL is given yet. RejectedError if the URL is none.
    """
    needed = set()
    for job in jobs:
        if job.source.type == "jdbc":
            name = job.source.connection
            needed.update(jdbc.list_capabilities(environment.get(url_variable(name)), name))
            continue
        needed.add("kafka")
        for dataset in (job.defaults, *job.datasets):
            if Decoder.AVRO in (dataset.kafka.key.format, dataset.kafka.value.format):
                needed.add("avro")
    return sorted(needed)


def plan_driver_jars(jobs: Iterable[JobSpec]) -> dict[str, str]:
    """Spark's configuration for the drivers that the jobs bring themselves, by coordinates and paths."""
    sources = [job.source for job in jobs if job.source.type == "jdbc"]
    packages = [package for source in sources for package in source.packages]
    return plan_jars(packages, [jar for source in sources for jar in source.jars], field="source")


def url_variable(connection: str) -> str:
    """Where the URL of a JDBC connection stands."""
    return f"{jdbc.VARIABLE_PREFIX}{connection.upper()}_URL"
