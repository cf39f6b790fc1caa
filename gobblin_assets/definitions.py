"""The code location that `dagster dev` shows: every job file that GOBBLIN_JOBS names.

    GOBBLIN_JOBS                        paths of YAML job files, joined as in PATH; default: demo/*.yaml here
    GOBBLIN_JDBC_<NAME>_URL, _USER, …   the connection that jobs call <name> (sources.environment)
    GOBBLIN_SPARK_MASTER, _REMOTE       where Spark runs; default: inside the run's process
    GOBBLIN_SPARK_CONF, _WAIT_S         settings of Spark, one a line; how long a cluster may run none of its tasks
    GOBBLIN_DATABASE_URL, GOBBLIN_HOME  where the commit log is (settings)

Nothing connects while this loads. A file that can't be loaded is said in the log and by a sensor, and the others load.
Other projects call `gobblin_assets.dagster.build_definitions` or use the YAML component instead.
"""

import dagster as dg

from gobblin_assets.dagster.code_location import load_named_jobs


@dg.definitions
def defs() -> dg.Definitions:
    """The definitions that Dagster loads."""
    return load_named_jobs()
