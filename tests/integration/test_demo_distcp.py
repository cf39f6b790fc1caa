"""`make demo-distcp` in a clone of its own: its verdict, its exit code, and the processes that it leaves."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_assets.db import embedded

CLONE = Path(__file__).parents[2]
DEMO_S_MAX = 240


@pytest.fixture
def clone() -> Iterator[Path]:
    """Not below pytest's own folder: root runs Postgres as a user who can't pass through that folder."""
    folder = Path(tempfile.mkdtemp(prefix="gobblin-demo-"))
    folder.chmod(0o755)
    shutil.copytree(CLONE / "demo", folder / "demo", ignore=shutil.ignore_patterns("__pycache__"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.thorough
@pytest.mark.timeout(DEMO_S_MAX + 30)
def test_the_demo_completes_a_killed_copy_and_compares_both_trees(clone: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "demo.distcp.run_demo"],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(CLONE), "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=DEMO_S_MAX,
    )

    assert answer.returncode == 0, answer.stdout[-5_000:] + answer.stderr[-5_000:]
    assert "Both trees are equal" in answer.stdout
    assert embedded.status(clone / ".demo-distcp" / "home").server is None
    source, copy = (clone / ".demo-distcp" / name for name in ("source", "copy"))
    files = {path.relative_to(source): path.read_bytes() for path in source.rglob("*") if path.is_file()}
    assert len(files) > 50
    assert {path: (copy / path).read_bytes() for path in files} == files
