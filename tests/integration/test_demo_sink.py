"""`make demo-sink`, small, in a clone of its own: its verdict, its exit code, and the processes that it leaves."""

import re
import subprocess
from pathlib import Path

import pytest

from gobblin_assets.db import embedded
from tests.support import demo_clone

clone = demo_clone.clone
DEMO_S_MAX = 300


def run_demo(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return demo_clone.play(clone, "demo.sink.run_demo", *arguments, wait_s_max=DEMO_S_MAX)


def list_processes_of(folder: Path) -> list[str]:
    """Command lines that name the folder."""
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if str(folder) in line]


@pytest.mark.thorough
@pytest.mark.timeout(DEMO_S_MAX + 30)
def test_the_demo_proves_every_committed_order_published_once_and_leaves_no_process(clone: Path) -> None:
    answer = run_demo(clone, "--orders", "1000", "--watch", "2")

    assert answer.returncode == 0, answer.stdout[-5_000:] + answer.stderr[-5_000:]
    assert "worker 4 is killed: exit code -9" in answer.stdout
    assert "the broker is killed" in answer.stdout
    for shares in ("1: 4, 2: 4", "1: 2, 2: 2, 3: 2, 4: 2", "1: 8", "1: 4"):
        assert re.search(rf"lanes of workers  {shares}$", answer.stdout, re.MULTILINE), shares
    assert re.search(r"[1-9][\d,]* of them aborted", answer.stdout)
    assert "0 missing, 0 extra" in answer.stdout
    assert "0 live workers" in answer.stderr
    assert "every committed order is published exactly once" in answer.stdout
    assert embedded.status(clone / ".demo-sink" / "home").server is None
    assert list_processes_of(clone) == []


def test_too_few_orders_are_refused_before_anything_starts(clone: Path) -> None:
    answer = run_demo(clone, "--orders", "10")

    assert answer.returncode == 2
    assert "expected at least" in answer.stderr
    assert not (clone / ".demo-sink").exists()
