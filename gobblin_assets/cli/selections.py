"""The job that a command is given, by its file or by name, and the options that choose its datasets and partitions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gobblin_assets.cli.partition_range import PartitionRange
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.urn import DatasetUrn, JobName, parse_job_name, parse_urn
from gobblin_assets.run.log import Log
from gobblin_assets.run.run_values import RunRequest
from gobblin_assets.spec.job_files import read_any_job_file
from gobblin_assets.spec.job_options import DatasetOptions, JobOptions
from gobblin_assets.spec.job_parsing import find_datasets
from gobblin_assets.spec.selection import Datasets, select_partitions

_Command = TypeVar("_Command", bound=Callable[..., Any])

_FILE: Final = click.argument("job_file", required=False, type=click.Path(path_type=Path, dir_okay=False))
_NAME: Final = click.option("--job", metavar="JOB", help="The job by its name, where the log has its destination.")

datasets_option: Final[Callable[[_Command], _Command]] = click.option(
    "--dataset", "datasets", multiple=True, metavar="URN", help="One of the job's; may be repeated."
)

_OPTIONS: Final = {"datasets": "--dataset", "partitions": "--partition", "partition_ranges": "--partition-range"}


def job_file_or_name(command: _Command) -> _Command:
    """[JOB_FILE] and --job, as ``read_known_job`` takes them."""
    return _FILE(_NAME(command))


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job that a command was given. ``spec`` and ``datasets``: those of its file; None: only its name was given."""

    name: JobName
    spec: JobOptions | None = None
    datasets: Mapping[DatasetUrn, DatasetOptions] | None = None

    def find_destination(self, log: Log) -> str:
        """Where it publishes. RejectedError where there is no file, and the log has never seen the job publish."""
        if self.spec is not None:
            return program_of(self.spec).root_uri(self.spec)
        binding = log.stores.destinations.find(self.name)
        if binding is None:
            raise RejectedError(
                f"the log has no destination of a job {self.name!r}",
                field="--job",
                hint="`gobblin-assets destination list` shows the jobs that have one; or give the job's file.",
            )
        return binding.root_uri

    def find_datasets(self, log: Log, urns: Sequence[str]) -> list[DatasetUrn]:
        """Those that are named, each once; all of the job where none is. RejectedError for one that is not the job's.

        Without a file: those that the log has, of whatever file they were.
        """
        if self.datasets is not None:
            return find_named(self.name, self.datasets, urns)
        known = [urn for _job, urn in log.stores.datasets.list_urns(self.name)]
        for urn in urns:
            if parse_urn(urn) not in known:
                raise RejectedError(
                    f"the log has no dataset {urn!r} of the job {self.name}",
                    field="--dataset",
                    hint=f"It has: {', '.join(known)}.",
                )
        return [DatasetUrn(urn) for urn in dict.fromkeys(urns)] or known


def read_known_job(job_file: Path | None, job: str | None) -> KnownJob:
    """RejectedError where neither is given, or where they are of different jobs."""
    name = None if job is None else parse_job_name(job)
    if job_file is not None:
        spec = read_any_job_file(job_file)
        return KnownJob(name_of(spec, name, file_field="JOB_FILE"), spec, program_of(spec).read_datasets(spec))
    if name is None:
        command = click.get_current_context().command_path
        raise RejectedError(
            "expected a job",
            field="JOB_FILE",
            hint=f"Write `{command} JOB_FILE`, or `{command} --job NAME`; `gobblin-assets status` lists the jobs.",
        )
    return KnownJob(name)


def name_of(job: JobOptions, expected: JobName | None, *, file_field: str) -> JobName:
    """The name of a file's job. RejectedError where another one was meant."""
    found = JobName(job.job)
    if expected not in (None, found):
        raise RejectedError(
            f"expected the file of the job {expected!r}, found that of {found!r}",
            field=file_field,
            hint="Give the right file, or leave it out.",
        )
    return found


def selection_options(command: click.decorators.FC) -> click.decorators.FC:
    """Those that ``build_request`` takes."""
    options = [
        datasets_option,
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
