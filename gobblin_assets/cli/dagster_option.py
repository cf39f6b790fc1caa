"""The option of who reports a command to Dagster: the code location's sensor, the command itself, or nobody.

Dagster takes seconds to import, so that what talks to it is imported only where the command itself reports.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar

import click

from gobblin_assets.run.run_values import DatasetReport, ReportedAs
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.selection import Datasets

_Command = TypeVar("_Command", bound=Callable[..., Any])

VARIABLE: Final = "GOBBLIN_REPORT_TO_DAGSTER"


class WhenReported(StrEnum):
    """The time of a report: LATER by the sensor of Dagster's code location, WAIT by the command before it ends."""

    LATER = "later"
    WAIT = "wait"
    NEVER = "never"


_SPELLINGS: Final = {
    **{each.value: each for each in WhenReported},
    # Of the variable, as it was when there were two ways.
    **dict.fromkeys(("1", "true", "yes", "on", "t", "y"), WhenReported.LATER),
    **dict.fromkeys(("0", "false", "no", "off", "f", "n", "none"), WhenReported.NEVER),
}


class _When(click.ParamType[WhenReported]):
    name = "when"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        del param, ctx
        return "[=wait]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> WhenReported:
        found = _SPELLINGS.get(str(value).lower())
        if found is None:
            self.fail(f"expected later, wait or never, found {value!r}", param, ctx)
        return found


class DagsterCommand(click.Command):
    """A command that takes ``--dagster`` alone, ``--dagster=wait`` and ``--no-dagster``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # An option whose value may be left out takes the next word for it: here, the job's file.
        spelt = {"--dagster": "--dagster=later", "--no-dagster": "--dagster=never"}
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*(spelt.get(each, each) for each in args[:end]), *args[end:]])


dagster_option: Final[Callable[[_Command], _Command]] = click.option(
    "--dagster",
    "--no-dagster",
    "dagster",
    type=_When(),
    default=WhenReported.LATER,
    envvar=VARIABLE,
    help="Dagster shows the run within seconds while `gobblin-assets dagster dev` or another daemon runs, and else "
    "once it runs. wait: the command reports it itself, and ends after that. --no-dagster: it is not reported.",
)


def reported_as(when: WhenReported, by: str, *, mode: str | None = None, is_stream: bool = False) -> ReportedAs | None:
    """What the log keeps for whoever reports to Dagster; None: nobody does."""
    return None if when is WhenReported.NEVER else ReportedAs(by, mode, is_stream)


class Listener(Protocol):
    """A listener, which hears what happens in one command."""

    def hear_publication(self, report: DatasetReport) -> None:
        """A sequence is finished."""

    def hear_datasets(self, datasets: Datasets) -> None:
        """The job has these datasets now."""


class _Nobody:
    """A ``Listener`` that need not listen: the log says it all."""

    def hear_publication(self, report: DatasetReport) -> None:
        pass

    def hear_datasets(self, datasets: Datasets) -> None:
        pass


@contextmanager
def listening(when: WhenReported, job: JobOptions, datasets: Datasets) -> Iterator[Listener]:
    """Report during the block and at its end, however it ends, if the command has to wait for that."""
    if when is not WhenReported.WAIT:
        yield _Nobody()
        return
    from gobblin_assets.cli.reporting import open_reports  # noqa: PLC0415  Dagster takes seconds

    with open_reports(job, datasets) as reports:
        yield _Nobody() if reports is None else reports
