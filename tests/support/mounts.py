"""Real mounts for the tests that need a full, a read-only or a second file system."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def tmpfs(point: Path, *, options: str = "") -> Iterator[Path]:
    """An empty file system of its own at ``point``. Skips the test where we may not mount."""
    point.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options or "mode=755", "tmpfs", str(point)]
    if os.geteuid() != 0 or (done := subprocess.run(command, capture_output=True, text=True)).returncode:
        pytest.skip("mounting a tmpfs needs root" if os.geteuid() else f"tmpfs: {done.stderr.strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)


@contextmanager
def bound(source: Path, point: Path) -> Iterator[Path]:
    """``source`` mounted at ``point`` for the block. Skips the test where we may not mount."""
    command = ["mount", "--bind", str(source), str(point)]
    if os.geteuid() != 0 or (done := subprocess.run(command, capture_output=True, text=True)).returncode:
        pytest.skip("mounting needs root" if os.geteuid() else f"bind mount: {done.stderr.strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)


def remount_read_only(point: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(point)], check=True)
