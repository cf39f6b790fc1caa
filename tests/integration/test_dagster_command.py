"""What `gobblin-assets dagster dev` refuses before Dagster starts, each in one line; and jobs that are not loaded."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from gobblin_assets.cli import main
from gobblin_assets.dagster.code_location import NOT_LOADED_SENSOR, load_named_jobs


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize("option", ["-p {}", "-p{}", "--port {}", "--port={}"])
def test_a_port_that_is_taken_is_one_line(option: str, taken_port: int) -> None:
    result = CliRunner().invoke(main, ["dagster", "dev", *option.format(taken_port).split()])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: --port: port {taken_port} of 127.0.0.1 is taken. ")


@pytest.mark.parametrize("port", ["http", "-1", "65536"])
def test_what_is_no_port_is_one_line(port: str) -> None:
    result = CliRunner().invoke(main, ["dagster", "dev", "--port", port])
    assert result.exit_code == 2
    assert "expected a number from 0" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--kafka main dev", "error: --executor: is for an executor"),
        ("--executor lake --kafka main asset list", "error: --kafka, --rest: `dagster asset` serves no wires"),
    ],
)
def test_wires_that_nobody_would_serve_are_one_line(words: str, said: str) -> None:
    result = CliRunner().invoke(main, ["dagster", *words.split()])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(said)


@pytest.mark.parametrize("location", ["-w workspace.yaml", "-m gobblin_assets.definitions"])
def test_a_job_file_that_is_not_there_is_one_line(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOBBLIN_JOBS", "jobs/shop.yaml")
    (tmp_path / "workspace.yaml").write_text("load_from: [python_module: gobblin_assets.definitions]", encoding="utf-8")
    result = CliRunner().invoke(main, ["dagster", "dev", *location.split()])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert str(tmp_path / "jobs" / "shop.yaml") in line


@pytest.mark.parametrize("project", [None, "[project]\nname = 'lake'\n"])
def test_without_options_our_own_code_location_is_meant(
    project: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GOBBLIN_JOBS", raising=False)
    if project is not None:
        (tmp_path / "pyproject.toml").write_text(project, encoding="utf-8")
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/bad.yaml").write_text("job: [", encoding="utf-8")
    result = CliRunner().invoke(main, ["dagster", "dev"])
    assert result.exit_code == 2
    assert str(tmp_path / "demo/bad.yaml") in result.stderr


COMMAND = (sys.executable, "-m", "gobblin_assets.cli")
JOB = """
job: {name}
source: {{connection: sales}}
destination: ./lake
datasets:
  - {{urn: public.orders}}
"""


def write_jobs(folder: Path) -> str:
    """Five files: two that load, two jobs of one name, and one with a misspelt option. The value of GOBBLIN_JOBS."""
    names = {"good": "good", "shop": "shop", "again": "shop", "crm": "crm"}
    for file, name in names.items():
        (folder / f"{file}.yaml").write_text(JOB.format(name=name), encoding="utf-8")
    (folder / "bad.yaml").write_text(JOB.format(name="bad").replace("connection", "conection"), encoding="utf-8")
    return os.pathsep.join(f"{file}.yaml" for file in (*names, "bad"))


def test_every_job_file_that_can_t_be_loaded_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOBBLIN_JOBS", write_jobs(tmp_path))
    result = CliRunner().invoke(main, ["dagster", "dev"])
    assert result.exit_code == 2
    misspelt, doubled = result.stderr.splitlines()
    said = "source.conection: is not an option. Did you mean 'connection'? Also source.connection: is missing. Add it."
    assert misspelt == f"error: job files: {tmp_path}/bad.yaml: {said}"
    assert doubled == (
        f"error: job files: two jobs are called 'shop': {tmp_path}/shop.yaml and {tmp_path}/again.yaml. A job's name "
        "is its place in the log, on storage and in Dagster: give each a name of its own."
    )


def test_a_job_that_can_t_be_loaded_is_said_and_the_others_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOBBLIN_JOBS", write_jobs(tmp_path))
    # Read well, and refused when its assets are made: its patterns chose no table yet.
    (tmp_path / "crm.yaml").write_text(
        "{job: crm, source: {connection: crm, include: [public.*]}, destination: ./lake}", encoding="utf-8"
    )
    found = load_named_jobs()
    dg.Definitions.validate_loadable(found)
    assets = {key.to_user_string() for key in found.resolve_asset_graph().materializable_asset_keys}
    assert assets == {"good/public.orders"}
    sensor = found.resolve_sensor_def(NOT_LOADED_SENSOR)
    skipped = sensor.evaluate_tick(dg.build_sensor_context()).skip_message
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 3
    for line, part in zip(said, ("bad.yaml", "again.yaml", "crm.yaml: source.include"), strict=True):
        assert part in line
        reason = line.removeprefix("Not loaded: ")
        assert reason in str(sensor.description)
        assert reason in str(skipped)


@pytest.mark.parametrize(
    ("named", "part"),
    [(None, "GOBBLIN_JOBS is not set, and {} has no demo/*.yaml"), ("", "GOBBLIN_JOBS names no file")],
)
def test_a_location_without_a_job_says_so(
    named: str | None, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GOBBLIN_JOBS", raising=False)
    if named is not None:
        monkeypatch.setenv("GOBBLIN_JOBS", named)
    found = load_named_jobs()
    line = f"There is no job: {part.format(tmp_path)}. Set it to the paths of job files"
    assert line in str(found.resolve_sensor_def(NOT_LOADED_SENSOR).description)
    assert line in caplog.text


def test_dagster_dev_without_a_job_says_so_and_starts(tmp_path: Path) -> None:
    """Dagster's own ``--help`` is where this one ends."""
    done = subprocess.run(
        [*COMMAND, "dagster", "--", "dev", "-m", "gobblin_assets.definitions", "--help"],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if name != "GOBBLIN_JOBS"},
            "GOBBLIN_HOME": str(tmp_path / "home"),
            "GOBBLIN_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"There is no job: GOBBLIN_JOBS is not set, and {tmp_path} has no demo/*.yaml. ")
