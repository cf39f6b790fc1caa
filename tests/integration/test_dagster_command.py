"""What `gobblin-assets dagster dev` refuses before Dagster starts: one line each, and no process goes on."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from gobblin_assets.cli import main


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
