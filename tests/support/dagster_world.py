"""A small world for Dagster: the real definitions, runs and log over sources that are read without Spark.

Rows are numbers in text files, one file for each dataset and partition; a file that holds a word can't be read.
The classes can be imported, so that code locations in other processes (``dagster dev``, its daemon) use them too.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.dagster.factory import build_gobblin_definitions
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY
from gobblin_assets.dagster.resources import CommitStoreResource, FileSystemsResource
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.path_names import encode_segment
from gobblin_assets.model.urn import Role
from gobblin_assets.run.job_kind import Output, PlanRequest, Staged, UnitPlan, Worker, WorkOrder
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.source_port import Source
from gobblin_assets.spec.job_spec import JobSpec
from tests.support.numbered_rows import NumberedRows
from tests.support.numbered_source import NumberedSource

WORLD_VARIABLE = "GOBBLIN_TEST_WORLD"
DATABASE_VARIABLE = "GOBBLIN_TEST_WORLD_DATABASE"
KEY = "lines"


class NumbersResource(dg.ConfigurableResource["NumbersResource"]):
    """The connection: a folder of numbers."""

    folder: str

    def open_source(self, job: JobSpec) -> Source:
        folder = Path(self.folder)
        rows = NumberedRows(
            key=KEY,
            rows=FolderRows(folder),
            list_names=lambda: [path.name for path in folder.iterdir()],
            new_id=SystemClock().new_id,
            refreshes_published=True,
        )
        return NumberedSource(rows, {"number": "bigint"})


class ArrowResource(dg.ConfigurableResource["ArrowResource"]):
    """A resource in Spark's place."""

    folder: str

    def get_session(self, job: JobSpec) -> SparkSession:
        raise AssertionError("this world has no Spark")

    def count_slots(self) -> None:
        return None

    def open_extractor(self, job: JobSpec, stores: Stores) -> Worker:
        return NumbersExtractor(Path(self.folder))

    def interrupt(self, attempt: AttemptRecord) -> None:
        pass


def path_of_numbers(folder: Path, urn: str, partition: str | None) -> Path:
    return folder.joinpath(*encode_segment(urn), *encode_segment(partition or ""))


def write_numbers(folder: Path, urn: str, partition: str | None, numbers: Sequence[object]) -> None:
    path = path_of_numbers(folder, urn, partition)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{number}\n" for number in numbers), encoding="utf-8")


def read_numbers(folder: Path, urn: str, partition: str | None) -> list[int]:
    path = path_of_numbers(folder, urn, partition)
    lines = path.read_text(encoding="utf-8").split() if path.exists() else []
    try:
        return [int(line) for line in lines]
    except ValueError as error:
        raise RejectedError(str(error), field=f"datasets[{urn}]", hint="Write numbers.") from error


class FolderRows:
    """``Rows`` that are counted here; ``NumbersExtractor`` reads and writes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def count(self, request: PlanRequest) -> int:
        return len(read_numbers(self._folder, request.urn, request.partition.key))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name}: this world's rows are read by its extractor")


class NumbersExtractor:
    """Writes each line into a directory of its own, so that a publication has as many steps as rows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def describe_interruption(self, tag: str, plans: Sequence[UnitPlan]) -> Mapping[str, object] | None:
        return None

    def cancel(self, tag: str) -> None:
        pass

    def do_together(self, orders: Sequence[WorkOrder]) -> Sequence[Staged]:
        return [self.do(order) for order in orders]

    def do(self, order: WorkOrder) -> Staged:
        numbers = read_numbers(self._folder, order.plan.urn, order.plan.partition.key)
        directories = []
        count = 0
        for unit in order.units:
            assert unit.interval is not None
            assert unit.interval.low is not None
            wanted = numbers[int(str(unit.interval.low)) : int(str(unit.interval.high))]
            directories += [self._write(Path(order.directory), number) for number in wanted]
            count += len(wanted)
        return Staged(tuple(directories), rows_read=count, columns={"number": "bigint"})

    def _write(self, staging: Path, number: int) -> Output:
        name = f"number={number}"
        leaf = staging / "data" / name
        leaf.mkdir(parents=True)
        path = leaf / "part-0.parquet"
        pq.write_table(pa.table({"value": [number]}), path)
        identity = open_file_system(str(staging))[0].find_identity(str(path))
        assert identity is not None
        return Output(Role.DATA, str(leaf), name, (DataFile(path.name, identity, 1),))


def build_world(folder: Path, database_url: str, **options: Any) -> dg.Definitions:
    """The definitions of a job over ``folder``; ``options`` override the job's defaults."""
    resources = {
        STORES_KEY: CommitStoreResource(database_url=database_url),
        FILE_SYSTEMS_KEY: FileSystemsResource(),
        SPARK_KEY: ArrowResource(folder=str(folder / "source")),
        "jdbc__numbers": NumbersResource(folder=str(folder / "source")),
    }
    job = build_gobblin_definitions(describe_job(folder, **options))
    return dg.Definitions.merge(job, dg.Definitions(resources=resources))


def describe_job(folder: Path, **options: Any) -> dict[str, Any]:
    """A job's options over ``folder``; ``options`` override the defaults of this world."""
    return {
        "job": "shop",
        "source": {"connection": "numbers"},
        "destination": str(folder / "lake"),
        "retry": {"task_tries_max": 1, "back_off_s": 0},
        "retire_grace_s": 0,
        **options,
    }


def published_numbers(folder: Path) -> list[int]:
    """Every number below the destination, as a directory reader sees it, without staging and hidden files."""
    root = folder / "lake"
    paths = [p for p in root.rglob("*.parquet") if not any(part.startswith(".") for part in p.relative_to(root).parts)]
    return sorted(number for path in paths for number in pq.ParquetFile(path).read()["value"].to_pylist())


def read_environment() -> tuple[Path, str]:
    """The folder and the database of a code location in another process."""
    return Path(os.environ[WORLD_VARIABLE]), os.environ[DATABASE_VARIABLE]
