"""The command that reports the log's publications to Dagster again: report."""

from collections.abc import Sequence
from pathlib import Path

import click

from gobblin_assets.cli.connections import job_file_argument
from gobblin_assets.cli.dagster_telling import layout_of, require_instance
from gobblin_assets.cli.examples import example
from gobblin_assets.cli.output import json_option, print_json, print_table, say
from gobblin_assets.cli.selections import find_named
from gobblin_assets.dagster.factory import build_reported_job
from gobblin_assets.dagster.published_checks import find_unreported, load_latest
from gobblin_assets.dagster.reporter import report_job
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.model.partition import AssetPartition, find_common_keys
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.log import open_log
from gobblin_assets.run.run_values import DatasetReport
from gobblin_assets.spec.job_files import read_any_job_file


@click.command(epilog=example("report jobs/shop.yaml"))
@job_file_argument
@click.option("--dataset", "datasets", multiple=True, metavar="URN", help="One of the job's; may be repeated.")
@click.option("--all", "with_told", is_flag=True, help="Also report publications that Dagster knows already.")
@json_option
def report(job_file: Path, datasets: Sequence[str], with_told: bool, as_json: bool) -> None:  # noqa: FBT001  options that click passes by name
    """Report to Dagster the runs that wait, and the latest publication of each partition that it does not show yet."""
    job = read_any_job_file(job_file)
    specs = program_of(job).read_datasets(job)
    urns = set(find_named(JobName(job.job), specs, datasets))
    layout = layout_of(job, specs)
    with open_log(say) as log, require_instance() as instance:
        latest = [each for each in load_latest(log.stores, layout) if each.urn in urns]
        wanted = latest if with_told else find_unreported(layout, latest, instance)
        job_told = build_reported_job(layout)
        if not datasets:
            report_job(job_told, log.stores, instance, until_s=None)
        left = wanted if with_told else find_unreported(layout, wanted, instance)
        if left:
            run = job_told.begin(instance, {each.urn for each in left}, _common_keys(left), by="gobblin-assets report")
            for each in left:
                run.report_publication(each)
                if each.publication is not None:
                    log.stores.commits.mark_announced(each.publication.sequence_id)
            run.close()
    rows = [(each.urn, each.partition.key, p.sequence_id, p.row_count) for each in wanted if (p := each.publication)]
    if as_json:
        print_json([dict(zip(("dataset", "partition", "sequence", "rows"), row, strict=True)) for row in rows])
        return
    print_table("told to Dagster", ("dataset", "partition", "sequence", "rows"), rows)
    say(f"{len(rows)} of {len(latest)} publications were reported; Dagster knows the others.")


def _common_keys(reports: Sequence[DatasetReport]) -> tuple[str, str, int] | None:
    chosen: dict[DatasetUrn, tuple[AssetPartition, ...]] = {}
    for each in reports:
        chosen[each.urn] = (*chosen.get(each.urn, ()), each.partition)
    return find_common_keys(chosen)
