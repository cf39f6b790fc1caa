"""What the tools hold: import directions, lint rules, layout, and types. Inside the tests, so that nobody forgets."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The whole of mypy without a cache takes most of a minute, and on a busy machine more than five.
TOOL_S_MAX = 1_000


@pytest.mark.timeout(TOOL_S_MAX + 30)
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["ruff", "check", "."], id="lint"),
        pytest.param(["ruff", "format", "--check", "."], id="layout"),
        pytest.param(["mypy"], id="types"),
        pytest.param(["lint-imports"], id="imports"),
    ],
)
def test_the_tree_passes(arguments: list[str]) -> None:
    tool = Path(sys.executable).with_name(arguments[0])
    answer = subprocess.run(
        [str(tool), *arguments[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TOOL_S_MAX,
        stdin=subprocess.DEVNULL,
    )
    assert answer.returncode == 0, f"{' '.join(arguments)} says:\n{answer.stdout}{answer.stderr}"
