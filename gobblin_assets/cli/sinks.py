"""Commands on sinks: workers that publish logs, the lanes that they share, and what stands where."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from gobblin_assets.cli.adopting import adopt
from gobblin_assets.cli.base_compacting import compact
from gobblin_assets.cli.connections import SparkChoice, job_file_argument, spark_options
from gobblin_assets.cli.examples import example
from gobblin_assets.cli.exit_codes import EXIT_FAILED
from gobblin_assets.cli.output import say
from gobblin_assets.cli.recopying import recopy
from gobblin_assets.cli.sink_status import status
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.jobs.ingest.running import read_job
from gobblin_assets.jobs.sink.running import WorkerGroup, find_spark_needs, read_sink_datasets, run_worker
from gobblin_assets.jobs.sink.sink_rules import is_one_stream
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import JobName
from gobblin_assets.model.wording import count_of, join_some
from gobblin_assets.run.log import open_log
from gobblin_assets.run.runner import owner_text
from gobblin_assets.run.stop_signals import StopRequest, heed_stop_signals

_WORKERS_MAX: Final = 256
_LOOK_S: Final = 0.5


@click.group()
def sink() -> None:
    """Sinks: several workers publish the job's topics at once, each record exactly once."""


sink.add_command(adopt)
sink.add_command(compact)
sink.add_command(recopy)
sink.add_command(status)

_dataset_option = click.option(
    "--dataset", "datasets", multiple=True, metavar="URN", help="One of the job's; may be repeated."
)


@sink.command("run", epilog=example("sink run jobs/clicks.yaml --workers 2"))
@job_file_argument
@_dataset_option
@click.option("--workers", type=click.IntRange(1, _WORKERS_MAX), default=1, show_default=True, help="Processes here.")
@spark_options
def run(job_file: Path, datasets: Sequence[str], workers: int, master: str | None, remote: str | None) -> None:
    """Work on the sink of the job in JOB_FILE until SIGTERM or Ctrl-C.

    Start it again, here or on other machines, for more workers. They share the lanes evenly, also when one dies. Spark
    is used only for datasets that need it.
    """
    job = read_job(job_file)
    needs = find_spark_needs(job, read_sink_datasets(job, datasets))
    stop, choice = StopRequest(), SparkChoice(master, remote)
    if workers > 1:
        command = [sys.executable, "-m", "gobblin_assets.cli", "sink", "run", str(job_file)]
        command += [part for urn in datasets for part in ("--dataset", urn)]
        environment = {**os.environ, **choice.environment()}
        group = WorkerGroup(
            lambda: subprocess.Popen(command, process_group=0, env=environment),  # noqa: S603  this program itself
            workers,
            say,
        )
        with heed_stop_signals(say, stop):
            if not group.run(stop.wait):
                click.get_current_context().exit(EXIT_FAILED)
        return
    spark = choice.open()
    if needs:
        say(f"Spark starts, for {join_some(sorted(needs))}; the log is asked after that")
        # Before the signals are ours: a classic session takes SIGINT for itself when it opens.
        spark.get_session(job)
    with heed_stop_signals(say, stop):
        run_worker(job, stop.wait, datasets=datasets, spark=spark, say=_say_as_worker)
    spark.close()


def _say_as_worker(line: str) -> None:
    """Workers share a terminal; `sink status` lists them by these names."""
    say(f"{owner_text()}: {line}")


@sink.command("scale", epilog=example("sink scale jobs/clicks.yaml 8"))
@job_file_argument
@click.argument("lanes", type=click.IntRange(1, _WORKERS_MAX))
@_dataset_option
def scale(job_file: Path, lanes: int, datasets: Sequence[str]) -> None:
    """Spread the sink's partitions over this many LANES.

    Workers move them while they run, one lane after the other.
    """
    job = read_job(job_file)
    if is_one_stream(job):
        raise RejectedError(
            "one worker reads the slot of a change log, and a table has one lane",
            field="LANES",
            hint="Leave it: further workers stand by, and take over from one that dies.",
        )
    specs = read_sink_datasets(job, datasets)
    with open_log(say) as log:
        ids = log.stores.datasets.register(JobName(job.job), sorted(specs))
        for urn, dataset_id in ids.items():
            log.stores.lanes.spread(dataset_id, lanes)
            say(f"{urn}: {lanes} lanes")


@sink.command("drain", epilog=example("sink drain jobs/clicks.yaml"))
@job_file_argument
@click.option("--wait", "wait_s", type=click.FloatRange(min=0), default=120.0, show_default=True, help="In seconds.")
def drain(job_file: Path, wait_s: float) -> None:
    """End all workers that are alive, wherever they run, behind a cut.

    Waits until they have ended. One that comes later was not asked, and is named.
    """
    job, clock = read_job(job_file), SystemClock()
    read_sink_datasets(job)
    with open_log(say) as log:
        workers, name = log.stores.sink_workers, JobName(job.job)
        say(f"{count_of(workers.drain(name), 'worker is', 'workers are')} asked to end")
        until_s = clock.monotonic() + wait_s
        while left := [each for each in workers.list_live(name) if each.is_drained]:
            if clock.monotonic() >= until_s:
                alive = count_of(len(left), "worker is", "workers are")
                raise RetryableError(
                    f"{alive} still alive after {wait_s:g} s: {', '.join(each.owner for each in left)}",
                    hint="They end at their next barrier. Whoever was killed counts until its lease ends.",
                )
            clock.sleep(_LOOK_S)
        if later := workers.list_live(name):
            came = count_of(len(later), "worker came after that and was", "workers came after that and were")
            end = "it" if len(later) == 1 else "them"
            say(f"{came} not asked: {', '.join(each.owner for each in later)}. Run it again to end {end}.")
