"""Dagster is told what the command line does: the instance of DAGSTER_HOME, else that of GOBBLIN_HOME.

What was published does not depend on it: an instance that can't be asked is said once, and the run goes on. What it was
not told of stays unannounced in the log, so that the next run or sensor tells it.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gobblin_assets.cli.output import say
from gobblin_assets.dagster.dead_runs import report_ended_runs
from gobblin_assets.dagster.instance import Instance, find_instance
from gobblin_assets.dagster.layout import JobLayout, build_layout
from gobblin_assets.dagster.naming import GobblinTranslator
from gobblin_assets.dagster.reported_runs import ReportedRun
from gobblin_assets.dagster.reporting import begin_reported_run
from gobblin_assets.dagster.runless import RunlessEvents
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.run.announcements import UntoldError
from gobblin_assets.run.run_values import DatasetReport, RunReport
from gobblin_assets.run.stores import Stores
from gobblin_assets.settings import read_settings
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.selection import Datasets, Selection

_SILENCE_S: Final = 60.0
"""After Dagster did not take something: a storage that hangs must not be waited for at each publication."""


class Telling:
    """Passes on what happens in one command, as far as there is somebody who takes it."""

    def __init__(
        self, layout: JobLayout, events: ReportedRun | RunlessEvents | None, instance: Instance | None = None
    ) -> None:
        self._layout = layout
        self._known: Datasets = layout.datasets
        self._events = events
        self._instance = instance
        self._silent_until_s = float("-inf")
        self._has_said = False

    @property
    def run_id(self) -> str | None:
        """Of the run in Dagster, where there is one."""
        return self._events.run_id if isinstance(self._events, ReportedRun) else None

    def report_publication(self, report: DatasetReport) -> None:
        """UntoldError where Dagster does not take it."""
        events = self._events
        if events is not None:
            self._try(lambda: events.report_publication(report))

    def hear_datasets(self, datasets: Datasets) -> None:
        """The job has these datasets now, and had the others before. Only events without a run may follow them."""
        events, job = self._events, self._layout.job
        known = {**self._known, **program_of(job).as_assets(job, datasets)}
        if not isinstance(events, RunlessEvents) or known == self._known:
            return
        self._known = known
        try:
            self._layout = events.layout = build_layout(job, known, GobblinTranslator())
        except RejectedError as error:
            say(f"Dagster can't be told of all datasets: {error}")

    def report_unpublished(self, report: DatasetReport) -> None:
        """What became of a partition without a publication."""
        events = self._events
        if isinstance(events, RunlessEvents):
            self._try_last(lambda: events.report_unpublished(report))

    def end(self, report: RunReport) -> None:
        """What was not published, and that the run is over."""
        events = self._events
        if isinstance(events, ReportedRun):
            self._try_last(lambda: events.end(report))
            return
        for dataset in report.datasets:
            if dataset.publication is None:
                self.report_unpublished(dataset)

    def report_dead(self, stores: Stores) -> None:
        """That earlier runs of the job died, where no sensor says it."""
        instance = self._instance
        if instance is not None:
            self._try_last(lambda: report_ended_runs(self._layout, instance, stores))

    def close(self) -> None:
        """Tell what was kept back so as to be told together."""
        events = self._events
        if isinstance(events, RunlessEvents):
            self._try_last(events.close)

    def fail(self, error: BaseException) -> None:
        """The run ended by an error."""
        events = self._events
        if isinstance(events, ReportedRun):
            self._try_last(lambda: events.fail(error))

    def _try_last(self, send: Callable[[], None]) -> None:
        try:
            self._try(send)
        except UntoldError:
            return

    def _try(self, send: Callable[[], None]) -> None:
        if time.monotonic() < self._silent_until_s:
            raise UntoldError
        try:
            send()
        except RetryableError as error:
            self._silent_until_s = time.monotonic() + _SILENCE_S
            if not self._has_said:
                say(f"{error} The run goes on; `gobblin-assets report` tells Dagster later.")
            self._has_said = True
            raise UntoldError from error


@contextmanager
def open_run_telling(
    job: JobOptions, datasets: Datasets, selection: Selection, *, by: str, mode: str
) -> Iterator[Telling]:
    """As ``telling.telling_run``."""
    if not selection:
        with open_event_telling(job, datasets, by=by) as telling:
            yield telling
        return
    layout = layout_of(job, datasets)
    with _open_instance() as instance:
        telling = Telling(layout, _begin(layout, selection, instance, by, mode), instance)
        try:
            yield telling
        except BaseException as error:
            telling.fail(error)
            raise


@contextmanager
def open_event_telling(job: JobOptions, datasets: Datasets, *, by: str) -> Iterator[Telling]:
    """As ``telling.telling_events``."""
    layout = layout_of(job, datasets)
    with _open_instance() as instance:
        telling = Telling(layout, None if instance is None else RunlessEvents(layout, instance, by=by), instance)
        try:
            yield telling
        finally:
            telling.close()


def layout_of(job: JobOptions, datasets: Datasets) -> JobLayout:
    """The job as it lies in Dagster."""
    return build_layout(job, program_of(job).as_assets(job, datasets), GobblinTranslator())


@contextmanager
def _open_instance() -> Iterator[Instance | None]:
    """None where there is none, or it can't be opened, which is said."""
    instance = None
    try:
        instance = find_instance(read_settings(), os.environ, say)
    except RetryableError as error:
        say(f"{error} The run goes on; `gobblin-assets report` tells Dagster later.")
    try:
        yield instance
    finally:
        if instance is not None:
            instance.dispose()


@contextmanager
def require_instance() -> Iterator[Instance]:
    """RejectedError where there is none."""
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


def _begin(
    layout: JobLayout, selection: Selection, instance: Instance | None, by: str, mode: str
) -> ReportedRun | None:
    if instance is None:
        return None
    try:
        return begin_reported_run(layout, selection, instance, by=by, mode=mode)
    except RetryableError as error:
        say(f"{error} The run goes on; `gobblin-assets report` tells Dagster later.")
        return None
