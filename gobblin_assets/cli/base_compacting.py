"""The command that writes base generations of change logs: sink compact."""

from collections.abc import Sequence
from pathlib import Path

import click

from gobblin_assets.cli.connections import SparkChoice, job_file_argument, open_operations, spark_options
from gobblin_assets.cli.examples import example
from gobblin_assets.cli.exit_codes import EXIT_FAILED
from gobblin_assets.cli.output import json_option, print_json, print_table, say
from gobblin_assets.cli.selections import find_named
from gobblin_assets.jobs.ingest.running import read_job
from gobblin_assets.jobs.sink.base_writing import open_base_writing
from gobblin_assets.jobs.sink.running import read_sink_datasets
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.log import open_log
from gobblin_assets.run.maintenance_run import MaintenanceRun


@click.command(epilog=example("sink compact jobs/shop.yaml --dataset public.orders"))
@job_file_argument
@click.option("--dataset", "datasets", multiple=True, metavar="URN", help="One of the job's; may be repeated.")
@click.option(
    "--changes-min",
    type=click.IntRange(min=1),
    metavar="N",
    help="Changes behind the last base that are worth a new one. Default: as the job's `sink.bases` says.",
)
@spark_options
@json_option
def compact(
    job_file: Path,
    datasets: Sequence[str],
    changes_min: int | None,
    master: str | None,
    remote: str | None,
    as_json: bool,  # noqa: FBT001  an option that click passes by name
) -> None:
    """Write the current rows of change logs as bases.

    read_current goes on from a base, instead of reading the whole log. The logs stay whole, and workers go on
    meanwhile. A log with few changes behind its last base is left out.
    """
    job = read_job(job_file)
    specs, name = read_sink_datasets(job), JobName(job.job)
    choice = SparkChoice(master, remote)
    with open_log(say) as log:
        stores = log.stores
        writing = open_base_writing(job, specs, stores, choice.open(), say)
        # Dagster is not told: no row of a dataset is new.
        maintenance = MaintenanceRun(open_operations(log, choice, job), stores, name)
        done, failures = writing.carry_out(maintenance, find_named(name, specs, datasets), changes_min=changes_min)
    if as_json:
        print_json(done)
    else:
        rows = [(p.urn, p.row_count, p.file_count, p.file_bytes) for p in done]
        print_table("bases", ("dataset", "rows", "files", "bytes"), rows)
    for urn, error in failures.items():
        say(f"{urn}: {error}")
    if failures:
        click.get_current_context().exit(EXIT_FAILED)
