"""A lake of rows, and a job that copies its datasets to a second one by the ledger."""

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.spec.job_spec import JobSpec
from tests.support.copy_lake import CopyLake
from tests.support.lake import Lake, Rows

URN = "orders"


@dataclass(frozen=True)
class KeptLake(Lake):
    """A lake whose retired files stay for a while, as those of jobs do."""

    urns: tuple[str, ...] = (URN, "a/b c.Ü")
    retire_grace_s: float = 3_600.0

    def job(self) -> JobSpec:
        return super().job().model_copy(update={"retire_grace_s": self.retire_grace_s})


@dataclass(frozen=True)
class Mirror(CopyLake):
    """The second lake. Its job is another one than the first lake's."""

    urns: tuple[str, ...] = (URN, "a/b c.Ü")
    job_name: str = "mirror"
    at: str = "mirror"
    options: dict[str, Any] = field(default_factory=dict)

    def write_manifest(self, **manifest: Any) -> "Mirror":
        """The same with other options of the manifest."""
        named = {"job": "crash", **manifest}
        return replace(self, options={**self.options, "defaults": {"deletes": "ours", "manifest": named}})

    def rows(self, urn: str = URN) -> Rows:
        """What a reader of the dataset's directory finds."""
        return read_directory(self.tree / path_below("crash", urn))


def make_mirror(lake: Lake, **options: Any) -> Mirror:
    """A copy of all of the lake's datasets, by its ledger."""
    made = Mirror(lake.database_url, lake.directory, lease_ttl_s=lake.lease_ttl_s)
    return replace(made, options={"source": lake.root, **options}).write_manifest()


def path_below(job: str, urn: str) -> Path:
    return Path(path_of("", JobName(job), DatasetUrn(urn)).removeprefix("/"))


def read_directory(directory: Path) -> Rows:
    """The rows of all Parquet files in it that a reader would find."""
    found: Rows = Counter()
    for path in directory.rglob("*.parquet"):
        if not any(part.startswith((".", "_")) for part in path.relative_to(directory).parts):
            table = pq.ParquetFile(path).read()
            found.update(zip(table["number"].to_pylist(), table["value"].to_pylist(), strict=True))
    return found
