"""Commands that end open sequences: commit recover, resume, abandon, and repair for copies."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from gobblin_assets.cli.connections import SparkChoice, open_operations, spark_options
from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import EXIT_FAILED, json_option, print_json, print_table, say
from gobblin_assets.cli.selections import KnownJob, name_of, read_known_job
from gobblin_assets.cli.views import find_job, job_option, sequence_argument
from gobblin_assets.commit.repair import Keep
from gobblin_assets.commit.sequence import Publication
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.log import Log, open_log
from gobblin_assets.run.maintenance_run import MaintenanceRun

_HELD_SHOWN_MAX: Final = 1_000

job_file_option = click.option(
    "--job-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The job's file: only its sequences, by its rules, and Dagster gets a report at once. Without it: under "
    "leases as long as those of the run that began the sequence.",
)


@click.command(epilog=example("commit recover --job shop"))
@job_option
@job_file_option
@spark_options
@json_option
def recover(job: str | None, job_file: Path | None, master: str | None, remote: str | None, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Complete the open sequences that are due and whose datasets nobody works on.

    Without --job-file, the job's next run or sensor reports them to Dagster.
    """
    known = None if job_file is None else read_known_job(job_file, None)
    spark = SparkChoice(master, remote)
    published: list[Publication] = []
    with open_log(say) as log:
        jobs = find_jobs(log, find_job(job), known)
        reports = []
        for each in jobs:
            maintenance = _open(log, spark, each)
            reports.append(maintenance.recover(seen=published.append))
        held = _list_held(log, [each.name for each in jobs] or [find_job(job)])
    aborted, busy = sum(report.aborted for report in reports), len(held)
    failures = [
        {"sequence": f.sequence.sequence_id, "dataset": f.sequence.urn, "error": f.error}
        for report in reports
        for f in report.failures
    ]
    if as_json:
        print_json({"published": published, "aborted": aborted, "busy": busy, "failures": failures})
    else:
        _print_published(published)
        for line in held:
            say(line)
        say(f"aborted: {aborted}, busy: {busy}, failed: {len(failures)}")
    if failures:
        click.get_current_context().exit(EXIT_FAILED)


def _list_held(log: Log, jobs: Sequence[JobName | None]) -> list[str]:
    """What is said of open sequences that others hold, or held when they died. ``jobs`` None: of all."""
    found = [each for job in jobs for each in log.stores.commits.list_open(job, limit=_HELD_SHOWN_MAX)]
    live = log.stores.leases.list_live([each.lane_id for each in found])
    return [
        f"sequence {each.sequence_id} of {each.label} is {each.state.value}, and held by "
        f"{log.stores.leases.get_status(each.lane_id).describe_holder()}; recover it after that"
        for each in found
        if each.lane_id in live and each.state is not SequenceState.BLOCKED
    ]


def find_jobs(log: Log, job: JobName | None, known: KnownJob | None) -> Sequence[KnownJob]:
    """The named job, else all jobs that have sequences to recover. ``known``: the job of a file."""
    if known is not None and known.spec is not None:
        name_of(known.spec, job, file_field="--job-file")
        return [known]
    names = [job] if job is not None else sorted(log.stores.commits.count_recoverable(jobs=None))
    return [KnownJob(name) for name in names]


@click.command(epilog=example("commit resume 01a224ca-1b31-7d99-8c3a-1d727f93b1c4"))
@sequence_argument
@job_file_option
@spark_options
def resume(sequence_id: uuid.UUID, job_file: Path | None, master: str | None, remote: str | None) -> None:
    """Try a BLOCKED sequence again now; its tries are counted from zero."""
    known = None if job_file is None else read_known_job(job_file, None)
    with open_log(say) as log:
        (job,) = find_jobs(log, log.stores.commits.get(SequenceId(sequence_id)).job, known)
        maintenance = _open(log, SparkChoice(master, remote), job)
        recovered = maintenance.resume(SequenceId(sequence_id))
    _print_published(recovered.published)


@click.command(epilog=example("commit abandon 01a224ca-1b31-7d99-8c3a-1d727f93b1c4 --reason 'the disk was replaced'"))
@sequence_argument
@job_file_option
@click.option("--reason", required=True, help="The reason; the log keeps it.")
@spark_options
def abandon(sequence_id: uuid.UUID, job_file: Path | None, reason: str, master: str | None, remote: str | None) -> None:
    """Abandon an open sequence: its visible files are taken back, and the next run does its work again."""
    known = None if job_file is None else read_known_job(job_file, None)
    with open_log(say) as log:
        (job,) = find_jobs(log, log.stores.commits.get(SequenceId(sequence_id)).job, known)
        maintenance = _open(log, SparkChoice(master, remote), job)
        maintenance.abandon(SequenceId(sequence_id), reason=reason)
        state = log.stores.commits.get(SequenceId(sequence_id)).state
    say(f"sequence {sequence_id} is {state.value}")


def _open(log: Log, spark: SparkChoice, job: KnownJob) -> MaintenanceRun:
    """A maintenance run of the job. What it finishes stays unannounced, for whoever reports to Dagster."""
    return MaintenanceRun(open_operations(log, spark, job.spec), log.stores, job.name)


def _print_published(published: Sequence[Publication]) -> None:
    columns = ("sequence", "job", "dataset", "partition", "rows", "files")
    rows = [(p.sequence_id, p.job, p.urn, p.partition, p.row_count, p.file_count) for p in published]
    print_table("completed", columns, rows)


@click.command(epilog=example("commit repair 01a224ca-1b31-7d99-8c3a-1d727f93b1c4 --job-file jobs/mirror.yaml"))
@sequence_argument
@job_file_option
@click.option(
    "--keep",
    type=click.Choice([each.value for each in Keep]),
    help="What each of these names keeps: the version before the publication, the new one, or what is there now. Where "
    "that version is lost, the name keeps what is there. Without it, nothing is changed.",
)
@click.option("--reason", help="The reason; the log keeps it.")
@spark_options
@json_option
def repair(
    sequence_id: uuid.UUID,
    job_file: Path | None,
    keep: str | None,
    reason: str | None,
    master: str | None,
    remote: str | None,
    as_json: bool,  # noqa: FBT001  an option that click passes by name
) -> None:
    """Show the names that an abandonment can't take back, or decide for all of them and end the sequence.

    For copies. What gives way is not removed: it is moved below `.gobblin`, where `.set-aside` is. The next run copies
    these names again, as the source has them then. Killed half-way, the same command goes on.
    """
    known = None if job_file is None else read_known_job(job_file, None)
    wanted = SequenceId(sequence_id)
    with open_log(say) as log:
        (job,) = find_jobs(log, log.stores.commits.get(wanted).job, known)
        maintenance = _open(log, SparkChoice(master, remote), job)
        names = maintenance.operations.list_unsettled(wanted)
        done = None if keep is None else maintenance.repair(wanted, Keep(keep), reason=reason or f"kept {keep}")
        state = log.stores.commits.get(wanted).state
    left = [] if done is None else sorted(done.unlogged)
    if as_json:
        print_json({"sequence": sequence_id, "state": state, "names": names, "copied_again": left})
        return
    if keep is None:
        print_table(
            "names that can't be taken back",
            ("name", "before", "new", "there now"),
            [(each.path, each.old, each.new, each.there) for each in names],
        )
        say(
            "decide for all of them: --keep old, new or there"
            if names
            else f"all can be taken back: gobblin-assets commit abandon {sequence_id}"
        )
        return
    say(f"sequence {sequence_id} is {state.value}; names that the next run copies again: {len(left):,}")
