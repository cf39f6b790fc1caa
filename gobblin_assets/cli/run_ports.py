"""What the commands that run a job, or work on what its runs left, are given."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from gobblin_assets.cli.connections import SparkChoice, open_operations
from gobblin_assets.cli.known_jobs import KnownJob
from gobblin_assets.cli.output import say
from gobblin_assets.cli.telling import telling_events
from gobblin_assets.jobs.ingest.running import open_run
from gobblin_assets.run.log import Log, open_log
from gobblin_assets.run.maintenance_run import MaintenanceRun
from gobblin_assets.run.run_values import DatasetReport, RunPorts
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.selection import Datasets


@contextmanager
def open_ports(
    job: JobSpec, datasets: Datasets, spark: SparkChoice, tell: Callable[[DatasetReport], None]
) -> Iterator[RunPorts]:
    """What a run of the job needs; ``tell`` is shown each publication."""
    with open_log(say) as log, open_run(job, datasets, spark.open(), log.stores, say, tell) as ports:
        yield ports


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
