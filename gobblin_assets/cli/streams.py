"""The command that follows topics, or repeats copies, until it is asked to stop."""

from collections.abc import Sequence
from pathlib import Path

import click

from gobblin_assets.cli.connections import SparkChoice, job_file_argument, open_ports, spark_options
from gobblin_assets.cli.dagster_option import (
    DagsterCommand,
    Listener,
    WhenReported,
    dagster_option,
    listening,
    reported_as,
)
from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import json_option, say
from gobblin_assets.cli.reports import exit_as_reported, print_report
from gobblin_assets.cli.selections import datasets_option, named_by_options
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.run.log import open_log
from gobblin_assets.run.own_process import StopRequest, heed_stop_signals
from gobblin_assets.run.progress import unheard
from gobblin_assets.run.repeating import repeat_run
from gobblin_assets.run.run_values import ReportedAs, RunReport, RunRequest
from gobblin_assets.run.runner import run_request, stream_request
from gobblin_assets.run.streaming import SeldomAgain
from gobblin_assets.spec.job_files import read_any_job_file
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.selection import Datasets, select_open_partitions, select_partitions


@click.command(cls=DagsterCommand, epilog=example("stream jobs/clicks.yaml --every 10"))
@job_file_argument
@datasets_option
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
    dagster: WhenReported,
    as_json: bool,  # noqa: FBT001  an option that click passes by name
) -> None:
    """Follow the topics of the job in JOB_FILE, or repeat its copies, until SIGTERM or Ctrl-C.

    What comes to topics is published every few seconds. A job that copies files runs again each time, and finds anew
    what there is. The pace is the job's `stream`, or that
    of the options. A stop waits for the publication under way, or the run of a copy; a second one does not, and leaves
    it to the next run.
    """
    written = read_any_job_file(job_file)
    given = {"publish_every_s": every_s, "records_max": records_max}
    pace = written.stream.model_copy(update={name: value for name, value in given.items() if value is not None})
    program = program_of(written)
    job: JobOptions = program.plan_stream(written.model_copy(update={"stream": pace}))
    specs = program.read_datasets(job)
    spark = SparkChoice(master, remote)
    shown_as = reported_as(dagster, "gobblin-assets stream", is_stream=True)
    with listening(dagster, job, specs) as listener:
        follow = _repeat if program.repeats_runs else _follow
        report = follow(job, specs, datasets, spark, listener, shown_as)
    print_report(report, as_json=as_json)
    exit_as_reported(report)


def _follow(
    job: JobOptions,
    specs: Datasets,
    urns: Sequence[str],
    spark: SparkChoice,
    listener: Listener,
    shown_as: ReportedAs | None,
) -> RunReport:
    with named_by_options():
        selection = select_open_partitions(job, specs, urns=urns)
    rules = program_of(job).rules_of(job)
    request = RunRequest(rules, selection, mode=Mode.APPEND, by_hand=False, reported_as=shown_as)
    with open_ports(job, specs, spark, listener.hear_publication) as ports:
        # Before the signals are ours: a classic session takes SIGINT for itself when it opens.
        ports.kind.prepare()
        stop = StopRequest()
        with heed_stop_signals(say, stop):
            report = stream_request(request, ports, stop.wait)
    return report


def _repeat(
    job: JobOptions,
    specs: Datasets,
    urns: Sequence[str],
    spark: SparkChoice,
    listener: Listener,
    shown_as: ReportedAs | None,
) -> RunReport:
    """Each run finds the datasets anew."""
    del specs
    stop, program, clock = StopRequest(), program_of(job), SystemClock()
    seldom = SeldomAgain(say, clock.monotonic)

    with open_log(say) as log:

        def run_once() -> RunReport:
            found = program.read_datasets(job)
            listener.hear_datasets(found)
            with named_by_options():
                selection = select_partitions(job, found, urns=urns, begun_by=None)
            rules = program.rules_of(job)
            request = RunRequest(
                rules, selection, mode=Mode.APPEND, by_hand=False, news_only=True, reported_as=shown_as
            )
            opened = program.open_run(job, found, spark.open, log.stores, seldom, listener.hear_publication)
            with opened as ports:
                return run_request(request, ports)

        with heed_stop_signals(say, stop):
            report = repeat_run(
                *(run_once, stop.wait),
                every_s=job.stream.publish_every_s,
                clock=clock,
                say=seldom,
                report_dataset=unheard,
            )
    return report
