"""The sensor that tells Dagster of what commands did: every few seconds, from the log, for all jobs that it is given.

Nobody can wake a sensor: Dagster looks at the time alone. So it asks the log, by one query that finds what waits in two
small indexes.
"""

from collections.abc import Sequence
from typing import Final

import dagster as dg

from gobblin_assets.dagster.ports import STORES_KEY
from gobblin_assets.dagster.reported_jobs import ReportedJob
from gobblin_assets.dagster.reporter import report_all
from gobblin_assets.run.stores import Stores

REPORTING_INTERVAL_S: Final = 2
"""Dagster's daemon looks at all sensors every 5 s. A sensor that asks for 5 s has it look at every other time."""

REPORT_S_MAX: Final = 20.0
"""Of one tick: Dagster ends one that takes 60 s. The next tick goes on."""

REPORTING_SENSOR: Final = "gobblin_reporting_sensor"


def build_reporting_sensor(jobs: Sequence[ReportedJob], *, name: str = REPORTING_SENSOR) -> dg.SensorDefinition:
    """One sensor for all jobs of a code location, running unless it is stopped."""
    told = [job for job in jobs if job.layout.specs]

    @dg.sensor(
        name=name,
        minimum_interval_seconds=REPORTING_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={STORES_KEY},
        description="Shows what the command line published, and what it could not publish.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        stores: Stores = getattr(context.resources, STORES_KEY)
        report_all(told, stores, context.instance, work_s_max=REPORT_S_MAX)
        return dg.SkipReason("What commands did is reported. No run is needed.")

    return look
