"""The command that lets a sink go on with a place that is not the one of before: sink adopt."""

from collections.abc import Sequence
from pathlib import Path

import click

from gobblin_assets.cli.connections import job_file_argument
from gobblin_assets.cli.examples import example
from gobblin_assets.cli.exit_codes import EXIT_FAILED
from gobblin_assets.cli.output import say
from gobblin_assets.cli.selections import find_named
from gobblin_assets.destinations.loaded_destination import open_loaded_destination
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.running import read_job, read_job_datasets
from gobblin_assets.jobs.rows_places import rows_place_of
from gobblin_assets.jobs.sink.adopting import adopt_place
from gobblin_assets.jobs.sink.recopying import await_free
from gobblin_assets.jobs.sink.running import read_sink_datasets
from gobblin_assets.jobs.sink.sink_rules import has_sink
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.destination import DestinationRequest
from gobblin_assets.run.log import open_log


@click.command(
    epilog=example("sink adopt jobs/clicks.yaml --dataset clicks --missing 01a224ca-1b31-7d99-8c3a-1d727f93b1c4")
)
@job_file_argument
@click.option("--dataset", "datasets", multiple=True, required=True, metavar="URN", help="May be repeated.")
@click.option(
    "--there",
    multiple=True,
    metavar="SEQUENCE",
    help="A publication that is not complete, whose mark is gone, and whose rows are there.",
)
@click.option("--missing", multiple=True, metavar="SEQUENCE", help="The same, and its rows are not there.")
def adopt(job_file: Path, datasets: Sequence[str], there: Sequence[str], missing: Sequence[str]) -> None:
    """Go on with the table or topic that is there now.

    For a sink, or another job that loads rows, that stopped since the one of before, or its marks, are gone. What is
    there becomes the dataset's, and is made if it is not there. Rows that went with the old one are not loaded again.
    End the workers first, and resume a publication that is BLOCKED afterwards.
    """
    job, clock = read_job(job_file), SystemClock()
    # The datasets of a sink are read by its workers' rules, which a job of tables does not have.
    specs, name = read_sink_datasets(job) if has_sink(job) else read_job_datasets(job), JobName(job.job)
    place = rows_place_of(job, specs)
    if place is None:
        raise RejectedError(
            "the job publishes files, which are not adopted",
            field="into",
            hint="Files that moved are bound by: gobblin-assets destination move JOB ROOT.",
        )
    fs, root = open_file_system(job.destination, umask=job.umask)
    failed = False
    with open_log(say) as log:
        known = log.stores.datasets.load(name, find_named(name, specs, datasets))
        ids = {urn: state.dataset_id for urn, state in known.items()}
        await_free(log.stores.lanes, ids, clock)
        destination = open_loaded_destination(
            DestinationRequest(name, job.destination, fs, root, log.stores, open_file_system, clock.new_id), place
        )
        destination.bind()
        for urn, dataset_id in ids.items():
            try:
                lanes = adopt_place(log.stores, destination, urn, dataset_id, there=there, missing=missing)
            except GobblinError as error:
                failed = True
                say(f"{urn}: {error}")
                continue
            of_lanes = f", with new marks of its lanes {', '.join(map(str, lanes))}" if lanes else ""
            say(f"{urn}: {place.uri_of(urn)} is adopted{of_lanes}")
    if failed:
        click.get_current_context().exit(EXIT_FAILED)
