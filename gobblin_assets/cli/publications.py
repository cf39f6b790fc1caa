"""Commands on commit sequences and on what they leave: commit, cleanup."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from gobblin_assets.cli.connections import (
    Log,
    SparkChoice,
    open_log,
    open_operations,
    open_upkeep,
    read_layout,
    spark_options,
)
from gobblin_assets.cli.exit_codes import EXIT_FAILED
from gobblin_assets.cli.known_jobs import job_file_or_name, name_of, read_known_job
from gobblin_assets.cli.output import json_option, print_json, print_table, say
from gobblin_assets.cli.views import dataset_option, find_job, find_urn, job_option
from gobblin_assets.commit.cleanup import Cleaned
from gobblin_assets.commit.relocation import require_bound_root
from gobblin_assets.commit.sequence import Publication
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import JobName
from gobblin_assets.spec.job_spec import RETIRE_GRACE_S, LogSpec

sequence_argument = click.argument("sequence_id", type=click.UUID)


@click.group()
def commit() -> None:
    """Commit sequences: publications, each all or nothing."""


@commit.command("list")
@job_option
@dataset_option
@click.option("--all", "with_ended", is_flag=True, help="Also those that are DONE or ABORTED.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 10_000))
@json_option
def list_sequences(job: str | None, urn: str | None, with_ended: bool, limit: int, as_json: bool) -> None:  # noqa: FBT001  options that click passes by name
    """List open sequences, newest first."""
    with open_log() as log:
        lines = log.overview.list_sequences(find_job(job), find_urn(urn), with_ended=with_ended, limit=limit)
    if as_json:
        print_json(lines)
        return
    columns = (
        "sequence",
        "job",
        "dataset",
        "partition",
        "state",
        "mode",
        "publications",
        "rows",
        "files",
        "tries",
        "created at",
        "error",
    )
    rows = [
        (
            *(each.sequence_id, each.job, each.urn, each.partition, each.state, each.mode, each.publications),
            *(each.rows, each.files, each.failed_tries, each.created_at, each.last_error),
        )
        for each in lines
    ]
    print_table("sequences" if with_ended else "open sequences", columns, rows)


@commit.command("show")
@sequence_argument
@json_option
def show_sequence(sequence_id: uuid.UUID, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Show a sequence with its attempts."""
    with open_log() as log:
        record = log.stores.commits.get(SequenceId(sequence_id))
        attempts = log.stores.commits.list_attempts(SequenceId(sequence_id))
    shown = {
        "sequence": record.sequence_id,
        "job": record.job,
        "dataset": record.urn,
        "partition": record.partition,
        "state": record.state,
        "mode": record.mode,
        "run": record.run_id,
        "base version": record.base_version,
        "fence": record.fence,
        "destination": record.root_uri,
        "failed tries": record.failed_tries,
        "last error": record.last_error,
    }
    staging = [{"attempt": each.attempt_id, "staging": each.staging_path} for each in attempts]
    if as_json:
        print_json({**shown, "attempts": staging})
        return
    print_table(f"sequence {record.sequence_id}", ("", ""), list(shown.items()))
    print_table("attempts", ("attempt", "staging"), [tuple(each.values()) for each in staging])


job_file_option = click.option(
    "--job-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The job's file: only its sequences, by its rules, and Dagster is told at once. Without it: under leases as "
    "long as those of the run that began the sequence.",
)


@commit.command()
@job_option
@job_file_option
@spark_options
@json_option
def recover(job: str | None, job_file: Path | None, master: str | None, remote: str | None, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Complete the open sequences that are due and whose datasets nobody works on.

    Without --job-file, Dagster hears of them from the job's next run or sensor.
    """
    layout = None if job_file is None else read_layout(job_file)
    spark = SparkChoice(master, remote)
    published: list[Publication] = []
    with open_log() as log:
        jobs = _find_jobs(log, find_job(job), layout)
        reports = []
        for each in jobs:
            with open_upkeep(log, spark, each, layout) as upkeep:
                reports.append(upkeep.recover(seen=published.append))
    aborted, busy = sum(report.aborted for report in reports), sum(report.busy for report in reports)
    failures = [
        {"sequence": f.sequence.sequence_id, "dataset": f.sequence.urn, "error": f.error}
        for report in reports
        for f in report.failures
    ]
    if as_json:
        print_json({"published": published, "aborted": aborted, "busy": busy, "failures": failures})
    else:
        _print_published(published)
        say(f"aborted: {aborted}, busy: {busy}, failed: {len(failures)}")
    if failures:
        click.get_current_context().exit(EXIT_FAILED)


def _find_jobs(log: Log, job: JobName | None, layout: JobLayout | None) -> Sequence[JobName]:
    """Those whose sequences are to be recovered: the named one, else all that have something to recover."""
    if layout is not None:
        return [name_of(layout, job, file_field="--job-file")]
    if job is not None:
        return [job]
    return sorted(log.stores.commits.count_recoverable(jobs=None))


@commit.command()
@sequence_argument
@job_file_option
@spark_options
def resume(sequence_id: uuid.UUID, job_file: Path | None, master: str | None, remote: str | None) -> None:
    """Try a BLOCKED sequence again, now; its tries are counted anew."""
    layout = None if job_file is None else read_layout(job_file)
    with open_log() as log:
        (job,) = _find_jobs(log, log.stores.commits.get(SequenceId(sequence_id)).job, layout)
        with open_upkeep(log, SparkChoice(master, remote), job, layout) as upkeep:
            recovered = upkeep.resume(SequenceId(sequence_id))
    _print_published(recovered.published)


@commit.command()
@sequence_argument
@job_file_option
@click.option("--reason", required=True, help="Why; it stays in the log.")
@spark_options
def abandon(sequence_id: uuid.UUID, job_file: Path | None, reason: str, master: str | None, remote: str | None) -> None:
    """Give an open sequence up: what it made visible is taken back, and its rows are read again by the next run."""
    layout = None if job_file is None else read_layout(job_file)
    with open_log() as log:
        (job,) = _find_jobs(log, log.stores.commits.get(SequenceId(sequence_id)).job, layout)
        with open_upkeep(log, SparkChoice(master, remote), job, layout) as upkeep:
            upkeep.abandon(SequenceId(sequence_id), reason=reason)
        state = log.stores.commits.get(SequenceId(sequence_id)).state
    say(f"sequence {sequence_id} is {state.value}")


def _print_published(published: Sequence[Publication]) -> None:
    columns = ("sequence", "job", "dataset", "partition", "rows", "files")
    rows = [(p.sequence_id, p.job, p.urn, p.partition, p.row_count, p.file_count) for p in published]
    print_table("completed", columns, rows)


@click.command()
@job_file_or_name
@click.option("--dataset", "datasets", multiple=True, metavar="URN", help="One of the job's; may be repeated.")
@spark_options
@json_option
def cleanup(
    job_file: Path | None,
    job: str | None,
    datasets: Sequence[str],
    master: str | None,
    remote: str | None,
    as_json: bool,  # noqa: FBT001  an option that click passes by name
) -> None:
    """Remove what dead attempts left in staging and retired files whose grace is over; fold what is old.

    By --job alone: all datasets that the log has of the job, at the destination that the log has, and by the defaults
    (retire_grace_s: a day; log.history_days: 90; leases: a minute). Give the file of a job that says otherwise: the
    log does not have its rules.
    """
    known = read_known_job(job_file, job)
    spec = None if known.layout is None else known.layout.job
    bounds = LogSpec().bounds if spec is None else spec.log.bounds
    cleaned: dict[str, Cleaned] = {}
    with open_log() as log:
        destination = known.find_destination(log)
        require_bound_root(log.stores.destinations, open_file_system, known.name, destination)
        operations = open_operations(log, SparkChoice(master, remote), spec)
        states = log.stores.datasets.load(known.name, known.find_datasets(log, datasets))
        for urn, state in states.items():
            cleaned[urn] = operations.clean(
                state,
                root_uri=destination,
                retire_grace_s=RETIRE_GRACE_S if spec is None else spec.retire_grace_s,
                # Somebody asked: no need to wait until there is enough.
                fold=replace(bounds, count_min=0),
            )
    if as_json:
        print_json(cleaned)
        return
    rows = [
        (urn, each.attempt_count, each.removed_file_count, each.remaining, each.folded, each.forgotten)
        for urn, each in cleaned.items()
    ]
    columns = ("dataset", "attempts", "retired files removed", "attempts left", "publications folded", "forgotten")
    print_table("cleaned", columns, rows)
