"""A clone of the demos, so that their tests leave nothing in the tree."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

CLONE = Path(__file__).parents[2]


@pytest.fixture
def clone() -> Iterator[Path]:
    """Not below pytest's own folder: root runs Postgres as a user who can't pass through that folder."""
    folder = Path(tempfile.mkdtemp(prefix="gobblin-demo-"))
    folder.chmod(0o755)
    shutil.copytree(CLONE / "demo", folder / "demo", ignore=shutil.ignore_patterns("__pycache__"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def play(clone: Path, module: str, *arguments: str, wait_s_max: float) -> "subprocess.CompletedProcess[str]":
    """Run a demo's module in the clone, to its end."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(CLONE), "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=wait_s_max,
    )
