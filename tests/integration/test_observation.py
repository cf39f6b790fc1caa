import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.model.watermark import Watermark, WatermarkType
from gobblin_assets.rows.observation import Observed, observe_positions
from gobblin_assets.rows.parquet_writer import write_parquet

MOMENT = dt.datetime(2024, 3, 31, 2, 30, 0, 123456, tzinfo=dt.UTC)
FRAME = """
    SELECT * FROM VALUES
      (1, timestamp'2024-03-31 02:30:00.123456', timestamp_ntz'2024-03-31 02:30:00.123456', date'0001-01-02', 'é', 7BD),
      (3, timestamp'2024-03-31 02:30:00.123456', timestamp_ntz'1969-12-31 23:59:59.999999', date'9999-12-31', 'z', 9BD),
      (2, timestamp'1969-12-31 23:59:59.999999', NULL, NULL, 'Z', 8BD),
      (9, NULL, NULL, NULL, NULL, NULL)
    AS rows(id, at, `wall time`, day, name, amount)
"""


def write(spark: SparkSession, tmp_path: Path, *columns: str, where: str = "true") -> Observed:
    frame, observed = observe_positions(spark.sql(FRAME).where(where), columns)
    write_parquet(frame, PosixFileSystem().to_uri(str(tmp_path / "out")))
    seen = observed.get()
    assert seen is not None
    return seen


@pytest.mark.parametrize(
    ("column", "high"),
    [
        ("id", Watermark(WatermarkType.LONG, 9)),
        ("amount", Watermark(WatermarkType.LONG, 9)),
        ("at", Watermark(WatermarkType.TIMESTAMP, MOMENT)),
        ("wall time", Watermark(WatermarkType.LOCAL_TIMESTAMP, MOMENT.replace(tzinfo=None))),
        ("day", Watermark(WatermarkType.DATE, dt.date(9999, 12, 31))),
        ("name", Watermark(WatermarkType.STRING, "é")),  # in binary order
    ],
)
def test_the_highest_position_is_seen_exactly(
    spark: SparkSession, tmp_path: Path, column: str, high: Watermark
) -> None:
    assert write(spark, tmp_path, column) == Observed(row_count=4, high=high)


def test_a_composite_is_compared_in_turn_and_rows_without_a_part_are_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    parts = (Watermark(WatermarkType.TIMESTAMP, MOMENT), Watermark(WatermarkType.LONG, 3))
    assert write(spark, tmp_path, "at", "id") == Observed(4, Watermark(WatermarkType.COMPOSITE, parts))


@pytest.mark.parametrize(("where", "rows"), [("id = 9", 1), ("id > 100", 0), ("false", 0)])
def test_without_a_position_there_is_none(spark: SparkSession, tmp_path: Path, where: str, rows: int) -> None:
    assert write(spark, tmp_path, "at", "name", where=where) == Observed(rows, None)


def test_rows_alone_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    assert write(spark, tmp_path) == Observed(4, None)


@pytest.mark.parametrize("column", ["flag", "ratio", "missing"])
def test_a_column_that_is_no_position_is_refused(spark: SparkSession, column: str) -> None:
    frame = spark.createDataFrame([(True, Decimal("1.5"))], "flag boolean, ratio decimal(3,1)")
    with pytest.raises(RejectedError, match=column):
        observe_positions(frame, (column,))
