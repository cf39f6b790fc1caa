"""A real code server whose process with the code is killed: whoever watches has it loaded again."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._grpc.client import DagsterGrpcClient

from gobblin_assets.dagster.code_servers import SILENT_LOOKS_MAX, CodeServersWatch, list_code_servers
from gobblin_assets.dagster.flows_reloading import ServerAddress

WAIT_S_MAX = 120


@pytest.fixture
def server(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    (tmp_path / "empty_location.py").write_text("import dagster as dg\n\ndefs = dg.Definitions()\n", encoding="utf-8")
    command = ["-m", "dagster", "code-server", "start", "--socket", str(tmp_path / "socket"), "-m", "empty_location"]
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    with (tmp_path / "server.log").open("wb") as log:
        started = subprocess.Popen([sys.executable, *command], env=environment, stdout=log, stderr=log, cwd=tmp_path)
    yield started
    kill_all(started)


def kill_all(server: "subprocess.Popen[bytes]") -> None:
    if server.poll() is None:
        for process in [*psutil.Process(server.pid).children(recursive=True), server]:
            process.kill()
    server.wait()


def test_code_that_was_killed_is_loaded_again_and_a_server_that_starts_is_left_alone(
    server: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    address = ServerAddress("localhost", None, str(tmp_path / "socket"))
    said: list[str] = []
    watch = CodeServersWatch(list_code_servers, said.append)
    assert list(list_code_servers()) == [address]
    for _ in range(SILENT_LOOKS_MAX):
        watch.look()
    client = DagsterGrpcClient(socket=address.socket)
    first = await_answer(client, tmp_path)
    watch.look()
    assert said == []

    (code,) = [each for each in psutil.Process(server.pid).children() if "grpc" in each.cmdline()]
    code.kill()
    code.wait(WAIT_S_MAX)
    watch.look()
    assert said == [], "it may be in the middle of a reload"
    for _ in range(SILENT_LOOKS_MAX - 1):
        watch.look()
    assert len(said) == 1
    assert await_answer(client, tmp_path) != first
    watch.look()
    assert len(said) == 1
    kill_all(server)
    for _ in range(SILENT_LOOKS_MAX):
        watch.look()
    assert len(said) == 1


def await_answer(client: DagsterGrpcClient, folder: Path) -> str:
    """The id of the process that has the code."""
    until = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < until:
        with suppress(DagsterUserCodeUnreachableError):
            return client.get_server_id()
        time.sleep(0.1)
    raise AssertionError((folder / "server.log").read_text(encoding="utf-8"))
