"""Scaffolding by `dg` of a copy: a component's file that loads, and copies once its source is there."""

from typing import Final

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from gobblin_assets.dagster.scaffolding import find_folder, is_yaml_file, name_job, quote, write_component

_COPIES: Final = "copies"
"""Not where jobs of rows publish by default, nor another copy: each of them has a root of its own."""


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
    """Writes the component's file and tries to read it as a job."""

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
