"""Commands of tokens."""

import datetime as dt
import json

import click

from gobblin_assets.cli.lazy_commands import LazyGroup, example
from gobblin_assets.cli.output import say
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.service.access import digest_token, make_token

_DAYS_MAX = 3650


@click.group(cls=LazyGroup)
def token() -> None:
    """Tokens by which users are known."""


@token.command("make", epilog=example("service token make --user alice --days 90"))
@click.option("--user", required=True, help="Whose token it is.")
@click.option("--days", type=click.IntRange(1, _DAYS_MAX), default=90, show_default=True, help="How long it is taken.")
def make(user: str, days: int) -> None:
    """Make a token: print it, and what to add to the file of rights, which keeps its digest alone."""
    made = make_token()
    expires = (SystemClock().now() + dt.timedelta(days=days)).date()
    say("Add this to `tokens` of the file of rights:")
    say(f"  - {{user: {json.dumps(user)}, sha256: {digest_token(made)}, expires: {expires}}}")
    click.echo(made)
