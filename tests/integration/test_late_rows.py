"""The late window on a real Spark session: rows are told by key and position, whatever the types."""

import datetime as dt
from collections import Counter
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.watermark import Watermark, WatermarkType, long_watermark, timestamp_watermark
from gobblin_assets.rows.late_rows import without_published

pytestmark = pytest.mark.turns(of=4)

NOON = dt.datetime(2013, 10, 27, 12, tzinfo=dt.UTC)


def _minute(number: int) -> dt.datetime:
    return NOON + dt.timedelta(minutes=number, microseconds=1)


def _wall(number: int) -> dt.datetime:
    # Around the hour that Berlin has twice, so that a conversion through a session's zone would show.
    return dt.datetime(2013, 10, 27, 2, 30) + dt.timedelta(minutes=number, microseconds=1)  # noqa: DTZ001  a wall clock's


def _day(number: int) -> dt.date:
    return dt.date(1582, 10, 20) + dt.timedelta(days=number)


TYPES = {
    "long": ("BIGINT", int, long_watermark),
    "int": ("INT", int, long_watermark),
    "decimal": ("DECIMAL(18,0)", Decimal, long_watermark),
    "timestamp": ("TIMESTAMP", _minute, lambda n: timestamp_watermark(_minute(n))),
    "local_timestamp": (
        "TIMESTAMP_NTZ",
        _wall,
        lambda n: Watermark(WatermarkType.LOCAL_TIMESTAMP, _wall(n)),
    ),
    "date": ("DATE", _day, lambda n: Watermark(WatermarkType.DATE, _day(n))),
    "string": ("STRING", lambda n: f"é{n:03d}", lambda n: Watermark(WatermarkType.STRING, f"é{n:03d}")),
}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("name", TYPES)
def test_a_late_row_passes_unless_its_key_and_position_were_published(
    spark: SparkSession, name: str, zone: str
) -> None:
    sql_type, value, position = TYPES[name]
    schema = f"id INT, `at.x` {sql_type}, note STRING"
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        read = spark.createDataFrame(
            [
                (1, value(5), "published"),
                (2, value(6), "late"),
                (3, value(7), "updated: the key was published at 3"),
                (4, value(7), "same position as a published row"),
                (None, value(8), "published under a NULL key"),
                (6, value(9), "last below"),
                (7, value(10), "first of the interval"),
                (8, value(11), "of the interval, although published"),
                (9, None, "no position"),
            ],
            schema,
        )
        published = spark.createDataFrame(
            [
                (1, value(5), ""),
                (3, value(3), ""),
                (5, value(7), ""),
                (None, value(8), ""),
                (8, value(11), ""),
                (9, None, ""),
            ],
            schema,
        ).withColumnRenamed("id", "ID")
        kept = without_published(
            read,
            published,
            key=["id"],
            watermark_column="at.x",
            low=position(10),
            reread_from=position(4),
            dataset="d",
        )
        assert kept.schema == read.schema
        assert Counter(row.id for row in kept.collect()) == Counter([2, 3, 4, 6, 7, 8, 9])
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_composite_positions_compare_time_then_key(spark: SparkSession) -> None:
    def position(minute: int, number: int) -> Watermark:
        return Watermark(WatermarkType.COMPOSITE, (timestamp_watermark(_minute(minute)), long_watermark(number)))

    schema = "at TIMESTAMP, id BIGINT"
    rows = [(_minute(m), n) for m in range(4) for n in range(4)]
    read, published = spark.createDataFrame(rows, schema), spark.createDataFrame(rows, schema)
    kept = without_published(
        read,
        published,
        key=["id"],
        watermark_column="at",
        tiebreak_column="id",
        low=position(2, 2),
        reread_from=position(1, 0),
    )
    # All rows below (2, 2) are published; a real run does not read rows before the window.
    found = sorted((row["at"].minute, row.id) for row in kept.collect() if row["at"] >= _minute(1).replace(tzinfo=None))
    assert found == [(2, 2), (2, 3), (3, 0), (3, 1), (3, 2), (3, 3)]


def test_the_read_side_is_read_once(spark: SparkSession) -> None:
    reads = spark.sparkContext.accumulator(0)
    source = spark.createDataFrame([(n, n) for n in range(20)], "id INT, at BIGINT")
    counted = spark.createDataFrame(source.rdd.map(lambda row: (reads.add(1), row)[1]), source.schema)
    published = source.where("id < 12")
    kept = without_published(
        counted,
        published,
        key=["id"],
        watermark_column="at",
        low=long_watermark(15),
        reread_from=long_watermark(5),
    )
    assert sorted(row.id for row in kept.where("at >= 5").collect()) == [12, 13, 14, 15, 16, 17, 18, 19]
    assert reads.value == 20


def test_what_tells_late_rows_must_outlive_the_converters(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 1, "x")], "id INT, at BIGINT, at_text STRING")
    arguments = {"key": ["id"], "watermark_column": "at", "low": long_watermark(3), "reread_from": long_watermark(1)}
    for changed, published, said in [
        (frame.drop("id"), frame, "no column 'id'"),
        (frame, frame.drop("at"), "no column 'at'"),
        (frame.drop("at").withColumnRenamed("at_text", "at"), frame, "expected 'at' to hold long positions"),
    ]:
        with pytest.raises(RejectedError, match=said) as refused:
            without_published(changed, published, dataset="shop", **arguments)
        assert refused.value.field == "converters"
        assert "'shop'" in str(refused.value)
    with pytest.raises(RejectedError, match="has no key"):
        without_published(frame, frame, **{**arguments, "key": []})
    with pytest.raises(RejectedError, match="has 1 columns"):
        without_published(frame, frame, tiebreak_column="id", **arguments)
