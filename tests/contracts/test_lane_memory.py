"""The memory of a lane has a bound, whatever the size of its files and of the chunks."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_assets.jobs.sink.lane_files import LaneFormat, PlacedRows
from gobblin_assets.model.files import FileFormat
from gobblin_assets.model.urn import Role
from tests.support.lanes import NEVER, Lane, barrier, got


def _small_slices(batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    return (batch.slice(start, 2) for start in range(0, batch.num_rows, 2))


@pytest.mark.parametrize("spread", [1, 5, 40, None], ids=lambda spread: spread or "one after the other")
@pytest.mark.parametrize("cut_up", [lambda batch: [batch], _small_slices], ids=["large", "tiny"])
def test_memory_is_bounded_whatever_the_size_of_files(
    tmp_path: Path, cut_up: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]], spread: int | None
) -> None:
    """Arrow's own pool is measured, so that rows that something keeps by accident are seen as well."""
    bound, chunk_bytes = 1 << 20, 1 << 18
    columns = pa.schema([("text", pa.large_binary())])
    before, chance, highest, written = pa.total_allocated_bytes(), random.Random(1), 0, 0

    def place(role: Role, batch: pa.RecordBatch) -> Iterable[PlacedRows]:
        number = written >> 20 if spread is None else len(batch["text"][0].as_py()) % spread
        yield PlacedRows(role, f"d={number}", batch)

    lane = Lane(
        tmp_path,
        NEVER,
        place_rows=place,
        lane_format=LaneFormat({Role.DATA: columns}, FileFormat.PARQUET, "none", held_bytes_max=bound),
    )
    lane.writer.assign({"a": 0})
    while written < 24 << 20:
        count = chance.randint(100, 139)
        chunk = pa.record_batch([[chance.randbytes(chunk_bytes // count) for _row in range(count)]], schema=columns)
        for each in cut_up(chunk):
            lane.writer.write_batch("a", each)
            assert lane.writer.held_bytes <= bound
            highest = max(highest, pa.total_allocated_bytes() - before)
        written += chunk.nbytes
    assert highest < 3 * bound + 2 * chunk_bytes, f"{highest:,} bytes"
    lane.writer.barrier(barrier(1, a=1))
    cut = got(lane.writer.commit())
    assert sum(each.finished.file.identity.size_bytes for each in cut.files) > written


def test_the_largest_is_encoded_first(tmp_path: Path) -> None:
    columns = pa.schema([("text", pa.string())])
    lane_format = LaneFormat({Role.DATA: columns}, FileFormat.PARQUET, "none", held_bytes_max=300_000)
    lane = Lane(
        tmp_path, NEVER, lambda role, batch: [PlacedRows(role, f"d={batch['text'][0]}"[:3], batch)], lane_format
    )
    lane.writer.assign({"a": 0})
    for letter in "xyyyyxyyyy":
        lane.writer.write_batch("a", pa.record_batch([[letter * 50_000]], schema=columns))
    lane.writer.barrier(barrier(1, a=10))
    cut = got(lane.writer.commit())
    groups = {
        each.partition_path: pq.read_metadata(
            tmp_path / Role.DATA / each.partition_path / each.finished.file.name
        ).num_row_groups
        for each in cut.files
    }
    assert groups == {"d=x": 1, "d=y": 2}


def test_a_worker_can_have_a_lane_encode_what_it_holds_before_its_own_bound(tmp_path: Path) -> None:
    columns = pa.schema([("text", pa.string())])
    lane = Lane(tmp_path, NEVER, lane_format=LaneFormat({Role.DATA: columns}, FileFormat.PARQUET, "none"))
    lane.writer.assign({"a": 0})
    lane.writer.encode_held()
    for _chunk in range(2):
        lane.writer.write_batch("a", pa.record_batch([["x" * 50_000]], schema=columns))
        assert lane.writer.held_bytes > 0
        lane.writer.encode_held()
        assert lane.writer.held_bytes == 0
    lane.writer.barrier(barrier(1, a=2))
    (file,) = got(lane.writer.commit()).files
    written = pq.read_table(tmp_path / Role.DATA / file.finished.file.name)
    assert written["text"].to_pylist() == ["x" * 50_000] * 2
