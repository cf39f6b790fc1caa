"""Commands of packs and of the job templates in them."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from gobblin_assets.cli.lazy_commands import LazyGroup, example
from gobblin_assets.cli.output import json_option, print_json, print_table, say
from gobblin_assets.cli.service_client import open_client, url_option
from gobblin_assets.errors import RejectedError

_SCHEME: Final = "FS:///"

_path: Final = click.argument("path", type=click.Path(path_type=Path))


@click.group(cls=LazyGroup)
def pack() -> None:
    """Packs of job templates."""


@pack.command("list", epilog=example("service pack list"))
@url_option
@json_option
def list_packs_of_service(url: str | None, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """List packs, each at its newest version."""
    found = open_client(url).get("/packs")
    if as_json:
        print_json(found)
        return
    _show_packs(found)


@pack.command("publish", epilog=example("service pack publish packs/sales"))
@_path
@url_option
@json_option
def publish(path: Path, url: str | None, as_json: bool) -> None:  # noqa: FBT001  the same
    """Publish the pack at PATH, a directory or a zip file. A version that was published never changes."""
    _require_schemas()
    from gobblin_assets.service.pack_files import read_pack_at, zip_pack  # noqa: PLC0415  the extra may be missing

    found = open_client(url).post_file("/packs", zip_pack(read_pack_at(path).files), "application/zip")
    if as_json:
        print_json(found)
        return
    say(f"published {found['pack']}@{found['version']}")
    _show_packs([found])


@pack.command("check", epilog=example("service pack check packs/sales"))
@_path
def check(path: Path) -> None:
    """Check the pack at PATH, a directory or a zip file, as a service does that publishes it. No service is asked."""
    _require_schemas()
    from gobblin_assets.service.pack_files import read_pack_at  # noqa: PLC0415  the same

    read = read_pack_at(path)
    for template in read.templates.values():
        say(f"{template.uri}: {template.description or template.capability}")
    say(f"{read.name}@{read.version} can be published.")


@click.group(cls=LazyGroup)
def template() -> None:
    """Job templates of a running service."""


@template.command("list", epilog=example("service template list"))
@url_option
@json_option
def list_templates_of_service(url: str | None, as_json: bool) -> None:  # noqa: FBT001  the same
    """List the templates of the newest versions of packs."""
    found = open_client(url).get("/templates")
    if as_json:
        print_json(found)
        return
    rows = [(each["uri"], each["capability"], each["shape"], each["description"]) for each in found]
    print_table("templates", ("template", "capability", "shape", "description"), rows)


@template.command("show", epilog=example("service template show FS:///jdbc-to-lake.template"))
@click.argument("uri")
@url_option
def show_template_of_service(uri: str, url: str | None) -> None:
    """Print a template as JSON: what it does, and the JSON Schema of its parameters."""
    print_json(open_client(url).get(f"/templates/{quote(uri.removeprefix(_SCHEME), safe='/@')}"))


def _require_schemas() -> None:
    if find_spec("jsonschema") is None:
        raise RejectedError(
            "jsonschema is not installed", field="service pack", hint="Run `pip install gobblin-assets[service]`."
        )


def _show_packs(found: list[Mapping[str, Any]]) -> None:
    rows = [
        (each["pack"], each["version"], len(each["templates"]), each["published_by"], each["published_at"])
        for each in found
    ]
    print_table("packs", ("pack", "version", "templates", "published by", "published at"), rows)
