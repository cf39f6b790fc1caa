"""Tests that start processes of every kind and never end: test_interrupted_runs.py interrupts them.

Each writes the ids of its processes into the folder that ``LINGERING_FOLDER`` names, then waits to be ended.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.server_process import run_guarded
from gobblin_assets.db import embedded
from gobblin_assets.db.embedded import EmbeddedServer
from tests.support.forks import FORKS

FOLDER_VARIABLE = "LINGERING_FOLDER"

_ORPHAN = '"$@" >/dev/null 2>&1 </dev/null & echo $!'
_DEAF = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"


def test_children_of_a_worker(server: EmbeddedServer) -> None:
    """Postgres as the session has it, and children that ignore signals, are stopped, or know nothing of the session."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    own = embedded.start(folder / "home", lambda _line: None)
    forked = FORKS.Process(target=time.sleep, args=(600,))
    forked.start()
    deaf = subprocess.Popen([sys.executable, "-c", _DEAF], start_new_session=True)
    stopped = subprocess.Popen(["sleep", "600"], start_new_session=True)
    stopped.send_signal(signal.SIGSTOP)
    bare = subprocess.Popen(["sleep", "600"], env={})
    ids = [_postmaster(each.data_directory) for each in (server, own)]
    _linger("children", [*ids, *(each.pid or 0 for each in (forked, deaf, stopped, bare))])


def test_processes_that_are_nobody_s_child() -> None:
    """As Spark's servers are, with children that inherit nothing."""
    with _guarded(Path(os.environ[FOLDER_VARIABLE], "guarded.log")) as guarded:
        command = ["/bin/sh", "-c", _ORPHAN, "sh", "/bin/sh", "-c", "env -i sleep 600; :"]
        started = subprocess.run(command, check=True, capture_output=True, text=True, start_new_session=True)
        _linger("orphans", [guarded, int(started.stdout)])


@contextmanager
def _guarded(log: Path) -> Iterator[int]:
    with run_guarded(["sleep", "600"], log, {}) as process:
        yield process.pid


def _postmaster(data: Path) -> int:
    return int((data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])


def _linger(name: str, ids: list[int]) -> None:
    draft = Path(os.environ[FOLDER_VARIABLE], f"{name}.draft")
    draft.write_text(json.dumps({"worker": os.getpid(), "ids": ids}), encoding="utf-8")
    draft.replace(draft.with_suffix(".json"))
    time.sleep(600)
