"""`make demo-into` in a clone of its own: its verdict, its exit code, and that no server is left."""

from pathlib import Path

import pytest

from gobblin_assets.db import embedded
from tests.support import demo_clone

clone = demo_clone.clone
DEMO_S_MAX = 300


@pytest.mark.thorough
@pytest.mark.timeout(DEMO_S_MAX + 30)
def test_the_demo_proves_every_row_loaded_once_behind_kills(clone: Path) -> None:
    answer = demo_clone.play(clone, "demo.into.run_demo", wait_s_max=DEMO_S_MAX)

    assert answer.returncode == 0, answer.stdout[-5_000:] + answer.stderr[-5_000:]
    assert answer.stdout.count("killed: exit code -9") == 3
    assert answer.stdout.count("equal") == 4
    assert "DIFFERENT" not in answer.stdout
    assert embedded.status(clone / ".demo-into" / "home").server is None
