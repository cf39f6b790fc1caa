"""Where the demo of sinks keeps its files, all below .demo-sink in the clone, and the environment of its commands."""

import os
from pathlib import Path
from typing import Final

CLONE: Final = Path(__file__).resolve().parents[2]
DEMO: Final = CLONE / ".demo-sink"
HOME: Final = DEMO / "home"
LAKE: Final = DEMO / "lake"
BROKER: Final = DEMO / "broker"
JOB_FILE: Final = CLONE / "demo" / "sink" / "orders.yaml"
JOB: Final = "orders"
TOPIC: Final = "orders"

_FOREIGN: Final = ("DAGSTER_HOME", "GOBBLIN_DATABASE_URL", "GOBBLIN_FAILPOINT")


def apply_environment(bootstrap: str) -> None:
    """Set it for this process and for the workers. The log is always the demo's own."""
    for name in _FOREIGN:
        os.environ.pop(name, None)
    os.environ |= {"GOBBLIN_HOME": str(HOME), "GOBBLIN_KAFKA_SHOP_BOOTSTRAP_SERVERS": bootstrap}


def job_file() -> str:
    return str(JOB_FILE.relative_to(CLONE))
