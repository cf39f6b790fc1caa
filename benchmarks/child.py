"""A figure measured in a process of its own. The process reads its order as JSON; its last line is the answer."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def run_child(module: str, order: Mapping[str, Any], *, timeout_s: float) -> list[dict[str, float]]:
    """Run the module and return its answer. RuntimeError with its last errors if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", module],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{module} failed: {done.stderr[-2000:]}")
    return [dict(found) for found in json.loads(done.stdout.splitlines()[-1])]
