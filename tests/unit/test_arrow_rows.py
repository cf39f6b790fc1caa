"""Arrow batches without a database: positions, types, and the change from one file to the next."""

import datetime as dt
import errno
import gc
import hashlib
import io
import json
import os
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.model.watermark import Watermark, WatermarkType
from gobblin_assets.rows.arrow_types import arrow_type, schema_to_json
from gobblin_assets.rows.arrow_writer import HighestPosition, RollingWriter, highest_of
from gobblin_assets.rows.new_files import FilesInDirectory

NOON = dt.datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=dt.UTC)


def highest(*batches: dict[str, pa.Array]) -> Watermark | None:
    position = HighestPosition(list(batches[0]))
    for columns in batches:
        position.add(pa.record_batch(columns))
    return position.value


@pytest.mark.parametrize(
    ("values", "held_as", "kind", "top"),
    [
        ([3, None, -7], pa.int32(), WatermarkType.LONG, 3),
        ([Decimal(7), Decimal(2**62)], pa.decimal128(19, 0), WatermarkType.LONG, 2**62),
        ([NOON, None], pa.timestamp("us", tz="UTC"), WatermarkType.TIMESTAMP, NOON),
        ([NOON.replace(tzinfo=None)], pa.timestamp("us"), WatermarkType.LOCAL_TIMESTAMP, NOON.replace(tzinfo=None)),
        ([dt.date(2026, 1, 2), dt.date(1, 1, 1)], pa.date32(), WatermarkType.DATE, dt.date(2026, 1, 2)),
        (["10", "9", "é"], pa.string(), WatermarkType.STRING, "é"),
    ],
    ids=lambda value: str(value) if isinstance(value, WatermarkType) else "",
)
def test_the_highest_position_is_of_the_column_s_type(
    values: list[Any], held_as: pa.DataType, kind: WatermarkType, top: Any
) -> None:
    assert highest({"p": pa.array(values, held_as)}) == Watermark(kind, top)


def test_without_a_position_there_is_none() -> None:
    assert highest({"p": pa.array([None], pa.int64())}) is None
    assert HighestPosition([]).value is None
    assert highest_of([HighestPosition(["p"])]) is None


def test_pairs_compare_in_turn_over_batches_and_rows_without_a_key_have_none() -> None:
    early, late = NOON, NOON + dt.timedelta(hours=1)
    times = pa.timestamp("us", tz="UTC")
    first = {"at": pa.array([early, late, late], times), "id": pa.array([9, 2, None], pa.int64())}
    second = {"at": pa.array([late, early], times), "id": pa.array([1, 99], pa.int64())}
    assert highest(first, second) == Watermark(
        WatermarkType.COMPOSITE, (Watermark(WatermarkType.TIMESTAMP, late), Watermark(WatermarkType.LONG, 2))
    )
    none = {"at": pa.array([late], times), "id": pa.array([None], pa.int64())}
    assert highest(none) is None


def test_what_is_no_position_is_refused() -> None:
    with pytest.raises(RejectedError, match="expected a whole number, time, date or text, found double"):
        highest({"p": pa.array([1.5])})


SPARK_TYPES = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date"),
    *("timestamp", "timestamp_ntz", "decimal(12,2)", "array<decimal(38,10)>", "array<array<timestamp_ntz>>"),
    "array<struct<key:string,value:binary>>",
)


def test_each_type_is_told_as_spark_tells_it() -> None:
    columns = [(f"c{number}", name) for number, name in enumerate(SPARK_TYPES)]
    told = t.StructType.fromJson(json.loads(json.dumps(schema_to_json(columns))))
    assert [field.dataType.simpleString() for field in told.fields] == list(SPARK_TYPES)
    assert all(arrow_type(name) is not None for name in SPARK_TYPES)
    assert arrow_type("struct<a:struct<b:int>>") is None
    assert arrow_type("array<map<string,int>>") is None


def test_files_end_at_the_bound_of_rows_and_none_is_without_rows(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])

    def write(name: str, *sizes: int) -> list[int]:
        writer = RollingWriter(
            FilesInDirectory(PosixFileSystem(), str(tmp_path)), "", name, schema, rows_max=4, compression="zstd"
        )
        with writer:
            for size in sizes:
                writer.write(pa.record_batch({"n": pa.array(range(size), pa.int64())}))
        files = [each.file for each in writer.files]
        assert [pq.read_metadata(tmp_path / file.name).num_rows for file in files] == [file.row_count for file in files]
        return [file.row_count for file in files]

    assert write("a", 3, 3, 5) == [4, 4, 3]
    assert write("b", 4, 4) == [4, 4]
    assert write("c", 0) == []
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] in "bc") == [
        "b-c000.zstd.parquet",
        "b-c001.zstd.parquet",
    ]


class FullDisk(PosixFileSystem):
    """Accepts the names of files, and none of their bytes."""

    def create_file(self, path: str) -> BinaryIO:
        super().create_file(path).close()
        return Path("/dev/full").open("wb", buffering=0)


def test_a_full_disk_is_told_as_the_destination_s(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    writer = RollingWriter(FilesInDirectory(FullDisk(), str(tmp_path)), "", "a", schema, rows_max=4, compression="zstd")
    with pytest.raises(RetryableError, match="ENOSPC"), writer:
        writer.write(pa.record_batch({"n": pa.array(range(9), pa.int64())}))


class SmallDisk(PosixFileSystem):
    """Takes so many bytes of a file, and refuses those after them."""

    def __init__(self, size_bytes: int, buffer_bytes: int) -> None:
        super().__init__()
        self._size_bytes = size_bytes
        self._buffer_bytes = buffer_bytes

    def create_file(self, path: str) -> BinaryIO:
        raw = _SmallFile(path, self._size_bytes)
        return io.BufferedWriter(raw, self._buffer_bytes)


class _SmallFile(io.FileIO):
    def __init__(self, path: str, size_bytes: int) -> None:
        super().__init__(path, "xb")
        self._left = size_bytes

    def write(self, content: Any, /) -> int:
        self._left -= memoryview(content).nbytes
        if self._left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(content)


@pytest.mark.parametrize("buffer_bytes", [1, 8192])
def test_a_disk_that_fills_up_at_any_byte_leaves_no_traceback_of_a_collected_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffer_bytes: int
) -> None:
    unraised: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: unraised.append(f"{each.object}: {each.exc_value}"))
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    batch = pa.record_batch({"n": range(900), "text": [hashlib.sha256(b"%d" % n).hexdigest() for n in range(900)]})
    full = 0
    # Each collection below would look at all that the other tests of this process have imported.
    gc.freeze()
    for size_bytes in range(0, 60_000, 997):
        disk = SmallDisk(size_bytes, buffer_bytes)
        (tmp_path / str(size_bytes)).mkdir()
        files = FilesInDirectory(disk, str(tmp_path / str(size_bytes)))
        writer = RollingWriter(files, "", "a", schema, rows_max=600, compression="zstd")
        try:
            with writer:
                writer.write(batch.cast(schema))
        except RetryableError as error:
            assert "ENOSPC" in str(error)  # noqa: PT017  what does not fail at this size is as good
            full += 1
        del writer
        gc.collect()
    assert full > 10
    assert unraised == []
