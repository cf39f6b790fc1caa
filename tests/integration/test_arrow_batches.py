"""How many rows Spark sends to a Python worker at once, by real batches."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from gobblin_assets.rows.task_writer import batches_by_rows
from gobblin_assets.spark.connect_server import ConnectServer
from tests.support.spark import in_child, open_remote

ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"n": [batch.num_rows]})


def sizes(spark: SparkSession, rows: int) -> list[int]:
    return [size for (size,) in spark.range(0, rows, 1, 1).mapInArrow(_count, "n long").collect()]


def bounds(spark: SparkSession) -> tuple[str | None, str | None]:
    return spark.conf.get(ROWS, None), spark.conf.get(BYTES, None)


def test_a_batch_has_what_the_source_holds_and_no_more_than_spark_would_send(spark: SparkSession) -> None:
    with batches_by_rows(spark, 40):
        assert sizes(spark, 100) == [40, 40, 20]
    with batches_by_rows(spark, 1_000_000):
        assert sizes(spark, 25_000) == [10_000, 10_000, 5_000]
    with batches_by_rows(spark, None):
        assert bounds(spark) == (None, None)
    assert bounds(spark) == (None, None)


def test_writes_side_by_side_share_the_smallest_bound_and_the_last_one_takes_it_back(spark: SparkSession) -> None:
    with batches_by_rows(spark, 40):
        with batches_by_rows(spark, 30), batches_by_rows(spark, 50):
            assert sizes(spark, 60) == [30, 30]
        assert sizes(spark, 60) == [40, 20]
    both = Barrier(2, timeout=60)

    def write(rows: int) -> None:
        with batches_by_rows(spark, rows):
            both.wait()
            assert spark.conf.get(ROWS) == "20"
            both.wait()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (20, 30)))
    assert bounds(spark) == (None, None)


def _send_on_connect(server: ConnectServer) -> tuple[list[int], tuple[str | None, str | None]]:
    spark = open_remote(server)
    with batches_by_rows(spark, 40):
        found = sizes(spark, 100)
    left = bounds(spark)
    spark.stop()
    return found, left


def test_a_session_on_connect_is_bounded_as_well(connect: ConnectServer) -> None:
    assert in_child(_send_on_connect, connect) == ([40, 40, 20], (None, None))


@pytest.mark.parametrize("name", [ROWS, BYTES])
def test_a_user_s_own_bound_stays(spark: SparkSession, name: str) -> None:
    spark.conf.set(name, "77")
    try:
        with batches_by_rows(spark, 40):
            assert spark.conf.get(name) == "77"
        assert bounds(spark) == tuple("77" if each == name else None for each in (ROWS, BYTES))
    finally:
        spark.conf.unset(name)
