"""`make demo-cdc`, small, in a clone of its own: its verdict, its exit code, and the processes that it leaves."""

import re
import subprocess
from pathlib import Path

import pytest

from gobblin_assets.db import embedded
from tests.support import demo_clone

clone = demo_clone.clone
DEMO_S_MAX = 300


def run_module(clone: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return demo_clone.play(clone, module, *arguments, wait_s_max=DEMO_S_MAX)


def list_processes_of(folder: Path) -> list[str]:
    """Command lines that name the folder."""
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if str(folder) in line]


@pytest.mark.thorough
@pytest.mark.timeout(2 * DEMO_S_MAX)
def test_the_demo_proves_the_rebuilt_tables_equal_and_leaves_no_process(clone: Path) -> None:
    answer = run_module(clone, "demo.cdc.run_demo", "--rows", "5000", "--watch", "1")

    assert answer.returncode == 0, answer.stdout[-5_000:] + answer.stderr[-5_000:]
    assert re.search(r"worker [12] is killed: exit code -9", answer.stdout)
    assert "ALTER TABLE orders ADD COLUMN channel" in answer.stdout
    assert len(re.findall(r"│ (customers|orders|order_items|reviews) .* equal ", answer.stdout)) == 4
    assert re.search(r"rolled [1-9][\d,]* back", answer.stdout)
    assert re.search(r"[1-9][\d,]* updates left out a large value", answer.stdout)
    assert "all tables, row by row, as multisets: 0 missing, 0 extra" in answer.stdout
    for home in ("home", "source"):
        assert embedded.status(clone / ".demo-cdc" / home).server is None
    assert list_processes_of(clone) == []
    # The new column is in the log, of a clone whose servers are all stopped.
    assert "channel=" in run_module(clone, "demo.cdc.show_changes", "orders", "--count", "500").stdout


def test_too_few_rows_are_refused_before_anything_starts(clone: Path) -> None:
    answer = run_module(clone, "demo.cdc.run_demo", "--rows", "10")

    assert answer.returncode == 2
    assert "expected at least" in answer.stderr
    assert not (clone / ".demo-cdc").exists()
