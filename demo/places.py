"""Where the demo keeps its files, all below .demo in the clone, and the environment of its commands."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gobblin_assets.dagster.instance import prepare_instance
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.settings import Settings

CLONE: Final = Path(__file__).resolve().parents[1]
DEMO: Final = CLONE / ".demo"
HOME: Final = DEMO / "home"
LAKE: Final = DEMO / "lake"
JOB_FILE: Final = CLONE / "demo" / "nyc.yaml"
SOURCE_DATABASE: Final = "nyc_source"


def build_environment(server: EmbeddedServer) -> Mapping[str, str]:
    """For the command line and for Dagster; it holds the source's password, so it is passed on and never printed."""
    return {
        "GOBBLIN_HOME": str(HOME),
        "GOBBLIN_JOBS": str(JOB_FILE),
        "GOBBLIN_JDBC_NYC_URL": server.jdbc_url(SOURCE_DATABASE),
        "GOBBLIN_JDBC_NYC_USER": server.user,
        "GOBBLIN_JDBC_NYC_PASSWORD": server.password(),
        **prepare_instance(Settings(HOME), print),
    }


def apply_environment(server: EmbeddedServer) -> None:
    """Set it for this process and for those that it starts. The log is always the demo's own."""
    for name in ("GOBBLIN_DATABASE_URL", "GOBBLIN_SPARK_REMOTE", "GOBBLIN_SPARK_MASTER", "GOBBLIN_FAILPOINT"):
        os.environ.pop(name, None)
    os.environ.update(build_environment(server))
