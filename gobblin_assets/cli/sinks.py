"""Commands on sinks: workers that publish logs, the lanes that they share, bases, new copies, and new places."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from gobblin_assets.cli.connections import SparkChoice, job_file_argument, open_operations, spark_options
from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import EXIT_FAILED, exit_for, json_option, print_json, print_table, say
from gobblin_assets.cli.selections import datasets_option, find_named
from gobblin_assets.cli.sink_status import status
from gobblin_assets.commit.markers import check_log
from gobblin_assets.destinations.loaded_destination import open_loaded_destination
from gobblin_assets.destinations.registry import open_destination
from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.running import read_job, read_job_datasets
from gobblin_assets.jobs.rows_places import rows_place_of
from gobblin_assets.jobs.sink.adopting import adopt_place
from gobblin_assets.jobs.sink.base_writing import open_base_writing
from gobblin_assets.jobs.sink.recopying import Recopying, await_free, check_copied_job
from gobblin_assets.jobs.sink.running import (
    WorkerGroup,
    find_spark_needs,
    open_log_connection,
    read_sink_datasets,
    run_worker,
)
from gobblin_assets.jobs.sink.sink_rules import has_sink, is_one_stream
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.wording import count_of, join_some
from gobblin_assets.run.destination import DestinationRequest
from gobblin_assets.run.log import open_log
from gobblin_assets.run.maintenance_run import MaintenanceRun
from gobblin_assets.run.own_process import StopRequest, heed_stop_signals
from gobblin_assets.run.runner import owner_text
from gobblin_assets.state.leases import Lease

_WORKERS_MAX: Final = 256
_LOOK_S: Final = 0.5


@click.group()
def sink() -> None:
    """Sinks: several workers publish the job's topics at once, each record exactly once."""


sink.add_command(status)


@sink.command("run", epilog=example("sink run jobs/clicks.yaml --workers 2"))
@job_file_argument
@datasets_option
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
@datasets_option
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


@sink.command(
    "adopt",
    epilog=example("sink adopt jobs/clicks.yaml --dataset clicks --missing 01a224ca-1b31-7d99-8c3a-1d727f93b1c4"),
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


@sink.command("compact", epilog=example("sink compact jobs/shop.yaml --dataset public.orders"))
@job_file_argument
@datasets_option
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
        # Nothing is reported to Dagster: no row of a dataset is new.
        maintenance = MaintenanceRun(open_operations(log, choice, job), stores, name)
        done, failures = writing.carry_out(maintenance, find_named(name, specs, datasets), changes_min=changes_min)
    if as_json:
        print_json(done)
    else:
        rows = [(p.urn, p.row_count, p.file_count, p.file_bytes) for p in done]
        print_table("bases", ("dataset", "rows", "files", "bytes"), rows)
    exit_for(failures)


@sink.command("recopy", epilog=example("sink recopy jobs/shop.yaml --dataset public.orders"))
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
    exit_for(failures)
