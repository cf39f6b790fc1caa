"""The rows of a lake as its job kind reads and writes them: lines of a source, and small Parquet files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.files import DataFile
from gobblin_assets.rows.attempt_files import open_role_files
from gobblin_assets.rows.open_files import CountedStream
from gobblin_assets.run.job_kind import OutputNames, PlanRequest, WorkOrder

ROWS_PER_FILE = 3


class SourceOfRows(Protocol):
    """What this asks of a lake."""

    @property
    def root(self) -> str: ...

    @property
    def bad_units(self) -> tuple[int, ...]: ...

    def source_rows(self, urn: str) -> list[tuple[int, str]]: ...


@dataclass(frozen=True)
class LakeRows:
    """``Rows`` of a lake: lines of its source, and small Parquet files."""

    lake: SourceOfRows

    def count(self, request: PlanRequest) -> int:
        return len(self.lake.source_rows(request.urn))

    def read(self, urn: str, number: int, low: int, high: int) -> list[tuple[int, str]]:
        if number in self.lake.bad_units:
            raise OSError(5, "this WorkUnit can't be read")
        return self.lake.source_rows(urn)[low:high]

    def file_rows(self, count: int) -> int:
        return ROWS_PER_FILE

    def make_directory(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=False)

    def write(self, order: WorkOrder, path: str, rows: Sequence[tuple[int, str]]) -> tuple[DataFile, CommitStep | None]:
        if order.names is not None:
            return self._create(order, order.names, Path(path).name, rows)
        pq.write_table(_table_of(rows), path, write_page_checksum=True)
        identity = open_file_system(self.lake.root)[0].find_identity(path)
        if identity is None:
            # The process that took the dataset over has moved the file while this process slept.
            raise FileNotFoundError(f"{path} is gone")
        return DataFile(Path(path).name, identity, pq.read_metadata(path).num_rows), None

    def _create(
        self, order: WorkOrder, names: OutputNames, name: str, rows: Sequence[tuple[int, str]]
    ) -> tuple[DataFile, CommitStep | None]:
        fs, _root = open_file_system(self.lake.root)
        fs.make_directories(order.directory)
        made = open_role_files(fs, order.directory, names).create("", name)
        with CountedStream(made.stream) as counted:
            pq.write_table(_table_of(rows), counted, write_page_checksum=True)
        finished = made.finish(len(rows), counted.size_bytes)
        return finished.file, finished.step

    def move(self, source: str, target: str) -> None:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(source).rename(target)


def _table_of(rows: Sequence[tuple[int, str]]) -> pa.Table:
    return pa.table({"number": [number for number, _ in rows], "value": [value for _, value in rows]})
