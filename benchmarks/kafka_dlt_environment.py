"""The virtual environment that dlt is measured in: made on the spot, and no part of the product's."""

from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.environments import make_environment

REQUIREMENTS = ("dlt[filesystem,parquet]", f"confluent-kafka=={version('confluent-kafka')}")
SCRIPT = Path(__file__).with_name("kafka_dlt.py")
LAKE = "lake"
"""Where its script writes to, in the directory that it is given."""

VARIABLES = {"RUNTIME__DLTHUB_TELEMETRY": "false"}
"""For its processes."""


def make(folder: Path) -> Path:
    """Its interpreter. RuntimeError, with what was said, when it can't be had."""
    return make_environment(folder, REQUIREMENTS) / "python"
