"""Whom a command tells what it does: Dagster, or nobody.

Dagster takes seconds to import, so that what talks to it is imported only where somebody wants it told.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, Final, Protocol, TypeVar, cast

import click

from gobblin_assets.jobs.programs import program_of
from gobblin_assets.run.run_values import DatasetReport, RunReport
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.environment import require_address
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.selection import Datasets, Selection
from gobblin_assets.spec.source_kind import kind_of, require_connection

_Command = TypeVar("_Command", bound=Callable[..., Any])

VARIABLE: Final = "GOBBLIN_REPORT_TO_DAGSTER"

dagster_option: Final[Callable[[_Command], _Command]] = click.option(
    "--dagster/--no-dagster",
    "with_dagster",
    default=True,
    envvar=VARIABLE,
    help="Whether Dagster is told: the instance of DAGSTER_HOME, else that of GOBBLIN_HOME.",
)


class Listener(Protocol):
    """Hears what happens in one command."""

    @property
    def run_id(self) -> str | None:
        """Of the run in Dagster, where there is one."""

    def report_publication(self, report: DatasetReport) -> None:
        """UntoldError where Dagster does not take it."""

    def hear_datasets(self, datasets: Datasets) -> None:
        """The job has these datasets now, and had the others before."""

    def report_unpublished(self, report: DatasetReport) -> None:
        """What became of a partition without a publication."""

    def end(self, report: RunReport) -> None:
        """What was not published, and that the run is over."""

    def report_dead(self, stores: Stores) -> None:
        """That earlier runs of the job died, where no sensor says it."""


class Nobody:
    """Dagster is not told, neither now nor by a later run; `gobblin-assets report` still tells it."""

    run_id = None

    def report_publication(self, report: DatasetReport) -> None:
        pass

    def hear_datasets(self, datasets: Datasets) -> None:
        pass

    def report_unpublished(self, report: DatasetReport) -> None:
        pass

    def end(self, report: RunReport) -> None:
        pass

    def report_dead(self, stores: Stores) -> None:
        pass


class _DagsterTelling(Protocol):
    """The module `dagster_telling`."""

    def open_run_telling(
        self, job: JobOptions, datasets: Datasets, selection: Selection, *, by: str, mode: str
    ) -> AbstractContextManager[Listener]: ...

    def open_event_telling(
        self, job: JobOptions, datasets: Datasets, *, by: str
    ) -> AbstractContextManager[Listener]: ...


def _import_telling() -> _DagsterTelling:
    return cast("_DagsterTelling", import_module("gobblin_assets.cli.dagster_telling"))


def telling_run(
    job: JobOptions, datasets: Datasets, selection: Selection, *, by: str, mode: str, is_wanted: bool
) -> AbstractContextManager[Listener]:
    """A run of its own in Dagster, which fails there if what is done in the block raises; events, if all is done."""
    source = program_of(job).source_of(job)
    if isinstance(job, JobSpec):
        require_connection(kind_of(job.source))
    if source is not None:
        require_address(source, os.environ)
    if not is_wanted:
        return nullcontext(Nobody())
    return _import_telling().open_run_telling(job, datasets, selection, by=by, mode=mode)


def telling_events(
    job: JobOptions, datasets: Datasets, *, by: str, is_wanted: bool = True
) -> AbstractContextManager[Listener]:
    """Events without a run: of what may go on for weeks, and of what finishes others' work."""
    if not is_wanted:
        return nullcontext(Nobody())
    return _import_telling().open_event_telling(job, datasets, by=by)
