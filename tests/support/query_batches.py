"""Queries of Structured Streaming over a folder of JSON files, published by ``foreach_batch``, here or in a child."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from sqlalchemy import text

from gobblin_assets.db.engine import open_external
from gobblin_assets.jobs.ingest.foreach_batches import foreach_batch
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.dataset_reader import read_dataset
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings
from tests.support.spark import SMALL

URN = "clicks"
SCHEMA = "id long, name string"
LEASE = {"ttl_s": 60.0, "wait_s": 0.0}
"""No busy machine loses it. Who takes over from a killed process lets it expire first."""


@dataclass
class Clicks:
    """One dataset, the files that a query reads, and the log."""

    spark: SparkSession
    database_url: str
    folder: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    dataset: Mapping[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = open_external(self.database_url)
        (self.folder / "in").mkdir(exist_ok=True)

    @property
    def job(self) -> dict[str, Any]:
        return {
            "job": "web",
            "source": {"type": "spark_stream"},
            "destination": str(self.folder / "lake"),
            "datasets": [{"urn": URN, **self.dataset}],
            "lease": LEASE,
            "retry": {"back_off_s": 0.0, "task_tries_max": 1},
            **self.options,
        }

    def put(self, name: str, ids: Iterable[int]) -> None:
        """A file, which is a batch of its own."""
        rows = [json.dumps({"id": each, "name": f"n{each}"}) for each in ids]
        made = self.folder / f"{name}.tmp"
        made.write_text("\n".join(rows), encoding="utf-8")
        made.rename(self.folder / "in" / f"{name}.json")

    def start(self, checkpoint: str = "checkpoint", *, schema: str = SCHEMA, **options: Any) -> StreamingQuery:
        return start_query(
            self.spark, self.job, self.folder, checkpoint, schema=schema, **{"say": self.lines.append, **options}
        )

    def run(self, checkpoint: str = "checkpoint", **options: Any) -> str:
        """A query that ends when it has read all files. Returns its id."""
        query = self.start(checkpoint, **options)
        query.awaitTermination()
        return str(query.id)

    def run_in_child(self, checkpoint: str = "checkpoint", *, failpoint: str) -> "subprocess.CompletedProcess[str]":
        """The same in a process and a JVM of its own."""
        settings = {"job": self.job, "folder": str(self.folder), "checkpoint": checkpoint}
        return subprocess.run(
            [sys.executable, "-m", "tests.support.query_batches", json.dumps(settings)],
            env={**os.environ, "GOBBLIN_DATABASE_URL": self.database_url, "GOBBLIN_FAILPOINT": failpoint},
            capture_output=True,
            text=True,
            timeout=120.0,
        )

    def rows(self) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row) for row in self._read(Role.DATA).collect())

    def list_ids(self, *, role: Role = Role.DATA) -> list[int]:
        return sorted(row[0] for row in self._read(role).select("id").collect())

    def _read(self, role: Role) -> DataFrame:
        return read_dataset(self.spark, URN, job="web", database=self.engine, role=role)

    def ask_log(self, statement: str) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement))]

    def close(self) -> None:
        self.engine.dispose()


def rows_of(*ids: int) -> Counter[tuple[Any, ...]]:
    return Counter((each, f"n{each}") for each in ids)


def start_query(
    spark: SparkSession, job: Mapping[str, Any], folder: Path, checkpoint: str, *, schema: str = SCHEMA, **options: Any
) -> StreamingQuery:
    """A batch for each file, until there is none left."""
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    return (
        frame.writeStream.foreachBatch(foreach_batch(job, URN, **options))
        .option("checkpointLocation", str(folder / checkpoint))
        .trigger(availableNow=True)
        .start()
    )


@pytest.fixture
def clicks(spark: SparkSession, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    made = Clicks(spark, database_url, tmp_path)
    yield made
    made.close()


def _main(settings: Mapping[str, Any]) -> int:
    folder = Path(settings["folder"])
    spark = open_session(SparkSettings(folder / "spark", master="local[2]", conf=SMALL))
    query = start_query(spark, settings["job"], folder, settings["checkpoint"], say=print)
    query.awaitTermination()
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(_main(json.loads(sys.argv[1])))
