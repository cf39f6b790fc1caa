"""Where the Kafka demo keeps its files, all below .demo-kafka in the clone, and the environment of its commands: the
broker, the registry and the log.
"""

import os
from pathlib import Path
from typing import Final

CLONE: Final = Path(__file__).resolve().parents[2]
DEMO: Final = CLONE / ".demo-kafka"
HOME: Final = DEMO / "home"
LAKE: Final = DEMO / "lake"
BROKER: Final = DEMO / "broker"
JOB_FILE: Final = CLONE / "demo" / "kafka" / "page_views.yaml"
JOB: Final = "page_views"
WEB: Final = "web_views"
APP: Final = "app_views"

_FOREIGN: Final = (
    "DAGSTER_HOME",
    "GOBBLIN_DATABASE_URL",
    "GOBBLIN_FAILPOINT",
    "GOBBLIN_SPARK_MASTER",
    "GOBBLIN_SPARK_REMOTE",
)


def quicken_java() -> None:
    """For JVMs that are started from here: switch off the second compiler. It takes half of both cores for a minute,
    and none of these JVMs lives long enough to gain from it.
    """
    given = os.environ.get("JAVA_TOOL_OPTIONS", "")
    os.environ["JAVA_TOOL_OPTIONS"] = f"{given} -XX:TieredStopAtLevel=1".strip()


def apply_environment(bootstrap: str, registry_url: str) -> None:
    """Set it for this process and for those that it starts. The log is always the demo's own."""
    for name in _FOREIGN:
        os.environ.pop(name, None)
    os.environ |= {
        "GOBBLIN_HOME": str(HOME),
        "GOBBLIN_KAFKA_SHOP_BOOTSTRAP_SERVERS": bootstrap,
        "GOBBLIN_KAFKA_SHOP_REGISTRY_URL": registry_url,
    }
