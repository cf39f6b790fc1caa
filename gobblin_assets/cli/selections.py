"""The options that choose datasets and partitions of a job."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.run_values import RunRequest
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.job_parsing import find_datasets
from gobblin_assets.spec.selection import Datasets, select_partitions

_RANGE_MARK: Final = "..."
_OPTIONS: Final = {"datasets": "--dataset", "partitions": "--partition", "partition_ranges": "--partition-range"}


class PartitionRange(click.ParamType[tuple[str, str]]):
    """FIRST...LAST, both included."""

    name = "first...last"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        first, mark, last = str(value).partition(_RANGE_MARK)
        if not (first and mark and last):
            self.fail(f"expected FIRST...LAST, such as 2013-01-01...2013-03-01; found {value!r}", param, ctx)
        return first, last


def selection_options(command: click.decorators.FC) -> click.decorators.FC:
    """Those that ``build_request`` takes."""
    options = [
        click.option("--dataset", "datasets", multiple=True, metavar="URN", help="One of the job's; may be repeated."),
        click.option("--partition", "partitions", multiple=True, metavar="KEY", help="A partition; may be repeated."),
        click.option("--partition-range", "ranges", multiple=True, type=PartitionRange(), help="Both included."),
        click.option("--future", is_flag=True, help="Take partitions that have not begun."),
        click.option(
            "--mode",
            type=click.Choice([mode.value for mode in Mode]),
            default=Mode.AUTO.value,
            help="append: read what came since; refresh: read the whole partition again, and publish it in place of "
            "what it had. Default: by the dataset and what is published.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def build_request(
    job: JobOptions,
    datasets: Datasets,
    urns: Sequence[str],
    partitions: Sequence[str],
    ranges: Sequence[tuple[str, str]],
    mode: str,
    *,
    future: bool,
) -> RunRequest:
    """RejectedError names the option that does not fit."""
    begun_by = None if future else SystemClock().now()
    with named_by_options():
        selection = select_partitions(job, datasets, urns=urns, keys=partitions, ranges=ranges, begun_by=begun_by)
    return RunRequest(program_of(job).rules_of(job), selection, mode=Mode(mode))


def find_named(job: JobName, datasets: Datasets, urns: Sequence[str]) -> list[DatasetUrn]:
    """Those that --dataset names, each once; all of them where none is. RejectedError for one that is not the job's."""
    with named_by_options():
        return find_datasets(job, datasets, urns)


@contextmanager
def named_by_options() -> Iterator[None]:
    """Errors name the options instead of the fields of ``spec.selection``."""
    try:
        yield
    except RejectedError as error:
        if error.field not in _OPTIONS:
            raise
        said = error.message.removeprefix(f"{error.field}: ")
        raise RejectedError(said, field=_OPTIONS[error.field], hint=error.hint) from error
