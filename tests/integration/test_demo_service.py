"""`make demo-service` and `make demo-cluster` in clones: their verdicts, exit codes, and that no server is left."""

from pathlib import Path

import pytest

from gobblin_assets.db import embedded
from tests.support import demo_clone

clone = demo_clone.clone
DEMO_S_MAX = 900


@pytest.mark.thorough
@pytest.mark.timeout(DEMO_S_MAX + 30)
def test_the_demo_proves_four_flows_behind_kills_of_all_executors(clone: Path) -> None:
    answer = demo_clone.play(clone, "demo.service.run_demo", wait_s_max=DEMO_S_MAX)

    assert answer.returncode == 0, answer.stdout[-5_000:] + answer.stderr[-5_000:]
    # Three executors, and the one that had killed its run.
    assert answer.stdout.count("killed: ") == 4
    assert answer.stdout.count(" equal ") == 7
    assert "DIFFERENT" not in answer.stdout
    for home in ("home", "source"):
        assert embedded.status(clone / ".demo-service" / home).server is None


@pytest.mark.thorough
@pytest.mark.timeout(DEMO_S_MAX + 30)
def test_the_demo_of_a_cluster_proves_the_same_flows_behind_a_kill_of_each_part(clone: Path) -> None:
    answer = demo_clone.play(clone, "demo.service.run_cluster", wait_s_max=DEMO_S_MAX)

    assert answer.returncode == 0, answer.stdout[-5_000:] + answer.stderr[-5_000:]
    # Two nodes, the executors of both logs, Dagster, and a broker.
    assert answer.stdout.count("killed: ") == 6
    assert answer.stdout.count(" equal ") == 7
    assert answer.stdout.count(" each once") == 2
    assert "DIFFERENT" not in answer.stdout
    for home in ("home", "source"):
        assert embedded.status(clone / ".demo-service" / home).server is None
