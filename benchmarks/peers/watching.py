"""One command as a whole: its wall time, and the processor time and memory of all its processes."""

import os
import select
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOOK_S = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Spent:
    """``processor_s`` and ``peak_bytes`` (of resident memory) are of the command and of all that it starts."""

    wall_s: float
    processor_s: float
    peak_bytes: int


def watch(command: Sequence[str], environment: Mapping[str, str], *, timeout_s: float) -> Spent:
    """Run the command. RuntimeError, with its last output, if the command fails."""
    spent_s, peak = 0.0, 0
    begun = time.monotonic()
    with subprocess.Popen(
        command,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        output = _Reader(process)
        ended = os.pidfd_open(process.pid)
        try:
            # A short command would seem longer by the rest of a sleep.
            while not select.select([ended], [], [], _LOOK_S)[0]:
                if time.monotonic() - begun > timeout_s:
                    process.kill()
                    raise RuntimeError(f"{command[0]} took more than {timeout_s:.0f} s")
                spent = [spent_of(pid) for pid in find_descendants(process.pid)]
                spent_s = max(spent_s, sum(each[0] for each in spent))
                peak = max(peak, sum(each[1] for each in spent))
        finally:
            os.close(ended)
        wall_s = time.monotonic() - begun
        process.wait()
        said = output.text()
    if process.returncode != 0:
        # Without the command's words, which hold a password.
        raise RuntimeError(f"{Path(command[0]).name} ended with {process.returncode}: {said.strip()[-300:]}")
    return Spent(wall_s, spent_s, peak)


class _Reader(threading.Thread):
    """Keeps what a process says, so that its pipe is never full."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        super().__init__(daemon=True)
        self._process = process
        self._said: list[str] = []
        self.start()

    def run(self) -> None:
        if self._process.stdout is not None:
            self._said.extend(self._process.stdout)

    def text(self) -> str:
        self.join(timeout=5)
        return "".join(self._said)


def find_descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := _fields_of(int(entry.name))):
            parents[int(entry.name)] = int(fields[1])
    found = [root]
    for pid in found:
        found.extend(child for child, parent in parents.items() if parent == pid)
    return found


def spent_of(pid: int) -> tuple[float, int]:
    """Processor seconds of the process and of children it waited for, and its resident bytes; zeros if it is gone."""
    fields = _fields_of(pid)
    return (sum(map(int, fields[11:15])) / _TICKS, int(fields[21]) * _PAGE) if fields else (0.0, 0)


def _fields_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat that follow the program's name; none if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []
