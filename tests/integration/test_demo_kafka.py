"""`make demo-kafka`, small, in a clone of its own: its verdict, its exit code, and the files it leaves."""

import re
import subprocess
from pathlib import Path

import pytest

from gobblin_assets.db import embedded
from gobblin_assets.spark import connect_server
from tests.support import demo_clone

clone = demo_clone.clone
DEMO_S_MAX = 240
VIEWS = 1_500


def run_demo(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return demo_clone.play(clone, "demo.kafka.run_demo", *arguments, wait_s_max=DEMO_S_MAX)


def list_processes_of(folder: Path) -> list[str]:
    """Command lines that name the folder."""
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if str(folder) in line]


@pytest.mark.thorough
@pytest.mark.timeout(DEMO_S_MAX + 30)
def test_the_demo_proves_every_committed_record_published_once_and_leaves_no_process(clone: Path) -> None:
    answer = run_demo(clone, "--views", str(VIEWS))

    assert answer.returncode == 0, answer.stdout[-5_000:] + answer.stderr[-5_000:]
    assert answer.stdout.count("exactly once") == 2 + 1
    assert "killed: exit code -9" in answer.stdout
    assert "gaps between them: none" in answer.stdout
    assert "Every committed record is published exactly once" in answer.stdout
    for fault in ("cut off in the middle", "an error page", "a clock 100 years ahead", "says no time"):
        assert re.search(rf"[1-9]\d* +{fault}", answer.stdout), fault
    home = clone / ".demo-kafka" / "home"
    assert connect_server.find(home) is None
    assert embedded.status(home).server is None
    assert list_processes_of(clone) == []


def test_too_few_views_for_the_proof_are_refused_before_anything_starts(clone: Path) -> None:
    answer = run_demo(clone, "--views", "10")

    assert answer.returncode == 2
    assert "expected at least" in answer.stderr
    assert not (clone / ".demo-kafka").exists()
