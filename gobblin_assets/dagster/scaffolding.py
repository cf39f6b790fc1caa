"""What `dg scaffold defs` writes: a component's file that loads, and runs once its connection's variables are set."""

import os
import re
from pathlib import Path
from typing import Final

import dagster as dg
import yaml
from pydantic import BaseModel, ConfigDict, Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.environment import connection_class
from gobblin_assets.spec.job_files import read_job_file
from gobblin_assets.spec.source_kind import SourceKind
from gobblin_assets.spec.source_spec import DEFAULT_TYPE, SOURCES

_FILE: Final = "defs.yaml"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]+")
_LAKE: Final = "lake"


class JobScaffoldParams(BaseModel):
    """Options of `dg scaffold defs`. ``table``: datasets, as the source calls them."""

    model_config = ConfigDict(extra="forbid")

    job: str | None = Field(None, description="Name of the job; default: that of the component.")
    source: str = Field(DEFAULT_TYPE, description="The kind of source: jdbc for tables, kafka for topics, or another.")
    connection: str | None = Field(None, description="Name of the connection; default: that of the job.")
    destination: str | None = Field(None, description="Root directory of what is published; default: lake/.")
    table: list[str] = Field(default_factory=list, description="A table or topic; may be repeated.")


class JobScaffolder(dg.Scaffolder[JobScaffoldParams]):
    """Writes the component's file and tries to read it as a job."""

    @classmethod
    def get_scaffold_params(cls) -> type[JobScaffoldParams]:
        return JobScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[JobScaffoldParams]) -> None:
        """RejectedError names the option that gives no job, and nothing stays of the file."""
        if request.scaffold_format != "yaml" or request.append:
            raise RejectedError(
                "expected a component of its own in YAML, found another format",
                field="--format",
                hint=f"Leave it out: a {_FILE} is written.",
            )
        path = request.target_path / _FILE
        path.write_text(write_defs(request), encoding="utf-8")
        try:
            read_job_file(path)
        except RejectedError:
            path.unlink()
            raise


def write_defs(request: dg.ScaffoldRequest[JobScaffoldParams]) -> str:
    """The text of the file."""
    given = request.params
    job = given.job or _NOT_IN_NAMES.sub("_", request.target_path.name).strip("_") or "shop"
    connection = given.connection or job
    kind = _find_kind(given.source)
    scaffold, connects = kind.scaffold, connection_class(kind)
    option = kind.noun if kind.dataset_options is None or kind.noun in kind.dataset_options.model_fields else "urn"
    datasets = "\n".join(f"    - {option}: {_quote(name)}" for name in given.table or [scaffold.dataset])
    variable = f"GOBBLIN_{kind.name.upper()}_{connection.upper()}_{connects.ADDRESS.upper()}"
    beside = f"# and beside it {scaffold.beside}, as far as there are any.\n" if scaffold.beside else ""
    source = f"connection: {_quote(connection)}"
    source = f"{{{source}}}" if kind.name == DEFAULT_TYPE else f"{{type: {kind.name}, {source}}}"
    return (
        f"type: {request.type_name}\n"
        "\n"
        f"# Needs {variable}={scaffold.address} in the environment (or in .env){',' if beside else '.'}\n"
        f"{beside}"
        "attributes:\n"
        f"  job: {_quote(job)}\n"
        f"  source: {source}\n"
        f"  destination: {_quote(given.destination or _find_lake(request))}    # Relative to this file, or absolute.\n"
        f"{scaffold.datasets.format(datasets=datasets)}"
    )


def _find_kind(name: str) -> SourceKind:
    kind = SOURCES.get(name)
    if not isinstance(kind, SourceKind):
        raise RejectedError("has no connections", field="--source", hint="Choose another kind of source.")
    return kind


def _find_lake(request: dg.ScaffoldRequest[JobScaffoldParams]) -> str:
    """A folder beside the project's sources, as the file sees it."""
    root = request.project_root or Path.cwd()
    found = Path(os.path.relpath(root / _LAKE, request.target_path)).as_posix()
    return found if found.startswith("../") else f"./{found}"


def _quote(text: str) -> str:
    """As YAML has it on one line."""
    return yaml.safe_dump(text, default_flow_style=True, width=10_000, allow_unicode=True).partition("\n")[0]
