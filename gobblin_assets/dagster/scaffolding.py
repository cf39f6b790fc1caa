"""What `dg scaffold defs` writes: a component's file that loads, and runs once its connection's variables are set."""

import os
import re
from pathlib import Path
from typing import Final, Literal

import dagster as dg
import yaml
from pydantic import BaseModel, ConfigDict, Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.job_files import read_job_file

_FILE: Final = "defs.yaml"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]+")
_LAKE: Final = "lake"

_TABLES: Final = """\
  datasets:
    # A table that is published whole, again with each run. Write a list of those that you have.
{datasets}
    # What was added since the last run, month by month:
    # - table: public.orders
    #   extract: append_only
    #   watermark: {{column: updated_at, late_window: 600}}
    #   primary_key: [id]
    #   partitions: {{kind: monthly, start: 2026-01-01}}
"""

_TOPICS: Final = """\
  datasets:
    # A topic, read on from where the last run ended. Write a list of those that you have.
{datasets}
"""


class JobScaffoldParams(BaseModel):
    """Options of `dg scaffold defs`. ``table``: tables or topics, as the source calls them."""

    model_config = ConfigDict(extra="forbid")

    job: str | None = Field(None, description="Name of the job; default: that of the component.")
    source: Literal["jdbc", "kafka"] = Field("jdbc", description="Whether it reads tables or topics.")
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
    is_kafka = given.source == "kafka"
    kind, first = ("topic", "page_views") if is_kafka else ("table", "public.customers")
    datasets = "\n".join(f"    - {kind}: {_quote(name)}" for name in given.table or [first])
    address = "GOBBLIN_KAFKA_{}_BOOTSTRAP_SERVERS" if is_kafka else "GOBBLIN_JDBC_{}_URL"
    beside = "_REGISTRY_URL, _USERNAME, _PASSWORD" if is_kafka else "_USER, _PASSWORD"
    variable = address.format(connection.upper())
    example = "broker.example.com:9092" if is_kafka else "jdbc:postgresql://db.example.com:5432/sales"
    source = (
        f"{{type: kafka, connection: {_quote(connection)}}}" if is_kafka else f"{{connection: {_quote(connection)}}}"
    )
    return (
        f"type: {request.type_name}\n"
        "\n"
        f"# Needs {variable}={example} in the environment (or in .env),\n"
        f"# and beside it {beside}, as far as there are any.\n"
        "attributes:\n"
        f"  job: {_quote(job)}\n"
        f"  source: {source}\n"
        f"  destination: {_quote(given.destination or _find_lake(request))}    # Relative to this file, or absolute.\n"
        f"{(_TOPICS if is_kafka else _TABLES).format(datasets=datasets)}"
    )


def _find_lake(request: dg.ScaffoldRequest[JobScaffoldParams]) -> str:
    """A folder beside the project's sources, as the file sees it."""
    root = request.project_root or Path.cwd()
    found = Path(os.path.relpath(root / _LAKE, request.target_path)).as_posix()
    return found if found.startswith("../") else f"./{found}"


def _quote(text: str) -> str:
    """As YAML has it on one line."""
    return yaml.safe_dump(text, default_flow_style=True, width=10_000, allow_unicode=True).partition("\n")[0]
