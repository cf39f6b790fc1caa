"""Commands on commit sequences: commit."""

import uuid
from typing import Final

import click

from gobblin_assets.cli.lazy_commands import LazyCommand, LazyGroup, example
from gobblin_assets.cli.output import json_option, print_json, print_table, say
from gobblin_assets.cli.views import (
    dataset_option,
    find_job,
    find_urn,
    job_option,
    require_known_job,
    sequence_argument,
)
from gobblin_assets.model.state import SequenceId
from gobblin_assets.run.log import open_log

_RECOVERING: Final = "gobblin_assets.cli.recovering"


@click.group(
    cls=LazyGroup,
    lazy={
        "recover": LazyCommand(
            _RECOVERING,
            "recover",
            "Complete the open sequences that are due and whose datasets nobody works on.",
        ),
        "resume": LazyCommand(
            _RECOVERING, "resume", "Try a BLOCKED sequence again now; its tries are counted from zero."
        ),
        "abandon": LazyCommand(
            _RECOVERING,
            "abandon",
            "Abandon an open sequence: its visible files are taken back, and the next run does its work again.",
        ),
        "repair": LazyCommand(
            _RECOVERING,
            "repair",
            "Show the names that an abandonment can't take back, or decide for all of them and end the sequence.",
        ),
    },
)
def commit() -> None:
    """Commit sequences: publications, each published whole or not at all."""


@commit.command("list", epilog=example("commit list --job shop --all"))
@job_option
@dataset_option
@click.option("--all", "with_ended", is_flag=True, help="Also list sequences that are DONE or ABORTED.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 10_000))
@json_option
def list_sequences(job: str | None, urn: str | None, with_ended: bool, limit: int, as_json: bool) -> None:  # noqa: FBT001  options that click passes by name
    """List open sequences, newest first."""
    with open_log(say) as log:
        lines = log.overview.list_sequences(find_job(job), find_urn(urn), with_ended=with_ended, limit=limit)
        require_known_job(log, job, lines)
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


@commit.command("show", epilog=example("commit show 01a224ca-1b31-7d99-8c3a-1d727f93b1c4"))
@sequence_argument
@json_option
def show_sequence(sequence_id: uuid.UUID, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Show a sequence with its attempts."""
    with open_log(say) as log:
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
