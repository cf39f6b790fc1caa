"""The command that rewrites the small files of partitions: compact."""

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from gobblin_assets.cli.connections import SparkChoice, job_file_argument, open_operations, spark_options
from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import exit_for, json_option, print_json, print_table, say
from gobblin_assets.cli.selections import datasets_option, find_named
from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.markers import check_log
from gobblin_assets.commit.sequence import Publication
from gobblin_assets.destinations.registry import open_destination
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.running import read_job_datasets
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.compaction import Compaction
from gobblin_assets.run.destination import DestinationRequest
from gobblin_assets.run.log import open_log
from gobblin_assets.run.maintenance_run import MaintenanceRun
from gobblin_assets.spec.job_files import read_job_file
from gobblin_assets.spec.job_spec import CompactionSpec
from gobblin_assets.state.leases import Lease


@click.command(epilog=example("compact jobs/shop.yaml --dataset public.orders --partition 2026-01-01"))
@job_file_argument
@datasets_option
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="KEY",
    help="Compact this partition, however few files it has; may be repeated.",
)
@spark_options
@json_option
def compact(
    job_file: Path,
    datasets: Sequence[str],
    partitions: Sequence[str],
    master: str | None,
    remote: str | None,
    as_json: bool,  # noqa: FBT001  an option that click passes by name
) -> None:
    """Rewrite the small files of partitions as few large files, and publish these in their place.

    Without --partition: all partitions at rest with many files, as the job's `compaction` says.
    """
    job = read_job_file(job_file)
    specs, name = read_job_datasets(job), JobName(job.job)
    spec = job.compaction or CompactionSpec()
    spark = SparkChoice(master, remote)
    engine = spark.open()
    fs, root = open_file_system(job.destination, umask=job.umask)

    with open_log(say) as log:
        stores = log.stores
        destination = open_destination(
            DestinationRequest(name, job.destination, fs, root, stores, open_file_system, SystemClock().new_id)
        )

        def check(urn: DatasetUrn, lease: Lease) -> None:
            check_log(stores.commits, fs, root, name, urn, lease)

        def prepare(run_id: RunId, driver: Driver, require: Callable[[Lease], None]) -> Compaction:
            return Compaction(
                job,
                run_id,
                stores.commits,
                driver,
                stores.published,
                destination,
                SystemClock(),
                say,
                require,
                lambda: engine.open_rewriter(job, specs),
            )

        def work(compaction: Compaction, urn: DatasetUrn, lease: Lease) -> Sequence[Publication]:
            if not partitions:
                return compaction.compact_rested(urn, lease, spec)
            found = (compaction.compact(urn, each, lease, spec=spec) for each in partitions)
            return [publication for publication in found if publication is not None]

        known = stores.datasets.load(name, find_named(name, specs, datasets))
        ids = {urn: state.dataset_id for urn, state in known.items()}
        maintenance = MaintenanceRun(open_operations(log, spark, job), log.stores, name)
        done, failures = maintenance.compact(ids, check, prepare, work)
    if as_json:
        print_json(done)
    else:
        rows = [(p.urn, p.partition, p.row_count, p.file_count, p.file_bytes) for p in done]
        print_table("compacted", ("dataset", "partition", "rows", "files", "bytes"), rows)
    exit_for(failures)
