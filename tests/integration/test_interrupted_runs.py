"""Tests that are interrupted leave no process behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import postgres
from tests.support.lingering import FOLDER_VARIABLE
from tests.support.reaper import find_marked, read_mark

ROOT = Path(__file__).parents[2]
# Each process of both tests ends its servers and programs: beside four other workers this has taken a minute.
START_S_MAX = 200
END_S_MAX = 150

pytestmark = pytest.mark.timeout(400)


class Run:
    """Tests in two workers of pytest-xdist, each amid a test, with processes of every kind."""

    def __init__(self, process: "subprocess.Popen[bytes]", tests: list[dict[str, Any]]) -> None:
        self.process = process
        self.workers = [test["worker"] for test in tests]
        self.ids = [pid for test in tests for pid in test["ids"]]
        mark = read_mark(process.pid)
        assert mark is not None
        self.mark = mark

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def send_all(self, number: signal.Signals) -> None:
        """To its whole group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def is_over(self) -> bool:
        return self.process.poll() is not None and not find_marked(self.mark) and not self.list_living()

    def describe_left(self) -> str:
        ids = ",".join(map(str, {*find_marked(self.mark), *self.list_living()}))
        return subprocess.run(["ps", "-o", "pid,ppid,stat,args", "-p", ids], capture_output=True, text=True).stdout

    def list_living(self) -> list[int]:
        living = {process.pid for process in psutil.process_iter() if process.status() != psutil.STATUS_ZOMBIE}
        return [pid for pid in self.ids if pid in living]


@pytest.fixture
def folder() -> Iterator[Path]:
    made = postgres.make_reachable_directory("gobblin-interrupted-")
    yield made
    shutil.rmtree(made)


@contextmanager
def lingering(folder: Path, *options: str) -> Iterator[Run]:
    """The run, once both of its tests have started all that they start."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "load", "--max-worker-restart", "0", *options]
    with (folder / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [*command, "tests/support/lingering.py"],
            cwd=ROOT,
            env={**variables, FOLDER_VARIABLE: str(folder)},
            stdout=said,
            stderr=said,
            # Of which its workers are a part, and this process is not.
            process_group=0,
        )
    try:
        until = time.monotonic() + START_S_MAX
        while len(written := list(folder.glob("*.json"))) < 2:
            text = (folder / "said.txt").read_text(encoding="utf-8", errors="replace")
            assert process.poll() is None, text
            assert time.monotonic() < until, text
            time.sleep(0.05)
        yield Run(process, [json.loads(path.read_text(encoding="utf-8")) for path in written])
    finally:
        process.kill()
        process.wait()


def interrupt(run: Run) -> None:
    run.send(signal.SIGINT)


def interrupt_at_a_terminal(run: Run) -> None:
    run.send_all(signal.SIGINT)


def terminate(run: Run) -> None:
    run.send(signal.SIGTERM)


def kill(run: Run) -> None:
    run.send(signal.SIGKILL)


def kill_a_worker_and_interrupt(run: Run) -> None:
    os.kill(run.workers[0], signal.SIGKILL)
    run.send(signal.SIGINT)


ENDS = [interrupt_at_a_terminal, interrupt, terminate, kill, kill_a_worker_and_interrupt]


@pytest.mark.rotating
@pytest.mark.parametrize("end", ENDS)
def test_a_run_that_is_interrupted_leaves_no_process(folder: Path, end: Callable[[Run], None]) -> None:
    with lingering(folder) as run:
        assert run.list_living() == run.ids
        assert find_marked(run.mark) >= {*run.ids, *run.workers}
        end(run)
        until = time.monotonic() + END_S_MAX
        while not run.is_over():
            assert time.monotonic() < until, run.describe_left()
            time.sleep(0.1)
