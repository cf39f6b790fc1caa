"""Where the demo of the service keeps its files, its topology, and the environment of its processes."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from demo.places import CLONE, SOURCE_DATABASE
from gobblin_assets.db.embedded import EmbeddedServer, create_database

DEMO: Final = CLONE / ".demo-service"
HOME: Final = DEMO / "home"
SOURCE_HOME: Final = DEMO / "source"
LAKE: Final = DEMO / "lake"
MIRROR: Final = DEMO / "mirror"
STAGING: Final = DEMO / "staging"
WAREHOUSE: Final = DEMO / "warehouse"
TOPOLOGY: Final = DEMO / "topology.yaml"
CATALOG: Final = "lakehouse"

_FOREIGN: Final = (
    *("DAGSTER_HOME", "GOBBLIN_DATABASE_URL", "GOBBLIN_FAILPOINT"),
    *("GOBBLIN_SPARK_REMOTE", "GOBBLIN_SPARK_MASTER"),
)
_NODES: Final = {
    "nyc": {"kind": "database", "connection": "nyc", "description": "The flights that left New York in 2013."},
    "nyc_log": {"kind": "change_log", "connection": "nyc", "description": "The change log of the same database."},
    "lake": {"kind": "files", "root": str(LAKE), "description": "Datasets of Parquet files."},
    "mirror": {"kind": "files", "root": str(MIRROR), "description": "A second lake."},
    "edge": {"kind": "cluster", "connection": "edge", "zone": "edge", "description": "The broker at the airports."},
    "office": {
        "kind": "cluster",
        "connection": "office",
        "zone": "office",
        "root": str(STAGING / "office"),
        "transit": True,
        "description": "The broker in the office.",
    },
    "lakehouse": {
        "kind": "iceberg",
        "connection": CATALOG,
        "zone": "office",
        "root": str(STAGING / "lakehouse"),
        "description": "Tables of Iceberg.",
    },
}
_EXECUTORS: Final = {
    "runs": {
        "capabilities": ["ingest.jdbc", "distcp"],
        "nodes": ["nyc", "lake", "mirror"],
        "description": "Runs, which end by themselves.",
    },
    "edge": {
        "capabilities": ["sink.into.kafka"],
        "nodes": ["edge", "office"],
        "description": "Workers at the airports.",
    },
    "office": {
        "capabilities": ["sink.postgres_log", "sink.into.iceberg"],
        "nodes": ["nyc_log", "lake", "office", "lakehouse"],
        "description": "Workers in the office.",
    },
}


def write_topology(executors: Mapping[str, object] = _EXECUTORS) -> None:
    TOPOLOGY.write_text(
        yaml.safe_dump({"nodes": _NODES, "executors": dict(executors)}, sort_keys=False), encoding="utf-8"
    )


def apply_environment(log: EmbeddedServer, source: EmbeddedServer, brokers: dict[str, str]) -> None:
    """Set it for this process and for those that it starts; it holds passwords. ``brokers``: by their connections."""
    for name in _FOREIGN:
        os.environ.pop(name, None)
    create_database(log, CATALOG)
    reached = {
        "GOBBLIN_JDBC_NYC": (source, SOURCE_DATABASE),
        "GOBBLIN_POSTGRES_LOG_NYC": (source, SOURCE_DATABASE),
        f"GOBBLIN_ICEBERG_{CATALOG.upper()}": (log, CATALOG),
    }
    for prefix, (server, database) in reached.items():
        os.environ |= {
            f"{prefix}_URL": server.jdbc_url(database).removeprefix("jdbc:"),
            f"{prefix}_USER": server.user,
            f"{prefix}_PASSWORD": server.password(),
        }
    os.environ |= {f"GOBBLIN_KAFKA_{name.upper()}_BOOTSTRAP_SERVERS": each for name, each in brokers.items()}
    os.environ |= {
        "GOBBLIN_HOME": str(HOME),
        f"GOBBLIN_ICEBERG_{CATALOG.upper()}_WAREHOUSE": f"file://{WAREHOUSE}",
    }


def child_environment() -> dict[str, str]:
    """What a process needs besides this one's environment: the clone's packages, and no job files of other demos."""
    found = os.pathsep.join(filter(None, (str(CLONE), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": found, "GOBBLIN_JOBS": ""}


def list_files(folder: Path) -> set[Path]:
    """Files that a reader of the folder would read, by their paths in it."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path for path in files if not any(part.startswith((".", "_")) for part in path.parts)}


def list_copied(table: str) -> list[Path]:
    """The files of a table that a reader finds in the second lake."""
    return [MIRROR / path for path in sorted(list_files(MIRROR)) if f"public.{table}" in str(path)]
