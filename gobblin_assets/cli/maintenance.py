"""Values that are given to commands which work on what runs left."""

from gobblin_assets.cli.connections import SparkChoice, open_operations
from gobblin_assets.cli.known_jobs import KnownJob
from gobblin_assets.run.log import Log
from gobblin_assets.run.maintenance_run import MaintenanceRun


def open_maintenance(log: Log, spark: SparkChoice, job: KnownJob) -> MaintenanceRun:
    """A maintenance run of the job. What it finishes stays unannounced, for whoever tells Dagster."""
    return MaintenanceRun(open_operations(log, spark, job.spec), log.stores, job.name)
