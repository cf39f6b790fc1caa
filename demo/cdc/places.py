"""Where the demo of change logs keeps its files, below .demo-cdc in the clone, and the environment of its commands."""

import os
from pathlib import Path
from typing import Final

CLONE: Final = Path(__file__).resolve().parents[2]
DEMO: Final = CLONE / ".demo-cdc"
HOME: Final = DEMO / "home"
SOURCE_HOME: Final = DEMO / "source"
LAKE: Final = DEMO / "lake"
JOB_FILE: Final = CLONE / "demo" / "cdc" / "shop.yaml"
JOB: Final = "shop"
SLOT: Final = "gobblin_shop"

_FOREIGN: Final = (
    "DAGSTER_HOME",
    "GOBBLIN_DATABASE_URL",
    "GOBBLIN_FAILPOINT",
    "GOBBLIN_SPARK_MASTER",
    "GOBBLIN_SPARK_REMOTE",
)


def apply_environment(url: str, user: str, password: str) -> None:
    """Set it for this process and for the workers: how they reach the shop's database. The log is the demo's own."""
    for name in _FOREIGN:
        os.environ.pop(name, None)
    os.environ |= {
        "GOBBLIN_HOME": str(HOME),
        "GOBBLIN_POSTGRES_LOG_SHOP_URL": url,
        "GOBBLIN_POSTGRES_LOG_SHOP_USER": user,
        "GOBBLIN_POSTGRES_LOG_SHOP_PASSWORD": password,
    }


def job_file() -> str:
    return str(JOB_FILE.relative_to(CLONE))
