"""Resources of jobs, made from the environment alone: connections by their variables, Spark, the commit log.

Dagster merges definitions that bring resources only if those under one key are the same object. So each is made once
in a process, and every job that asks for the same gets the same.
"""

import os
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import dagster as dg

from gobblin_assets.dagster.factory import build_gobblin_layout
from gobblin_assets.dagster.layout import JobLayout, build_layout
from gobblin_assets.dagster.naming import GobblinTranslator
from gobblin_assets.dagster.ports import connection_key
from gobblin_assets.dagster.resources import gobblin_resources
from gobblin_assets.dagster.resources.connections import SourceConnectionResource, connection_from_environment
from gobblin_assets.dagster.resources.spark import GobblinSparkResource
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.sources.environment import find_shown_kind
from gobblin_assets.spark.spark_settings import CONF_SEPARATOR, CONF_VARIABLE, parse_conf
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.selection import Datasets

MASTER_VARIABLE: Final = "GOBBLIN_SPARK_MASTER"
REMOTE_VARIABLE: Final = "GOBBLIN_SPARK_REMOTE"

CORES_OF_RUN: Final = 4
"""Of a standalone master, for each of Dagster's runs, unless GOBBLIN_SPARK_CONF says otherwise."""

_CORES: Final = "spark.cores.max"
_made: Final[list[SourceConnectionResource]] = []


def resources_from_environment(
    jobs: Iterable[JobOptions], environment: Mapping[str, str] | None = None
) -> dict[str, object]:
    """The resources of these jobs, by their resource keys. Nothing connects."""
    variables = os.environ if environment is None else environment
    sources = [source for job in jobs if (source := program_of(job).source_of(job)) is not None]
    connections = {
        connection_key(source): _the_same(connection_from_environment(source, variables)) for source in sources
    }
    spark = _shared(
        variables.get(MASTER_VARIABLE) or None, variables.get(CONF_VARIABLE) or "", bool(variables.get(REMOTE_VARIABLE))
    )
    return {**spark, **connections}


def find_database(job: JobOptions, environment: Mapping[str, str]) -> str | None:
    """The kind of database, or the like, that Dagster shows for the job's source; None where it is not known."""
    source = program_of(job).source_of(job)
    return None if source is None else find_shown_kind(source, environment)


def layout_from_environment(
    job: JobOptions, environment: Mapping[str, str] | None = None, *, translator: GobblinTranslator | None = None
) -> JobLayout:
    """The layout of a job with the datasets that were discovered for it. Nothing connects."""
    variables = os.environ if environment is None else environment
    discovered, database = program_of(job).find_discovered(job), find_database(job, variables)
    return build_gobblin_layout(job, discovered=discovered, translator=translator, database=database)


def layout_of_found(job: JobOptions, datasets: Datasets) -> JobLayout:
    """The layout of a job with the datasets that its program has read. Nothing connects."""
    declared = program_of(job).as_assets(job, datasets)
    return build_layout(job, declared, GobblinTranslator(), database=find_database(job, os.environ))


def _the_same(connection: SourceConnectionResource) -> SourceConnectionResource:
    """The first resource of the same kind that was made from the same variables."""
    for known in _made:
        if type(known) is type(connection) and dict(known) == dict(connection):
            return known
    _made.append(connection)
    return connection


@cache
def _shared(master: str | None, conf: str, has_remote: bool) -> Mapping[str, object]:  # noqa: FBT001  a key of the cache
    # Each run is an application of its own, and an application without a limit takes all cores of a standalone master.
    limit = {_CORES: str(CORES_OF_RUN)} if (master or "").startswith("spark://") else {}
    spark = GobblinSparkResource(
        master=master,
        remote=dg.EnvVar(REMOTE_VARIABLE) if has_remote else None,
        spark_config={**limit, **parse_conf(conf.split(CONF_SEPARATOR), field=CONF_VARIABLE)},
    )
    return gobblin_resources({}, spark=spark)
