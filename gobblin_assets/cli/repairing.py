"""The command that ends a copy whose names can't be taken back: commit repair."""

import uuid
from pathlib import Path

import click

from gobblin_assets.cli.connections import SparkChoice, spark_options
from gobblin_assets.cli.examples import example
from gobblin_assets.cli.known_jobs import read_known_job
from gobblin_assets.cli.maintenance import open_maintenance
from gobblin_assets.cli.output import json_option, print_json, print_table, say
from gobblin_assets.cli.recovering import find_jobs, job_file_option
from gobblin_assets.cli.views import sequence_argument
from gobblin_assets.commit.repair import Keep
from gobblin_assets.model.state import SequenceId
from gobblin_assets.run.log import open_log


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
        maintenance = open_maintenance(log, SparkChoice(master, remote), job)
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
