"""What the commands that work on what runs left are given."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from gobblin_assets.cli.connections import SparkChoice, open_operations
from gobblin_assets.cli.known_jobs import KnownJob
from gobblin_assets.cli.telling import telling_events
from gobblin_assets.run.log import Log
from gobblin_assets.run.maintenance_run import MaintenanceRun


@contextmanager
def open_maintenance(log: Log, spark: SparkChoice, job: KnownJob) -> Iterator[MaintenanceRun]:
    """A maintenance run of the job. With its file known, Dagster is told of what it finishes."""
    operations = open_operations(log, spark, job.spec)
    if job.spec is None or job.datasets is None:
        yield MaintenanceRun(operations, log.stores, job.name)
        return
    by = f"gobblin-assets {click.get_current_context().info_name}"
    with telling_events(job.spec, job.datasets, by=by) as listener:
        yield MaintenanceRun(operations, log.stores, job.name, listener.report_publication)
        listener.report_dead(log.stores)
