"""The command line: the same functions that Dagster's assets, sensors and jobs call.

Data goes to stdout (as JSON with ``--json``, where a command has it), progress and errors to stderr. Exit codes: 0,
the command succeeded; 1, it failed; 2, the input was refused and nothing was begun; 3, a dataset was left out because
another process works on it; 130, the command was interrupted.
"""

import atexit
import gc
import os
from collections.abc import Mapping
from typing import Any, Final

import click

from gobblin_assets import __version__
from gobblin_assets.cli.lazy_commands import LazyCommand, LazyGroup
from gobblin_assets.cli.output import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_REFUSED, say
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.settings import forget_unasked_variables

__all__ = ["main"]

_ARROW_POOL_VARIABLE: Final = "ARROW_DEFAULT_MEMORY_POOL"

# Python looks for garbage among all objects when it ends, for a third of a second; the process takes them along anyway.
atexit.register(gc.freeze)


class _Commands(LazyGroup):
    """Commands whose GobblinErrors become one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        forget_unasked_variables(os.environ)
        # Before anything imports Arrow, and for processes that are started from here. Arrow's own choice, mimalloc,
        # takes some 20 kB more for each publication of a worker, and gives nothing back.
        os.environ.setdefault(_ARROW_POOL_VARIABLE, "system")
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
        "Report to Dagster the runs that wait, and the latest publication of each partition that it does not show yet.",
    ),
    "stream": _in(
        "streams",
        "stream",
        "Follow the topics of the job in JOB_FILE, or repeat its copies, until SIGTERM or Ctrl-C.",
    ),
    "sink": _in("sinks", "sink", "Sinks: several workers publish the job's topics at once, each record exactly once."),
    "plan": _in("jobs", "plan", "Show what `run` would read or copy now."),
    "discover": _in(
        "discovering",
        "discover",
        "Ask the source once for its tables, and write the list that definitions and runs choose from.",
    ),
    "status": _in("views", "status", "Show all datasets: what is published, what is open, who works on them."),
    "watermark": _in("views", "watermark", "The positions up to which datasets are published."),
    "commit": _in("sequences", "commit", "Commit sequences: publications, each published whole or not at all."),
    "ledger": _in(
        "views",
        "ledger",
        "Show the intervals of each key that each sequence published, the gaps between them, and the files.",
    ),
    "history": _in("views", "history", "Show the last runs, or one run with its datasets and tasks."),
    "cleanup": _in(
        "cleaning",
        "cleanup",
        "Remove staging of dead attempts and retired files whose grace is over; fold old publications.",
    ),
    "compact": _in(
        "compacting",
        "compact",
        "Rewrite the small files of partitions as few large files, and publish these in their place.",
    ),
    "verify": _in(
        "verifying",
        "verify",
        "Compare the ledger with storage: missing, damaged or replaced files, and files that nobody published.",
    ),
    "reconcile": _in(
        "reconciling",
        "reconcile",
        "Reconcile a commit log that was restored from an older backup with the storage.",
    ),
    "destination": _in("destinations", "destination", "Where each job publishes, as the log remembers it."),
    "trash": _in("trash", "trash", "Files that copies replaced or removed, as long as they are kept."),
    "executor": _in(
        "executors",
        "executor",
        "Executors: processes that take a service's tickets of this log, and run their jobs.",
    ),
    "events": _in("events", "events", "Events of publications, which a job sends to its sinks."),
    "spark": _in(
        "warm_spark",
        "spark",
        "The warm Spark Connect server of GOBBLIN_HOME, which saves every run the start of a JVM.",
    ),
    "service": _in("services", "service", "The service: flows over REST and pages."),
    "db": _in("database", "db", "The database of the commit log."),
    "dagster": _in(
        "dagster_process",
        "dagster",
        "Run `dagster` on the instance of GOBBLIN_HOME, made if missing: gobblin-assets dagster dev -p 3000.",
    ),
}

main = _Commands(
    "gobblin-assets",
    lazy=_COMMANDS,
    help="Exactly-once data ingestion: tables and topics become files, and trees of files are copied; all of it is "
    "published through a commit log.",
    epilog="GOBBLIN_HOME (default .gobblin) holds the embedded Postgres; GOBBLIN_DATABASE_URL names another server.",
)
click.version_option(__version__, prog_name="gobblin-assets")(main)
