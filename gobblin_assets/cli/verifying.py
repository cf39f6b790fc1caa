"""The command that compares the ledger with storage: verify."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import EXIT_FAILED, json_option, print_json, print_table, say
from gobblin_assets.cli.selections import KnownJob, datasets_option, job_file_or_name, read_known_job
from gobblin_assets.commit.published.verification import (
    FAULTS_NAMED_MAX,
    Damage,
    Fault,
    Verification,
    VerificationProgress,
    Verified,
)
from gobblin_assets.destinations.lane_marks import MarkPlace
from gobblin_assets.destinations.loaded_destination import find_load_faults
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.rows_places import rows_place_of
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.log import Log, open_log
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec


@click.command(epilog=example("verify jobs/shop.yaml --checksums"))
@job_file_or_name
@datasets_option
@click.option("--checksums", is_flag=True, help="Also read every file completely, and check the checksums in it.")
@json_option
def verify(
    job_file: Path | None,
    job: str | None,
    datasets: Sequence[str],
    checksums: bool,  # noqa: FBT001  an option that click passes by name
    as_json: bool,  # noqa: FBT001  the same
) -> None:
    """Compare the ledger with storage: missing, damaged or replaced files, and files that nobody published.

    Of tables that a sink loads: whether their marks have all rows; with --checksums, whether the tables
    have as many. Of copies: whether each name holds what was published last; files of others may stand there, and are
    not reported.

    Changes nothing. The exit code is 1 if there is a fault. With --job alone, the log gives the job's datasets and
    destination.
    """
    known = read_known_job(job_file, job)
    verified: list[Verified] = []
    with open_log(say) as log:
        verification = Verification(
            store=log.stores.commits,
            published=log.stores.published,
            open_file_system=open_file_system,
            destination=known.find_destination(log),
            job=known.name,
            progress=VerificationProgress(SystemClock(), say),
        )
        states = log.stores.datasets.load(known.name, known.find_datasets(log, datasets))
        for urn, state in sorted(states.items()):
            found = verification.verify(urn, state.dataset_id, checksums=checksums)
            for fault in _find_load_faults(known, urn, log, counts_rows=checksums):
                found.add(fault)
            verified.append(found)
    if as_json:
        print_json(verified)
    else:
        _print(verified, checksums=checksums)
    if any(each.faults for each in verified):
        click.get_current_context().exit(EXIT_FAILED)


def _find_load_faults(known: KnownJob, urn: DatasetUrn, log: Log, *, counts_rows: bool) -> Iterator[Fault]:
    """Where the job's file says that rows go into tables."""
    datasets = {name: each for name, each in (known.datasets or {}).items() if isinstance(each, DatasetSpec)}
    if not isinstance(known.spec, JobSpec) or (place := rows_place_of(known.spec, datasets)) is None:
        return
    binding = log.stores.destinations.find(known.name)
    published = log.stores.published.find_rows_elsewhere(known.name, urn)
    if binding is not None and urn in datasets:
        mark = MarkPlace(place.marks, binding.identity or "", known.name, urn, 0)
        yield from find_load_faults(log.stores.commits, place, mark, urn, published, counts_rows=counts_rows)


def _print(verified: Sequence[Verified], *, checksums: bool) -> None:
    columns = ("dataset", "files", "MiB", "MiB read", *(damage.value for damage in Damage))
    rows = [
        (
            *(each.urn, each.file_count, each.file_bytes / (1 << 20), each.read_bytes / (1 << 20)),
            *(each.counts.get(damage) for damage in Damage),
        )
        for each in verified
    ]
    print_table("verified" if checksums else "verified, without reading the files", columns, rows)
    faults = [
        (each.urn, fault.partition, fault.damage.value, fault.path, fault.detail)
        for each in verified
        for fault in each.faults
    ]
    if faults:
        print_table("faults", ("dataset", "partition", "fault", "file", ""), faults)
    for each in verified:
        if sum(each.counts.values()) > len(each.faults):
            say(f"{each.urn}: only the first {FAULTS_NAMED_MAX:,} of {sum(each.counts.values()):,} faults are named")
