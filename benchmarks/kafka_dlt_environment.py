"""The virtual environment that dlt is measured in: made on the spot, and no part of the product's."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

REQUIREMENTS = ("dlt[filesystem,parquet]", f"confluent-kafka=={version('confluent-kafka')}")
SCRIPT = Path(__file__).with_name("kafka_dlt.py")
LAKE = "lake"
"""Where its script writes to, in the directory that it is given."""

INSTALL_S_MAX = 600.0

VARIABLES = {"RUNTIME__DLTHUB_TELEMETRY": "false"}
"""For its processes."""


def make(folder: Path) -> Path:
    """Its interpreter. RuntimeError, with what was said, when it can't be had."""
    python = folder / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{' '.join(command[1:4])} took more than {INSTALL_S_MAX:.0f} s") from None
        if done.returncode != 0:
            raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1])
    return python
