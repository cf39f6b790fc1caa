"""Commands on a job file: run, and plan with its dry run as tables."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

import click

from gobblin_assets.cli.connections import SparkChoice, job_file_argument, open_ports, spark_options
from gobblin_assets.cli.dagster_option import DagsterCommand, WhenReported, dagster_option, listening, reported_as
from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import EXIT_FAILED, json_option, print_json, print_table, say
from gobblin_assets.cli.reports import exit_as_reported, print_report
from gobblin_assets.cli.selections import build_request, selection_options
from gobblin_assets.commit.driver import describe_ways_out
from gobblin_assets.commit.sequence import SequenceRecord
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.dry_run import PlannedSlice, plan_dry
from gobblin_assets.run.job_kind import Restart, StartAt
from gobblin_assets.run.log import open_log
from gobblin_assets.run.own_process import look_for_garbage_seldom
from gobblin_assets.run.run_values import DatasetReport, RunPorts, RunReport, RunRequest
from gobblin_assets.run.runner import run_request
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.environment import require_address
from gobblin_assets.spec.job_files import read_any_job_file
from gobblin_assets.spec.job_kinds import COPY_KIND
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.selection import Datasets, has_partitions
from gobblin_assets.spec.source_kind import kind_of, require_connection

CHANGES_SHOWN_MAX: Final = 1_000
"""Lines of a plan's table of changes."""

UNITS_SHOWN_MAX: Final = 1_000
"""Lines of a plan's table of WorkUnits."""

OPEN_SHOWN_MAX: Final = 20


class PartitionOffset(click.ParamType[tuple[int, int]]):
    """PARTITION=OFFSET of a topic."""

    name = "partition=offset"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        partition, mark, offset = str(value).partition("=")
        if not (mark and partition.isdecimal() and offset.isdecimal()):
            self.fail(f"expected PARTITION=OFFSET, such as 0=1500; found {value!r}", param, ctx)
        return int(partition), int(offset)


@click.command(cls=DagsterCommand, epilog=example("run jobs/shop.yaml --dataset public.orders --partition 2026-01-01"))
@job_file_argument
@selection_options
@click.option("--missing-only", is_flag=True, help="Leave out partitions that are published.")
@click.option("--start-over", is_flag=True, help="Topics: begin as if they had never been read, by bootstrap_with.")
@click.option("--move-to-latest", is_flag=True, help="Topics: leave out what is in them now; what comes is read.")
@click.option(
    "--start-at", "starts", multiple=True, type=PartitionOffset(), help="A topic: go on from there; may be repeated."
)
@click.option("--confirm-deletes", is_flag=True, help="Copies: remove what the source lost all at once, too.")
@spark_options
@dagster_option
@json_option
def run(
    job_file: Path,
    datasets: Sequence[str],
    partitions: Sequence[str],
    ranges: Sequence[tuple[str, str]],
    future: bool,  # noqa: FBT001  an option that click passes by name
    mode: str,
    missing_only: bool,  # noqa: FBT001  the same
    start_over: bool,  # noqa: FBT001  the same
    move_to_latest: bool,  # noqa: FBT001  the same
    starts: Sequence[tuple[int, int]],
    confirm_deletes: bool,  # noqa: FBT001  the same
    master: str | None,
    remote: str | None,
    dagster: WhenReported,
    as_json: bool,  # noqa: FBT001  the same
) -> None:
    """Materialize datasets of the job in JOB_FILE, after completing what earlier runs left open.

    Without --dataset: with partitions given, all datasets that have partitions; else all that have none. A partition
    that is over and was published before is read again as a whole, unless --mode or --missing-only say otherwise.
    """
    job = read_any_job_file(job_file)
    specs = program_of(job).read_datasets(job)
    request = build_request(job, specs, datasets, partitions, ranges, mode, future=future)
    asked = {"--start-over": start_over, "--move-to-latest": move_to_latest, "--start-at": bool(starts)}
    if confirm_deletes and job.kind != COPY_KIND:
        raise RejectedError(
            f"is for copies, and {job.job} copies no files", field="--confirm-deletes", hint="Leave it out."
        )
    restart = _read_restart(job, request, asked, dict(starts))
    if restart is not None and isinstance(job, JobSpec) and job.sink.into is not None:
        # The sink's workers go on from where this run says.
        request = replace(request, only_moves=True)
    request = replace(request, restart=restart, confirm_deletes=confirm_deletes)
    _say_what_is_left_out(specs, datasets, request)
    if missing_only:
        request = _leave_out_published(request)
    _require_source(job)
    request = replace(request, reported_as=reported_as(dagster, "gobblin-assets run", mode=mode))
    with (
        listening(dagster, job, specs) as listener,
        open_ports(job, specs, SparkChoice(master, remote), listener.hear_publication) as ports,
    ):
        report = _run(request, ports)
    print_report(report, as_json=as_json)
    exit_as_reported(report)


def _require_source(job: JobOptions) -> None:
    """RejectedError where the source's address is not given, before anything is opened."""
    if isinstance(job, JobSpec):
        require_connection(kind_of(job.source))
    source = program_of(job).source_of(job)
    if source is not None:
        require_address(source, os.environ)


def _leave_out_published(request: RunRequest) -> RunRequest:
    with open_log(say) as log:
        states = log.stores.datasets.load(JobName(request.job.job), list(request.selection))
    selection = {
        urn: tuple(each for each in partitions if urn not in states or (each.key or "") not in states[urn].published)
        for urn, partitions in request.selection.items()
    }
    count = _count(request.selection)
    say(f"--missing-only: {count - _count(selection)} of {count} partitions are published, and left out")
    return replace(request, selection={urn: partitions for urn, partitions in selection.items() if partitions})


def _say_what_is_left_out(datasets: Datasets, by_name: Sequence[str], request: RunRequest) -> None:
    """Where no dataset was named, those that have partitions are read only if some are named."""
    left = [urn for urn in datasets if urn not in request.selection]
    if left and not by_name:
        by_partition = has_partitions(datasets[left[0]])
        fix = "name some with --partition or --partition-range" if by_partition else "run without --partition"
        say(f"not asked for: {', '.join(left)}, which {'have' if by_partition else 'have no'} partitions; {fix}")


def _run(request: RunRequest, ports: RunPorts) -> RunReport:
    """``run_request``; an interruption says how far it came."""
    published = 0

    def count(report: DatasetReport) -> None:
        nonlocal published
        ports.on_publication(report)
        is_recovered = report.publication is not None and report.publication.recovered
        published += not is_recovered

    try:
        return run_request(request, replace(ports, on_publication=count))
    except KeyboardInterrupt:
        say(f"interrupted: {published} of {_count(request.selection)} published; run it again to go on")
        raise


def _count(selection: Mapping[DatasetUrn, Sequence[AssetPartition]]) -> int:
    return sum(len(partitions) for partitions in selection.values())


def _read_restart(
    job: JobOptions, request: RunRequest, asked: Mapping[str, bool], starts: Mapping[int, int]
) -> Restart | StartAt | None:
    """What is asked of topics this once. RejectedError for several things at once, and where there are no topics."""
    given = [option for option, is_asked in asked.items() if is_asked]
    if not given:
        return None
    option = given[0]
    if len(given) > 1:
        raise RejectedError(f"and {given[1]} exclude each other", field=option, hint="Give one of them.")
    if not isinstance(job, JobSpec):
        raise RejectedError(f"is for topics, and {job.job} copies files", field=option, hint="Leave it out.")
    kind = kind_of(job.source)
    if not kind.is_log:
        raise RejectedError(
            f"is for topics, and {job.job} reads {kind.noun}s", field=option, hint="Use --mode refresh for these."
        )
    if not starts:
        return Restart.START_OVER if asked["--start-over"] else Restart.MOVE_TO_LATEST
    if len(request.selection) != 1:
        raise RejectedError(
            f"offsets are those of one topic, and {len(request.selection)} are to be read",
            field=option,
            hint="Name the topic with --dataset.",
        )
    return StartAt(starts)


@click.command(epilog=example("plan jobs/shop.yaml"))
@job_file_argument
@selection_options
@spark_options
@json_option
def plan(
    job_file: Path,
    datasets: Sequence[str],
    partitions: Sequence[str],
    ranges: Sequence[tuple[str, str]],
    future: bool,  # noqa: FBT001  an option that click passes by name
    mode: str,
    master: str | None,
    remote: str | None,
    as_json: bool,  # noqa: FBT001  the same
) -> None:
    """Show what `run` would read or copy now. Nothing is read, taken or written."""
    job = read_any_job_file(job_file)
    specs = program_of(job).read_datasets(job)
    request = build_request(job, specs, datasets, partitions, ranges, mode, future=future)
    with open_ports(job, specs, SparkChoice(master, remote), lambda _report: None) as ports:
        slices = plan_dry(request, ports.stores.datasets, ports.kind, ports.clock, say)
        for line in list_open_lines(ports.stores, request):
            say(line)
    # A plan's objects stay to the end here too.
    with look_for_garbage_seldom():
        if as_json:
            print_json(slices)
        else:
            print_plan(slices, with_units=job.kind != COPY_KIND)
    if any(each.error for each in slices):
        click.get_current_context().exit(EXIT_FAILED)


def list_open_lines(stores: Stores, request: RunRequest) -> Iterator[str]:
    """Publications of the selected datasets that are open: what is planned now comes after them."""
    known = stores.datasets.load(JobName(request.job.job), sorted(request.selection))
    found = stores.commits.find_unfinished(*(state.dataset_id for state in known.values())) if known else ()
    sealed = [each for each in found if each.state is not SequenceState.BUILDING]
    yield from map(_describe_open, sealed[:OPEN_SHOWN_MAX])
    if len(sealed) > OPEN_SHOWN_MAX:
        yield f"{len(sealed) - OPEN_SHOWN_MAX:,} more publications are open; `gobblin-assets commit list` shows them"


def _describe_open(sequence: SequenceRecord) -> str:
    said = f"sequence {sequence.sequence_id} of {sequence.label} is {sequence.state.value}"
    if sequence.state is SequenceState.BLOCKED:
        return f"{said}, and no run publishes {sequence.urn} before that: {describe_ways_out(sequence.sequence_id)}"
    act = "ends its abandonment" if sequence.state is SequenceState.ABANDONING else "completes it"
    return f"{said}: the next run {act} first (`gobblin-assets commit show {sequence.sequence_id}`)"


def print_plan(slices: Sequence[PlannedSlice], *, with_units: bool) -> None:
    """A file set of a copy is one WorkUnit, of which its changes say more."""
    if with_units:
        _print_units(slices)
    changes = list(_list_changes(slices))
    if changes or not with_units:
        columns = ("dataset", "partition", "action", "path", "bytes", "why")
        print_table("changes", columns, changes[:CHANGES_SHOWN_MAX])
    if len(changes) > CHANGES_SHOWN_MAX:
        say(f"only the first {CHANGES_SHOWN_MAX:,} of {len(changes):,} changes are shown; --json shows all")
    for each in slices:
        for line in filter(None, (*each.notes, each.error)):
            say(f"{each.urn}{'' if each.partition is None else f' [{each.partition}]'}: {line}")


def _print_units(slices: Sequence[PlannedSlice]) -> None:
    columns = ("dataset", "partition", "mode", "reader", "key", "unit", "task", "interval", "rows (estimated)")
    rows = (
        (
            *(each.urn, each.partition, each.mode, each.reader or None),
            *(unit.key, unit.number, unit.multi_work_unit),
            *(unit.interval or "everything", unit.estimated_row_count),
        )
        for each in slices
        for unit in each.units
    )
    print_table("WorkUnits", columns, list(islice(rows, UNITS_SHOWN_MAX)))
    count = sum(len(each.units) for each in slices)
    if count > UNITS_SHOWN_MAX:
        say(f"only the first {UNITS_SHOWN_MAX:,} of {count:,} WorkUnits are shown; --json shows all")


def _list_changes(slices: Sequence[PlannedSlice]) -> Iterator[tuple[object, ...]]:
    """Lines of the table. A directory above several file sets is made once, and shown with the first of them."""
    shown: set[tuple[str, str]] = set()
    for each in slices:
        for change in each.changes:
            name = each.urn, change.path
            if name not in shown:
                shown.add(name)
                yield each.urn, each.partition, change.action, change.path or ".", change.size_bytes, change.why
