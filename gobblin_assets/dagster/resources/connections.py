"""A job's connection, whatever its kind: the resource under its kind and its name.

Each kind of source has a resource with the fields of its ``SourceConnection``. A source knows nothing of Dagster: a
resource that somebody wrote is found by its kind's name in ``SOURCE_RESOURCES``, others are made from the fields.
"""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Final, cast

import dagster as dg
from pydantic import Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.extensions import Extensions
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.sources.connection import LogConnection, LogWatch, SourceConnection
from gobblin_assets.sources.environment import connection_class, list_text_fields, read_numbers, variable_prefix
from gobblin_assets.sources.log_port import EpochSource, SpanSource
from gobblin_assets.sources.source_port import Source
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import SourceKind, kind_of
from gobblin_assets.spec.source_spec import SourceSpec


class SourceConnectionResource(dg.ConfigurableResource["SourceConnectionResource"]):
    """The connection of one source. Subclasses have the fields of ``FIELDS``, the connection that they open.

    Give secrets as ``dg.EnvVar("NAME")``: Dagster shows a resource's configuration in its UI, but shows only the name
    of an EnvVar.
    """

    FIELDS: ClassVar[type[SourceConnection]]
    KIND: ClassVar[str]

    def open(self) -> SourceConnection:
        """The connection as a value. Nothing is connected to yet."""
        return self.FIELDS.model_validate({name: getattr(self, name) for name in self.FIELDS.model_fields})

    def open_source(self, job: JobSpec) -> Source:
        """The job's datasets over this connection. Nothing is connected to yet."""
        self._require_kind(job)
        return self.open().open_source(job)

    def open_watch(self, job: JobSpec, *, timeout_s_max: float) -> LogWatch:
        """A watch that looks at the job's logs without reading them. Nothing is connected to yet."""
        return self._open_log(job, "Only logs can be watched.").open_watch(job, timeout_s_max=timeout_s_max)

    def open_epochs(self, job: JobSpec, urn: DatasetUrn, dataset: DatasetSpec) -> EpochSource:
        """The log of one dataset, for a sink. Nothing is connected to yet."""
        return self._open_log(job, "A sink follows a log.").open_epochs(job, urn, dataset)

    def open_spans(self, job: JobSpec, urn: DatasetUrn, dataset: DatasetSpec) -> SpanSource:
        """The same log, for rows that come from Spark. Nothing is connected to yet."""
        return self._open_log(job, "A sink follows a log.").open_spans(job, urn, dataset)

    def _open_log(self, job: JobSpec, hint: str) -> LogConnection:
        self._require_kind(job)
        connection = self.open()
        if not isinstance(connection, LogConnection):
            raise RejectedError("expected a source of logs", field="source.type", hint=hint)
        return connection

    def list_capabilities(self, name: str) -> list[str]:
        """The connectors that Spark needs for the connection. An address in an environment variable is read now."""
        address = getattr(self, self.FIELDS.ADDRESS)
        return list(
            self.FIELDS.list_capabilities(address.get_value() if isinstance(address, dg.EnvVar) else address, name)
        )

    def _require_kind(self, job: JobSpec) -> None:
        if job.source.type != self.KIND:
            raise RejectedError(
                f"expected a connection of the kind {job.source.type} under the key of {job.source.connection!r}, "
                f"which {job.job!r} names; found {self.KIND}",
                field="source.connection",
                hint="Give the connections to `gobblin_resources`, which makes their keys.",
            )


SOURCE_RESOURCES: Final = Extensions[type[SourceConnectionResource]](
    group="gobblin_assets.source_resources",
    noun="resource of a kind of source",
    option="source.type",
    accepts=lambda found: isinstance(found, type) and issubclass(found, SourceConnectionResource),
    built_in={
        "jdbc": "gobblin_assets.dagster.resources.kinds:JdbcConnectionResource",
        "kafka": "gobblin_assets.dagster.resources.kinds:KafkaConnectionResource",
    },
)


def resource_class(kind: SourceKind) -> type[SourceConnectionResource]:
    """Dagster's resource of a kind. RejectedError if the package that offers one is broken."""
    if SOURCE_RESOURCES.has(kind.name):
        return SOURCE_RESOURCES.get(kind.name)
    return _make_class(connection_class(kind), kind.name)


@cache
def _make_class(fields: type[SourceConnection], kind: str) -> type[SourceConnectionResource]:
    values: dict[str, Any] = {
        name: Field(
            default=each.get_default(call_default_factory=True) if not each.is_required() else ...,
            description=each.description,
            repr=each.repr,
        )
        for name, each in fields.model_fields.items()
    }
    own: dict[str, Any] = {name: each.annotation for name, each in fields.model_fields.items()}
    name = f"{fields.__name__}Resource"
    place = {"__module__": fields.__module__, "__qualname__": name, "__doc__": fields.__doc__}
    named = {"FIELDS": fields, "KIND": kind}
    typed = {"FIELDS": ClassVar[type[SourceConnection]], "KIND": ClassVar[str]}
    make: Any = type(SourceConnectionResource)
    made = make(name, (SourceConnectionResource,), {**place, **named, **values, "__annotations__": {**typed, **own}})
    return cast("type[SourceConnectionResource]", made)


def require_no_written_secret(name: str, resource: SourceConnectionResource) -> None:
    """Refuse a secret in the code, since Dagster would show it to everybody."""
    for field in sorted(resource.FIELDS.SECRETS):
        value = getattr(resource, field)
        if value is not None and not isinstance(value, dg.EnvVar):
            raise RejectedError(
                f"the {'password' if field == 'password' else 'secret'} is written out",
                field=f"connections[{name}].{field}",
                hint='Put it into an environment variable, and give dg.EnvVar("ITS_NAME").',
            )


def connection_from_environment(
    source: SourceSpec, environment: Mapping[str, str] | None = None
) -> SourceConnectionResource:
    """The source's connection by the variables of its name, such as GOBBLIN_JDBC_<NAME>_URL; its address must be there.

    Only the names of variables for texts are looked at now; their values are read when a run starts.
    """
    variables = os.environ if environment is None else environment
    kind = kind_of(source)
    fields, prefix = connection_class(kind), variable_prefix(source)
    given: dict[str, Any] = {
        name: dg.EnvVar(prefix + name.upper())
        for name in list_text_fields(fields)
        if name == fields.ADDRESS or variables.get(prefix + name.upper())
    }
    return resource_class(kind)(**given, **read_numbers(source, variables))
