"""What `dagster dev` loads in a clone: the jobs of demo/, or those that GOBBLIN_JOBS names, in the chosen profile."""

import os

import dagster as dg

from gobblin_assets.dagster.code_location import build_definitions
from gobblin_assets.definitions import read_jobs
from resources.profiles import find_spark


@dg.definitions
def defs() -> dg.Definitions:
    return build_definitions(read_jobs(), spark=find_spark(os.environ))
