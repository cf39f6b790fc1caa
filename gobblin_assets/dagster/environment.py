"""What jobs ask of a code location, by the environment alone: connections by their variables, Spark, the commit log.

Dagster merges definitions that bring resources only if those under one key are the same object. So each is made once
in a process, and every job that asks for the same gets the same.
"""

import os
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

import dagster as dg

from gobblin_assets.dagster.resources import gobblin_resources
from gobblin_assets.dagster.resources.connections import ConnectionResource, connection_from_environment, url_variable
from gobblin_assets.dagster.resources.spark import GobblinSparkResource
from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.jdbc.drivers import DRIVERS
from gobblin_assets.spec.job_spec import JobSpec, SourceSpec

MASTER_VARIABLE: Final = "GOBBLIN_SPARK_MASTER"
REMOTE_VARIABLE: Final = "GOBBLIN_SPARK_REMOTE"

_DAGSTERS_NAMES: Final = MappingProxyType({"postgresql": "postgres"})

_made: Final[list[ConnectionResource]] = []


def resources_from_environment(
    jobs: Iterable[JobSpec], environment: Mapping[str, str] | None = None
) -> dict[str, object]:
    """The resources of these jobs, under the keys that they ask by. Nothing connects.

    RejectedError where two jobs call a database and a cluster by one name.
    """
    variables = os.environ if environment is None else environment
    connections: dict[str, ConnectionResource] = {}
    for job in jobs:
        name = job.source.connection
        same = _the_same(connection_from_environment(job.source, variables))
        if connections.setdefault(name, same) is not same:
            raise RejectedError(
                f"{name!r} is the connection of tables and of topics at once",
                field="source.connection",
                hint="Give the database and the cluster names that differ.",
            )
    return {**_shared(variables.get(MASTER_VARIABLE) or None, bool(variables.get(REMOTE_VARIABLE))), **connections}


def find_database(source: SourceSpec, environment: Mapping[str, str] | None = None) -> str | None:
    """What database a JDBC connection's URL names, as Dagster calls it; None where none is known by name."""
    variables = os.environ if environment is None else environment
    url = variables.get(url_variable(source.connection)) if source.type == "jdbc" else None
    named = (url or "").removeprefix("jdbc:").partition(":")[0]
    return _DAGSTERS_NAMES.get(named, named) if named in DRIVERS else None


def _the_same(connection: ConnectionResource) -> ConnectionResource:
    """The first that was made like this one: of the same kind, by the same variables."""
    for known in _made:
        if type(known) is type(connection) and dict(known) == dict(connection):
            return known
    _made.append(connection)
    return connection


@cache
def _shared(master: str | None, has_remote: bool) -> Mapping[str, object]:  # noqa: FBT001  a key of the cache
    spark = GobblinSparkResource(master=master, remote=dg.EnvVar(REMOTE_VARIABLE) if has_remote else None)
    return gobblin_resources({}, spark=spark)
