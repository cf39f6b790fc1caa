"""The virtual environment that dlt is measured in: made for the measure, apart from the product's."""

from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.environments import make_environment

REQUIREMENTS = ("dlt[filesystem,parquet]", f"confluent-kafka=={version('confluent-kafka')}")
SCRIPT = Path(__file__).with_name("kafka_dlt.py")
LAKE = "lake"
"""The folder that the script writes to, below its directory."""

VARIABLES = {"RUNTIME__DLTHUB_TELEMETRY": "false"}
"""Environment variables of dlt's processes."""


def make(folder: Path) -> Path:
    """Make the environment; returns its interpreter. RuntimeError with the last error if that fails."""
    return make_environment(folder, REQUIREMENTS) / "python"
