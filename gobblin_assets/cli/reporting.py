"""Reports of the command line to Dagster: the instance of DAGSTER_HOME, else that of GOBBLIN_HOME. The command report.

Publications do not depend on it: an instance that can't be asked is said once. A publication that was not reported
stays so in the log, and the next command or sensor reports it.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import click

from gobblin_assets.cli.connections import job_file_argument
from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import json_option, print_json, print_table, say
from gobblin_assets.cli.selections import datasets_option, find_named
from gobblin_assets.dagster.dead_runs import report_ended_runs
from gobblin_assets.dagster.environment import layout_of_found
from gobblin_assets.dagster.factory import build_reported_job
from gobblin_assets.dagster.instance import Instance, find_instance
from gobblin_assets.dagster.published_checks import find_unreported, load_latest
from gobblin_assets.dagster.reported_runs import ReportedJob
from gobblin_assets.dagster.reporter import report_job
from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.model.partition import AssetPartition, find_common_keys
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.log import open_log
from gobblin_assets.run.run_values import DatasetReport
from gobblin_assets.run.stores import Stores
from gobblin_assets.settings import read_settings
from gobblin_assets.spec.job_files import read_any_job_file
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.selection import Datasets

_EVERY_S: Final = 5.0
"""While a command goes on, it reports this often."""

_SILENCE_S: Final = 60.0
"""After Dagster did not take something: a storage that hangs must not be waited for at each publication."""


@click.command(epilog=example("report jobs/shop.yaml"))
@job_file_argument
@datasets_option
@click.option("--all", "with_reported", is_flag=True, help="Also report publications that Dagster knows already.")
@json_option
def report(job_file: Path, datasets: Sequence[str], with_reported: bool, as_json: bool) -> None:  # noqa: FBT001  options that click passes by name
    """Report to Dagster the runs that wait, and the latest publication of each partition that it does not show yet."""
    job = read_any_job_file(job_file)
    specs = program_of(job).read_datasets(job)
    urns = set(find_named(JobName(job.job), specs, datasets))
    layout = layout_of_found(job, specs)
    with open_log(say) as log, require_instance() as instance:
        latest = [each for each in load_latest(log.stores, layout) if each.urn in urns]
        wanted = latest if with_reported else find_unreported(layout, latest, instance)
        reported = build_reported_job(layout)
        if not datasets:
            report_job(reported, log.stores, instance, until_s=None)
        left = wanted if with_reported else find_unreported(layout, wanted, instance)
        if left:
            run = reported.begin(instance, {each.urn for each in left}, _common_keys(left), by="gobblin-assets report")
            for each in left:
                run.report_publication(each)
                if each.publication is not None:
                    log.stores.commits.mark_announced(each.publication.sequence_id)
            run.close()
    rows = [(each.urn, each.partition.key, p.sequence_id, p.row_count) for each in wanted if (p := each.publication)]
    if as_json:
        print_json([dict(zip(("dataset", "partition", "sequence", "rows"), row, strict=True)) for row in rows])
        return
    print_table("reported to Dagster", ("dataset", "partition", "sequence", "rows"), rows)
    say(f"{len(rows)} of {len(latest)} publications were reported; Dagster knows the others.")


def _common_keys(reports: Sequence[DatasetReport]) -> tuple[str, str, int] | None:
    chosen: dict[DatasetUrn, tuple[AssetPartition, ...]] = {}
    for each in reports:
        chosen[each.urn] = (*chosen.get(each.urn, ()), each.partition)
    return find_common_keys(chosen)


class DagsterReports:
    """The ``dagster_option.Listener`` that reports to Dagster itself."""

    def __init__(self, job: JobOptions, datasets: Datasets, stores: Stores, instance: Instance) -> None:
        self._job = job
        self._stores = stores
        self._instance = instance
        self._reported = _reported_job(job, datasets)
        self._next_s = 0.0
        self._has_said = False

    def hear_publication(self, report: DatasetReport) -> None:
        del report
        if time.monotonic() >= self._next_s:
            self.report()

    def hear_datasets(self, datasets: Datasets) -> None:
        if datasets.keys() == self._reported.layout.datasets.keys():
            return
        try:
            self._reported = _reported_job(self._job, {**self._reported.layout.datasets, **datasets})
        except RejectedError as error:
            say(f"not all datasets can be reported to Dagster: {error}")

    def report(self) -> None:
        try:
            report_job(self._reported, self._stores, self._instance, until_s=None)
            report_ended_runs(self._reported.layout, self._instance, self._stores)
            self._next_s = time.monotonic() + _EVERY_S
        except GobblinError as error:
            self._next_s = time.monotonic() + _SILENCE_S
            if not self._has_said:
                say(f"{error} What is published stays; `gobblin-assets report` reports it later.")
            self._has_said = True


@contextmanager
def open_reports(job: JobOptions, datasets: Datasets) -> Iterator[DagsterReports | None]:
    """For ``dagster_option.listening``. An instance that can't be opened is said, and keeps nobody from the work: None.

    RejectedError where there is none.
    """
    with ExitStack() as stack:
        try:
            instance = stack.enter_context(require_instance())
        except RetryableError as error:
            say(f"{error} The work goes on; `gobblin-assets report` reports it later.")
            yield None
            return
        reports = DagsterReports(job, datasets, stack.enter_context(open_log(say)).stores, instance)
        try:
            yield reports
        finally:
            reports.report()


def report_what_waits(jobs: Iterable[JobOptions]) -> None:
    """Report what commands left, so that Dagster's first page is true. What can't be reported is said in a line."""
    by_name = {JobName(job.job): job for job in jobs}
    with open_log(say) as log:
        waiting = log.stores.reports.look(list(by_name))
        if not waiting:
            return
        with require_instance() as instance:
            for name in waiting:
                job = by_name[name]
                try:
                    discovered = program_of(job).read_datasets(job)
                    report_job(_reported_job(job, discovered), log.stores, instance, until_s=None)
                except GobblinError as error:
                    say(f"{name}: not all is reported to Dagster yet: {error}")


def _reported_job(job: JobOptions, datasets: Datasets) -> ReportedJob:
    return build_reported_job(layout_of_found(job, datasets))


@contextmanager
def require_instance() -> Iterator[Instance]:
    """RejectedError where there is none; RetryableError where it can't be opened."""
    instance = find_instance(read_settings(), os.environ, say)
    if instance is None:
        raise RejectedError(
            "there is no instance of Dagster in GOBBLIN_HOME, nor does DAGSTER_HOME name one",
            field="DAGSTER_HOME",
            hint="Set it, or start the home's once: gobblin-assets dagster dev.",
        )
    try:
        yield instance
    finally:
        instance.dispose()
