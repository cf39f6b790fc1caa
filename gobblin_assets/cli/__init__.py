"""The command line: the same functions that Dagster's assets, sensors and jobs call.

Data goes to stdout (``--json`` where there is some), progress and errors to stderr. Exit codes: 0, it is done; 1, it
failed; 2, the input was refused and nothing was begun; 3, a dataset was left out because somebody else works on it;
130, it was interrupted.
"""

import os
from collections.abc import Sequence
from typing import Any, Final

import click

from gobblin_assets import __version__
from gobblin_assets.cli import (
    compacting,
    dagster_process,
    destinations,
    discovering,
    jobs,
    publications,
    reconciling,
    reporting,
    servers,
    streams,
    verifying,
    views,
)
from gobblin_assets.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_REFUSED
from gobblin_assets.cli.output import say
from gobblin_assets.db.libpq import forget_unasked_variables
from gobblin_assets.errors import GobblinError, RejectedError

__all__ = ["main"]


class _Commands(click.Group):
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


_COMMANDS: Final[Sequence[click.Command]] = (
    jobs.run,
    reporting.report,
    streams.stream,
    jobs.plan,
    discovering.discover,
    views.status,
    views.watermark,
    publications.commit,
    views.ledger,
    views.history,
    publications.cleanup,
    compacting.compact,
    verifying.verify,
    reconciling.reconcile,
    destinations.destination,
    servers.spark,
    servers.db,
    dagster_process.dagster,
)

main = _Commands(
    "gobblin-assets",
    commands=_COMMANDS,
    help="Exactly-once data ingestion: tables become files that are published through a commit log.",
    epilog="GOBBLIN_HOME (default .gobblin) holds the embedded Postgres; GOBBLIN_DATABASE_URL names another server.",
)
click.version_option(__version__, prog_name="gobblin-assets")(main)
