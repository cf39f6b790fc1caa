"""Commands of the logs of executors, by the REST API of a running service."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import click

from gobblin_assets.cli.lazy_commands import LazyGroup, example
from gobblin_assets.cli.output import json_option, print_json, print_table, say
from gobblin_assets.cli.service_client import open_client, url_option

_LOOK_EVERY_S: Final = 0.5


@click.group(cls=LazyGroup)
def log() -> None:
    """Logs of executors, and their drains for upgrades."""


@log.command("list", epilog=example("service log list"))
@url_option
@json_option
def list_logs(url: str | None, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """List the logs of the executors that you may use: whether they drain, and how long the last drain took."""
    found = open_client(url).get("/logs")
    if as_json:
        print_json(found)
        return
    _print_logs(found)


@log.command("drain", epilog=example("service log drain own-log --wait"))
@click.argument("name")
@click.option("--wait", is_flag=True, help="Return once nobody works there.")
@url_option
@json_option
def drain(name: str, wait: bool, url: str | None, as_json: bool) -> None:  # noqa: FBT001  the same
    """Let nobody claim tickets of a log, and end what runs there, so that the log can be upgraded.

    Workers publish what they have read, and end. `own-log` is the log in the service's own database.
    """
    client, begun_s = open_client(url), time.monotonic()
    found = client.post(f"/logs/{quote(name, safe='')}:drain")
    while wait and found["state"] != "WORKING" and found["working"] != 0:
        time.sleep(_LOOK_EVERY_S)
        found = next(each for each in client.get("/logs") if each["name"] == name)
    if as_json:
        print_json(found)
        return
    _print_logs([found])
    if wait:
        say(f"nobody works on the log {name}, {time.monotonic() - begun_s:.1f} s after it was asked to drain")


@log.command("resume", epilog=example("service log resume own-log"))
@click.argument("name")
@url_option
@json_option
def resume(name: str, url: str | None, as_json: bool) -> None:  # noqa: FBT001  the same
    """Let the executors of a log claim tickets again."""
    found = open_client(url).post(f"/logs/{quote(name, safe='')}:resume")
    if as_json:
        print_json(found)
        return
    _print_logs([found])


def _print_logs(found: Iterable[Mapping[str, Any]]) -> None:
    rows = [
        (each["name"], ", ".join(each["executors"]), each["state"], each["working"], each["last_pause_s"])
        for each in found
    ]
    print_table("logs", ("log", "executors", "state", "attempts", "last pause (s)"), rows)
