"""Cleanup by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from gobblin_assets.cli.connections import SparkChoice, open_operations, spark_options
from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import json_option, print_json, print_table, say
from gobblin_assets.cli.selections import datasets_option, job_file_or_name, read_known_job
from gobblin_assets.commit.cleanup import Cleaned
from gobblin_assets.commit.relocation import require_bound_root
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.run.log import open_log
from gobblin_assets.spec.job_options import LogSpec
from gobblin_assets.spec.job_spec import RETIRE_GRACE_S, JobSpec


@click.command(epilog=example("cleanup jobs/shop.yaml"))
@job_file_or_name
@datasets_option
@spark_options
@json_option
def cleanup(
    job_file: Path | None,
    job: str | None,
    datasets: Sequence[str],
    master: str | None,
    remote: str | None,
    as_json: bool,  # noqa: FBT001  an option that click passes by name
) -> None:
    """Remove staging of dead attempts and retired files whose grace is over; fold old publications.

    With --job alone, the log gives the job's datasets and destination, and the defaults apply (retire_grace_s: a day;
    log.history_days: 90; leases: a minute). If a job has other values, give its file: the log does not have them.
    """
    known = read_known_job(job_file, job)
    spec = known.spec
    bounds = LogSpec().bounds if spec is None else spec.log.bounds
    cleaned: dict[str, Cleaned] = {}
    with open_log(say) as log:
        destination = known.find_destination(log)
        require_bound_root(log.stores.destinations, open_file_system, known.name, destination)
        operations = open_operations(log, SparkChoice(master, remote), spec)
        states = log.stores.datasets.load(known.name, known.find_datasets(log, datasets))
        for urn, state in states.items():
            cleaned[urn] = operations.clean(
                state,
                root_uri=destination,
                retire_grace_s=spec.retire_grace_s if isinstance(spec, JobSpec) else RETIRE_GRACE_S,
                # A person asked: fold and clean at once, however little there is.
                fold=replace(bounds, count_min=0),
            )
    if as_json:
        print_json(cleaned)
        return
    rows = [
        (urn, each.attempt_count, each.removed_file_count, each.remaining, each.folded, each.forgotten)
        for urn, each in cleaned.items()
    ]
    columns = ("dataset", "attempts", "retired files removed", "attempts left", "publications folded", "forgotten")
    print_table("cleaned", columns, rows)
