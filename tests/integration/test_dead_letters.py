"""Dead letters on a real Spark session: undecodable records pass converters and policies unchanged."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.converters import convert
from gobblin_assets.rows.hidden_columns import parse_role_path
from gobblin_assets.rows.parquet_writer import collect_output, write_parquet
from gobblin_assets.rows.row_quality import split_rows
from gobblin_assets.spec.job_spec import ConverterSpec, RowPolicySpec

FS = PosixFileSystem()
HIDDEN = ["gobblin_dead_letter", "gobblin_dead_letter_offset"]


@pytest.fixture
def records(spark: SparkSession) -> DataFrame:
    """Three good records, and two letters; one of the letters has columns that no cast accepts."""
    rows = [
        ("1", [1, 2], None, None),
        ("2", [3], None, None),
        ("3", [], None, None),
        (None, None, "not Avro", 7),
        ("x", [9], "an unknown schema", 8),
    ]
    schema = "id STRING, items ARRAY<INT>, gobblin_dead_letter STRING, gobblin_dead_letter_offset BIGINT"
    return spark.createDataFrame(rows, schema)


def _links(*links: dict[str, Any]) -> list[ConverterSpec]:
    return [ConverterSpec.model_validate(link) for link in links]


def _letters(frame: DataFrame) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row) for row in frame.where("gobblin_dead_letter IS NOT NULL").select(*HIDDEN).collect())


LETTERS = Counter([("not Avro", 7), ("an unknown schema", 8)])


def explode_and_count(frame: DataFrame) -> DataFrame:
    assert not set(frame.columns) & set(HIDDEN)
    exploded = frame.select(f.explode_outer("items").alias("item"), f.col("id").cast("int").alias("id"))
    return exploded.groupBy("id").agg(f.count("item").alias("items"))


def test_no_converter_sees_loses_or_is_failed_by_a_letter(records: DataFrame) -> None:
    links = _links(
        {"cast": {"id": "int"}},
        {"sql": {"half": "2 / (id - 2)", "many": "size(items)", "sure": "assert_true(id IS NOT NULL)"}},
    )
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        convert(records, links, dataset="d").collect()
    links = _links(
        {"cast": {"id": "int"}},
        {"where": "id <> 2"},
        {"sql": {"half": "2 / (id - 2)", "sure": "assert_true(id IS NOT NULL)", "s": "struct(id AS key)"}},
        {"flatten": "_"},
        {"rename": {"s_key": "key"}},
        {"drop": ["items", "sure"]},
        {"select": ["key", "half"]},
    )
    converted = convert(records, links, dataset="d")
    assert converted.columns == ["key", "half", *HIDDEN]
    good = converted.where("gobblin_dead_letter IS NULL").select("key", "half").collect()
    assert Counter(tuple(row) for row in good) == {(1, -2.0): 1, (3, 2.0): 1}
    assert _letters(converted) == LETTERS


def test_a_function_is_given_the_rows_alone_and_may_join_them(records: DataFrame) -> None:
    links = _links(
        {"where": "id <> '3'"}, {"function": f"{__name__}:explode_and_count"}, {"sql": {"items": "items + 1"}}
    )
    converted = convert(records, links, dataset="d")
    assert converted.columns == ["id", "items", *HIDDEN]
    good = converted.where("gobblin_dead_letter IS NULL").select("id", "items").collect()
    assert Counter(tuple(row) for row in good) == {(1, 3): 1, (2, 2): 1}
    assert _letters(converted) == LETTERS


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"sql": {"item": "explode(items)"}}, "UNSUPPORTED_GENERATOR"),
        ({"drop": ["gobblin_dead_letter"]}, "no column 'gobblin_dead_letter'"),
        ({"select": ["gobblin_dead_letter"]}, "Available: id, items."),
        ({"drop": ["id", "items"]}, "no column is left"),
        ({"sql": {"gobblin_dead_letter": "NULL"}}, "gobblin_dead_letter"),
        ({"rename": {"id": "gobblin_dead_letter_x"}}, "which marks dead letters"),
    ],
)
def test_a_converter_that_would_touch_letters_is_refused(records: DataFrame, link: dict[str, Any], said: str) -> None:
    with pytest.raises(RejectedError, match="dataset 'd'") as refused:
        convert(records, _links(link), dataset="d")
    assert said in str(refused.value)


def test_a_converter_can_not_make_letters(records: DataFrame) -> None:
    with pytest.raises(RejectedError, match="which marks dead letters"):
        convert(records.drop(*HIDDEN), _links({"sql": {"gobblin_dead_letter": "id"}}), dataset="d")


def test_letters_are_written_to_their_role_whatever_the_policies_say(records: DataFrame, tmp_path: Path) -> None:
    policies = [
        RowPolicySpec(name="number", check="CAST(id AS INT) > 0"),
        RowPolicySpec(name="low", check="id < 3", on_failure="err_file"),
        RowPolicySpec(name="some", check="size(items) > 0", on_failure="optional"),
    ]
    split = split_rows(records, policies, dataset="d")
    about = ["dead_letter_reason", "dead_letter_offset"]
    assert split.schemas[Role.DEAD_LETTER].names == ["id", "items", *about]
    assert split.schemas[Role.DATA].names == ["id", "items", "failed_policies"]
    assert split.schemas[Role.QUARANTINE].names == ["id", "items", "failed_policies"]
    write_parquet(split.frame, FS.to_uri(str(tmp_path / "out")), partition_columns=split.partition_columns)
    places = {parse_role_path(written.partition_path): written for written in collect_output(FS, str(tmp_path / "out"))}
    assert {role_path: written.row_count for role_path, written in places.items()} == {
        (Role.DATA, ""): 2,
        (Role.QUARANTINE, ""): 1,
        (Role.DEAD_LETTER, ""): 2,
    }
    spark = records.sparkSession
    letters = spark.read.parquet(FS.to_uri(places[Role.DEAD_LETTER, ""].path)).select(*about).collect()
    assert Counter(tuple(row) for row in letters) == LETTERS


def test_without_policies_letters_still_leave_the_data(records: DataFrame) -> None:
    split = split_rows(records, [], dataset="d")
    assert split.partition_columns == ("gobblin_role",)
    assert split.schemas[Role.DATA].names == ["id", "items"]
    assert Counter(row["gobblin_role"] for row in split.frame.collect()) == {"data": 3, "dead_letter": 2}


def test_a_name_that_letters_need_is_refused(records: DataFrame) -> None:
    for name in ("dead_letter_reason", "Dead_Letter_Offset", "gobblin_role"):
        with pytest.raises(RejectedError, match="dead letters need the column name"):
            split_rows(records.withColumnRenamed("id", name), [], dataset="d")
