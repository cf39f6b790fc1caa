"""The command line tells Dagster what waits in the log: the instance of DAGSTER_HOME, else that of GOBBLIN_HOME.

What was published does not depend on it: an instance that can't be asked is said once, and what it was not told of
stays unreported in the log, so that the next command or sensor tells it.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from gobblin_assets.cli.output import say
from gobblin_assets.dagster.dead_runs import report_ended_runs
from gobblin_assets.dagster.factory import build_reported_job
from gobblin_assets.dagster.instance import Instance, find_instance
from gobblin_assets.dagster.layout import JobLayout, build_layout
from gobblin_assets.dagster.naming import GobblinTranslator
from gobblin_assets.dagster.reported_runs import ReportedJob
from gobblin_assets.dagster.reporter import report_job
from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.log import open_log
from gobblin_assets.run.run_values import DatasetReport
from gobblin_assets.run.stores import Stores
from gobblin_assets.settings import read_settings
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.selection import Datasets

_EVERY_S: Final = 5.0
"""While a command goes on, Dagster is told this often."""

_SILENCE_S: Final = 60.0
"""After Dagster did not take something: a storage that hangs must not be waited for at each publication."""


class DagsterReports:
    """The ``telling.Listener`` that tells Dagster itself."""

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
            self.tell()

    def hear_datasets(self, datasets: Datasets) -> None:
        if datasets.keys() == self._reported.layout.datasets.keys():
            return
        try:
            self._reported = _reported_job(self._job, {**self._reported.layout.datasets, **datasets})
        except RejectedError as error:
            say(f"Dagster can't be told of all datasets: {error}")

    def tell(self) -> None:
        try:
            report_job(self._reported, self._stores, self._instance, until_s=None)
            report_ended_runs(self._reported.layout, self._instance, self._stores)
            self._next_s = time.monotonic() + _EVERY_S
        except GobblinError as error:
            self._next_s = time.monotonic() + _SILENCE_S
            if not self._has_said:
                say(f"{error} What is published stays; `gobblin-assets report` tells Dagster later.")
            self._has_said = True


@contextmanager
def open_reports(job: JobOptions, datasets: Datasets) -> Iterator[DagsterReports | None]:
    """For ``telling.listening``. An instance that can't be opened is said, and keeps nobody from the work: None.

    RejectedError where there is none.
    """
    with ExitStack() as stack:
        try:
            instance = stack.enter_context(require_instance())
        except RetryableError as error:
            say(f"{error} The work goes on; `gobblin-assets report` tells Dagster later.")
            yield None
            return
        reports = DagsterReports(job, datasets, stack.enter_context(open_log(say)).stores, instance)
        try:
            yield reports
        finally:
            reports.tell()


def report_what_waits(jobs: Iterable[JobOptions]) -> None:
    """Tell Dagster of what commands left, so that its first page is true. What can't be told is said in a line."""
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
                    say(f"{name}: Dagster is not told of all yet: {error}")


def layout_of(job: JobOptions, datasets: Datasets) -> JobLayout:
    """The job as it lies in Dagster."""
    return build_layout(job, program_of(job).as_assets(job, datasets), GobblinTranslator())


def _reported_job(job: JobOptions, datasets: Datasets) -> ReportedJob:
    return build_reported_job(layout_of(job, datasets))


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
