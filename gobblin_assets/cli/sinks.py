"""Commands on sinks: workers that publish logs, the lanes that they share, and what stands where."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

from gobblin_assets.cli.connections import SparkChoice, job_file_argument, spark_options
from gobblin_assets.cli.exit_codes import EXIT_FAILED
from gobblin_assets.cli.output import json_option, print_json, print_table, say
from gobblin_assets.cli.recopying import recopy
from gobblin_assets.errors import RetryableError
from gobblin_assets.jobs.ingest.running import read_job
from gobblin_assets.jobs.sink.lane_shares import lanes_in_use
from gobblin_assets.jobs.sink.running import find_spark_needs, read_sink_datasets, run_worker
from gobblin_assets.jobs.sink.worker_group import WorkerGroup
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.wording import count_of
from gobblin_assets.run.log import open_log
from gobblin_assets.run.stop_signals import StopRequest, heed_stop_signals
from gobblin_assets.state.sink_workers import sum_lags

_WORKERS_MAX: Final = 256
_LOOK_S: Final = 0.5


class _LaneLine(NamedTuple):
    dataset: DatasetUrn
    lane: int
    held_by: str | None
    publications: int
    open: str | None
    vnodes: Mapping[str, str | None]


@click.group()
def sink() -> None:
    """Sinks: several workers publish the job's topics at once, each record exactly once."""


sink.add_command(recopy)

_dataset_option = click.option(
    "--dataset", "datasets", multiple=True, metavar="URN", help="One of the job's; may be repeated."
)


@sink.command("run")
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
        # Before the signals are ours: a classic session takes SIGINT for itself when it opens.
        spark.get_session(job)
    with heed_stop_signals(say, stop):
        run_worker(job, stop.wait, datasets=datasets, spark=spark, say=say)
    spark.close()


@sink.command("scale")
@job_file_argument
@click.argument("lanes", type=click.IntRange(1, _WORKERS_MAX))
@_dataset_option
def scale(job_file: Path, lanes: int, datasets: Sequence[str]) -> None:
    """Spread the sink's partitions over this many LANES.

    Workers move them while they run, one lane after the other.
    """
    job = read_job(job_file)
    specs = read_sink_datasets(job, datasets)
    with open_log(say) as log:
        ids = log.stores.datasets.register(JobName(job.job), sorted(specs))
        for urn, dataset_id in ids.items():
            log.stores.lanes.spread(dataset_id, lanes)
            say(f"{urn}: {lanes} lanes")


@sink.command("status")
@job_file_argument
@json_option
def status(job_file: Path, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Show the live workers, the lanes, and how far each is."""
    job = read_job(job_file)
    specs = read_sink_datasets(job)
    with open_log(say) as log:
        stores, name = log.stores, JobName(job.job)
        states = stores.datasets.load(name, list(specs))
        found = stores.lanes.load(*(state.dataset_id for state in states.values()))
        live = stores.sink_workers.list_live(name)
        lags = {urn: sum_lags(live, state.dataset_id) for urn, state in states.items()}
        open_ = {each.lane_id: each for each in stores.commits.list_open(name, limit=_WORKERS_MAX)}
        lanes = [
            _LaneLine(
                urn,
                lane.number,
                lane.owner if lane.is_live else None,
                lane.version,
                open_[lane.lane_id].state.value if lane.lane_id in open_ else None,
                {vnode: None if at is None else str(at) for vnode, at in lane.vnodes.items()},
            )
            for urn, state in states.items()
            for lane in lanes_in_use(found[state.dataset_id])
        ]
    workers = [worker.owner for worker in live]
    if as_json:
        print_json({"workers": workers, "lags": lags, "lanes": [each._asdict() for each in lanes]})
        return
    say(f"{len(workers)} live workers: {', '.join(workers) or 'none'}")
    rows = [
        (
            *each[:5],
            lags[each.dataset],
            ", ".join(f"{vnode} up to {at or 'nothing yet'}" for vnode, at in each.vnodes.items()),
        )
        for each in lanes
    ]
    # The lag is that of the dataset, as far as its lanes are held.
    print_table("lanes", ("dataset", "lane", "held by", "publications", "open", "behind", "vnodes"), rows)


@sink.command("drain")
@job_file_argument
@click.option("--wait", "wait_s", type=click.FloatRange(min=0), default=120.0, show_default=True, help="In seconds.")
def drain(job_file: Path, wait_s: float) -> None:
    """End all workers, wherever they run, behind a cut.

    Waits until none is left.
    """
    job, clock = read_job(job_file), SystemClock()
    read_sink_datasets(job)
    with open_log(say) as log:
        workers, name = log.stores.sink_workers, JobName(job.job)
        say(f"{count_of(workers.drain(name), 'worker is', 'workers are')} asked to end")
        until_s = clock.monotonic() + wait_s
        while left := workers.list_live(name):
            if clock.monotonic() >= until_s:
                raise RetryableError(
                    f"{len(left)} workers are still alive after {wait_s:g} s: {', '.join(each.owner for each in left)}",
                    hint="They end at their next barrier. Whoever was killed counts until its lease ends.",
                )
            clock.sleep(_LOOK_S)
