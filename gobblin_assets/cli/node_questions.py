"""Commands of nodes and executors, by the REST API of a running service; and questions, until they are answered."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import click

from gobblin_assets.cli.lazy_commands import LazyGroup, example
from gobblin_assets.cli.output import EXIT_FAILED, json_option, print_json, print_table, say
from gobblin_assets.cli.service_client import ServiceClient, open_client, url_option

_LOOK_EVERY_S: Final = 0.5
_WAITING: Final = "WAITING"
_ANSWERED: Final = "ANSWERED"


@click.group(cls=LazyGroup)
def node() -> None:
    """Nodes of a running service: places of data."""


@node.command("list", epilog=example("service node list"))
@url_option
@json_option
def list_nodes(url: str | None, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """List the nodes that you may use."""
    found = open_client(url).get("/nodes")
    if as_json:
        print_json(found)
        return
    rows = [(each["name"], each["kind"], each["connection"], each["root"], each["description"]) for each in found]
    print_table("nodes", ("node", "kind", "connection", "root", "description"), rows)


@click.group("executor", cls=LazyGroup)
def reached_executors() -> None:
    """Executors that a running service sends tickets to."""


@reached_executors.command("list", epilog=example("service executor list"))
@url_option
@json_option
def list_executors(url: str | None, as_json: bool) -> None:  # noqa: FBT001  the same
    """List the executors that you may use: how they are, what they can do, and which nodes they reach."""
    found = open_client(url).get("/executors")
    if as_json:
        print_json(found)
        return
    rows = [
        (
            *(each["name"], each["technology"], *_list_health(each["health"])),
            *(", ".join(each["usable"]), ", ".join(each["nodes"]), each["cost"]),
        )
        for each in found
    ]
    shown = ("state", "heard", "slots", "inbox", "release")
    print_table("executors", ("executor", "technology", *shown, "can do", "reaches", "cost"), rows)
    for each in found:
        for said in each["lacks"]:
            say(said)


def _list_health(health: Mapping[str, Any]) -> tuple[object, ...]:
    if health["heard_ago_s"] is None:
        return health["state"], None, None, None, None
    slots = f"{health['working']} of {health['slots']}"
    return health["state"], f"{health['heard_ago_s']:.0f} s ago", slots, health["inbox"], health["release"]


@node.command("suggest", epilog=example("service node suggest shop --table public.orders"))
@click.argument("name")
@click.option("--table", "tables", multiple=True, help="Of a database: the columns of this table; may be repeated.")
@click.option("--below", default="", help="Of files: the directories below this one.")
@url_option
@json_option
def suggest(name: str, tables: tuple[str, ...], below: str, url: str | None, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Show what flows from a node can begin with: its tables, topics or directories.

    An executor that reaches the node answers, which takes some seconds.
    """
    client = open_client(url)
    asked = client.post(f"/nodes/{quote(name, safe='')}:suggest", {"tables": tables, "below": below})
    probe = await_probe(client, asked, say)
    if as_json:
        print_json(probe)
    elif probe["state"] == _ANSWERED:
        _print_answer(probe["kind"], probe["answer"])
    else:
        say_failure(probe)
    if probe["state"] != _ANSWERED:
        click.get_current_context().exit(EXIT_FAILED)


def await_probe(client: ServiceClient, probe: Mapping[str, Any], tell: Callable[[str], None]) -> Mapping[str, Any]:
    """The question once it is answered or ended. What it waits for is told once."""
    told = ""
    while probe["state"] == _WAITING:
        if probe["hint"] and probe["message"] != told:
            told = probe["message"]
            tell(f"{told}. {probe['hint']}")
        time.sleep(_LOOK_EVERY_S)
        probe = client.get(f"/probes/{probe['id']}", wait_s=3)
    return probe


def say_failure(probe: Mapping[str, Any]) -> None:
    where = f"{probe['field']}: " if probe["field"] else ""
    say(f"{where}{probe['message']}. {probe['hint'] or ''}".strip())


def _print_answer(kind: str, answer: Mapping[str, Any]) -> None:
    if kind == "columns":
        for table in answer["tables"]:
            _print_columns(table)
    else:
        print_table(kind, (kind,), [(each,) for each in answer[kind]])
    for name, count in answer["cut"].items():
        say(f"{name}: only {len(answer[name]):,} of {count:,} are shown")


def _print_columns(table: Mapping[str, Any]) -> None:
    if table["error"]:
        say(f"{table['table']}: {table['error']}")
        return
    rows = [
        (each["name"], each["type"], each["nullable"], each["key_place"], each["orders_as"], each["comment"])
        for each in table["columns"]
    ]
    print_table(table["table"], ("column", "type", "may be NULL", "key", "orders as", "comment"), rows)
    if table["column_count"] > len(rows):
        say(f"only {len(rows):,} of {table['column_count']:,} columns are shown")
    say(f"watermark columns, the best first: {', '.join(table['watermark_columns']) or 'none'}")
    for column, first in table["first"].items():
        say(f"the first {column}: {first}")
