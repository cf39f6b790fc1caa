"""Ports that are given to commands which run a job."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gobblin_assets.cli.connections import SparkChoice
from gobblin_assets.cli.output import say
from gobblin_assets.jobs.ingest.engine_port import AnnouncedEngine
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.run.log import open_log
from gobblin_assets.run.run_values import DatasetReport, RunPorts
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.selection import Datasets


@contextmanager
def open_ports(
    job: JobOptions, datasets: Datasets, spark: SparkChoice, tell: Callable[[DatasetReport], None]
) -> Iterator[RunPorts]:
    """What a run of the job needs; ``tell`` is shown each publication."""
    program = program_of(job)

    def open_spark() -> AnnouncedEngine:
        return AnnouncedEngine(spark.open(), say)

    with open_log(say) as log, program.open_run(job, datasets, open_spark, log.stores, say, tell) as ports:
        yield ports
