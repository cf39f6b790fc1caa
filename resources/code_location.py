"""The code location of `dagster dev` in a clone: the jobs of demo/, or those of GOBBLIN_JOBS, in the chosen profile."""

import os

import dagster as dg

from gobblin_assets.dagster.code_location import load_named_jobs
from resources.profiles import find_spark


@dg.definitions
def defs() -> dg.Definitions:
    return load_named_jobs(spark=find_spark(os.environ))
