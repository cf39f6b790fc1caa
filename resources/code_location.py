"""What `dagster dev` loads in a clone: the jobs of demo/, or those that GOBBLIN_JOBS names, in the chosen profile."""

import os

import dagster as dg

from gobblin_assets.definitions import build_definitions, read_jobs
from gobblin_assets.settings import read_settings
from resources.profiles import find_spark


@dg.definitions
def defs() -> dg.Definitions:
    return build_definitions(read_jobs(), read_settings(), spark=find_spark(os.environ))
