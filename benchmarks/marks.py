"""Moments of a launched run that only its own process sees, by the monotonic clock, which all processes share.

The code location of the launched runs (``launched_location``) imports this before the product, so that its work
begins with this module.
"""

import json
import os
import time
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path

IMPORTED_AT = time.monotonic()

LOCATION = "benchmarks.launched_location"
JOB_VARIABLE = "GOBBLIN_BENCH_JOB"
MARKS_VARIABLE = "GOBBLIN_BENCH_MARKS"


class Mark(StrEnum):
    """The moments that are marked beside failpoints."""

    PROCESS_BEGUN = "process_begun"
    LOCATION_BEGUN = "location_begun"
    LOCATION_BUILT = "location_built"
    POSTGRES_ASKED = "postgres_asked"
    POSTGRES_OPENED = "postgres_opened"
    RUN_CALLED = "run_called"
    SESSION_ASKED = "session_asked"
    SESSION_OPENED = "session_opened"


class MarkFile:
    """The moments of this process, a line of JSON each, in a file of ``folder`` named by the process's number."""

    def __init__(self, folder: Path) -> None:
        self._file = _path(folder, os.getpid()).open("a", encoding="utf-8", buffering=1)

    def note(self, name: str, at: float | None = None) -> None:
        self._file.write(json.dumps([name, time.monotonic() if at is None else at]) + "\n")


def read_marks(folder: Path, pid: int, names: Collection[str]) -> dict[str, float]:
    """The moments ``names`` of a process. RuntimeError if one came twice, because its time is then ambiguous."""
    marks: dict[str, float] = {}
    for line in _path(folder, pid).read_text(encoding="utf-8").splitlines():
        name, at = json.loads(line)
        if name in marks:
            raise RuntimeError(f"the process {pid} was twice at {name}")
        if name in names:
            marks[name] = at
    return marks


def find_process_start() -> float:
    """When this process was started, to the kernel's tick of some 10 ms."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    # The kernel counts the start by a clock that goes on while the machine is suspended.
    return since_boot - (time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic())


def _path(folder: Path, pid: int) -> Path:
    return folder / f"{pid}.jsonl"
