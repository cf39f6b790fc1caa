"""Scaffolding by `dg`: a component's file that loads.

A job of rows runs once its connection's variables are set, and a copy once its source is there.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
import dagster as dg
import yaml
from pydantic import BaseModel, ConfigDict, Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.environment import connection_class
from gobblin_assets.spec.job_files import read_any_job_file
from gobblin_assets.spec.source_kind import Scaffold, SourceKind
from gobblin_assets.spec.source_spec import DEFAULT_TYPE, SOURCES

_FILE: Final = "defs.yaml"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]+")
_LAKE: Final = "lake"

_COPIES: Final = "copies"
"""Not where jobs of rows publish by default, nor another copy: each of them has a root of its own."""


class JobScaffoldParams(BaseModel):
    """Options of `dg scaffold defs`. ``table``: datasets, as the source calls them."""

    model_config = ConfigDict(extra="forbid")

    job: str | None = Field(None, description="Name of the job; default: that of the component.")
    source: str = Field(DEFAULT_TYPE, description="The kind of source: jdbc for tables, kafka for topics, or another.")
    connection: str | None = Field(None, description="Name of the connection; default: that of the job.")
    destination: str | None = Field(None, description="Root directory of what is published; default: lake/.")
    table: list[str] = Field(default_factory=list, description="A table or topic; may be repeated.")


class JobScaffolder(dg.Scaffolder[JobScaffoldParams]):
    """The scaffolder of a job of rows: it writes the component's file, and tries to read it as a job."""

    @classmethod
    def get_scaffold_params(cls) -> type[JobScaffoldParams]:
        return JobScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[JobScaffoldParams]) -> None:
        """What gives no job ends the command: the error names the option, and nothing stays of the component."""
        write_component(request.target_path, write_defs(request), is_new=is_yaml_file(request))


def is_yaml_file(request: dg.ScaffoldRequest[Any]) -> bool:
    """Whether a component's file of its own is asked for."""
    return request.scaffold_format == "yaml" and not request.append


def write_component(folder: Path, text: str, *, is_new: bool) -> None:
    """Write the component's file. If no job can be read from it, nothing stays of it, nor of its folder.

    ``click.ClickException``: `dg` shows the text of such an error alone.
    """
    path = folder / _FILE
    try:
        if not is_new:
            raise RejectedError(
                "expected a component of its own in YAML, found another format",
                field="--format",
                hint=f"Leave it out: a {_FILE} is written.",
            )
        path.write_text(text, encoding="utf-8")
        read_any_job_file(path)
    except RejectedError as error:
        if is_new:
            path.unlink(missing_ok=True)
        with suppress(OSError):
            # `dg` made it, and refuses a component whose folder is there; somebody's files keep it.
            folder.rmdir()
        raise click.ClickException(str(error)) from error


def name_job(folder: Path, fallback: str) -> str:
    """A job's name from that of its component."""
    return _NOT_IN_NAMES.sub("_", folder.name).strip("_") or fallback


def write_defs(request: dg.ScaffoldRequest[JobScaffoldParams]) -> str:
    """The text of the file."""
    given = request.params
    job = given.job or name_job(request.target_path, "shop")
    connection = given.connection or job
    destination = given.destination or find_folder(request, _LAKE)
    kind, scaffold = _find_kind(given.source)
    connects = connection_class(kind)
    option = kind.noun if kind.dataset_options is None or kind.noun in kind.dataset_options.model_fields else "urn"
    datasets = "\n".join(f"    - {option}: {quote(name)}" for name in given.table or [scaffold.dataset])
    variable = f"GOBBLIN_{kind.name.upper()}_{connection.upper()}_{connects.ADDRESS.upper()}"
    beside = f"# and beside it {scaffold.beside}, as far as there are any.\n" if scaffold.beside else ""
    source = f"connection: {quote(connection)}"
    source = ", ".join(filter(None, (source, scaffold.source)))
    source = f"{{{source}}}" if kind.name == DEFAULT_TYPE else f"{{type: {kind.name}, {source}}}"
    return (
        f"type: {request.type_name}\n"
        "\n"
        f"# Needs {variable}={scaffold.address} in the environment (or in .env){',' if beside else '.'}\n"
        f"{beside}"
        "attributes:\n"
        f"  job: {quote(job)}\n"
        f"  source: {source}\n"
        f"  destination: {quote(destination)}    # Relative to this file, or absolute.\n"
        f"{scaffold.datasets.format(datasets=datasets)}"
    )


def _find_kind(name: str) -> tuple[SourceKind, Scaffold]:
    kind = SOURCES.get(name)
    if not isinstance(kind, SourceKind) or kind.scaffold is None:
        raise RejectedError("has no connections", field="--source", hint="Choose another kind of source.")
    return kind, kind.scaffold


def find_folder(request: dg.ScaffoldRequest[Any], name: str) -> str:
    """A folder ``name`` beside the project's sources, as the file sees it."""
    root = request.project_root or Path.cwd()
    found = Path(os.path.relpath(root / name, request.target_path)).as_posix()
    return found if found.startswith("../") else f"./{found}"


def quote(text: str) -> str:
    """As YAML has it on one line."""
    return yaml.safe_dump(text, default_flow_style=True, width=10_000, allow_unicode=True).partition("\n")[0]


class CopyScaffoldParams(BaseModel):
    """Options of `dg scaffold defs`."""

    model_config = ConfigDict(extra="forbid")

    source: str = Field(
        description="Root directory to copy from: absolute, or with ./ or ../ from the new defs.yaml on; or a URI."
    )
    job: str | None = Field(None, description="Name of the job; default: that of the component.")
    destination: str | None = Field(None, description="Root directory to copy to; default: copies/JOB/.")
    dataset: list[str] = Field(
        default_factory=list,
        description="A directory below the source; may be repeated. Default: all of it is one dataset.",
    )


class CopyScaffolder(dg.Scaffolder[CopyScaffoldParams]):
    """The scaffolder of a copy: it writes the component's file, and tries to read it as a job."""

    @classmethod
    def get_scaffold_params(cls) -> type[CopyScaffoldParams]:
        return CopyScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[CopyScaffoldParams]) -> None:
        """What gives no job ends the command: the error names the option, and nothing stays of the component."""
        write_component(request.target_path, _write_defs(request), is_new=is_yaml_file(request))


def _write_defs(request: dg.ScaffoldRequest[CopyScaffoldParams]) -> str:
    """The text of the file."""
    given = request.params
    job = given.job or name_job(request.target_path, "mirror")
    destination = given.destination or find_folder(request, f"{_COPIES}/{job}")
    datasets = [f"    - urn: {quote(name)}" for name in given.dataset]
    lines = [
        f"type: {request.type_name}",
        "",
        "attributes:",
        f"  job: {quote(job)}",
        "  kind: distcp",
        f"  source: {quote(given.source)}",
        f"  destination: {quote(destination)}    # Relative to this file, or absolute.",
        *(["  datasets:", *datasets] if datasets else []),
    ]
    return "".join(f"{line}\n" for line in lines)
