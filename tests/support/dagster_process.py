"""Dagster in a process of its own, with its daemon and its web server; and its instance, as this process sees it."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg
import psutil

WAIT_S_MAX = 280.0
POLL_S = 0.5


class DagsterProcess:
    """``command`` is followed by the address of the web server. What it says is in ``dev.log`` of the folder."""

    def __init__(
        self, folder: Path, command: Sequence[str], environment: dict[str, str], instance: dg.DagsterInstance
    ) -> None:
        self.folder = folder
        self.instance = instance
        self._command = command
        self._environment = environment
        self._log = (folder / "dev.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process = subprocess.Popen(
            [*self._command, "-h", "127.0.0.1", "-p", str(self.port)],
            env=self._environment,
            cwd=self.folder,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self.wait(self._answers, "the web server answers")

    def kill_all(self) -> None:
        """Kill all of it at once, as when a machine goes down: nothing is left to report the end of a run."""
        if self._process is None:
            return
        tree = psutil.Process(self._process.pid)
        # Stopped first, so that no parent starts or reports anything while its children are killed.
        processes = [tree, *tree.children(recursive=True)]
        for signal_number in (signal.SIGSTOP, signal.SIGKILL):
            for process in processes:
                process.send_signal(signal_number)
        psutil.wait_procs(processes, timeout=30)
        self._process.wait(30)
        self._process = None

    def find_processes(self, *words: str) -> list[psutil.Process]:
        """Those of its processes whose command has all these words."""
        assert self._process is not None
        tree = psutil.Process(self._process.pid).children(recursive=True)
        return [each for each in tree if set(words) <= set(_read_command(each))]

    def await_death(self) -> None:
        """Its first process ends by itself."""
        assert self._process is not None
        self._process.wait(WAIT_S_MAX)
        self._process = None

    def interrupt(self) -> None:
        """Stop it as Ctrl-C at a terminal does: each of its processes gets the signal."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGINT)
        self._process.wait(WAIT_S_MAX)
        self._process = None

    def terminate_dev(self) -> "subprocess.Popen[bytes]":
        """Ask its first process alone to end, and wait until the web server is gone. Gives that process."""
        process = self._process
        assert process is not None
        process.terminate()
        self.wait(lambda: not self._answers(), "the web server is gone")
        self._process = None
        return process

    def close(self) -> None:
        self.kill_all()
        self._log.close()

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql",
            data=json.dumps({"query": query, "variables": variables}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer["errors"]
        return dict(answer["data"])

    def launch_job(
        self, location: str, job: str, tags: dict[str, str], run_config: object = None, **selected: object
    ) -> str:
        """Launch through the run queue and the launcher, like the UI's button; returns the run's id."""
        answer = self.ask(
            """mutation ($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
                 __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }""",
            params={
                "selector": {
                    "repositoryLocationName": location,
                    "repositoryName": "__repository__",
                    "pipelineName": job,
                    **selected,
                },
                "runConfigData": run_config or {},
                "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
            },
        )
        return str(answer["launchPipelineExecution"]["run"]["runId"])

    def launch_assets(self, location: str, *keys: Sequence[str]) -> str:
        """As the page of an asset does; returns the run's id."""
        return self.launch_job(location, "__ASSET_JOB", {}, assetSelection=[{"path": list(key)} for key in keys])

    def reload(self, location: str) -> None:
        """As the UI's button does. Whether it is loaded again, is seen by what it has."""
        query = "mutation ($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) { __typename } }"
        with suppress(TimeoutError):
            self.ask(query, name=location)

    def has_asset(self, *key: str) -> bool:
        """Whether some code location has the asset."""
        query = "query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { __typename } }"
        return bool(self.ask(query, key={"path": list(key)})["assetNodeOrError"]["__typename"] == "AssetNode")

    def terminate(self, run_id: str) -> None:
        """As the UI's button does."""
        answer = self.ask("mutation ($id: String!) { terminateRun(runId: $id) { __typename } }", id=run_id)
        assert answer["terminateRun"]["__typename"] == "TerminateRunSuccess"

    def status_of(self, run_id: str) -> dg.DagsterRunStatus:
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return run.status

    def wait_for_status(self, run_id: str, status: dg.DagsterRunStatus) -> None:
        self.wait(lambda: self.status_of(run_id) is status, f"run {run_id} is {status}")

    def wait(self, is_so: Callable[[], object], what: str) -> None:
        """A bounded wait; only the awaited condition proves anything."""
        until = time.monotonic() + WAIT_S_MAX
        while not is_so():
            if time.monotonic() > until:
                raise AssertionError(f"never came true: {what}\n{self.say()[-6_000:]}")
            time.sleep(POLL_S)

    def say(self) -> str:
        return (self.folder / "dev.log").read_text(encoding="utf-8", errors="replace")

    def _answers(self) -> bool:
        try:
            return "version" in self.ask("{ version }")
        except OSError:
            return False


def _read_command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
