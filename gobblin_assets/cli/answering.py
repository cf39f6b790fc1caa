"""The process beside a Dagster that answers a service's questions to its executor, and has its wires.

A person waits for the answer some seconds, and a run of Dagster's would take longer to begin. A wire stores each ticket
with its place in the topic in one transaction of the log, which the cursor of a sensor is not in.
"""

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final

_REST_S: Final = 5.0


def answer_beside(executor: str, wires: Sequence[str], say: Callable[[str], None]) -> None:
    """From now on, such a process runs beside this one; one that dies is followed by another. It ends with this one.

    ``wires``: the options of `executor serve` for its wires.
    """
    command = [sys.executable, "-m", "gobblin_assets.cli", "executor", "serve", "--name", executor]
    command += ["--slots", "0", "--with-input", *wires]
    threading.Thread(target=_keep_answering, args=(executor, command, say), name="answering", daemon=True).start()


def _keep_answering(executor: str, command: Sequence[str], say: Callable[[str], None]) -> None:
    rest = threading.Event()
    while True:
        try:
            # The pipe ends with this process, however it ends.
            with subprocess.Popen(command, stdin=subprocess.PIPE) as process:  # noqa: S603  our own command
                code = process.wait()
            said = f"ended with {code}"
        except OSError as error:
            said = f"could not be started: {error}"
        say(f"the process that answers questions to {executor} {said}; the next one follows")
        rest.wait(_REST_S)
