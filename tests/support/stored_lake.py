"""A lake of a job file's own: tables of a real Postgres, published to a bucket or to HDFS, by the command line."""

import io
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from gobblin_assets.fs.objects import HoldsObjects
from gobblin_assets.fs.registry import open_file_system
from tests.support.command_lake import invoke
from tests.support.ingestion import JOB
from tests.support.postgres import Database


@dataclass(frozen=True)
class StoredLake:
    """``uri``: the job's destination. ``job``: its file. ``environment``: how processes reach the destination."""

    uri: str
    source: Database
    job: Path
    environment: Mapping[str, str]

    def describe(self, *datasets: Mapping[str, Any], **more: Any) -> None:
        job = {
            "job": JOB,
            "source": {"connection": "shop"},
            "destination": self.uri,
            "retry": {"task_tries_max": 1, "back_off_s": 0},
            "datasets": list(datasets),
            **more,
        }
        self.job.write_text(yaml.safe_dump(job), encoding="utf-8")

    def run(self, *options: str) -> str:
        done = invoke("run", str(self.job), "--no-dagster", *options)
        assert done.exit_code == 0, done.output
        return done.output

    def files(self) -> dict[str, bytes]:
        """The published files, by their paths below the job's directory."""
        fs, root = open_file_system(self.uri)
        found = {}
        for each in fs.list_files(f"{root}/{JOB}"):
            path = each.path.removeprefix(f"{root}/{JOB}/")
            if not path.startswith("."):
                with fs.open_input(each.path) as stream:
                    found[path] = stream.read()
        return found

    def count_staged(self) -> int:
        """Files of attempts that are not published."""
        fs, root = open_file_system(self.uri)
        if isinstance(fs, HoldsObjects):
            return len(list(fs.objects.list_uploads(root)))
        return len(fs.list_files(f"{root}/{JOB}/.staging"))

    def rows(self) -> Counter[str]:
        tables = [pq.read_table(io.BytesIO(content)) for content in self.files().values()]
        return Counter(json.dumps(row, default=str) for table in tables for row in table.to_pylist())

    def row_counts(self) -> Counter[str]:
        """By the directories above the one of the sequence."""
        counts = Counter[str]()
        for path, content in self.files().items():
            counts[path.rpartition("/")[0].rpartition("/")[0]] += pq.read_metadata(io.BytesIO(content)).num_rows
        return counts

    def check_whole(self) -> None:
        """What the log says is what is there, and nothing else."""
        verified = invoke("verify", str(self.job), "--checksums")
        assert verified.exit_code == 0, verified.output
        fs, root = open_file_system(self.uri)
        assert not isinstance(fs, HoldsObjects) or not list(fs.objects.list_uploads(root))
        assert not fs.list_files(f"{root}/{JOB}/.staging")


def make_stored_lake(
    uri: str,
    environment: Mapping[str, str],
    database_url: str,
    source: Database,
    folder: Path,
    patch: pytest.MonkeyPatch,
) -> StoredLake:
    """This process reaches the log, the source and the destination during the test."""
    patch.setenv("GOBBLIN_DATABASE_URL", database_url)
    patch.setenv("GOBBLIN_HOME", str(folder / "home"))
    patch.setenv("GOBBLIN_JDBC_SHOP_URL", source.jdbc_url)
    patch.setenv("GOBBLIN_JDBC_SHOP_USER", source.user)
    patch.setenv("GOBBLIN_JDBC_SHOP_PASSWORD", source.password)
    for name, value in environment.items():
        patch.setenv(name, value)
    return StoredLake(uri, source, folder / "job.yaml", environment)
