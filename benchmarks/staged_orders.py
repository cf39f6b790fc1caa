"""Staged files of made-up orders, as a publication of a sink seals them, and how long loads of them take."""

import datetime as dt
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tables import Samples
from gobblin_assets.commit.step_calls import execute_steps, verify_steps
from gobblin_assets.commit.step_world import StepPorts, StepWorld
from gobblin_assets.commit.steps import CommitStep, StepVerdict
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.files import DataFile

FILES: Final = 4
BATCH_ROWS: Final = 32_768


def stage_orders(folder: Path, rows: int) -> tuple[tuple[DataFile, ...], list[pa.RecordBatch]]:
    """The files, and their rows."""
    fs, _root = open_file_system(str(folder))
    files, batches = [], []
    for number in range(FILES):
        path = str(folder / f"part-{number}.parquet")
        table = _make_orders(number * (rows // FILES), rows // FILES)
        pq.write_table(table, path, compression="zstd")
        identity = fs.find_identity(path)
        if identity is None:
            raise AssertionError(path)
        files.append(DataFile(path, identity, table.num_rows))
        batches += table.to_batches(BATCH_ROWS)
    return tuple(files), batches


def _make_orders(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    start = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
    return pa.table({
        "order_id": pa.array(numbers, pa.int64()),
        "customer": pa.array([f"customer {number % 10_007}" for number in numbers]),
        "status": pa.array([("placed", "paid", "shipped")[number % 3] for number in numbers]),
        "amount": pa.array([Decimal(number % 100_000).scaleb(-2) for number in numbers], pa.decimal128(9, 2)),
        "items": pa.array([number % 9 + 1 for number in numbers], pa.int32()),
        "placed_at": pa.array([start + dt.timedelta(seconds=number) for number in numbers], pa.timestamp("us", "UTC")),
        "note": pa.array([None if number % 4 else f"leave it at door {number % 97}" for number in numbers]),
    })  # fmt: skip


def carry_out_load(step: CommitStep, folder: Path) -> None:
    """As the executor does it, with the looks before and behind. ``folder``: of the staged files."""
    fs, _root = open_file_system(str(folder))
    with StepPorts() as ports:
        verify_steps([step], StepWorld(fs, ports))
        execute_steps([step], StepWorld(fs, ports))
        if verify_steps([step], StepWorld(fs, ports)) != [StepVerdict.DONE]:
            raise RuntimeError("the publication is not there")


def time_load(samples: Samples, name: str, of_cpu: str, load: Callable[[], None]) -> None:
    """By the clock, and by this process's processor time."""
    begun_s, begun_cpu_s = time.monotonic(), time.process_time()
    load()
    samples.add(name, time.monotonic() - begun_s)
    samples.add(of_cpu, time.process_time() - begun_cpu_s)
