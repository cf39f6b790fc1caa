"""Jobs as they lie in Dagster, for the commands that tell Dagster what they did."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import click

from gobblin_assets.cli.connections import SparkChoice, open_operations
from gobblin_assets.cli.output import say
from gobblin_assets.cli.telling import telling_events
from gobblin_assets.dagster.factory import build_gobblin_layout
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.jobs.ingest.running import find_discovered, open_run
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.log import Log, open_log
from gobblin_assets.run.run_values import DatasetReport, RunPorts
from gobblin_assets.run.upkeep import Upkeep
from gobblin_assets.spec.job_files import read_job_file
from gobblin_assets.spec.job_spec import JobSpec


def read_layout(job_file: Path) -> JobLayout:
    """The job of a file, its tables as discovery found them."""
    job = read_job_file(job_file)
    return build_gobblin_layout(job, discovered=find_discovered(job))


@contextmanager
def open_ports(
    layout: JobLayout,
    spark: SparkChoice,
    tell: Callable[[DatasetReport], None],
    job: JobSpec | None = None,
) -> Iterator[RunPorts]:
    """What a run of the layout's job needs; ``tell`` is shown each publication. ``job``: as it runs this time."""
    with open_log(say) as log, _open(job or layout.job, layout, spark, log, tell) as ports:
        yield ports


def _open(
    job: JobSpec, layout: JobLayout, spark: SparkChoice, log: Log, tell: Callable[[DatasetReport], None]
) -> AbstractContextManager[RunPorts]:
    return open_run(job, layout.datasets, spark.open(), log.stores, say, tell)


@contextmanager
def open_upkeep(log: Log, spark: SparkChoice, job: JobName, layout: JobLayout | None) -> Iterator[Upkeep]:
    """A run of upkeep on the job. With its layout known, Dagster is told of what it finishes."""
    if layout is None:
        yield Upkeep(open_operations(log, spark), log.stores, job)
        return
    with telling_events(layout, by=f"gobblin-assets {click.get_current_context().info_name}") as telling:
        yield Upkeep(open_operations(log, spark, layout.job), log.stores, job, telling.report_publication)
        telling.report_dead(layout, log.stores)
