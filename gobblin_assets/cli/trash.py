"""Commands on the versions that copies replaced or removed: trash."""

from collections.abc import Sequence
from pathlib import Path

import click

from gobblin_assets.cli.lazy_commands import LazyGroup, example
from gobblin_assets.cli.output import json_option, print_json, print_table, say, to_plain
from gobblin_assets.cli.selections import KnownJob, datasets_option, job_file_or_name, read_known_job
from gobblin_assets.destinations.fixed_names.trash import Trash
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.log import Log, open_log


@click.group(cls=LazyGroup)
def trash() -> None:
    """Files that copies replaced or removed, as long as they are kept."""


@trash.command("list", epilog=example("trash list jobs/mirror.yaml"))
@job_file_or_name
@datasets_option
@json_option
def list_trash(job_file: Path | None, job: str | None, datasets: Sequence[str], as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """List what is kept, newest publications first."""
    known = read_known_job(job_file, job)
    with open_log(say) as log:
        urns = known.find_datasets(log, datasets)
        found = [each for urn in urns for each in _open(log, known).list_files(urn)]
        kept = {line.sequence_id: line for urn in urns for line in log.overview.list_kept(known.name, urn)}
    times = [kept[each.sequence_id] for each in found]
    if as_json:
        whole = [{**to_plain(each), **to_plain(line)} for each, line in zip(found, times, strict=True)]
        print_json(whole)
        return
    rows = [
        (
            *(each.urn, each.path, "removed" if each.was_removed else "replaced", each.version),
            *(each.identity.size_bytes, line.done_at, line.kept_until),
        )
        for each, line in zip(found, times, strict=True)
    ]
    print_table("kept files", ("dataset", "path", "was", "by version", "bytes", "at", "kept until"), rows)


@trash.command(
    "restore",
    epilog=example("trash restore jobs/mirror.yaml --dataset photos --path photos/2026/a.jpg --to /tmp/a.jpg"),
)
@job_file_or_name
@click.option("--dataset", "dataset", required=True, metavar="URN", help="The dataset of the file.")
@click.option("--path", required=True, help="The file's published name, as `trash list --json` shows it, or `plan`.")
@click.option("--version", type=int, help="The version by which it was replaced or removed; default: the newest kept.")
@click.option("--to", "target", required=True, type=click.Path(path_type=Path), help="The file to write; must be new.")
def restore_trash(
    job_file: Path | None, job: str | None, dataset: str, path: str, version: int | None, target: Path
) -> None:
    """Copy a kept version to another file. What is published stays as it is.

    The file has the mode and time of that version, and its owner where this user may give it.
    """
    known = read_known_job(job_file, job)
    with open_log(say) as log:
        (urn,) = known.find_datasets(log, [dataset])
        trashed = _open(log, known)
        found = trashed.restore(urn, path, target, directory=_directory_of(known, urn), version=version)
    say(
        f"{target} has the {found.identity.size_bytes:,} bytes that were at {found.path} before version {found.version}"
    )


def _directory_of(known: KnownJob, urn: DatasetUrn) -> str:
    """Of the dataset, below the destination. Without a job's file: the one that it has where nothing else is said."""
    dataset = None if known.datasets is None else known.datasets[urn]
    return (dataset.to or "") if isinstance(dataset, CopyDatasetSpec) else urn


def _open(log: Log, known: KnownJob) -> Trash:
    return Trash(log.stores.commits, log.stores.published, open_file_system, known.name)
