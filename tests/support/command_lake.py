"""A lake with its job's file, and the environment in which commands find both."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gobblin_assets.cli import main
from tests.support.lake import Lake

_JOB = """
job: crash
source: {{connection: none}}
destination: {root}
defaults: {{extract: append_only, watermark: {{column: number}}}}
datasets:
  - {{urn: orders, table: public.orders}}
  - {{urn: "a/b c.Ü", table: public.second}}
"""


def make_lake(database_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch, more: str = "") -> Lake:
    """Thirteen rows in each of two datasets; ``more`` are further lines of ``job.yaml`` in the folder."""
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(folder / "home"))
    for name in ("GOBBLIN_SPARK_MASTER", "GOBBLIN_SPARK_REMOTE", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    made = Lake(database_url, str(folder))
    Path(made.root).mkdir()
    write_job(made, made.root, more)
    for urn in made.urns:
        made.add_rows(urn, 13)
    return made


def write_job(lake: Lake, root: str, more: str = "") -> None:
    Path(lake.directory, "job.yaml").write_text(_JOB.format(root=root) + more, encoding="utf-8")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def run_job(job: str) -> str:
    """What the command says of a run that succeeds. ``job``: its file."""
    found = invoke("run", job, "--no-dagster")
    assert found.exit_code == 0, found.output
    return found.output


def fail_job(job: str) -> str:
    """What the command says of a run that fails."""
    found = invoke("run", job, "--no-dagster")
    assert found.exit_code != 0, found.output
    return found.output


def ask(*arguments: str) -> Any:
    """The JSON output of a command that must succeed."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
