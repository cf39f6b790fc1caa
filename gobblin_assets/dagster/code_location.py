"""Jobs as one code location: their definitions with all resources, made from the environment."""

import os
from collections.abc import Mapping, Sequence

import dagster as dg

from gobblin_assets.dagster.environment import find_database, resources_from_environment
from gobblin_assets.dagster.factory import build_gobblin_layout, build_job
from gobblin_assets.dagster.ports import SPARK_KEY
from gobblin_assets.dagster.reporting_sensor import build_reporting_sensor
from gobblin_assets.dagster.resources import GobblinSparkResource
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.settings import read_settings
from gobblin_assets.spec.job_files import AnyJob, read_any_job, require_distinct_jobs


def build_definitions(
    jobs: Sequence[AnyJob],
    environment: Mapping[str, str] | None = None,
    *,
    spark: GobblinSparkResource | None = None,
) -> dg.Definitions:
    """All jobs in one code location, sharing connections, Spark and the commit log. Nothing connects.

    ``jobs``: each a job, its options, or the path of its file. ``environment`` None: the process's. ``spark`` None: by
    the environment. RejectedError names the job's field, what was expected and the fix.
    """
    variables = os.environ if environment is None else environment
    specs = [read_any_job(job) for job in jobs]
    require_distinct_jobs(specs)
    resources = resources_from_environment(specs, variables)
    if spark is not None:
        resources[SPARK_KEY] = spark
    settings = read_settings()
    built = []
    for job in specs:
        discovered = program_of(job).find_discovered(job)
        layout = build_gobblin_layout(job, discovered=discovered, database=find_database(job, variables))
        built.append(build_job(layout, discovered=discovered, discovery_path=settings.discovery_path(job.job)))
    sensors = [build_reporting_sensor([each.reported for each in built])] if built else []
    shared = dg.Definitions(resources=resources, sensors=sensors, executor=dg.in_process_executor)
    return dg.Definitions.merge(shared, *(each.definitions for each in built))
