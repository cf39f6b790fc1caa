"""The command line in processes of their own, forked from one that has imported Dagster, pandas and Spark's client.

A command is a process as a shell starts it: its environment, folder, output, exit code, and the signals that end it.
Only its imports are shared, since they take longer than most of a command's own work.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from gobblin_assets import cli, failpoints

_PRELOADED: Final = (
    # Modules that Dagster imports only when an instance is opened.
    *("dagster", "dagster._daemon", "dagster._grpc", "sqlite3", "structlog", "tqdm.std", "upath"),
    *("grpc", "pandas", "pyspark.sql.connect.session", "pyspark.sql.connect.functions.builtin"),
    *(f"gobblin_assets.cli.{name}" for name in ("jobs", "discovering", "sequences", "reporting", "views", "cleaning")),
)
_ROOT: Final = Path(__file__).parents[2]


class Commands:
    """Runs one command after the other."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT, text=True
        )

    def run(
        self, *arguments: str, environment: Mapping[str, str], folder: Path, timeout_s: int = 120
    ) -> "subprocess.CompletedProcess[str]":
        """``gobblin-assets`` with these arguments; killed after ``timeout_s``, as by SIGALRM."""
        return self._run({"arguments": arguments}, environment, folder, timeout_s)

    def run_code(
        self, code: str, *, environment: Mapping[str, str], timeout_s: int = 120
    ) -> "subprocess.CompletedProcess[str]":
        """A Python program."""
        return self._run({"code": code}, environment, _ROOT, timeout_s)

    def ask(self, code: str, *, environment: Mapping[str, str]) -> str:
        """The output of a Python program that must succeed."""
        done = self.run_code(code, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _run(
        self, task: dict[str, Any], environment: Mapping[str, str], folder: Path, timeout_s: int
    ) -> "subprocess.CompletedProcess[str]":
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with tempfile.TemporaryDirectory(prefix="gobblin-command-") as outputs:
            paths = [Path(outputs, name) for name in ("stdout", "stderr")]
            order = {
                **task,
                "environment": dict(environment),
                "folder": str(folder),
                "outputs": list(map(str, paths)),
                "timeout_s": timeout_s,
            }
            self._server.stdin.write(json.dumps(order) + "\n")
            self._server.stdin.flush()
            code = int(self._server.stdout.readline())
            said = [path.read_text(encoding="utf-8") for path in paths]
        return subprocess.CompletedProcess(task.get("arguments", ()), code, *said)

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    made = Commands()
    yield made
    made.close()


def _serve() -> None:
    for module in _PRELOADED:
        importlib.import_module(module)
    orders = sys.stdin
    while line := orders.readline():
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(order)
            return
        _pid, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(order: Mapping[str, Any]) -> None:
    """Turn this process into the command; it ends as the command ends."""
    for stream, path in zip((1, 2), order["outputs"], strict=True):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, stream)
        os.close(opened)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    # A script that runs the tests in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.alarm(order["timeout_s"])
    if armed := os.environ.get("GOBBLIN_FAILPOINT"):
        failpoints.arm(armed, os.environ.get("GOBBLIN_FAILPOINT_LOG"))
    if "code" in order:
        exec(order["code"], {"__name__": "__main__"})
    else:
        sys.argv = ["gobblin-assets", *order["arguments"]]
        cli.main(order["arguments"], prog_name="gobblin-assets")


if __name__ == "__main__":
    _serve()
