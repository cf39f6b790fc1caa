"""The code location ``runner``: it runs the tickets that services send to the executor that GOBBLIN_EXECUTOR names.

    GOBBLIN_EXECUTOR                    the executor's name
    GOBBLIN_PACK_MAX                    so many small tickets share a run; default: 25
    GOBBLIN_JDBC_<NAME>_URL, _USER, …   connections, as for `gobblin-assets executor serve`
    GOBBLIN_SPARK_MASTER, _REMOTE       where Spark runs
    GOBBLIN_DATABASE_URL, GOBBLIN_HOME  where the commit log is

Nothing connects while this loads.
"""

import os
from collections.abc import Mapping
from typing import Final

import dagster as dg

from gobblin_assets.dagster.environment import resources_from_environment
from gobblin_assets.dagster.ticket_recovery import (
    build_ticket_recovery_job,
    build_ticket_recovery_sensor,
    build_ticket_reporting_sensor,
)
from gobblin_assets.dagster.ticket_runs import build_tickets_job
from gobblin_assets.dagster.ticket_sensors import PACK_MAX_DEFAULT, build_job_monitor
from gobblin_assets.dagster.worker_runs import build_workers_job
from gobblin_assets.dagster.worker_sensor import build_workers_sensor
from gobblin_assets.errors import RejectedError

EXECUTOR_VARIABLE: Final = "GOBBLIN_EXECUTOR"
PACK_VARIABLE: Final = "GOBBLIN_PACK_MAX"


def read_executor_name(environment: Mapping[str, str]) -> str:
    """The executor's name. RejectedError if none is given."""
    executor = environment.get(EXECUTOR_VARIABLE)
    if not executor:
        raise RejectedError(
            "is not set", field=EXECUTOR_VARIABLE, hint="Set it to a name of the service's topology, such as lake."
        )
    return executor


def build_runner_definitions(environment: Mapping[str, str]) -> dg.Definitions:
    """The jobs and sensors of one executor, with their resources. RejectedError if none is named."""
    executor = read_executor_name(environment)
    workers = build_workers_job(executor)
    return dg.Definitions(
        jobs=[build_tickets_job(executor), workers, build_ticket_recovery_job()],
        sensors=[
            build_job_monitor(executor, pack_max=_read_pack_max(environment.get(PACK_VARIABLE))),
            build_workers_sensor(executor, workers),
            build_ticket_recovery_sensor(),
            build_ticket_reporting_sensor(),
        ],
        resources=resources_from_environment([], environment),
        executor=dg.in_process_executor,
    )


def _read_pack_max(given: str | None) -> int:
    if not given:
        return PACK_MAX_DEFAULT
    if not given.isdecimal() or int(given) < 1:
        raise RejectedError(f"expected a number from 1, found {given!r}", field=PACK_VARIABLE, hint="Correct it.")
    return int(given)


@dg.definitions
def defs() -> dg.Definitions:
    """The definitions that Dagster loads."""
    return build_runner_definitions(os.environ)
