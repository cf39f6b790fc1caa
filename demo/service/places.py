"""Where the demo of the service keeps its files, its topology, and the environment of its processes."""

import os
from pathlib import Path
from typing import Final

import yaml

from demo.places import CLONE, SOURCE_DATABASE
from gobblin_assets.db.embedded import EmbeddedServer

DEMO: Final = CLONE / ".demo-service"
HOME: Final = DEMO / "home"
LAKE: Final = DEMO / "lake"
MIRROR: Final = DEMO / "mirror"
TOPOLOGY: Final = DEMO / "topology.yaml"

_FOREIGN: Final = (
    *("DAGSTER_HOME", "GOBBLIN_DATABASE_URL", "GOBBLIN_FAILPOINT"),
    *("GOBBLIN_SPARK_REMOTE", "GOBBLIN_SPARK_MASTER"),
)


def write_topology() -> None:
    """Three nodes, and one executor that reaches them."""
    nodes = {
        "nyc": {"kind": "database", "connection": "nyc", "description": "The flights that left New York in 2013."},
        "lake": {"kind": "files", "root": str(LAKE), "description": "Datasets of Parquet files."},
        "mirror": {"kind": "files", "root": str(MIRROR), "description": "A second lake."},
    }
    executor = {"capabilities": ["ingest.jdbc", "distcp"], "nodes": sorted(nodes), "description": "This machine."}
    TOPOLOGY.write_text(yaml.safe_dump({"nodes": nodes, "executors": {"local": executor}}), encoding="utf-8")


def apply_environment(server: EmbeddedServer) -> None:
    """Set it for this process and for those that it starts; it holds the source's password."""
    for name in _FOREIGN:
        os.environ.pop(name, None)
    os.environ |= {
        "GOBBLIN_HOME": str(HOME),
        "GOBBLIN_JDBC_NYC_URL": server.jdbc_url(SOURCE_DATABASE).removeprefix("jdbc:"),
        "GOBBLIN_JDBC_NYC_USER": server.user,
        "GOBBLIN_JDBC_NYC_PASSWORD": server.password(),
    }


def child_environment() -> dict[str, str]:
    """What a process needs besides this one's environment: the clone's packages."""
    found = os.pathsep.join(filter(None, (str(CLONE), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": found}


def list_files(folder: Path) -> set[Path]:
    """Files that a reader of the folder would read, by their paths in it."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path for path in files if not any(part.startswith((".", "_")) for part in path.parts)}
