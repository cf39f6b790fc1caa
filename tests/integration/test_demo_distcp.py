"""`make demo-distcp` in a clone of its own: its verdict, its exit code, and the processes that it leaves."""

from pathlib import Path

import pytest

from gobblin_assets.db import embedded
from tests.support import demo_clone

clone = demo_clone.clone
DEMO_S_MAX = 240


@pytest.mark.thorough
@pytest.mark.timeout(DEMO_S_MAX + 30)
def test_the_demo_completes_a_killed_copy_and_compares_both_trees(clone: Path) -> None:
    answer = demo_clone.play(clone, "demo.distcp.run_demo", wait_s_max=DEMO_S_MAX)

    assert answer.returncode == 0, answer.stdout[-5_000:] + answer.stderr[-5_000:]
    assert "Both trees are equal" in answer.stdout
    assert embedded.status(clone / ".demo-distcp" / "home").server is None
    source, copy = (clone / ".demo-distcp" / name for name in ("source", "copy"))
    files = {path.relative_to(source): path.read_bytes() for path in source.rglob("*") if path.is_file()}
    assert len(files) > 50
    assert {path: (copy / path).read_bytes() for path in files} == files
