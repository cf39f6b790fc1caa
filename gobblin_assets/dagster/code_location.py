"""Jobs as one code location: their definitions with all resources, made from the environment."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import dagster as dg

from gobblin_assets.dagster.environment import layout_from_environment, resources_from_environment
from gobblin_assets.dagster.factory import BuiltJob, build_job, is_run, layout_of_assets
from gobblin_assets.dagster.ports import SPARK_KEY
from gobblin_assets.dagster.reporter import build_reporting_sensor
from gobblin_assets.dagster.resources import GobblinSparkResource
from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.settings import forget_unasked_variables, read_settings
from gobblin_assets.spec.job_files import (
    AnyJob,
    describe_missing_files,
    list_job_files,
    load_job,
    read_job_files,
    require_distinct_jobs,
    say_refused,
)
from gobblin_assets.spec.job_options import JobOptions

NOT_LOADED_SENSOR: Final = "jobs_not_loaded"

_INTERVAL_S: Final = 3600
_LOG: Final = logging.getLogger("gobblin_assets")


def build_definitions(
    jobs: Sequence[AnyJob | dg.AssetsDefinition],
    environment: Mapping[str, str] | None = None,
    *,
    spark: GobblinSparkResource | None = None,
) -> dg.Definitions:
    """All jobs in one code location, sharing connections, Spark and the commit log. Nothing connects.

    ``jobs``: each a job, its options, the path of its file, or a function under ``@gobblin_assets``, which stands for
    its job. ``environment`` None: the process's. ``spark`` None: by
    the environment. RejectedError names the job's field, what was expected and the fix.
    """
    variables = os.environ if environment is None else environment
    own = [job if isinstance(job, dg.AssetsDefinition) else None for job in jobs]
    specs = [layout_of_assets(job).job if isinstance(job, dg.AssetsDefinition) else load_job(job) for job in jobs]
    require_distinct_jobs(specs)
    built = [_build_job(spec, variables, assets) for spec, assets in zip(specs, own, strict=True)]
    return _share(resources_from_environment(specs, variables), spark, built)


def load_named_jobs(*, spark: GobblinSparkResource | None = None) -> dg.Definitions:
    """The jobs of the files that GOBBLIN_JOBS names, else of the files in demo/ of the working directory.

    A job that can't be loaded takes none of the others along: a line in the code location's log says why, and so does
    a sensor, which is there for this alone. ``spark`` as for ``build_definitions``.
    """
    forget_unasked_variables(os.environ)
    paths = list_job_files(os.environ, Path.cwd())
    files = read_job_files(paths)
    refused = [*files.refused] if paths else [describe_missing_files(os.environ, Path.cwd())]
    # Of all jobs: what is wrong here takes every job along.
    resources = resources_from_environment([])
    built = []
    for path, job in files.jobs.items():
        try:
            built.append(_build_job(job, os.environ))
            resources |= resources_from_environment([job])
        except GobblinError as error:
            refused.append(say_refused(path, error))
    if not refused:
        return _share(resources, spark, built)
    if not is_run():
        for said in refused:
            _LOG.error("Not loaded: %s", said)
    return _share(resources, spark, built, [build_not_loaded_sensor(refused)])


def _share(
    resources: Mapping[str, object],
    spark: GobblinSparkResource | None,
    jobs: Sequence[BuiltJob],
    sensors: Sequence[dg.SensorDefinition] = (),
) -> dg.Definitions:
    own = {} if spark is None else {SPARK_KEY: spark}
    reporting = [build_reporting_sensor([each.reported for each in jobs])] if jobs else []
    shared = dg.Definitions(
        resources={**resources, **own}, sensors=[*reporting, *sensors], executor=dg.in_process_executor
    )
    return dg.Definitions.merge(shared, *(each.definitions for each in jobs))


def _build_job(
    job: JobOptions, variables: Mapping[str, str], own_assets: dg.AssetsDefinition | None = None
) -> BuiltJob:
    layout = layout_from_environment(job, variables) if own_assets is None else layout_of_assets(own_assets)
    discovered, path = program_of(job).find_discovered(job), read_settings().discovery_path(job.job)
    return build_job(layout, own_assets, discovered=discovered, discovery_path=path)


def build_not_loaded_sensor(refused: Sequence[str]) -> dg.SensorDefinition:
    """Its description and its ticks say what is missing: Dagster shows no other text of a code location that loads."""
    said = "\n".join(f"- {line}" for line in refused)

    @dg.sensor(
        name=NOT_LOADED_SENSOR,
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"These jobs are not loaded. Correct them, then reload the code location.\n\n{said}",
    )
    def report_not_loaded(_context: dg.SensorEvaluationContext) -> dg.SkipReason:
        return dg.SkipReason(f"Not loaded:\n{said}")

    return report_not_loaded
