"""A lane of a sink whose files stand in a directory."""

import datetime as dt
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.jobs.sink.lane_files import LaneFiles, LaneFormat
from gobblin_assets.jobs.sink.lane_writer import Cut, LaneWriter, PlaceRows
from gobblin_assets.jobs.sink.sink_rules import RollPolicy
from gobblin_assets.model.files import FileFormat
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.new_files import FilesInDirectory, NewFiles
from gobblin_assets.sources.log_port import Barrier
from tests.support.fake_log import STARTED_AT

COLUMNS: Final = pa.schema([("vnode", pa.string()), ("n", pa.int64())])
EACH: Final = RollPolicy(age_s=0.0)
NEVER: Final = RollPolicy(rows_max=1 << 60)


def rows(vnode: str, *numbers: int) -> pa.RecordBatch:
    return pa.record_batch([[vnode] * len(numbers), list(numbers)], schema=COLUMNS)


@dataclass
class Lane:
    """A writer whose files stand in a directory."""

    root: Path
    policy: RollPolicy = EACH
    place_rows: PlaceRows | None = None
    lane_format: LaneFormat = field(
        default_factory=lambda: LaneFormat(dict.fromkeys(Role, COLUMNS), FileFormat.PARQUET, "zstd")
    )
    writer: LaneWriter = field(init=False)

    def __post_init__(self) -> None:
        self.writer = LaneWriter(LaneFiles(self.lane_format, self._open_files), self.policy, place_rows=self.place_rows)

    def _open_files(self, role: Role) -> NewFiles:
        directory = self.root / role
        directory.mkdir(parents=True, exist_ok=True)
        return FilesInDirectory(PosixFileSystem(), str(directory))

    def rows_of(self, cut: Cut, role: Role = Role.DATA) -> Counter[tuple[str, int]]:
        found: Counter[tuple[str, int]] = Counter()
        for each in cut.files:
            if each.role is role:
                path = self.root / role / each.partition_path / each.finished.file.name
                table = pq.ParquetFile(path).read()
                assert table.num_rows == each.finished.file.row_count
                found.update((row["vnode"], row["n"]) for row in table.to_pylist())
        assert found.total() == cut.row_counts.get(role, 0)
        return found


def barrier(epoch: int, *, is_checkpoint: bool = True, at_s: float | None = None, **positions: int) -> Barrier:
    at = STARTED_AT + dt.timedelta(seconds=epoch if at_s is None else at_s)
    return Barrier(epoch, positions, is_checkpoint, at)


def got(cut: Cut | None) -> Cut:
    assert cut is not None
    return cut
