"""The command line: the same functions that Dagster's assets, sensors and jobs call.

Data goes to stdout (``--json`` where there is some), progress and errors to stderr. Exit codes: 0, it is done; 1, it
failed; 2, the input was refused and nothing was begun; 3, a dataset was left out because somebody else works on it;
130, it was interrupted.
"""

import os
from collections.abc import Mapping
from typing import Any, Final

import click

from gobblin_assets import __version__
from gobblin_assets.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_REFUSED
from gobblin_assets.cli.lazy_commands import LazyCommand, LazyGroup
from gobblin_assets.cli.output import say
from gobblin_assets.db.libpq import forget_unasked_variables
from gobblin_assets.errors import GobblinError, RejectedError

__all__ = ["main"]


class _Commands(LazyGroup):
    """Commands whose errors of ours become one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        forget_unasked_variables(os.environ)
        try:
            return super().invoke(ctx)
        except GobblinError as error:
            say(" ".join(f"error: {error}".split()))
            ctx.exit(EXIT_REFUSED if isinstance(error, RejectedError) else EXIT_FAILED)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)


def _in(module: str, attribute: str, short_help: str) -> LazyCommand:
    return LazyCommand(f"gobblin_assets.cli.{module}", attribute, short_help)


_COMMANDS: Final[Mapping[str, LazyCommand]] = {
    "run": _in(
        "jobs", "run", "Materialize datasets of the job in JOB_FILE, after completing what earlier runs left open."
    ),
    "report": _in(
        "reporting",
        "report",
        "Tell Dagster what is published: the latest publication of each partition that Dagster does not show as such.",
    ),
    "stream": _in(
        "streams",
        "stream",
        "Follow the topics of the job in JOB_FILE: publish what comes every few seconds, until SIGTERM or Ctrl-C.",
    ),
    "plan": _in("jobs", "plan", "Show the WorkUnits that `run` would read now."),
    "discover": _in(
        "discovering",
        "discover",
        "Ask the source once for its tables, and write down those that definitions and runs choose from.",
    ),
    "status": _in("views", "status", "Show all datasets: what is published, what is open, who works on them."),
    "watermark": _in("views", "watermark", "Positions."),
    "commit": _in("sequences", "commit", "Commit sequences: publications, each all or nothing."),
    "ledger": _in(
        "views",
        "ledger",
        "Show which interval of which key each sequence published, the gaps between them, and the files.",
    ),
    "history": _in("views", "history", "Show the last runs, or one run with its datasets and tasks."),
    "cleanup": _in(
        "cleaning",
        "cleanup",
        "Remove what dead attempts left in staging and retired files whose grace is over; fold what is old.",
    ),
    "compact": _in(
        "compacting",
        "compact",
        "Write the small files of partitions anew as few large ones, and publish these in their place.",
    ),
    "verify": _in(
        "verifying",
        "verify",
        "Compare the ledger with storage: files that are missing, damaged or replaced, and files nobody published.",
    ),
    "reconcile": _in(
        "reconciling",
        "reconcile",
        "Bring a commit log that was restored from an older backup together with the storage again.",
    ),
    "destination": _in("destinations", "destination", "Where each job publishes, as the log remembers it."),
    "spark": _in(
        "warm_spark",
        "spark",
        "The warm Spark Connect server of GOBBLIN_HOME, which spares every run the start of a JVM.",
    ),
    "db": _in("database", "db", "The database of the commit log."),
    "dagster": _in(
        "dagster_process",
        "dagster",
        "Run `dagster` on the instance of GOBBLIN_HOME, made if need be: gobblin-assets dagster dev -p 3000.",
    ),
}

main = _Commands(
    "gobblin-assets",
    lazy=_COMMANDS,
    help="Exactly-once data ingestion: tables become files that are published through a commit log.",
    epilog="GOBBLIN_HOME (default .gobblin) holds the embedded Postgres; GOBBLIN_DATABASE_URL names another server.",
)
click.version_option(__version__, prog_name="gobblin-assets")(main)
