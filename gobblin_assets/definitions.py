"""The code location that `dagster dev` shows: every job file that GOBBLIN_JOBS names.

    GOBBLIN_JOBS                        paths of YAML job files, joined as in PATH; default: demo/*.yaml here
    GOBBLIN_JDBC_<NAME>_URL, _USER, …   the connection that jobs call <name> (sources.environment)
    GOBBLIN_SPARK_MASTER, _REMOTE       where Spark runs; default: inside the run's process
    GOBBLIN_SPARK_CONF, _WAIT_S         settings of Spark, one a line; how long a cluster may run none of its tasks
    GOBBLIN_DATABASE_URL, GOBBLIN_HOME  where the commit log is (settings)

Nothing connects while this loads. Other projects call `gobblin_assets.dagster.build_definitions` or use the YAML
component instead.
"""

import os
from pathlib import Path

import dagster as dg

from gobblin_assets.dagster.code_location import build_definitions
from gobblin_assets.db.unasked_variables import forget_unasked_variables
from gobblin_assets.spec.job_files import list_job_files, read_any_job_file, require_distinct_jobs
from gobblin_assets.spec.job_options import JobOptions


def read_jobs() -> list[JobOptions]:
    """The jobs of the files that GOBBLIN_JOBS names, else of the files in demo/ of the working directory."""
    forget_unasked_variables(os.environ)
    paths = list_job_files(os.environ, Path.cwd())
    jobs = [read_any_job_file(path) for path in paths]
    require_distinct_jobs(jobs, list(map(str, paths)))
    return jobs


@dg.definitions
def defs() -> dg.Definitions:
    """The definitions that Dagster loads."""
    return build_definitions(read_jobs())
