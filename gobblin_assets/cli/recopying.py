"""The command that begins new copies of tables whose change log can't go on: sink recopy."""

from collections.abc import Sequence
from pathlib import Path

import click

from gobblin_assets.cli.connections import SparkChoice, job_file_argument, open_operations
from gobblin_assets.cli.examples import example
from gobblin_assets.cli.exit_codes import EXIT_FAILED
from gobblin_assets.cli.output import say
from gobblin_assets.cli.selections import find_named
from gobblin_assets.commit.markers import check_log
from gobblin_assets.destinations.registry import open_destination
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.running import read_job
from gobblin_assets.jobs.sink.recopying import Recopying, await_free, check_copied_job
from gobblin_assets.jobs.sink.running import open_log_connection, read_sink_datasets
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.destination import DestinationRequest
from gobblin_assets.run.log import open_log
from gobblin_assets.run.maintenance_run import MaintenanceRun
from gobblin_assets.state.leases import Lease


@click.command(epilog=example("sink recopy jobs/shop.yaml --dataset public.orders"))
@job_file_argument
@click.option("--dataset", "datasets", multiple=True, metavar="URN", help="Copy this table; may be repeated.")
@click.option("--all", "is_all", is_flag=True, help="Copy all tables of the job.")
def recopy(job_file: Path, datasets: Sequence[str], is_all: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Copy tables of a change log again, and follow them from there.

    For a table that has stopped, or to begin anew. The copies are made by the workers of the sink, once they look at
    the log again: at once if they are started, in five minutes at most if they run. What is published stays, and
    read_current gives what was published before until the copy is.
    """
    job, clock = read_job(job_file), SystemClock()
    check_copied_job(job)
    if bool(datasets) == is_all:
        raise RejectedError("expected the tables to copy", field="--dataset", hint="Name them, or write --all.")
    specs, name = read_sink_datasets(job), JobName(job.job)
    fs, root = open_file_system(job.destination, umask=job.umask)
    with open_log(say) as log:
        stores = log.stores
        known = stores.datasets.load(name, find_named(name, specs, datasets))
        ids = {urn: state.dataset_id for urn, state in known.items()}
        await_free(stores.lanes, ids, clock)
        destination = open_destination(
            DestinationRequest(name, job.destination, fs, root, stores, open_file_system, clock.new_id)
        )

        def check(urn: DatasetUrn, lease: Lease) -> None:
            check_log(stores.commits, fs, root, name, urn, lease)

        recopying = Recopying(job, specs, open_log_connection(job), stores, destination, clock)
        maintenance = MaintenanceRun(open_operations(log, SparkChoice(None, None), job), stores, name)
        done, failures = maintenance.publish_each("recopy", ids, check, recopying.begin)
    begun = {publication.urn for publication in done}
    for urn in ids:
        if urn not in failures:
            say(f"{urn}: {'a new copy begins' if urn in begun else 'a new copy was begun before, and is not made yet'}")
    for urn, error in failures.items():
        say(f"{urn}: {error}")
    if failures:
        click.get_current_context().exit(EXIT_FAILED)
