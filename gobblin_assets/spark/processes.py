"""Checks whether a process on this machine, not our child, is still the same one, and ends it."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RetryableError

POLL_S: Final = 0.1
KILL_S_MAX: Final = 10.0
"""After SIGKILL, only a process in an uninterruptible read stays."""


def find_start_mark(pid: int) -> str | None:
    """A text that no later process with the same id has; None when there is no such process, or only its zombie."""
    try:
        # The name of the command, in brackets, may itself hold brackets and spaces.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return None
        answer = subprocess.run(  # noqa: S603  a number is the only argument from outside
            ["/bin/ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        return answer.stdout.strip() or None
    return None if fields[0] in {"Z", "X"} else f"{_boot_id()}:{fields[19]}"


def find_started_at_s(pid: int) -> float | None:
    """When the process began, in Unix time, to about a second; None when there is none, or only its zombie.

    Where the system has no /proc, 0.0 for any process: only its existence is known.
    """
    mark = find_start_mark(pid)
    if mark is None:
        return None
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return 0.0
    booted_at_s = next(float(line.split()[1]) for line in lines if line.startswith("btime "))
    return booted_at_s + int(mark.rpartition(":")[2]) / os.sysconf("SC_CLK_TCK")


def signal_and_wait(pid: int, start_mark: str, patience_s: float) -> bool:
    """Terminate it, and kill it after ``patience_s``; False when it was not running. RetryableError if it stays."""
    if not start_mark or find_start_mark(pid) != start_mark:
        return False
    for number, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, KILL_S_MAX)):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return True
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            if find_start_mark(pid) != start_mark:
                return True
            time.sleep(POLL_S)
    raise RetryableError(f"process {pid} does not end")


def _boot_id() -> str:
    """Start times count from the boot: after the next boot, another process may have the same id and time."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
