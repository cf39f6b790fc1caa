"""The command for a log that is older than the storage: reconcile."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from gobblin_assets.cli.connections import SparkChoice, job_file_argument, open_operations, spark_options
from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import EXIT_FAILED, json_option, print_json, print_table, say
from gobblin_assets.cli.selections import datasets_option, find_named
from gobblin_assets.commit.examination import LogFinding, Remembered
from gobblin_assets.commit.reconciliation import Reconciled, Reconciliation, Way
from gobblin_assets.commit.relocation import require_bound_root
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.wording import count_of
from gobblin_assets.run.log import open_log
from gobblin_assets.run.maintenance_run import MaintenanceRun, examination_of
from gobblin_assets.spec.job_files import read_any_job_file
from gobblin_assets.spec.job_spec import JobSpec


@click.command(epilog=example("reconcile jobs/shop.yaml --adopt --yes"))
@job_file_argument
@datasets_option
@click.option("--adopt", "way", flag_value=Way.ADOPT.value, help="Take the lost publications back into the log.")
@click.option(
    "--set-aside", "way", flag_value=Way.SET_ASIDE.value, help="Move their files aside; their rows are read again."
)
@click.option("--yes", is_flag=True, help="Make the change. Without this option, nothing is changed.")
@spark_options
@json_option
def reconcile(
    job_file: Path,
    datasets: Sequence[str],
    way: str | None,
    yes: bool,  # noqa: FBT001  an option that click passes by name
    master: str | None,
    remote: str | None,
    as_json: bool,  # noqa: FBT001  the same
) -> None:
    """Reconcile a commit log that was restored from an older backup with the storage.

    Shows the publications that storage remembers and the log does not, and what can be done; changes nothing without
    --yes. The exit code is 1 while a dataset is left to be reconciled.
    """
    job = read_any_job_file(job_file)
    specs, name, destination = program_of(job).read_datasets(job), JobName(job.job), program_of(job).root_uri(job)
    fs, root = open_file_system(destination, umask=job.umask if isinstance(job, JobSpec) else None)
    done: Sequence[Reconciled] = ()
    failures: Mapping[DatasetUrn, GobblinError] = {}
    with open_log(say) as log:
        require_bound_root(log.stores.destinations, open_file_system, name, destination)
        examination = examination_of(log.stores, name, fs, root)
        found = [examination.look_at(urn, thoroughly=bool(datasets)) for urn in find_named(name, specs, datasets)]
        behind = [finding for finding in found if finding.is_behind]
        if behind and way is not None and yes:
            maintenance = MaintenanceRun(open_operations(log, SparkChoice(master, remote), job), log.stores, name)
            reconciliation = Reconciliation(maintenance.operations, examination, log.stores.lanes, destination)
            done, failures = maintenance.reconcile(reconciliation, behind, Way(way))
    if as_json:
        shown = {finding.urn: _finding_to_plain(finding) for finding in behind}
        errors = {urn: str(error) for urn, error in failures.items()}
        print_json({"behind": shown, "done": [_done_to_plain(each) for each in done], "errors": errors})
    else:
        _print_findings(behind)
        _print_outcome(behind, done, failures, None if way is None else Way(way), yes=yes)
    if len(done) < len(behind):
        click.get_current_context().exit(EXIT_FAILED)


def _print_findings(behind: Sequence[LogFinding]) -> None:
    columns = (
        "dataset",
        "version in the log",
        "on storage",
        "fence",
        "on storage",
        "lost",
        "adopting",
        "missing files",
    )
    rows = [
        (
            *(each.urn, each.version, max((f.version or 0 for f in each.forgotten), default=each.version), each.fence),
            *(each.storage_fence, len(each.forgotten), "possible" if each.refusal is None else each.refusal),
            each.missing_count or None,
        )
        for each in behind
    ]
    print_table("datasets whose log is older than their storage", columns, rows)
    sequences = [(finding.urn, *_sequence_cells(each)) for finding in behind for each in finding.forgotten]
    if sequences:
        names = ("dataset", "version", "sequence", "partition", "mode", "rows", "directories", "in the log")
        print_table("lost publications", names, sequences)


def _sequence_cells(each: Remembered) -> tuple[object, ...]:
    sealed = each.sealed
    return (
        *(each.version, each.sequence_id, sealed and sealed.order.partition, sealed and sealed.mode.value),
        *(sealed and sealed.order.row_count, len(each.directories), each.known and each.known.state.value),
    )


def _print_outcome(
    behind: Sequence[LogFinding],
    done: Sequence[Reconciled],
    failures: Mapping[DatasetUrn, GobblinError],
    way: Way | None,
    *,
    yes: bool,
) -> None:
    for each in done:
        what = f"moved {len(each.moved)} names below {each.aside}" if each.aside else f"adopted {len(each.adopted)}"
        say(f"{each.urn}: {what}; its fence is {each.fence}")
        for sequence_id in each.ended:
            say(
                f"{each.urn}: publication {sequence_id} was open in the log, and the lost history had ended it. It is "
                "given up; its files stay as they are, and the next run compares them with the source. Older versions "
                f"that it had put aside are below {each.aside}"
            )
    for urn, error in failures.items():
        say(f"error: {urn}: {error}")
    for finding in behind:
        if finding.missing_count and way is not Way.ADOPT:
            partitions = ", ".join(repr(each) for each in finding.missing_partitions if each)
            say(
                f"{finding.urn}: {finding.missing_count} files that the log calls published are not there, such as "
                f"{finding.missing[0]}: a lost refresh replaced them. Adopt; or set aside, and then run with "
                f"--mode refresh{f' for the partitions {partitions}' if partitions else ''}."
            )
        if not yes:
            say(f"{finding.urn}: {_advice(finding, way)}")
    if not behind:
        say("The log has all publications that storage remembers.")


def _advice(finding: LogFinding, way: Way | None) -> str:
    adopt = (
        f"--adopt would execute {count_of(len(finding.chain), 'publication', 'publications')} again, under the same "
        "ids, reading no source"
    )
    aside = (
        f"--set-aside would move {count_of(len(finding.forgotten), 'publication', 'publications')} aside, deleting "
        "nothing, so that the next run reads these rows again"
    )
    if not finding.forgotten:
        adopt = aside = "--adopt or --set-aside would raise the fence and change nothing else"
    possible = {Way.ADOPT: adopt if finding.refusal is None else f"--adopt is refused: {finding.refusal}"}
    possible[Way.SET_ASIDE] = aside
    shown = "; ".join(dict.fromkeys(possible.values())) if way is None else possible[way]
    return f"{shown}. Nothing was changed; add --yes to do it."


def _finding_to_plain(finding: LogFinding) -> dict[str, object]:
    return {
        "version": finding.version,
        "fence": finding.fence,
        "storage_fence": finding.storage_fence,
        "refusal": finding.refusal,
        "lost": [
            {
                "sequence": each.sequence_id,
                "version": each.version,
                "state": each.known and each.known.state,
                "rows": each.sealed and each.sealed.order.row_count,
                "directories": each.directories,
            }
            for each in finding.forgotten
        ],
        "missing": finding.missing,
        "missing_count": finding.missing_count,
        "missing_partitions": finding.missing_partitions,
    }


def _done_to_plain(done: Reconciled) -> dict[str, object]:
    return {
        "dataset": done.urn,
        "fence": done.fence,
        "adopted": [each.sequence_id for each in done.adopted],
        "moved": done.moved,
        "aside": done.aside,
        "ended": done.ended,
    }
