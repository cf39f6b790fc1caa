"""Commands on where jobs publish: destination."""

from pathlib import Path

import click

from gobblin_assets.cli.connections import SparkChoice, open_operations
from gobblin_assets.cli.lazy_commands import LazyGroup, example
from gobblin_assets.cli.output import json_option, print_json, print_table, say
from gobblin_assets.commit.destination import read_identity
from gobblin_assets.commit.relocation import Relocation
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.urn import parse_job_name
from gobblin_assets.run.log import open_log


@click.group(cls=LazyGroup)
def destination() -> None:
    """Where each job publishes, as the log remembers it."""


@destination.command("list", epilog=example("destination list"))
@json_option
def list_destinations(as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """List the jobs with their destinations, and whether each destination is there."""
    with open_log(say) as log:
        found = [(each, _look(each.root_uri, each.identity)) for each in log.stores.destinations.list_all()]
    if as_json:
        print_json(
            [
                {"job": each.job, "destination": each.root_uri, "identity": each.identity, "state": state}
                for each, state in found
            ]
        )
        return
    rows = [(each.job, each.root_uri, each.identity, state) for each, state in found]
    print_table("destinations", ("job", "destination", "identity", ""), rows)


def _look(uri: str, identity: str | None) -> str:
    try:
        found = read_identity(*open_file_system(uri))
    except GobblinError as error:
        return str(error)
    if identity is None:
        return "published by an earlier release"
    return "there" if found == identity else "not there: is it mounted?"


@destination.command("move", epilog=example("destination move shop /mnt/lake"))
@click.argument("job", metavar="JOB")
@click.argument("root", metavar="ROOT")
@click.option(
    "--files-are-lost",
    is_flag=True,
    help="Bind the job although its files are not at ROOT: a run with --mode refresh brings each partition back.",
)
@json_option
def move_destination(job: str, root: str, files_are_lost: bool, as_json: bool) -> None:  # noqa: FBT001  options that click passes by name
    """Bind JOB to ROOT, after you copied or moved its files there, hidden files included.

    The command checks that every published file is there with its length, and changes the log in one transaction. It
    copies and removes nothing. Afterwards, write ROOT into the job's file.
    """
    uri = str(Path(root).absolute()) if root.startswith(("./", "../")) else root
    with open_log(say) as log:
        relocation = Relocation(
            open_operations(log, SparkChoice(None, None)),
            log.stores.destinations,
            log.stores.datasets,
            log.stores.published,
        )
        moved = relocation.move(parse_job_name(job), uri, files_are_lost=files_are_lost)
    if as_json:
        print_json(moved)
        return
    what = "not looked for" if files_are_lost else f"found: {moved.file_count:,} files, {moved.file_bytes:,} bytes"
    say(f"{moved.job} is at {moved.new_uri} now ({what}). Write it into the job's file as its destination.")
    if moved.old_uri != moved.new_uri:
        say(f"You may delete the files that are still at {moved.old_uri}.")
