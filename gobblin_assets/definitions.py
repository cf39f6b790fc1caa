"""The code location that `dagster dev` shows: every job file that GOBBLIN_JOBS names.

    GOBBLIN_JOBS                        paths of YAML job files, joined as in PATH; default: demo/*.yaml here
    GOBBLIN_JDBC_<NAME>_URL, _USER, …   the connection that jobs call <name> (gobblin_assets.dagster.resources.jdbc)
    GOBBLIN_SPARK_MASTER, _REMOTE       where Spark runs; default: inside the run's process
    GOBBLIN_DATABASE_URL, GOBBLIN_HOME  where the commit log is (settings)

Nothing connects while this loads. Projects of one's own call `dagster.factory.build_gobblin_definitions` or use the
YAML component instead.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import dagster as dg

from gobblin_assets.dagster.environment import resources_from_environment
from gobblin_assets.dagster.factory import build_gobblin_definitions
from gobblin_assets.dagster.ports import SPARK_KEY
from gobblin_assets.dagster.resources import GobblinSparkResource
from gobblin_assets.db.libpq import forget_unasked_variables
from gobblin_assets.settings import Settings, read_settings
from gobblin_assets.sources.discovery import find_discovery
from gobblin_assets.sources.environment import find_shown_kind
from gobblin_assets.spec.job_files import list_job_files, read_job_file, require_distinct_jobs
from gobblin_assets.spec.job_spec import JobSpec


def build_definitions(
    jobs: Sequence[JobSpec],
    settings: Settings,
    environment: Mapping[str, str] | None = None,
    *,
    spark: GobblinSparkResource | None = None,
) -> dg.Definitions:
    """All jobs in one code location, sharing connections, Spark and the commit log. ``spark`` None: by environment."""
    require_distinct_jobs(jobs)
    resources = resources_from_environment(jobs, environment)
    if spark is not None:
        resources[SPARK_KEY] = spark
    return dg.Definitions.merge(
        dg.Definitions(resources=resources, executor=dg.in_process_executor),
        *(
            build_gobblin_definitions(
                job,
                discovered=_find_tables(job, settings),
                discovery_path=settings.discovery_path(job.job),
                database=find_shown_kind(job.source, os.environ if environment is None else environment),
            )
            for job in jobs
        ),
    )


def _find_tables(job: JobSpec, settings: Settings) -> tuple[str, ...] | None:
    if not job.source.include:
        return None
    found = find_discovery(settings.discovery_path(job.job))
    return None if found is None else found.selected(job.source)


def read_jobs() -> list[JobSpec]:
    """Those of the files that GOBBLIN_JOBS names, else of those in demo/ of the working directory."""
    forget_unasked_variables(os.environ)
    paths = list_job_files(os.environ, Path.cwd())
    jobs = [read_job_file(path) for path in paths]
    require_distinct_jobs(jobs, list(map(str, paths)))
    return jobs


@dg.definitions
def defs() -> dg.Definitions:
    """What Dagster loads."""
    return build_definitions(read_jobs(), read_settings())
