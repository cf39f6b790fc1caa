"""Chains of converters on a real Spark session: their results, and what they refuse before anything is read."""

import datetime as dt
import math

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from gobblin_assets.errors import RejectedError
from gobblin_assets.rows.converters import convert
from gobblin_assets.spec.job_spec import ConverterSpec


def _chain(*links: dict[str, object]) -> list[ConverterSpec]:
    return [ConverterSpec.model_validate(link) for link in links]


def _convert(frame: DataFrame, *links: dict[str, object]) -> DataFrame:
    return convert(frame, _chain(*links), dataset="public.orders")


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [(1, "10.5", {"street": "x", "geo": {"lat": 1.0}}), (2, None, None)],
        "id INT, `amount eur` STRING, address STRUCT<street: STRING, geo: STRUCT<lat: DOUBLE>>",
    )


def tag_rows(frame: DataFrame) -> DataFrame:
    return frame.withColumn("tagged", f.lit(True))


def count_rows(frame: DataFrame) -> int:
    return 5


def break_down(frame: DataFrame) -> DataFrame:
    raise KeyError("hunter2")


def add_duplicate(frame: DataFrame) -> DataFrame:
    return frame.select("*", f.lit(1).alias("ID"))


def use_missing_column(frame: DataFrame) -> DataFrame:
    return frame.select("nope")


NOT_CALLABLE = 5


def test_links_run_in_order_over_the_columns_that_the_one_before_left(orders: DataFrame) -> None:
    converted = _convert(
        orders,
        {"flatten": "_"},
        {"rename": {"amount eur": "amount", "address_geo_lat": "lat"}},
        {"cast": {"amount": "decimal(10,2)"}},
        {"sql": {"double_amount": "amount * 2", "ID": "id + 10"}},
        {"where": "id > 10"},
        {"drop": ["address_street"]},
        {"function": f"{__name__}:tag_rows"},
        {"select": ["lat", "ID", "double_amount", "tagged"]},
    )
    assert converted.columns == ["lat", "ID", "double_amount", "tagged"]
    assert [tuple(row) for row in converted.collect()] == [(1.0, 11, 21, True), (None, 12, None, True)]


def test_two_columns_can_exchange_their_names(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "b")], "a INT, b STRING")
    assert _convert(frame, {"rename": {"a": "b", "b": "a"}}).collect()[0].asDict() == {"a": "b", "b": 1}


def test_names_with_dots_ticks_and_spaces_are_just_names(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 2, {"x": 3})], "`a.b` INT, `c``d` INT, `s t` STRUCT<`x`: INT>")
    converted = _convert(
        frame, {"flatten": "."}, {"cast": {"a.b": "bigint"}}, {"rename": {"c`d": "e f"}}, {"drop": ["s t.x"]}
    )
    assert converted.columns == ["a.b", "e f"]
    assert converted.collect()[0] == (1, 2)


def test_flatten_leaves_arrays_alone_and_gives_null_for_a_null_struct(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [([{"x": 1}], {"y": [1]}), (None, None)], "a ARRAY<STRUCT<x: INT>>, s STRUCT<y: ARRAY<INT>>"
    )
    flat = _convert(frame, {"flatten": "__"})
    assert flat.schema.simpleString() == "struct<a:array<struct<x:int>>,s__y:array<int>>"
    assert [row.s__y for row in flat.collect()] == [[1], None]


@pytest.mark.parametrize(
    ("link", "field", "said"),
    [
        ({"select": ["idd"]}, "converters[1].select", "Did you mean 'id'?"),
        ({"drop": ["x"]}, "converters[1].drop", "Available: id, amount eur, address"),
        ({"drop": ["id", "amount eur", "address"]}, "converters[1].drop", "no column is left"),
        ({"rename": {"nope": "x"}}, "converters[1].rename", "no column 'nope'"),
        ({"rename": {"id": "Address"}}, "converters[1].rename", "two columns would be called"),
        ({"cast": {"nope": "int"}}, "converters[1].cast", "no column 'nope'"),
        ({"cast": {"amount eur": "int", "id": "nonsense"}}, "converters[1].cast.id", "NONSENSE"),
        ({"cast": {"id": "array<int>"}}, "converters[1].cast.id", "DATATYPE_MISMATCH"),
        ({"sql": {"y": "id", "x": "nope + 1"}}, "converters[1].sql.x", "nope"),
        ({"sql": {"x": "1 +"}}, "converters[1].sql.x", "PARSE_SYNTAX_ERROR"),
        ({"sql": {"x": "sum(id)"}}, "converters[1].sql.x", "Available columns: id"),
        ({"where": "id"}, "converters[1].where", "FILTER_NOT_BOOLEAN"),
        ({"where": "nope > 1"}, "converters[1].where", "nope"),
        ({"function": "no_such_package.mod:fn"}, "converters[1].function", "can't import no_such_package.mod"),
        ({"function": f"{__name__}:missing"}, "converters[1].function", "found nothing of that name"),
        ({"function": f"{__name__}:NOT_CALLABLE"}, "converters[1].function", "found a int"),
        ({"function": f"{__name__}:count_rows"}, "converters[1].function", "returned a int"),
        ({"function": f"{__name__}:break_down"}, "converters[1].function", "raised KeyError"),
        ({"function": f"{__name__}:add_duplicate"}, "converters[1].function", "two columns would be called 'ID'"),
        ({"function": f"{__name__}:use_missing_column"}, "converters[1].function", "nope"),
        ({"drop": ["id"], "where": "true"}, "converters[1]", "found drop, where"),
    ],
)
def test_a_link_that_can_not_work_is_refused_before_anything_is_read(
    spark: SparkSession, orders: DataFrame, link: dict[str, object], field: str, said: str
) -> None:
    # A row of this frame can't be read: running the frame fails.
    unreadable = orders.where(f.raise_error(f.lit("was read")).isNull())
    with pytest.raises(RejectedError) as refused:
        _convert(unreadable, {"select": ["id", "amount eur", "address"]}, link)
    assert refused.value.field == field
    assert said in str(refused.value)
    assert "'public.orders'" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_flatten_refuses_names_that_meet(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, {"b": 2})], "a_b INT, a STRUCT<b: INT>")
    with pytest.raises(RejectedError, match="two columns would be called 'a_b'"):
        _convert(frame, {"flatten": "_"})


@pytest.mark.parametrize(
    ("value", "data_type"), [("abc", "int"), ("3000000000", "int"), ("2013-02-30", "date"), ("1e9", "decimal(5,2)")]
)
def test_a_value_that_does_not_fit_fails_instead_of_becoming_null(
    spark: SparkSession, value: str, data_type: str
) -> None:
    frame = spark.createDataFrame([(value,)], "v STRING")
    with pytest.raises(PySparkException):
        _convert(frame, {"cast": {"v": data_type}}).collect()
    assert _convert(frame, {"sql": {"v": f"try_cast(v AS {data_type})"}}).collect()[0].v is None


def test_a_session_that_would_lose_values_silently_is_refused(spark: SparkSession, orders: DataFrame) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        assert _convert(orders, {"drop": ["id"]}).columns == ["amount eur", "address"]
        with pytest.raises(RejectedError, match="ANSI mode") as refused:
            _convert(orders, {"cast": {"id": "bigint"}})
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert refused.value.field == "spark.conf.spark.sql.ansi.enabled"


def test_values_keep_what_they_are(spark: SparkSession) -> None:
    moment = dt.datetime(2013, 1, 1, 5, 0, 0, 123456)  # noqa: DTZ001  a wall clock's
    frame = spark.createDataFrame(
        [(moment, float("nan"), b"\x00\xff", "ü")], "t TIMESTAMP_NTZ, d DOUBLE, b BINARY, s STRING"
    )
    row = _convert(frame, {"select": ["s", "b", "d", "t"]}, {"rename": {"t": "at"}}).collect()[0]
    assert (row.s, bytes(row.b), row["at"]) == ("ü", b"\x00\xff", moment)
    assert math.isnan(row.d)
