"""The command that follows topics until it is told to stop."""

from collections.abc import Sequence
from pathlib import Path

import click

from gobblin_assets.cli.connections import SparkChoice, job_file_argument, spark_options
from gobblin_assets.cli.exit_codes import EXIT_FAILED
from gobblin_assets.cli.output import json_option, say
from gobblin_assets.cli.reports import print_report
from gobblin_assets.cli.run_ports import open_ports
from gobblin_assets.cli.selections import named_by_options
from gobblin_assets.cli.telling import dagster_option, telling_events
from gobblin_assets.jobs.ingest.running import read_job_datasets
from gobblin_assets.jobs.ingest.stream_job import plan_stream_job
from gobblin_assets.model.extract import Mode
from gobblin_assets.run.run_values import RunRequest
from gobblin_assets.run.runner import stream_request
from gobblin_assets.run.stop_signals import StopRequest, heed_stop_signals
from gobblin_assets.spec.job_files import read_job_file
from gobblin_assets.spec.selection import select_open_partitions


@click.command()
@job_file_argument
@click.option("--dataset", "datasets", multiple=True, metavar="URN", help="One of the job's; may be repeated.")
@click.option("--every", "every_s", type=click.FloatRange(min=0, min_open=True), help="Seconds between publications.")
@click.option("--records-max", type=click.IntRange(min=1), help="Publish at once when so many records wait.")
@spark_options
@dagster_option
@json_option
def stream(
    job_file: Path,
    datasets: Sequence[str],
    every_s: float | None,
    records_max: int | None,
    master: str | None,
    remote: str | None,
    with_dagster: bool,  # noqa: FBT001  an option that click passes by name
    as_json: bool,  # noqa: FBT001  an option that click passes by name
) -> None:
    """Follow the topics of the job in JOB_FILE: publish what comes every few seconds, until SIGTERM or Ctrl-C.

    The pace is the job's `stream`, or that of the options. A stop waits for the publication under way; a second one
    does not, and leaves it to the next run.
    """
    job = read_job_file(job_file)
    specs = read_job_datasets(job)
    given = {"publish_every_s": every_s, "records_max": records_max}
    pace = job.stream.model_copy(update={name: value for name, value in given.items() if value is not None})
    job = plan_stream_job(job.model_copy(update={"stream": pace}))
    with named_by_options():
        selection = select_open_partitions(job, specs, urns=datasets)
    request = RunRequest(job, selection, mode=Mode.APPEND, by_hand=False)
    with (
        telling_events(job, specs, by="gobblin-assets stream", is_wanted=with_dagster) as listener,
        open_ports(job, specs, SparkChoice(master, remote), listener.report_publication) as ports,
    ):
        # Before the signals are ours: a classic session takes SIGINT for itself when it opens.
        ports.kind.prepare()
        stop = StopRequest()
        with heed_stop_signals(say, stop):
            report = stream_request(request, ports, stop.wait)
        listener.report_dead(ports.stores)
        listener.end(report)
    print_report(report, as_json=as_json)
    if report.failed:
        click.get_current_context().exit(EXIT_FAILED)
