"""A process that ends what a session of tests leaves running, however the session ends.

Servers of tests are made to outlive their starter: they have sessions and environments of their own, and some are
nobody's child. If the tests are interrupted or killed, no fixture ends them. So the process that the user started has a
reaper, which waits until that process is gone. It knows the session's processes by a mark that every process inherits
and none gives up: a number as the soft limit of a resource that Linux no longer limits.
"""

import os
import re
import resource
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOCKS: Final = 10
"""RLIMIT_LOCKS, without effect since Linux 2.4.25, and without a name in Python."""

_SOFT_LIMIT: Final = re.compile(r"^Max file locks +(\w+)", re.MULTILINE)
_MARKS: Final = 1 << 62

_ROUNDS: Final = ((None, 1.0), (signal.SIGTERM, 4.0), (signal.SIGKILL, 10.0))
"""Signals, and how long the processes have until the next one. Most end by themselves when their parent has."""

_POLL_S: Final = 0.05
_ROOT: Final = Path(__file__).parents[2]


def start_reaper() -> None:
    """Mark this process and all that it starts from now on, and start the reaper."""
    _, hard = resource.getrlimit(_LOCKS)
    mark = secrets.randbelow(_MARKS if hard == resource.RLIM_INFINITY else hard)
    resource.setrlimit(_LOCKS, (mark, hard))
    # In a session of its own: Ctrl-C at the terminal reaches the tests only. It holds no output open.
    subprocess.Popen(
        [sys.executable, "-m", __name__, str(mark), str(os.getpid())],
        cwd=_ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def find_marked(mark: int) -> set[int]:
    """The living processes of a session, without this one."""
    found = set()
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            with suppress(FileNotFoundError, ProcessLookupError):
                # A zombie has limits too, and no memory.
                if read_mark(int(path.name)) == mark and (path / "statm").read_text(encoding="ascii")[0] != "0":
                    found.add(int(path.name))
    return found


def read_mark(pid: int) -> int | None:
    """The mark of a process; ProcessLookupError or FileNotFoundError if there is none by this number."""
    found = _SOFT_LIMIT.search(Path(f"/proc/{pid}/limits").read_text(encoding="ascii"))
    return int(found[1]) if found and found[1].isdecimal() else None


def _watch(mark: int, starter: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(starter)
        if os.getppid() == starter:
            select.select([descriptor], [], [])
    _end_marked(mark)


def _end_marked(mark: int) -> None:
    """End them all: orderly if they do so within seconds, else by SIGKILL."""
    # By descriptors: another process may be given the number of one that has ended.
    left: dict[int, int] = {}
    for number, wait_s in _ROUNDS:
        until = time.monotonic() + wait_s
        told: set[int] = set()
        while time.monotonic() < until:
            left |= _open_new(mark, left)
            if not left:
                return
            for pid in left.keys() - told if number is not None else ():
                told.add(pid)
                _send(left[pid], number)
            time.sleep(_POLL_S)
            for pid in [pid for pid, descriptor in left.items() if select.select([descriptor], [], [], 0)[0]]:
                os.close(left.pop(pid))


def _open_new(mark: int, known: Mapping[int, int]) -> dict[int, int]:
    opened = {}
    for pid in find_marked(mark) - known.keys():
        with suppress(ProcessLookupError):
            opened[pid] = os.pidfd_open(pid)
    # One that is found once more is the process that was opened.
    for pid in opened.keys() - find_marked(mark):
        os.close(opened.pop(pid))
    return opened


def _send(descriptor: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, number)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), int(sys.argv[2]))
