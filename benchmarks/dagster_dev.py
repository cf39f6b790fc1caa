"""`dagster dev` with the instance that the product ships: web server, daemon and code server, over one module."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dagster as dg

from gobblin_assets.dagster.instance import HOME_VARIABLE as DAGSTER_HOME_VARIABLE
from gobblin_assets.dagster.instance import URL_VARIABLE, prepare_instance
from gobblin_assets.settings import DATABASE_URL_VARIABLE, HOME_VARIABLE, Settings

START_S_MAX = 180.0
STOP_S_MAX = 30.0
RUN_S_MAX = 300.0
_POLL_S = 0.2
_KILL_TRIES_MAX = 10
_LOG_SHOWN_MAX = 4_000
_GONE = frozenset("ZX")
_ROOT = Path(__file__).parents[1]

_LAUNCH = """mutation ($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
               __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""


class DagsterDev:
    """A running `dagster dev`. ``instance`` is its instance, opened in this process."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self._process = process
        self._port = port
        self._log = log

    def launch(self, module: str, job: str, tags: Mapping[str, str]) -> str:
        """Launch a run through the queue, as the UI's button does; returns the run's id."""
        params = {
            "selector": {
                "repositoryLocationName": module,
                "repositoryName": "__repository__",
                "pipelineName": job,
            },
            "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
        }
        answer = self._ask(_LAUNCH, params=params)["launchPipelineExecution"]
        if "run" not in answer:
            raise RuntimeError(f"the run was not taken: {answer}")
        return str(answer["run"]["runId"])

    def wait_for_run(self, run_id: str) -> None:
        """Wait until the run has succeeded. RuntimeError if it ends otherwise."""
        self._wait(lambda: self._is_finished(run_id), f"the end of run {run_id}", RUN_S_MAX)
        run = self.instance.get_run_by_id(run_id)
        if run is None or not run.is_success:
            raise self._explain(f"the launched run did not succeed: {run}")

    def wait_for_answer(self) -> None:
        self._wait(self._answers, "the web server", START_S_MAX)

    def _is_finished(self, run_id: str) -> bool:
        run = self.instance.get_run_by_id(run_id)
        return run is not None and run.is_finished

    def _answers(self) -> bool:
        try:
            return "version" in self._ask("{ version }")
        except OSError:
            return False

    def _wait(self, is_so: Callable[[], bool], what: str, s_max: float) -> None:
        until = time.monotonic() + s_max
        while not is_so():
            if self._process.poll() is not None:
                raise self._explain(f"dagster dev ended before {what}")
            if time.monotonic() > until:
                raise self._explain(f"waited for {what} for {s_max:.0f} s")
            time.sleep(_POLL_S)

    def _explain(self, message: str) -> RuntimeError:
        return RuntimeError(f"{message}\n{self._log.read_text(encoding='utf-8', errors='replace')[-_LOG_SHOWN_MAX:]}")

    def _ask(self, query: str, **variables: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/graphql",
            data=json.dumps({"query": query, "variables": variables}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        if "errors" in answer:
            raise self._explain(f"the web server refused: {answer['errors']}")
        return dict(answer["data"])


@contextmanager
def open_dagster(home: Path, module: str, variables: Mapping[str, str]) -> Iterator[DagsterDev]:
    """`dagster dev` over the definitions of ``module`` and the embedded server of ``home``.

    ``variables`` go to its environment. At the end it is stopped with every process that it started.
    """
    own = prepare_instance(Settings(home), lambda _line: None)
    # Killed code servers leave their sockets here; the sockets are removed with the home.
    temporary = home / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        **own,
        HOME_VARIABLE: str(home),
        **variables,
        "PYTHONPATH": str(_ROOT),
        "TMPDIR": str(temporary),
    }
    # Without the user's own log, the private home's server is used.
    environment.pop(DATABASE_URL_VARIABLE, None)
    port, log = _find_free_port(), home / "dagster-dev.log"
    with _opened_instance(own) as instance, log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "dagster", "dev", "-m", module, "-h", "127.0.0.1", "-p", str(port)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            dev = DagsterDev(process, port, log, instance)
            dev.wait_for_answer()
            yield dev
        finally:
            _stop(process)


@contextmanager
def _opened_instance(variables: Mapping[str, str]) -> Iterator[dg.DagsterInstance]:
    # The instance's configuration names the variable of the URL; its value comes from this process's environment.
    before = os.environ.get(URL_VARIABLE)
    os.environ[URL_VARIABLE] = variables[URL_VARIABLE]
    try:
        with dg.DagsterInstance.from_config(variables[DAGSTER_HOME_VARIABLE]) as instance:
            yield instance
    finally:
        if before is None:
            del os.environ[URL_VARIABLE]
        else:
            os.environ[URL_VARIABLE] = before


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Stop the process in good order if possible; then kill what is left of its session, also processes of runs."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S_MAX)
    for _try in range(_KILL_TRIES_MAX):
        left = _list_session(process.pid)
        if not left:
            break
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)
    process.wait(STOP_S_MAX)


def _list_session(leader: int) -> list[int]:
    """The processes of the session, also those whose parent has ended."""
    members = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The name may hold blanks and brackets: the other fields follow the last bracket.
            fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] not in _GONE:
                members.append(int(folder.name))
    return members


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
