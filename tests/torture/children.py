"""Runner processes that several threads start and ask about, one thread at a time.

When multiprocessing starts a process, it asks about all children. If two threads ask about one child at the same time,
the second finds that the exit code was read already, and takes the process for one that ended with 255.
"""

import threading
import time

from tests.torture.runner_process import Process

_ONE_AT_A_TIME = threading.Lock()
_POLL_S = 0.05


def start(process: Process) -> Process:
    with _ONE_AT_A_TIME:
        process.start()
    return process


def exit_code(process: Process) -> int | None:
    """None while the process runs; negative after a signal."""
    with _ONE_AT_A_TIME:
        return process.exitcode


def join(process: Process, seconds: float) -> bool:
    """Whether the process ended within so many seconds."""
    until = time.monotonic() + seconds
    while exit_code(process) is None:
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_S)
    return True
