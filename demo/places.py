"""Where the demo keeps its files, all below one folder of the clone, and the environment of its commands."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gobblin_assets.dagster.instance import prepare_instance
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.settings import Settings

CLONE: Final = Path(__file__).resolve().parents[1]
SOURCE_DATABASE: Final = "nyc_source"


@dataclass(frozen=True, slots=True)
class Place:
    """One demo. ``destination``: of its job, a path or a URI."""

    folder: Path
    job_file: Path
    destination: str

    @property
    def home(self) -> Path:
        return self.folder / "home"


DISK: Final = Place(CLONE / ".demo", CLONE / "demo" / "nyc.yaml", str(CLONE / ".demo" / "lake"))
STORE: Final = Place(CLONE / ".demo-s3", CLONE / ".demo-s3" / "nyc.yaml", "s3://nyc/lake")

_ON_DISK: Final = "destination: ../.demo/lake"


def write_store_job() -> None:
    """The job of the demo on disk, with another destination."""
    text = DISK.job_file.read_text(encoding="utf-8")
    STORE.job_file.write_text(text.replace(_ON_DISK, f"destination: {STORE.destination}"), encoding="utf-8")


def build_environment(place: Place, server: EmbeddedServer) -> Mapping[str, str]:
    """For the command line and for Dagster; it holds the source's password, so it is passed on and never printed."""
    return {
        "GOBBLIN_HOME": str(place.home),
        "GOBBLIN_JOBS": str(place.job_file),
        "GOBBLIN_JDBC_NYC_URL": server.jdbc_url(SOURCE_DATABASE),
        "GOBBLIN_JDBC_NYC_USER": server.user,
        "GOBBLIN_JDBC_NYC_PASSWORD": server.password(),
        **prepare_instance(Settings(place.home), print),
    }


def apply_environment(place: Place, server: EmbeddedServer) -> None:
    """Set it for this process and for those that it starts. The log is always the demo's own."""
    for name in ("GOBBLIN_DATABASE_URL", "GOBBLIN_SPARK_REMOTE", "GOBBLIN_SPARK_MASTER", "GOBBLIN_FAILPOINT"):
        os.environ.pop(name, None)
    os.environ.update(build_environment(place, server))
