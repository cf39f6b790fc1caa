"""Connections by the environment: GOBBLIN_<KIND>_<NAME>_<FIELD>, such as GOBBLIN_JDBC_SHOP_URL.

Only texts and numbers can be given by variables. A variable's value is read when something connects, not before.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import Union, get_args, get_origin

from pydantic import ValidationError

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.connection import SourceConnection
from gobblin_assets.spark.spark_settings import plan_jars
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.source_kind import SourceKind, kind_of, require_connection
from gobblin_assets.spec.source_spec import SourceSpec


def connection_class(kind: SourceKind) -> type[SourceConnection]:
    """The class that opens connections of the kind. RejectedError if its package is broken, or if it has none."""
    return _load(require_connection(kind), kind.name)


@cache
def _load(place: str, name: str) -> type[SourceConnection]:
    module, _, attribute = place.partition(":")
    try:
        found = getattr(import_module(module), attribute, None)
    except ImportError as error:
        raise RejectedError(
            f"what opens connections of the kind {name!r} can't be imported: {error}",
            field="source.type",
            hint=f"Install what the package of {module} needs.",
        ) from error
    if not isinstance(found, type) or not issubclass(found, SourceConnection):
        raise RejectedError(
            f"{place} is no SourceConnection", field="source.type", hint=f"Correct `connection` of the kind {name!r}."
        )
    return found


def variable_prefix(source: SourceSpec) -> str:
    """The prefix of a connection's variables."""
    return f"GOBBLIN_{source.type.upper()}_{source.connection.upper()}_"


def address_variable(source: SourceSpec) -> str:
    """The variable of the place that the connection leads to."""
    return variable_prefix(source) + connection_class(kind_of(source)).ADDRESS.upper()


def list_text_fields(fields: type[SourceConnection]) -> list[str]:
    """The fields whose values are texts."""
    return [name for name, field in fields.model_fields.items() if _plain_type(field.annotation) is str]


def read_numbers(source: SourceSpec, environment: Mapping[str, str]) -> dict[str, float]:
    """The fields that are numbers and whose variables are set. RejectedError names a variable with another value."""
    fields, prefix = connection_class(kind_of(source)), variable_prefix(source)
    names = [name for name, field in fields.model_fields.items() if _plain_type(field.annotation) is float]
    given = {name: environment.get(prefix + name.upper()) for name in names}
    return {name: _read_number(text, prefix + name.upper()) for name, text in given.items() if text}


def read_connection(source: SourceSpec, environment: Mapping[str, str]) -> SourceConnection:
    """The source's connection by its variables. RejectedError names the variable that is missing or wrong."""
    require_address(source, environment)
    fields, prefix = connection_class(kind_of(source)), variable_prefix(source)
    texts = {name: environment.get(prefix + name.upper()) for name in list_text_fields(fields)}
    given = {name: text for name, text in texts.items() if text}
    try:
        return fields.model_validate({**given, **read_numbers(source, environment)})
    except ValidationError as error:
        # Without its cause and its text: they repeat the values, secrets included.
        name = str(error.errors()[0]["loc"][0]) if error.errors()[0]["loc"] else fields.ADDRESS
        raise RejectedError(
            f"can't be used: {error.errors()[0]['msg']}", field=prefix + name.upper(), hint="Correct it."
        ) from None


def require_address(source: SourceSpec, environment: Mapping[str, str]) -> None:
    """RejectedError that names the address variable of the connection, if the variable is not set."""
    fields, variable = connection_class(kind_of(source)), address_variable(source)
    if not environment.get(variable):
        raise RejectedError(
            f"expected {fields.ADDRESS_IS} of the connection {source.connection!r} in the environment, found none",
            field=variable,
            hint=fields.ADDRESS_HINT,
        )


def list_capabilities(jobs: Iterable[JobSpec], environment: Mapping[str, str]) -> list[str]:
    """The connectors that Spark needs for these jobs, by ``spark.spark_settings.COORDINATES`` or as Maven's own.

    RejectedError if the address of a connection is none, or if the package that reads it is not installed.
    """
    needed: set[str] = set()
    for job, fields in _list_connections(jobs):
        needed.update(fields.list_capabilities(environment.get(address_variable(job.source)), job.source.connection))
        needed.update(fields.list_job_capabilities(job))
    return sorted(needed)


def plan_driver_jars(jobs: Iterable[JobSpec]) -> dict[str, str]:
    """Spark's configuration for the jars that the jobs' sources need themselves, by coordinates and paths."""
    packages: list[str] = []
    jars: list[str] = []
    for job, fields in _list_connections(jobs):
        more_packages, more_jars = fields.list_jars(job.source)
        packages += more_packages
        jars += more_jars
    return plan_jars(packages, jars, field="source")


def find_shown_kind(source: SourceSpec, environment: Mapping[str, str]) -> str | None:
    """The kind that Dagster shows for the connection, such as postgres; None where it is not known."""
    return connection_class(kind_of(source)).find_shown_kind(environment.get(address_variable(source)))


def _list_connections(jobs: Iterable[JobSpec]) -> Iterator[tuple[JobSpec, type[SourceConnection]]]:
    """The jobs whose rows are read over a connection, with its class."""
    for job in jobs:
        if (kind := kind_of(job.source)).connection is not None:
            yield job, connection_class(kind)


def _plain_type(annotation: object) -> object:
    """``str`` of ``str | None``."""
    if get_origin(annotation) in (Union, UnionType):
        inner = [each for each in get_args(annotation) if each is not NoneType]
        return inner[0] if len(inner) == 1 else None
    return annotation


def _read_number(text: str, variable: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RejectedError(f"expected a number of seconds, found {text!r}", field=variable, hint="Write 30.") from None
