"""Trees of files that copies are measured with, and how one copy of them is timed."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.tables import Samples

MEMORY: Final = Path("/dev/shm")
KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
DIRECTORIES: Final = 100

_MEMORY_LEFT: Final = 3 * GIB

Copy = Callable[[Path, Path], None]
"""Copies a tree into a new directory."""


@dataclass(frozen=True, slots=True)
class Load:
    title: str
    file_count: int
    file_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.file_count * self.file_bytes

    def describe(self) -> str:
        size = self.file_bytes
        shown = f"{size / MIB:,.0f} MiB" if size >= MIB else f"{size / KIB:,.0f} KiB"
        return f"{self.file_count:,} {self.title} of {shown}"

    def describe_speed(self, spent_s: float) -> tuple[str, str]:
        """Files and bytes a second."""
        return f"{self.file_count / spent_s:,.0f}", f"{self.total_bytes / spent_s / 1e9:.2f}"


@contextmanager
def open_place(parent: Path) -> Iterator[Path]:
    """A folder for the block."""
    folder = Path(tempfile.mkdtemp(prefix="gobblin-copies-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def find_room(copies: int, wanted_bytes: int) -> int:
    """The size, in whole MiB, of a file on tmpfs of which the memory holds so many; ``wanted_bytes`` at most."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free_bytes = next(int(line.split()[1]) * KIB for line in lines if line.startswith("MemAvailable:"))
    room = max(MIB, (free_bytes - _MEMORY_LEFT) // copies)
    return min(wanted_bytes, room // MIB * MIB)


def make_tree(root: Path, load: Load) -> None:
    block = os.urandom(min(load.file_bytes, MIB))
    for number in range(load.file_count):
        path = root / f"d{number % DIRECTORIES:03}" / f"f{number:06}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            for _ in range(load.file_bytes // len(block)):
                out.write(block)


def time_copy(name: str, copy: Copy, source: Path, target: Path, samples: Samples, unsynced: Samples) -> None:
    """A sync of the target's file system follows each copy, and counts. ``unsynced``: without it."""
    begun = time.monotonic()
    copy(source, target)
    unsynced.add(name, time.monotonic() - begun)
    subprocess.run(["sync", "-f", str(target)], check=True)
    samples.add(name, time.monotonic() - begun)


def require_whole(target: Path, load: Load) -> None:
    """RuntimeError unless all files are there. Hidden names, which are no files of the tree, are left out."""
    sizes = []
    for folder, directories, names in os.walk(target):
        directories[:] = [each for each in directories if not each.startswith(".")]
        sizes += [Path(folder, each).stat().st_size for each in names if not each.startswith(".")]
    if len(sizes) != load.file_count or set(sizes) != {load.file_bytes}:
        raise RuntimeError(f"expected {load.file_count} files of {load.file_bytes} bytes, found {len(sizes)}")
